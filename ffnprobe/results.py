"""What every verb returns: tables, a title and a provenance, shown alike everywhere.

A result type is a frozen dataclass that inherits `Result`. It has a `provenance`, a `title` (one
line), a `table` (the one a reader wants first) and, if there are more, `tables()`. Files follow from these.
What is read, in a terminal, a notebook, a page or the explorer, is its `document()`: by default its figures,
its tables and how to read them. Every type of result is in this namespace, wherever it is defined.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import ffnprobe
from ffnprobe.documents.blocks import Block, Figure, Section, Table, Words
from ffnprobe.documents.html import write_card
from ffnprobe.documents.text import write_text
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.provenance import Provenance

if TYPE_CHECKING:
    import pandas as pd

# Tables by their names; None: those of the result itself.
Tables: TypeAlias = "Mapping[str, pd.DataFrame] | None"


class Result:
    """Anything a verb returns.

    >>> import ffnprobe as fp
    >>> found = fp.search(fp.load("pocket"), " golf", top=3)
    >>> found.title, list(found.tables()), found.provenance.model
    ('neurons that push toward ␣golf', ['neurons'], 'pocket')
    """

    if TYPE_CHECKING:  # each type has these, as a field or as a property

        @property
        @abstractmethod
        def provenance(self) -> Provenance: ...

        @property
        @abstractmethod
        def title(self) -> str: ...

        @property
        @abstractmethod
        def table(self) -> "pd.DataFrame": ...

    # The verb that gave it and its arguments; None of one that was read from a file.
    made_by: ClassVar[tuple[str, dict[str, Any]] | None] = None
    # The tables that are printed, all where none is named, and how many rows of those that are long.
    in_terminal: ClassVar[tuple[str, ...]] = ()
    most: ClassVar[int | None] = None

    @property
    def headline(self) -> str:
        """The title, and what a reader must know with it."""
        return self.title

    @property
    def heading(self) -> str:
        """What its page is called."""
        return f"{self.title} ({self.provenance.model})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said beside the tables."""
        return ()

    @property
    def caption(self) -> str:
        """How to read the table, in one line."""
        return ""

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables a file of this result holds, the most important first."""
        return {"rows": self.table}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title})"

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Tell the result in blocks, in the order they are read; with other tables than its own, if given."""
        named = self.tables() if tables is None else tables
        first = self.in_terminal or tuple(named)
        yield Figure(self)
        yield from (Table(named[name], name, is_long=True) for name in named if name in first)
        yield Words(self.caption, "soft")
        yield from self.fold({name: named[name] for name in named if name not in first})

    def fold(self, tables: Tables = None) -> Iterator[Block]:
        """Fold tables, each under its name: what is not read first."""
        for name, table in (self.tables() if tables is None else tables).items():
            yield Section(name, partial(list, [Table(table, is_long=True)]), is_folded=True)

    def __str__(self) -> str:
        return write_text(self.title, self.document())

    def _repr_html_(self) -> str:
        return write_card(self.title, self.document())


Kind = TypeVar("Kind", bound=Result)


@dataclass(frozen=True, eq=False, repr=False)
class TableSet(Result):
    """Tables that are a result by themselves: taken from one, or read back from a file.

    `kind` is the type of the result they were taken from, `said` what is said beside the tables.

    >>> import ffnprobe as fp, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "next.json"
    >>> fp.save(fp.run(fp.load("pocket"), "Tiger Woods plays the sport of"), path)
    >>> fp.open_result(path).kind
    'Trace'
    """

    title: str
    named: "Mapping[str, pd.DataFrame]"
    provenance: Provenance
    kind: str = "TableSet"
    said: tuple[str, ...] = ()

    @property
    def table(self) -> "pd.DataFrame":
        """The first table."""
        return next(iter(self.named.values()))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in their order."""
        return dict(self.named)


def change(result: Kind, **fields: Any) -> Kind:
    """Change fields of a result, which remembers what was asked."""
    changed = replace(result, **fields)  # type: ignore[type-var]
    vars(changed)["made_by"] = result.made_by
    return changed


def as_result(given: object) -> Result:
    """Take a result as it is and a table as a result of its own, or say what is missing."""
    import pandas as pd

    if isinstance(given, Result):
        return given
    if isinstance(given, pd.DataFrame):
        origin = given.attrs.get("provenance")
        if origin is None:
            remedy = "fp.save(table, path, provenance=result), with the result its numbers are from"
            raise DataRefused("this table does not say where its numbers come from.", remedy=remedy)
        return TableSet("table", {"rows": given}, Provenance.from_dict(origin))
    remedy = "what fp.run, fp.attribute, fp.explain, … return, or a table of theirs"
    raise DataRefused(f"{type(given).__name__} is not a result of ffnprobe.", remedy=remedy)


def name_question(provenance: Provenance) -> str:
    """Say which answer was read after which prompt."""
    than = "" if provenance.versus is None else f" rather than {provenance.versus}"
    return f"{provenance.answer}{than} after {' '.join(provenance.tokens or ())}"


def name_settings(provenance: Provenance) -> str:
    """Say under a table which convention and settings its numbers have."""
    convention = [] if provenance.convention is None else [provenance.convention]
    for name in ("contrast", "compared_with"):
        others = provenance.settings.get(name)
        if isinstance(others, list) and len(others) > 1:  # too many to read in a line
            prompts = f"{len(others)} prompts"
            provenance = provenance.including(
                **{name: prompts if "with" in name else f"with {prompts}"}
            )
    return ", ".join([*convention, *filter(None, [provenance.describe()])])


def check_alike(
    one: Provenance, other: Provenance, *, among: Sequence[str] = (), naming: str = "these results"
) -> None:
    """Refuse to put numbers of two questions, conventions or settings side by side."""
    fields = ("fingerprint", "prompt", "answer", "versus", "convention")
    pairs = [(name, getattr(one, name), getattr(other, name)) for name in fields]
    pairs += [(name, one.settings.get(name), other.settings.get(name)) for name in among]
    for name, first, second in pairs:
        if first != second:
            raise OptionRefused(
                f"{naming} differ in their {name}: {first} and {second}.",
                remedy=f"make both with the same {name}",
            )


def __getattr__(name: str) -> Any:
    """Return another type of result from where it is defined: `fp.results.Pushes`."""
    if name.startswith("__") or name not in __dir__():  # every import asks for __path__
        raise AttributeError(f"module 'ffnprobe.results' has no attribute '{name}'")
    return getattr(ffnprobe, name)


def __dir__() -> list[str]:
    types = {name for name in ffnprobe.__all__ if name[0].isupper()}
    return sorted(types.difference(dir(ffnprobe)))
