"""The session: the model, the scan and the facts behind all pages, cached calls of the verbs, and jobs.

A page asks the session, not the verbs, so that what was computed for one click is there for the next.
Pages share the cache and take turns. What takes long is a job in the background, started, polled and
cancelled: one thread works on them in turn. A job that no page has polled for a while is cancelled, by an
exception from its own progress callback, and a finished one dropped, so that a closed tab soon costs nothing.
"""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple

import plotly.graph_objects as go

from ffnprobe.cache import LRUCache
from ffnprobe.circuits.circuit import Circuit, circuit
from ffnprobe.corpora.examples import Examples, examples
from ffnprobe.corpora.scans import Scan, embedded_scan
from ffnprobe.errors import DataRefused, FfnProbeError, OptionRefused, PromptRefused
from ffnprobe.evidence.explaining import explain
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.facts.formats import EMBEDDED, read_facts
from ffnprobe.facts.rows import FactRow, FactTable
from ffnprobe.facts.subjects import find_contrast_rows
from ffnprobe.interventions.steering import Steering, steer
from ffnprobe.labels.stored_labels import Labels, find_labels
from ffnprobe.labels.surveying import survey
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.readings import Reading, read
from ffnprobe.reading.searches import Related
from ffnprobe.reading.surveys import Survey
from ffnprobe.tracing.drivers import Drivers, drivers
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.streams import lens
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.figures import plot

MOST = 64
# A finished job's result can be large; the cache keeps it too.
KEPT = 8
# Browsers wake a background tab at least once a minute.
PATIENCE = 90.0
TICK = 300  # milliseconds between two polls of a job
PROMPT_BYTES = 20_000
# Up to so many characters attention patterns, which grow by their square, are kept.
PATTERNED = 1_000
EXAMPLES = 5
RELATED = 6
MOST_WRITTEN = 40


class JobCancelled(Exception):
    """Raised to stop a job that no page waits for."""


@dataclass(eq=False)
class Job:
    work: Callable[["Job"], Any]
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    result: Any = None
    done: int = 0
    total: int = 0
    error: FfnProbeError | None = None
    state: str = "waiting"  # running, done, cancelled, failed
    seen: float = field(default_factory=time.monotonic)
    is_unwanted: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("done", "cancelled", "failed")

    def count(self, done: int, total: int) -> None:
        """Record progress, or stop if cancelled."""
        self.check()
        self.done, self.total = done, total

    def show(self, result: Any) -> None:
        self.check()
        self.result = result

    def check(self) -> None:
        """Stop if the job is cancelled or no page has polled it."""
        if self.is_unwanted or time.monotonic() - self.seen > PATIENCE:
            raise JobCancelled


class Jobs:
    """The jobs of all pages, bounded."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = Lock()
        self._waiting = SimpleQueue[Job]()
        self._worker: Thread | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self, work: Callable[[Job], Any]) -> Job:
        """Drop ended jobs that nobody polls, and queue work; refuse if too many jobs wait."""
        with self._lock:
            now = time.monotonic()
            over = [job for job in self._jobs.values() if job.is_over]
            for order, job in enumerate(over):  # of those that are polled the latest are kept
                if now - job.seen > PATIENCE or len(over) - order > KEPT:
                    del self._jobs[job.name]
            if len(self._jobs) >= MOST:
                why = "too many pages are waiting for effects."
                raise OptionRefused(why, remedy="wait a minute")
            job = Job(work)
            self._jobs[job.name] = job
            self._waiting.put(job)
            if self._worker is None:
                self._worker = Thread(target=self._work, name="explorer-jobs", daemon=True)
                self._worker.start()
            return job

    def find(self, name: object) -> Job | None:
        """Return a job and note that it was polled, or None if it was dropped."""
        with self._lock:
            job = self._jobs.get(name) if isinstance(name, str) else None
            if job is not None:
                job.seen = time.monotonic()
            return job

    def cancel(self, name: object) -> None:
        if job := self.find(name):
            job.is_unwanted = True

    def _work(self) -> None:
        while True:
            self._run(self._waiting.get())

    def _run(self, job: Job) -> None:
        job.state = "running"
        try:
            job.check()
            job.show(job.work(job))
        except JobCancelled:
            job.state = "cancelled"
        except FfnProbeError as error:
            job.error, job.state = error, "failed"
        except Exception:  # an error in a job must not end the worker
            job.error, job.state = FfnProbeError("this could not be computed."), "failed"
            log_error()
        else:
            job.state = "done"


def log_error() -> None:
    logging.getLogger("ffnprobe").exception("unexpected error in the explorer")


class AskedPrompt(NamedTuple):
    """What an address asks: why this answer after this prompt, rather than that, compared with these."""

    prompt: str
    bos: bool | None
    answer: str | int | None
    versus: str | int | None
    contrast: tuple[str, ...]
    is_related: bool  # compared with other facts of the relation too


@dataclass(frozen=True, eq=False)
class Session:
    model: Model
    scan: Scan | None = None
    facts_file: str = EMBEDDED
    cache: LRUCache = field(default_factory=LRUCache)
    jobs: Jobs = field(default_factory=Jobs)
    # Separate from the jobs of prompts, which may take minutes, so that neither waits for the other.
    surveys: Jobs = field(default_factory=Jobs)
    # Separate from the cache: it is one table, and its figure, that are needed all the time.
    _surveyed: LRUCache = field(default_factory=lambda: LRUCache(most=2))

    @cached_property
    def facts(self) -> FactTable:
        facts = read_facts(self.facts_file)
        if not facts.rows:
            first = facts.problems[0]
            why = f"{facts.source} has no fact that can be read."
            raise DataRefused(why, remedy=f"fix {first.where}: {first.problem}")
        return facts

    @cached_property
    def labels(self) -> Labels | None:
        """The labels kept with the scan, or without one those in the package."""
        return find_labels(self.model, self.scan)

    def warm(self) -> None:
        """Do in advance what the first click would wait for: fold the weights, load what runs prompts."""
        self.related(self.reading("L0N0"))
        lens(run(self.model, [0], patterns=False))

    def trace(self, address: Address) -> Trace:
        prompt = check_size(address.text("prompt"), "prompt")
        return self.cache.get_or_make(
            ("trace", prompt, address.bos),
            lambda: run(self.model, prompt, bos=address.bos, patterns=len(prompt) <= PATTERNED),
            size=lambda trace: trace.nbytes,
        )

    def field(self, neurons: Survey) -> go.Figure:
        return self._surveyed.get_or_make("kinds", lambda: plot(neurons, "kinds"))

    def reading(self, name: str) -> Reading:
        neuron = str(NeuronId.parse(name))
        reading = self.cache.get_or_make(("reading", neuron), lambda: read(self.model, neuron))
        assert isinstance(reading, Reading)
        return reading

    def related(self, reading: Reading) -> Related:
        k = min(RELATED, self.model.config.neurons - 1)
        return self.cache.get_or_make(("related", reading.name), lambda: reading.related(k))

    def drivers(self, trace: Trace, name: str, position: int) -> Drivers:
        key = ("drivers", trace.ids, trace.has_bos, name, position)
        return self.cache.get_or_make(key, lambda: drivers(trace, name, position=position))

    def examples(self, name: str) -> Examples | None:
        """Quote a neuron's strongest and weakest examples, if there is a scan."""
        scan = embedded_scan(self.model) if self.scan is None else self.scan
        return None if scan is None else examples(scan, name)

    def steering(self, address: Address, name: str, value: float, *, generate: int = 0) -> Steering:
        return steer(
            self.model, self.trace(address).prompt, {name: value},
            generate=min(max(generate, 0), MOST_WRITTEN), bos=address.bos,
        )  # fmt: skip

    def question(self, address: Address) -> AskedPrompt:
        """Return the question an address asks; it is the key of the explanation."""
        return AskedPrompt(
            address.text("prompt"), address.bos, address.token("answer"), address.token("versus"),
            tuple(address.texts("contrast")), self.has_relations and address.has("related"),
        )  # fmt: skip

    @property
    def has_relations(self) -> bool:
        """Whether the facts are the model's own, so that their prompts can be compared."""
        return self.facts_file != EMBEDDED or self.model.name == EMBEDDED

    def contrast(self, question: AskedPrompt) -> list[str | FactRow] | None:
        """Gather the contrast prompts of a question: those typed, and those of the facts."""
        prompts: list[str | FactRow] = [*question.contrast]
        check_size("".join(question.contrast), "contrast")
        if question.is_related and question.answer is not None:
            answer = question.answer
            text = answer if isinstance(answer, str) else self.model.vocab.text([answer])
            prompts += find_contrast_rows(
                self.facts_file, question.prompt, text, model=self.model.name
            )
        return prompts or None

    def explanation(self, question: AskedPrompt) -> Explanation | None:
        """Return the explanation, if it is in the cache."""
        explanation: Explanation | None = self.cache.get(("explanation", question))
        return explanation

    def start_explaining(self, question: AskedPrompt) -> Job:
        def work(job: Job) -> Explanation:
            if (explanation := self.explanation(question)) is not None:
                return explanation
            explanation = explain(
                self.model, question.prompt, question.answer, versus=question.versus, bos=question.bos,
                contrast=self.contrast(question), scan=self.scan, progress=job.count,
                top=min(10, self.model.config.neurons),
            )  # fmt: skip
            self.cache.put(("explanation", question), explanation, explanation.trace.nbytes)
            return explanation

        return self.jobs.start(work)

    def circuit(self, question: AskedPrompt, keep: int) -> Circuit:
        check_size(question.prompt, "prompt")
        return self.cache.get_or_make(
            ("circuit", question, keep),
            lambda: circuit(
                self.model, question.prompt, question.answer, versus=question.versus,
                bos=question.bos, contrast=self.contrast(question), keep=keep,
            ),
            size=lambda circuit: 3 * circuit.trace.nbytes,
        )  # fmt: skip

    @property
    def neurons(self) -> Survey | None:
        """The survey of all neurons, or None until it is finished."""
        neurons: Survey | None = self._surveyed.get("survey")
        return neurons

    def survey(self) -> Job:
        def work(job: Job) -> Survey:
            if (neurons := self.neurons) is not None:
                return neurons
            neurons = survey(self.model, top=min(5, self.model.config.vocab), progress=job.count)
            self._surveyed.put("survey", neurons)
            return neurons

        return self.surveys.start(work)


def check_size(text: str, name: str) -> str:
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > PROMPT_BYTES:
        why = f"the {name} is {size:,} bytes; the explorer takes at most {PROMPT_BYTES:,}."
        raise PromptRefused(why, remedy=f"a shorter {name}")
    return text
