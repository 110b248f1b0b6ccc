"""The table of tools: `@tool` makes one of a function, as `@command` makes a command.

The function's first parameter is the `Call`; the others, typed and described, are the tool's arguments,
with the defaults of the command of the same name. It returns a result. Every tool also takes the model's
name, a time budget and how many rows to send. To add a verb, write such a function in `verbs/`.
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ffnprobe.arguments import show
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.results import Result
from ffnprobe.serving.answers import Found
from ffnprobe.serving.budgets import Budget

if TYPE_CHECKING:
    from ffnprobe.serving.service import Service

Work = TypeVar("Work", bound=Callable[..., Result | Found])
SECONDS, ROWS = 60.0, 20
MOST_SECONDS, MOST_ROWS = 3600.0, 200
_TYPES = ("str", "int", "float", "bool", "list", "dict")
_COMMON: dict[str, Any] = {
    "model": (Annotated[str | None, Field(description="Which model to ask; the first one served by default.")], None),
    "seconds": (Annotated[float, Field(gt=0, le=MOST_SECONDS, description="Time budget; beyond it the question is stopped.")], SECONDS),
    "rows": (Annotated[int, Field(ge=1, le=MOST_ROWS, description="How many rows to send; the rest by the cursor.")], ROWS),
}  # fmt: skip


@dataclass(eq=False)
class Call:
    """One question being answered: the model asked, its time budget, notes for the asker."""

    service: "Service"
    name: str | None
    budget: Budget
    notes: list[str] = field(default_factory=list)

    @cached_property
    def model(self) -> Model:
        """The model that is asked."""
        return self.service.models.get(self.name)

    @cached_property
    def scan(self) -> Scan | None:
        """The scan of the model that is served, if there is one."""
        return self.service.find_scan(self.model)

    def note(self, text: str) -> None:
        """Tell the asker something about the answer."""
        self.notes.append(text)


@dataclass(frozen=True, eq=False)
class Tool:
    """A verb as a tool: its name, its words, its typed arguments, what its answers are worth."""

    name: str
    description: str
    grade: str
    work: Callable[..., Result | Found]
    has_progress: bool
    arguments: type[BaseModel]

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """Check arguments against their types, or say in words what is wrong with the first."""
        try:
            read = self.arguments.model_validate(given)
        except ValidationError as error:
            raise self._refuse(error) from None
        return {name: getattr(read, name) for name in self.arguments.model_fields}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return self.arguments.model_json_schema()

    def _refuse(self, error: ValidationError) -> OptionRefused:
        """Say the mistake that tells most: an argument that does not exist, else the innermost."""
        first = max(error.errors(), key=lambda e: (e["type"] == "extra_forbidden", len(e["loc"])))
        *outer, last = first["loc"]
        known = ", ".join(self.arguments.model_fields)
        where = ".".join(str(part) for part in outer if _is_place(part))
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(last), self.arguments.model_fields, 1)
            return OptionRefused(
                f'{where or self.name} has no argument "{last}".', remedy=near[0] if near else known
            )
        if first["type"] == "missing":
            return OptionRefused(
                f"{where or self.name} needs {last}.", remedy=f"the arguments are {known}"
            )
        named = ".".join(str(part) for part in first["loc"] if _is_place(part))
        said = first["msg"][:1].lower() + first["msg"][1:]
        return OptionRefused(f"{named} = {show(first['input'])}: {said}.")


def _is_place(part: int | str) -> bool:
    """Whether a part of an error's path is an argument or a number in a list, not one of several types."""
    return isinstance(part, int) or (part.isidentifier() and part not in _TYPES)


TOOLS: dict[str, Tool] = {}


def tool(*, grade: str, has_progress: bool = False) -> Callable[[Work], Work]:
    """Register a verb as a tool; `grade` says what evidence its answers are.

    With `has_progress` the verb is given `call.budget.count` and asks it for time; else torch's calls are watched.
    """

    def register(work: Work) -> Work:
        own = list(inspect.signature(work, eval_str=True).parameters.values())[1:]
        fields: dict[str, Any] = {
            p.name: (p.annotation, ... if p.default is p.empty else p.default) for p in own
        }
        # Some arguments have names that a pydantic model has too; they are only ever read by name.
        config = ConfigDict(extra="forbid", protected_namespaces=())
        arguments: type[BaseModel] = create_model(
            f"{work.__name__}_arguments", __config__=config, **fields, **_COMMON
        )
        words = inspect.cleandoc(work.__doc__ or "")
        TOOLS[work.__name__] = Tool(work.__name__, words, grade, work, has_progress, arguments)
        return work

    return register


def find_tool(name: str) -> Tool:
    """Return a tool by name, or suggest the nearest."""
    if name not in TOOLS:
        near = difflib.get_close_matches(name, TOOLS, 1)
        raise OptionRefused(
            f'there is no tool "{name[:60]}".', remedy=near[0] if near else ", ".join(TOOLS)
        )
    return TOOLS[name]
