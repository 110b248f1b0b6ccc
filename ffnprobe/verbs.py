"""The verbs, and what their signatures declare: commands, tools, batches and recipes follow from it.

A signature is read from the source, so that no help and no wrong option waits for torch. What it says:

- a parameter with an `Option` is an option of every front, of the same words, default and bounds;
- a `Trace` is a prompt to run, a `Model` a model to load, a `Scan` a store to open, a `Progress` a bar;
- what `tables` of the result takes are options, too: how much of it is shown;
- any other parameter is for Python alone.

>>> [each.front for each in VERBS["stages"].options]
['prompt', 'layer', 'bos']
"""

import ast
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from ffnprobe import arguments
from ffnprobe.arguments import CONTRAST_FROM, PROMPT, Bos, Option

ROLES = ("Model", "Trace", "Scan", "Sequence[Scan]", "Progress")
REQUIRED = inspect.Parameter.empty
PUSH = "push only: direct, exact and adds up; what later layers do with it is not in it"
EFFECT = "effect only: exact; effects do not add up"
WEIGHTS = "weights only: what a neuron could do; no prompt was run"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a verb: an option of the fronts, something they have already, or Python's alone."""

    name: str
    default: Any
    option: Option | None = None
    typed: Any = None
    role: str = ""
    is_keyword: bool = False
    is_shown: bool = False  # it is of the result's tables

    @property
    def front(self) -> str:
        """What it is called in commands and tools."""
        return (self.option.name if self.option else "") or self.name


@dataclass(frozen=True)
class Verb:
    """A verb: where it is, the class whose tables it shows, and what its answers are worth as evidence.

    Without a `grade` it is not offered to agents.
    """

    name: str
    home: str
    shows: str = ""
    grade: str = ""

    @cached_property
    def _read(self) -> tuple[tuple[Parameter, ...], str]:
        return read_signature(self.home, r"@verb\n(?:@[^\n]*\n)*", self.name)

    @property
    def words(self) -> str:
        return self._read[1]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What its function takes, then what the tables of its result take."""
        if not self.shows:
            return self._read[0]
        module, _, kind = self.shows.rpartition(".")
        shown, _ = read_signature(module, rf"class {kind}\b.*?\n", "tables")
        return self._read[0] + tuple(replace(p, is_shown=True) for p in shown if p.option)

    @cached_property
    def options(self) -> tuple[Parameter, ...]:
        """What commands and tools ask for, in their order."""
        asked: list[Parameter] = []
        for each in self.parameters:
            asked += [each] if each.option else []
            if each.option and each.name == "contrast":
                asked.append(Parameter("contrast_from", None, CONTRAST_FROM, str | None))
        if self.runs_traces:
            kind, option = get_args(Bos)
            asked.append(Parameter("bos", None, option, kind))
        return tuple(sorted(asked, key=lambda each: each.name == "bos"))

    @property
    def runs_traces(self) -> bool:
        """Whether its prompts are run before it is called."""
        return any(each.role == "Trace" for each in self.parameters)

    @property
    def takes_prompt(self) -> bool:
        """Whether it asks about one prompt, so that a batch can ask about many."""
        return any(each.name in ("prompt", "trace") for each in self.parameters)

    @property
    def takes_scan(self) -> bool:
        """Whether a scan says more: of texts, examples and labels."""
        return self.find_role("Scan") is not None or self.name in ("read", "search")

    def find_role(self, role: str) -> Parameter | None:
        """Return the parameter that is filled by a front itself, if there is one."""
        return next((p for p in self.parameters if p.role == role and p.option is None), None)

    @property
    def function(self) -> Any:
        """The function itself, imported now."""
        return getattr(import_module(self.home), self.name)


def read_signature(module: str, before: str, name: str) -> tuple[tuple[Parameter, ...], str]:
    """Read the parameters of a function, and its first paragraph, from the source of its module.

    `before` is a pattern of what stands above it. Only its head is parsed: the help of all commands reads
    twenty of them.
    """
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    source = Path(str(spec.origin)).read_text(encoding="utf-8")
    pattern = rf'{before}( *def {name}\(.*?:(?: *#[^\n]*)?\n)(?: *"""(.*?)""")?'
    head = re.search(pattern, source, re.DOTALL)
    assert head is not None, f"{module}: {name}"
    words = inspect.cleandoc(head[2] or "").partition("\n\n")[0].replace("\n", " ")
    # Annotations are read as text: the types in them are not imported.
    defined: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{textwrap.dedent(head[1])}    pass", defined)
    parameters = inspect.signature(defined[name]).parameters.values()
    return tuple(_read(each) for each in parameters if each.name != "self"), words


def _read(parameter: inspect.Parameter) -> Parameter:
    kind, option = _read_annotation(parameter.annotation)
    role = next((r for r in ROLES if re.match(rf"['\"]?{re.escape(r)}", kind)), "")
    typed = None
    if option is not None:
        typed = option.typed if option.typed is not None else _evaluate(kind)
    elif role == "Trace":
        option, typed = replace(PROMPT, name="prompt"), str
    is_keyword = parameter.kind is parameter.KEYWORD_ONLY
    return Parameter(parameter.name, parameter.default, option, typed, role, is_keyword)


def _read_annotation(text: str) -> tuple[str, Option | None]:
    """Return a type as it is written, and the option that goes with it."""
    alias = getattr(arguments, text, None)
    if get_origin(alias) is Annotated:
        kind, option = get_args(alias)
        return "", replace(option, typed=kind if option.typed is None else option.typed)
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        assert isinstance(node.slice, ast.Tuple)
        kind, option = map(ast.unparse, node.slice.elts)
        return kind, _evaluate(option)
    return text, None


def _evaluate(text: str) -> Any:
    """Evaluate what a signature says of an option; it is our own source, and names options alone."""
    return eval(text, dict(vars(arguments)))


_LISTED = (
    Verb("run", "ffnprobe.tracing.runs", "ffnprobe.tracing.trace.Trace",
         "none: what the model predicts, not why"),
    Verb("explain", "ffnprobe.evidence.explaining", grade="graded neuron by neuron"),
    Verb("attribute", "ffnprobe.tracing.attribution", "ffnprobe.tracing.attribution.Pushes", PUSH),
    Verb("paths", "ffnprobe.tracing.paths", "ffnprobe.tracing.paths.Paths", PUSH),
    Verb("circuit", "ffnprobe.circuits.circuit", "ffnprobe.circuits.circuit.Circuit",
         "influence: a first-order account with attention patterns and scales held; test=true replays it"),
    Verb("compare", "ffnprobe.tracing.comparison", "ffnprobe.tracing.comparison.Comparison",
         f"{PUSH}; a difference goes along with the other answer, it need not cause it"),
    Verb("drivers", "ffnprobe.tracing.drivers", "ffnprobe.tracing.drivers.Drivers",
         "score only: an exact account of what opened a neuron; not of what it is used for"),
    Verb("lens", "ffnprobe.tracing.streams",
         grade="none: what each layer would say if it were the last"),
    Verb("stages", "ffnprobe.tracing.streams", grade="none: what one layer computes"),
    Verb("similarity", "ffnprobe.tracing.streams", grade="none: how alike tokens are"),
    Verb("ablate", "ffnprobe.interventions.ablation", "ffnprobe.interventions.ablation.Effects",
         EFFECT),
    Verb("ablate_layers", "ffnprobe.interventions.ablation", grade=EFFECT),
    Verb("estimate", "ffnprobe.interventions.estimates", "ffnprobe.interventions.estimates.Estimates",
         "effect only: an estimate to first order; ablate measures it"),
    Verb("patch", "ffnprobe.interventions.patching", "ffnprobe.interventions.patching.Patches",
         EFFECT),
    Verb("patch_layers", "ffnprobe.interventions.patching", grade=EFFECT),
    Verb("steer", "ffnprobe.interventions.steering", "ffnprobe.interventions.steering.Steering",
         "effect of a change: what the model can be made to say, not what it uses"),
    Verb("read", "ffnprobe.reading.readings", "ffnprobe.reading.readings.Readings", WEIGHTS),
    Verb("check_lists", "ffnprobe.interventions.list_checks",
         grade="of lists of tokens: measured by setting neurons and words in a few passages"),
    Verb("related", "ffnprobe.reading.searches", grade=WEIGHTS),
    Verb("search", "ffnprobe.reading.searches", grade=WEIGHTS),
    Verb("survey", "ffnprobe.labels.surveying"),
    Verb("match", "ffnprobe.corpora.matching", grade=f"{WEIGHTS}; a random control beside every pair"),
    Verb("scan", "ffnprobe.corpora.scans"),
    Verb("fit_lens", "ffnprobe.corpora.lens_fitting"),
    Verb("label", "ffnprobe.labels.labelling"),
    Verb("score", "ffnprobe.facts.scores"),
)  # fmt: skip
VERBS: Mapping[str, Verb] = {verb.name: verb for verb in _LISTED}
