"""The service: takes a question, waits for its turn, answers it within its budget.

It knows nothing of MCP. Questions are answered one after the other, since each uses all cores; what is
kept between them is bounded: models, which are loaded when first asked for and dropped when memory is
needed, tables that cursors lead to, surveys.
"""

import difflib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ffnprobe.cache import LRUCache
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import DataRefused, FfnProbeError, ModelNotLoaded, OptionRefused
from ffnprobe.facts.formats import EMBEDDED
from ffnprobe.models.loading import load
from ffnprobe.models.model import Model
from ffnprobe.models.sources import find_source
from ffnprobe.serving.budgets import Budget, Cancelled
from ffnprobe.serving.tools import CURSOR, ROWS, TOOLS, Answer, Answers, Tool, read_arguments

GB = 2**30
SURVEYS_BYTES = 256 * 2**20
# Of a parameter in fp32: the weights as they are, and questions, answers and tokens folded.
BYTES_OF_A_PARAMETER = 3 * 4


class ServedModels:
    """Models by name, the first the default; only these are served, whatever a client asks for."""

    def __init__(self, sources: Sequence[str], *, device: str = "auto", most_bytes: int) -> None:
        self.sources: dict[str, str] = {}
        for named in sources:
            source = find_source(named)
            folder = source.where.rstrip("/").rpartition("/")[2]
            name = named if source.is_known_by(named) else folder
            if name in self.sources:
                why = f"two models have the name {name}."
                raise OptionRefused(why, remedy="folders of other names")
            self.sources[name] = named
        self.default = next(iter(self.sources))  # is asked where none is named
        self._device = device
        self._loaded = LRUCache(most=len(sources), most_bytes=most_bytes)

    def get(self, name: str | None) -> Model:
        """Return a model by name, loading it if it is not in memory, or say which there are."""
        wanted = self.default if name is None else name
        if wanted not in self.sources:
            near = difflib.get_close_matches(wanted, self.sources, 1)
            why = f'"{wanted}" is not served; served are {", ".join(self.sources)}.'
            raise ModelNotLoaded(why, remedy=near[0] if near else self.default)
        return self._loaded.get_or_make(
            wanted,
            lambda: load(self.sources[wanted], device=self._device),
            size=lambda model: BYTES_OF_A_PARAMETER * model.config.parameters(),
        )


class ToolCall(NamedTuple):
    """A tool and its arguments, checked, and the time it may take."""

    tool: Tool
    arguments: Mapping[str, Any]
    budget: Budget


@dataclass(frozen=True, eq=False)
class Service:
    models: ServedModels
    facts: Mapping[str, str] = field(default_factory=lambda: {EMBEDDED: EMBEDDED})
    answers: Answers = field(default_factory=Answers)
    surveys: LRUCache = field(default_factory=lambda: LRUCache(most=4, most_bytes=SURVEYS_BYTES))
    turn: threading.Lock = field(default_factory=threading.Lock)
    scans: Sequence[Scan] = ()

    def read(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Read a question, or say what is wrong with it; its time runs from now on."""
        if name not in TOOLS:
            near = difflib.get_close_matches(name, TOOLS, 1) or [", ".join(TOOLS)]
            raise OptionRefused(f'there is no tool "{name[:60]}".', remedy=near[0])
        read = read_arguments(name, arguments, TOOLS[name].parameters)
        return ToolCall(TOOLS[name], read, Budget(read.pop("seconds")))

    def answer(self, question: ToolCall) -> Answer:
        """Answer a question, or stop when its time is over."""
        tool, arguments, budget = question
        options = dict(arguments)
        rows, name = options.pop("rows"), options.pop("model")
        with self.wait(budget):
            model = self.models.get(name)
            budget.check()  # loading has no steps; what comes after it is watched
            asks_for_time = tool.verb.find_role("Progress") is not None
            with nullcontext() if asks_for_time else budget:
                answered = tool.work(self, model, options, budget)
            return self.answers.write(answered, grade=tool.grade, rows=rows)

    def more(self, arguments: Mapping[str, Any]) -> Answer:
        read = read_arguments("more", arguments, (CURSOR, ROWS))
        return self.answers.follow(read["cursor"], rows=read["rows"])

    def find_facts(self, name: str) -> str:
        """Return where a table of facts is; none is read but those that are served."""
        if name not in self.facts:
            why = f'"{name[:60]}" is not a table of facts that is served.'
            raise DataRefused(why, remedy=", ".join(self.facts))
        return self.facts[name]

    def find_scan(self, model: Model) -> Scan | None:
        """Return the scan of a model, the first of those served, None if there is none of it."""
        scans = (s for s in self.scans if s.manifest["model"]["identity"] == model.identity)
        return next(scans, None)

    @contextmanager
    def wait(self, budget: Budget) -> Iterator[None]:
        """Wait for the turn, no longer than the budget allows."""
        if not self.turn.acquire(timeout=budget.left):
            raise budget.exceeded(", waiting for other questions")
        try:
            budget.check()
            yield
        finally:
            self.turn.release()


def put_in_words(error: Exception) -> str:
    """Say an error in words; one that is ours is logged, not shown."""
    if isinstance(error, FfnProbeError):
        return f"error: {error}"
    if isinstance(error, MemoryError):
        return "error: there is not enough memory.\n  try: a smaller model or a smaller question"
    if not isinstance(error, Cancelled):
        logging.getLogger("ffnprobe").exception("unexpected error in a tool", exc_info=error)
    return "error: this could not be computed; the server's log says why."
