"""The service: takes a question, waits for its turn, answers it within its budget.

It knows nothing of MCP. Questions are answered one after the other, since each uses all cores; what is
kept between them (models, tables that cursors lead to, surveys) is bounded.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ffnprobe.arguments import show
from ffnprobe.corpora.manifests import other_model
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.facts.formats import EMBEDDED
from ffnprobe.models.model import Model
from ffnprobe.serving.answers import Answer, Answers
from ffnprobe.serving.budgets import Budget, Cancelled
from ffnprobe.serving.models import ServedModels
from ffnprobe.serving.table import MOST_ROWS, ROWS, Call, Tool, find_tool
from ffnprobe.serving.verbs import (  # noqa: F401  (registers tools)
    changes,
    circuits,
    facts,
    labels,
    prompts,
    weights,
)
from ffnprobe.views.explorer.cache import LRUCache

SURVEYS_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class ToolCall:
    """A tool and its arguments, checked, and the time it may take."""

    tool: Tool
    model: str | None
    rows: int
    arguments: Mapping[str, Any]
    budget: Budget


@dataclass(frozen=True, eq=False)
class Service:
    """Everything a server needs to answer."""

    models: ServedModels
    facts: Mapping[str, str] = field(default_factory=lambda: {EMBEDDED: EMBEDDED})
    answers: Answers = field(default_factory=Answers)
    surveys: LRUCache = field(default_factory=lambda: LRUCache(most=4, most_bytes=SURVEYS_BYTES))
    turn: threading.Lock = field(default_factory=threading.Lock)
    scans: Sequence[Scan] = ()

    def read(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Read a question, or say what is wrong with it; its time runs from now on."""
        tool = find_tool(name)
        read = tool.read(dict(arguments))
        seconds, rows, model = (read.pop(each) for each in ("seconds", "rows", "model"))
        return ToolCall(tool, model, rows, read, Budget(seconds))

    def answer(self, question: ToolCall) -> Answer:
        """Answer a question, or stop when its time is over."""
        budget, tool = question.budget, question.tool
        with self.wait(budget):
            call = Call(self, question.model, budget)
            _ = call.model  # loading has no steps; what comes after it is watched
            budget.check()
            with nullcontext() if tool.has_progress else budget.watch():
                found = tool.work(call, **question.arguments)
            return self.answers.write(found, grade=tool.grade, rows=question.rows, notes=call.notes)

    def more(self, arguments: Mapping[str, Any]) -> Answer:
        """Follow a cursor that an answer gave."""
        unknown = set(arguments) - {"cursor", "rows"}
        cursor, rows = arguments.get("cursor"), arguments.get("rows", ROWS)
        if unknown or not isinstance(cursor, str):
            raise OptionRefused("more takes a cursor and how many rows.", remedy="cursor, rows")
        if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
            raise OptionRefused(f"rows = {show(rows)}: it must be from 1 to {MOST_ROWS}.")
        return self.answers.follow(cursor, rows=rows)

    def find_scan(self, model: Model) -> Scan | None:
        """Return the scan of a model, the first of those served, None if there is none of it."""
        known = {"fingerprint": model.fingerprint, "identity": model.identity}
        return next((s for s in self.scans if not other_model(s.manifest["model"], known)), None)

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
