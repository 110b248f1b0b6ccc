"""A circuit in the neuron basis: from the words, through neurons, to the answer. Every node adds up.

Nodes are neurons at positions, token embeddings (and position embeddings), biases and the answer. An edge is
what one node added to another's score, or to the answer's logit, with the patterns and scales held as they
were: directly, or through heads (`graph`). What the kept nodes do not explain of a node is its `rest`.

Nodes are kept by their influence on the answer through the graph (`influence`), ties by name. With contrast
prompts influence counts what differs from them; without, what is above the neuron's corpus mean, or zero.

Limits: an edge says what was added, not what would follow: where heads look and how far norms scale is
held. `check_circuit` replays the model with nothing but the circuit, and without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import (
    CONTRAST,
    REPLACE,
    TOP,
    Answer,
    Bos,
    Convention,
    Option,
    Prompt,
    Seed,
    Versus,
    verb,
)
from ffnprobe.circuits import graph
from ffnprobe.circuits.influence import ActivationSlopes, choose_rule, follow_back, read_answers
from ffnprobe.interventions.question import Counterfactual, Replace, ask
from ffnprobe.models.model import Model
from ffnprobe.names import Site
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    from ffnprobe.circuits.recovery import Recovery


@dataclass(frozen=True, eq=False, repr=False)
class Circuit(Result):
    """Kept nodes, what each added to the next, and how far the answer follows from them.

    `activation_slopes` is how far each target's activation follows its score, `slopes` how far the answer follows
    each target's activation; both are 1 for the answer.

    >>> import ffnprobe as fp
    >>> found = fp.circuit(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", keep=5)
    >>> len(found.kept), found.edges(1).columns.tolist()[:4]
    (5, ['source', 'target', 'asks', 'drive'])
    """

    in_terminal: ClassVar = ("neurons", "edges", "recovery_summary")
    most: ClassVar = 10

    question: Counterfactual
    influence: Float[Tensor, "layer pos neuron"]
    kept: tuple[Site, ...]
    sources: graph.Sources
    targets: tuple[graph.Target, ...]
    account: graph.Edges
    activation_slopes: Float[Tensor, " target"]
    slopes: Float[Tensor, " target"]
    embedded: Float[Tensor, "pos d_model"]
    provenance: Provenance
    recovery: "Recovery | None" = None

    @property
    def trace(self) -> Trace:
        """The prompt's run; of an answer of several tokens, with the pieces before the last behind it."""
        return self.question.pieces[0].trace

    @property
    def sign(self) -> str:
        """Which neurons are kept: `both` ways, or only those `toward` the answer."""
        return str(self.provenance.settings["sign"])

    @property
    def logit(self) -> float:
        """The answer's logit (with versus, its lead)."""
        return self.targets[0].measured

    @property
    def title(self) -> str:
        """Say which answer, and how many neurons are kept."""
        return f"circuit of {name_question(self.provenance)}: {len(self.kept)} neurons"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "influence: what the node is worth to the answer through the graph, in logits; inside: the "
            f"part of it that runs through kept nodes; {name_settings(self.provenance)}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how many neurons are kept, and how well their scores add up."""
        return (
            f"{self.provenance.answer}: logit {self.logit:.3f}; {len(self.kept)} neurons kept; "
            f"{len(self.targets)} scores add up within {self.remainder:.1e}",
        )

    @property
    def remainder(self) -> float:
        """How far the worst node is from closing: zero within tolerance."""
        measured = torch.tensor([target.measured for target in self.targets], dtype=torch.float64)
        return float((self.account.total - measured).abs().max())

    @cached_property
    def flows(self) -> Float[Tensor, "target source"]:
        """What each edge is worth to the answer, in logits: what is owed, times how far it follows."""
        return self.account.owed.double() * (self.activation_slopes * self.slopes).double()[:, None]

    @cached_property
    def worth(self) -> Float[Tensor, " source"]:
        """Each source's influence on the answer, in logits."""
        many = len(self.sources.nodes) - len(self.kept)
        gaps = self.sources.gaps[:many].double()
        positions = [node.position for node in self.sources.nodes[:many]]
        readers = self.embedded[positions].double()
        words = einsum(gaps, readers, "source d_model, source d_model -> source")
        neurons = [self.influence[name.layer, at, name.neuron] for name, at in self.kept]
        return torch.cat([words.cpu(), torch.tensor(neurons, dtype=torch.float64)])

    @property
    def table(self) -> pd.DataFrame:
        """The kept neurons, the most influential first: what they did, what they are worth, their tokens."""
        trace, first = self.trace, len(self.sources.nodes) - len(self.kept)
        columns = {
            "activation": trace.activations,
            "removed": self.question.replacement_on(trace).expand_as(trace.activations),
            "influence": self.worth[first:],
            "inside": self.flows.sum(dim=0)[first:],
        }
        listed = list_neurons(
            trace.model, self.kept, columns, signs=trace.activations, tokens=trace.tokens
        )
        return self.provenance.note(listed)

    def nodes(self) -> pd.DataFrame:
        """Table every node once: words first, then neurons in layer order, biases, rest and the answer."""
        tokens, inside = self.trace.tokens, self.flows.sum(dim=0).tolist()
        nodes = zip(self.sources.nodes, self.worth.tolist(), inside, strict=True)
        rows: list[tuple[object, ...]] = []
        for node, *numbers in sorted(nodes, key=lambda row: (row[0].layer, row[0].position)):
            named = [str(node.neuron_id), node.layer, node.neuron] if node.is_neuron else [None] * 3
            place = node.position, tokens[node.position]
            rows.append((node.name, node.kind, *named, *place, *numbers))
        rows += [(name, name, *[None] * 7) for name in (graph.BIASES, graph.REST)]
        last, answer = self.question.pieces[-1].position, self.provenance.answer
        rows.append((graph.ANSWER, graph.ANSWER, None, None, None, last, answer, self.logit, None))
        columns = [
            "node", "kind", "name", "layer", "neuron", "position", "token", "influence", "inside",
        ]  # fmt: skip
        whole = dict.fromkeys(("layer", "neuron", "position"), "Int64")
        frame = pd.DataFrame(rows, columns=columns)
        return self.provenance.note(frame.astype({**whole, "influence": float, "inside": float}))

    def edges(self, top: int | None = None) -> pd.DataFrame:
        """Table the edges, those that are worth most to the answer first; ties by name."""
        account, heads, rows = self.account, self.trace.model.config.heads, []
        for row, column in account.drives.nonzero().tolist():
            target, head = self.targets[row], int(account.head[row, column])
            carried = float(account.carried[row, column])
            rows.append(
                (
                    self.sources.nodes[column].name, target.name, target.asks,
                    float(account.drives[row, column]), float(account.direct[row, column]),
                    f"L{head // heads}H{head % heads}" if head >= 0 and carried else "", carried,
                    float(self.flows[row, column]),
                )
            )  # fmt: skip
        columns = ["source", "target", "asks", "drive", "direct", "through", "carried", "influence"]
        frame = pd.DataFrame(rows, columns=columns).sort_values(
            "influence", key=abs, ascending=False, kind="stable", ignore_index=True
        )
        if top is not None:
            frame = frame.head(check_top(top, len(frame), of="edges"))
        return self.provenance.note(frame)

    def accounts(self) -> pd.DataFrame:
        """Table what every score adds up from: neurons + embeddings + biases + rest = score."""
        account = self.account
        is_neuron = torch.tensor([node.is_neuron for node in self.sources.nodes])
        return self.provenance.note(pd.DataFrame({
            "target": [target.name for target in self.targets],
            "asks": [target.asks for target in self.targets],
            "score": [target.measured for target in self.targets],
            "neurons": account.drives[:, is_neuron].double().sum(dim=-1).tolist(),
            "embeddings": account.drives[:, ~is_neuron].double().sum(dim=-1).tolist(),
            "biases": account.biases.tolist(),
            "rest": account.rest.tolist(),
        }))  # fmt: skip

    def tables(
        self,
        top: Annotated[
            int | None,
            TOP.but("How many neurons and edges to show.", default="all; 10 are printed"),
        ] = None,
    ) -> dict[str, pd.DataFrame]:
        """Name the tables a file of this circuit holds: all neurons and edges, or the first."""
        tables = {
            "neurons": self.table.head(top) if top is not None else self.table,
            "nodes": self.nodes(), "edges": self.edges(top), "accounts": self.accounts(),
        }  # fmt: skip
        tests = {} if self.recovery is None else self.recovery.tables()
        return tables | {f"recovery_{name}": table for name, table in tests.items()}


@verb
@torch.no_grad()
def circuit(
    model: Model,
    prompt: Prompt,
    answer: Answer = None,
    *,
    versus: Versus = None,
    contrast: Annotated[Contrast | Prompts | None, CONTRAST] = None,
    keep: Annotated[int, Option("How many neurons to keep, each at one position.", least=1)] = 100,
    sign: Annotated[
        str,
        Option(
            "Keep neurons that push either way, or only toward the answer.",
            choices=("both", "toward"),
        ),
    ] = "both",
    rule: Annotated[
        str | None,
        Option(
            "How a change of the score is passed on to the activation.",
            choices=("rescale", "relp", "gradient"),
            default="rescale with contrast prompts, else relp",
        ),
    ] = None,
    test: Annotated[
        bool, Option("Replay the model with only the circuit, and without it.")
    ] = False,
    replace: Annotated[Replace | None, REPLACE] = None,
    convention: Convention = "centred",
    seed: Seed = 0,
    bos: Bos = None,
) -> Circuit:
    """Find the neurons behind an answer and what each added to the next; every node adds up.

    The answer is by default the prediction. `test` also replays the circuit (`check_circuit`).

    >>> import ffnprobe as fp
    >>> found = fp.circuit(fp.load("pocket"), "Michael Jordan plays the sport of", versus=" golf", keep=5)
    >>> found.accounts().target[0]
    'answer'
    """
    question = ask(
        run(model, prompt, bos=bos), answer, versus=versus, replace=replace, contrast=contrast,
        convention=convention,
    )  # fmt: skip
    pushes, trace = question.pushes, question.pieces[0].trace
    activation_slopes = choose_rule(trace, question.contrast, rule)
    replacement = question.replacement_on(trace)
    followed, embedded = follow_back(trace, read_answers(pushes.pieces), activation_slopes)
    influence = (trace.activations - replacement) * followed
    kept = graph.choose_kept(influence, keep, sign=sign)
    sources = graph.gather_sources(trace, kept, replacement, question.contrast)
    targets = graph.list_targets(trace, kept, pushes.pieces)
    by_rule, slopes = _read_slopes(activation_slopes, followed, targets)
    del followed, replacement  # as large as the activations; edges need the room
    shown = " ".join(model.vocab.show_all([piece.answer for piece in pushes.pieces]))
    settings = {
        "keep": keep, "sign": sign, "rule": activation_slopes.rule, **question.removal_settings(),
    }  # fmt: skip
    circuit = Circuit(
        question=question, influence=influence, kept=tuple(kept), sources=sources,
        targets=tuple(targets), account=graph.draw_edges(trace, targets, sources, kept),
        activation_slopes=by_rule, slopes=slopes, embedded=embedded,
        provenance=replace_fields(pushes.provenance, answer=shown).including(**settings),
    )  # fmt: skip
    if not test:
        return circuit
    from ffnprobe.circuits.recovery import check_circuit

    return replace_fields(circuit, recovery=check_circuit(circuit, seed=seed))


def _read_slopes(
    rule: ActivationSlopes, followed: Tensor, targets: Sequence[graph.Target]
) -> tuple[Tensor, Tensor]:
    """Return how far each target's activation follows its score, and the answer its activation."""
    by_rule, slopes = torch.ones(2, len(targets))  # the answer follows itself wholly
    for layer in {target.node.layer for target in targets if target.node}:
        by_score, by_gate = rule.of(layer)
        for row, target in enumerate(targets):
            if target.node and target.node.layer == layer:
                at = target.node.position, target.node.neuron
                chosen = by_gate if target.asks == "gate" and by_gate is not None else by_score
                by_rule[row], slopes[row] = chosen[at], followed[layer][at]
    return by_rule, slopes
