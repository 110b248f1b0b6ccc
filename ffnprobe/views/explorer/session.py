"""The session: the model, the scan and the facts behind all pages, and cached calls of the verbs.

A page asks the session, not the verbs, so that what was computed for one click is there for the next.
Pages share the cache and take turns; the background worker computes at the same time.
"""

from dataclasses import dataclass, field
from functools import cached_property

import plotly.graph_objects as go

from ffnprobe.corpora.contexts import Examples, examples
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.surveying import survey
from ffnprobe.errors import DataRefused, PromptRefused
from ffnprobe.evidence.explaining import explain_stepwise
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.facts.formats import read_facts
from ffnprobe.facts.rows import FactTable
from ffnprobe.interventions.steering import Steering, steer
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.readings import Reading, read
from ffnprobe.reading.related import Related
from ffnprobe.reading.surveys import Survey
from ffnprobe.tracing.logit_lens import lens
from ffnprobe.tracing.running import run
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.cache import LRUCache
from ffnprobe.views.explorer.jobs import Job, Jobs
from ffnprobe.views.plots import plot

PROMPT_BYTES = 20_000
EXAMPLES = 5
RELATED = 6
Question = tuple[str, bool | None, str | int | None, str | int | None]


@dataclass(frozen=True, eq=False)
class Session:
    """What all pages are made from."""

    model: Model
    scan: Scan | None = None
    facts_file: str = "pocket"
    cache: LRUCache = field(default_factory=LRUCache)
    jobs: Jobs = field(default_factory=Jobs)
    # Separate from the jobs of prompts, which may take minutes, so that neither waits for the other.
    surveys: Jobs = field(default_factory=Jobs)

    @cached_property
    def facts(self) -> FactTable:
        """The table of facts to choose prompts from."""
        found = read_facts(self.facts_file)
        if not found.rows:
            first = found.problems[0]
            raise DataRefused(
                f"{found.source} has no fact that can be read.",
                remedy=f"fix {first.where}: {first.problem}",
            )
        return found

    def warm(self) -> None:
        """Do in advance what the first click would wait for: fold the weights, load the bridge."""
        reading = self.reading("L0N0")
        self.related(reading)
        trace = run(self.model, [0], patterns=False)
        lens(trace)

    def trace(self, address: Address) -> Trace:
        """Run the prompt of an address."""
        prompt = address.text("prompt")
        size = len(prompt.encode("utf-8", errors="surrogatepass"))
        if size > PROMPT_BYTES:
            raise PromptRefused(
                f"the prompt is {size:,} bytes; the explorer takes at most {PROMPT_BYTES:,}.",
                remedy="a shorter prompt",
            )
        key = ("trace", prompt, address.bos)
        found: Trace = self.cache.get_or_make(
            key,
            lambda: run(self.model, prompt, bos=address.bos, patterns=False),
            size=lambda trace: trace.nbytes,
        )
        return found

    def lens(self, trace: Trace) -> go.Figure:
        """Draw a prompt's lens grid."""
        key = ("lens", trace.ids, trace.has_bos)
        return self.cache.get_or_make(key, lambda: plot(trace, "lens"))

    def field(self, neurons: Survey) -> go.Figure:
        """Draw all neurons by kind."""
        return self._surveyed.get_or_make("kinds", lambda: plot(neurons, "kinds"))

    def reading(self, name: str) -> Reading:
        """Read one neuron."""
        neuron = str(NeuronId.parse(name))

        def make() -> Reading:
            found = read(self.model, neuron)
            assert isinstance(found, Reading)
            return found

        found: Reading = self.cache.get_or_make(("reading", neuron), make)
        return found

    def related(self, reading: Reading) -> Related:
        """Find a neuron's related neurons."""
        k = min(RELATED, self.model.config.neurons - 1)
        found: Related = self.cache.get_or_make(
            ("related", reading.name), lambda: reading.related(k)
        )
        return found

    def examples(self, name: str) -> Examples | None:
        """Quote a neuron's strongest and weakest examples, if there is a scan."""
        return None if self.scan is None else examples(self.scan, name)

    def steering(self, address: Address, name: str, value: float, *, generate: int = 0) -> Steering:
        """Run the prompt of an address with one neuron's activation set."""
        return steer(
            self.model, self.trace(address).prompt, {name: value}, generate=generate, bos=address.bos
        )  # fmt: skip

    def question(self, address: Address) -> Question:
        """Return the question an address asks; it is the key of the explanation."""
        prompt, bos = address.text("prompt"), address.bos
        return (prompt, bos, address.token("answer"), address.token("versus"))

    def explanation(self, question: Question) -> Explanation | None:
        """Return the explanation, if it is in the cache."""
        found: Explanation | None = self.cache.get(("explanation", question))
        return found

    def start_explaining(self, question: Question) -> Job:
        """Explain in the background."""
        prompt, bos, answer, versus = question

        def work(job: Job) -> Explanation:
            known = self.explanation(question)
            if known is not None:
                return known
            steps = explain_stepwise(
                self.model, prompt, answer, versus=versus, bos=bos, scan=self.scan,
                progress=job.count, top=min(10, self.model.config.neurons),
            )  # fmt: skip
            for explanation in steps:
                job.show(explanation)
            self.cache.put(("explanation", question), explanation, explanation.trace.nbytes)
            return explanation

        return self.jobs.start(work)

    @property
    def neurons(self) -> Survey | None:
        """The survey of all neurons, or None until it is finished."""
        found: Survey | None = self._surveyed.get("survey")
        return found

    @cached_property
    def _surveyed(self) -> LRUCache:
        # Separate from the cache: it is one table that is needed all the time.
        return LRUCache(most=2)

    def survey(self) -> Job:
        """Survey every neuron in the background."""

        def work(job: Job) -> Survey:
            found = self.neurons
            if found is None:
                found = survey(self.model, k=min(5, self.model.config.vocab), progress=job.count)
                self._surveyed.put("survey", found)
            return found

        return self.surveys.start(work)
