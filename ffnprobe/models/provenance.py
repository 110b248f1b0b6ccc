"""Where a number comes from: it travels with every result and into every exported file.

A provenance is data. It becomes text only where it is written out: `as_dict` for JSON and parquet,
`as_lines` and `describe` for people. No code reads that text again.

>>> import ffnprobe as fp
>>> known = fp.load("pocket").provenance(settings={"replace": "mean", "seed": 0})
>>> known.describe()
'replace mean, seed 0'
>>> Provenance.from_dict(known.as_dict()) == known
True
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ffnprobe.errors import DataRefused
from ffnprobe.models.sources import Source
from ffnprobe.version import VERSION

if TYPE_CHECKING:
    import pandas as pd

# Plain values only (text, numbers, lists and mappings of them), so that a file can hold them.
Setting = str | int | float | bool | list[Any] | dict[str, Any] | None


@dataclass(frozen=True)
class Provenance:
    """The model, its weights, the conventions and the prompt behind a result.

    The identity is of weights, configuration and vocabulary; a store of an older version has none.
    """

    model: str
    source: Source
    fingerprint: str
    identity: str | None = None
    convention: str | None = None
    bos: bool | None = None
    prompt: str | None = None
    tokens: tuple[str, ...] | None = None
    position: int | None = None
    answer: str | None = None
    versus: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    version: str = VERSION

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> "Provenance":
        """Read what `as_dict` wrote, or say what is wrong with it."""
        names = {one.name for one in fields(cls)}
        try:
            if unknown := known.keys() - names:
                raise DataRefused(f"a provenance has no {', '.join(sorted(unknown))}.")
            tokens = known.get("tokens")
            return cls(
                **dict(known)
                | {"source": Source.from_dict(known["source"])}
                | {"tokens": None if tokens is None else tuple(tokens)}
                | {"settings": dict(known.get("settings", {}))}
            )
        except (TypeError, ValueError, KeyError) as error:
            raise DataRefused(f"this is not a provenance that ffnprobe wrote: {error}.") from None

    def including(self, **settings: Setting) -> "Provenance":
        """Return the same provenance with more settings."""
        return replace(self, settings={**self.settings, **settings})

    def as_dict(self) -> dict[str, Any]:
        """List what is known, in a fixed order, as plain data."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        known |= {"source": self.source.as_dict(), "settings": dict(self.settings)}
        known["tokens"] = None if self.tokens is None else list(self.tokens)
        return {name: value for name, value in known.items() if value is not None and value != {}}

    def note(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Write into a table where its numbers come from, and return it."""
        table.attrs["provenance"] = self.as_dict()
        return table

    def describe(self) -> str:
        """Write the settings in one line, for people."""
        return ", ".join(
            f"{name.replace('_', ' ')} {_words(value)}" for name, value in self.settings.items()
        )

    def as_lines(self) -> list[str]:
        """Write `name: value` lines for people, each on one line whatever the prompt holds."""
        known = self.as_dict() | {"source": str(self.source)}
        if self.settings:
            known["settings"] = self.describe()
        return [f"{name}: {_line(value)}" for name, value in known.items()]


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(value: Any) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    return json.dumps(text, ensure_ascii=False)[1:-1] if "\n" in text or "\r" in text else text
