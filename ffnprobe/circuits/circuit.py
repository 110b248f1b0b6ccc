"""A circuit in the neuron basis: from the words, through neurons, to the answer. Every node adds up.

Nodes are neurons at positions, token embeddings (and position embeddings), biases and the answer. An edge is
what one node added to another's score, or to the answer's logit, with the patterns and scales held as they
were: directly, or through heads (`edges`). What the kept nodes do not explain of a node is its `rest`.

Nodes are kept by their influence on the answer through the graph (`influence`), ties by name. With contrast
prompts influence counts what differs from them; without, what is above the neuron's corpus mean, or zero.

Limits: an edge says what was added, not what would follow: where heads look and how far norms scale is
held. `check_circuit` replays the model with nothing but the circuit, and without it.

>>> import ffnprobe as fp
>>> found = fp.circuit(
...     fp.load("pocket"), "Michael Jordan plays the sport of", " basketball",
...     contrast="Tiger Woods plays the sport of", keep=20,
... )
>>> found.remainder < 1e-3
True
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

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
from ffnprobe.circuits.graph import (
    Edges,
    Sources,
    Target,
    choose_kept,
    draw_edges,
    gather_sources,
    list_targets,
)
from ffnprobe.circuits.influence import Slopes, follow_back, read_answers
from ffnprobe.circuits.openings import ActivationSlopes, choose_activation_slopes
from ffnprobe.circuits.recovery import Recovery
from ffnprobe.interventions.question import Question, Replace, ask
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result, name_question, name_settings
from ffnprobe.tracing.attention import Source
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


# MERGED: ffnprobe.circuits.tables
# Tables of a circuit: its neurons, all nodes, edges, and the account of every score.


ANSWER, BIASES, REST = "answer", "biases", "rest"


def name_target(target: Target) -> str:
    """Name a target as the node it is."""
    return ANSWER if target.node is None else target.node.name


def table_neurons(circuit: "Circuit") -> "pd.DataFrame":
    """Table the kept neurons: what they did, what they are worth, the tokens they stand for."""
    trace, first = circuit.trace, len(circuit.sources.nodes) - len(circuit.kept)
    columns = {
        "activation": trace.activations,
        "removed": circuit.question.removal.on(trace).expand_as(trace.activations),
        "influence": circuit.worth[first:],
        "inside": circuit.flows.sum(dim=0)[first:],
    }
    return list_neurons(
        trace.model, circuit.kept, columns, signs=trace.activations, tokens=trace.tokens
    )


def table_nodes(circuit: "Circuit") -> "pd.DataFrame":
    """Table every node once: words first, then neurons in layer order, then the answer."""
    import pandas as pd

    tokens, flows = circuit.trace.tokens, circuit.flows.sum(dim=0).tolist()
    listed = zip(circuit.sources.nodes, circuit.worth.tolist(), flows, strict=True)
    rows: list[tuple[object, ...]] = [
        (
            node.name, node.kind, str(node.neuron_id) if node.kind == "neuron" else None,
            node.layer if node.kind == "neuron" else None,
            node.neuron if node.kind == "neuron" else None,
            node.position, tokens[node.position], worth, inside,
        )
        for node, worth, inside in sorted(listed, key=lambda row: (row[0].layer, row[0].position))
    ]  # fmt: skip
    rows += [(name, name, None, None, None, None, None, None, None) for name in (BIASES, REST)]
    last = circuit.question.pushes.pieces[-1].position
    shown = circuit.provenance.answer
    rows.append((ANSWER, ANSWER, None, None, None, last, shown, circuit.logit, None))
    columns = [
        "node", "kind", "name", "layer", "neuron", "position", "token", "influence", "inside",
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=columns)
    whole = dict.fromkeys(("layer", "neuron", "position"), "Int64")
    return frame.astype({**whole, "influence": float, "inside": float})


def table_edges(circuit: "Circuit", top: int | None) -> "pd.DataFrame":
    """Table edges between kept nodes, by what they are worth to the answer; ties by name."""
    import pandas as pd

    account, heads = circuit.account, circuit.trace.model.config.heads
    rows = []
    for row, column in account.drives.nonzero().tolist():
        target, head = circuit.targets[row], int(account.head[row, column])
        carried = float(account.carried[row, column])
        rows.append(
            (
                circuit.sources.nodes[column].name, name_target(target), target.asks,
                float(account.drives[row, column]), float(account.direct[row, column]),
                f"L{head // heads}H{head % heads}" if head >= 0 and carried else "", carried,
                float(circuit.flows[row, column]),
            )
        )  # fmt: skip
    columns = ["source", "target", "asks", "drive", "direct", "through", "carried", "influence"]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.sort_values(
        "influence", key=abs, ascending=False, kind="stable", ignore_index=True
    )
    if top is None:
        return frame
    return frame.head(check_top(top, len(frame), of="edges"))


def table_accounts(circuit: "Circuit") -> "pd.DataFrame":
    """Table what each score adds up from: neurons + embeddings + biases + rest = score."""
    import pandas as pd

    account = circuit.account
    is_neuron = torch.tensor([node.kind == "neuron" for node in circuit.sources.nodes])
    neurons = account.drives[:, is_neuron].double().sum(dim=-1).tolist()
    words = account.drives[:, ~is_neuron].double().sum(dim=-1).tolist()
    rows = [
        (name_target(target), target.asks, target.measured, *parts)
        for target, *parts in zip(
            circuit.targets, neurons, words, account.biases.tolist(), account.rest.tolist(),
            strict=True,
        )
    ]  # fmt: skip
    columns = ["target", "asks", "score", "neurons", "embeddings", "biases", "rest"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True, eq=False, repr=False)
class Circuit(Result):
    """Kept nodes, what each added to the next, and how far the answer follows from them.

    `openings` is how far each target's activation follows its score, `slopes` how far the answer follows
    each target's activation; both are 1 for the answer.

    >>> import ffnprobe as fp
    >>> found = fp.circuit(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", keep=5)
    >>> len(found.kept), found.edges(1).columns.tolist()[:4]
    (5, ['source', 'target', 'asks', 'drive'])
    """

    in_terminal: ClassVar = ("neurons", "edges", "recovery_summary")
    most: ClassVar = 10

    question: Question
    influence: Float[Tensor, "layer pos neuron"]
    kept: tuple[Source, ...]
    sources: Sources
    targets: tuple[Target, ...]
    account: Edges
    openings: Float[Tensor, " target"]
    slopes: Float[Tensor, " target"]
    embedded: Float[Tensor, "pos d_model"]
    provenance: Provenance
    recovery: Recovery | None = None

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
        return self.account.owed.double() * (self.openings * self.slopes).double()[:, None]

    @cached_property
    def worth(self) -> Float[Tensor, " source"]:
        """Each source's influence on the answer, in logits."""
        many = len(self.sources.nodes) - len(self.kept)
        positions = self.sources.positions[:many]
        pattern = "source d_model, source d_model -> source"
        words = einsum(
            self.sources.gaps[:many].double(), self.embedded[positions].double(), pattern
        )
        own = [self.influence[name.layer, position, name.neuron] for name, position in self.kept]
        return torch.cat([words.cpu(), torch.tensor(own, dtype=torch.float64)])

    @property
    def table(self) -> "pd.DataFrame":
        """The kept neurons, the most influential first."""

        return self.provenance.note(table_neurons(self))

    def nodes(self) -> "pd.DataFrame":
        """Table every node: neurons, embeddings, biases, rest and the answer."""

        return self.provenance.note(table_nodes(self))

    def edges(self, top: int | None = None) -> "pd.DataFrame":
        """Table the edges, those that are worth most to the answer first."""

        return self.provenance.note(table_edges(self, top))

    def accounts(self) -> "pd.DataFrame":
        """Table what every score adds up from: each row closes."""

        return self.provenance.note(table_accounts(self))

    def tables(
        self,
        top: Annotated[
            int | None,
            TOP.but("How many neurons and edges to show.", default="all; 10 are printed"),
        ] = None,
    ) -> "dict[str, pd.DataFrame]":
        """Name the tables a file of this circuit holds: all neurons and edges, or the first."""
        found = {
            "neurons": self.table.head(top) if top is not None else self.table,
            "nodes": self.nodes(), "edges": self.edges(top), "accounts": self.accounts(),
        }  # fmt: skip
        if self.recovery is not None:
            found |= {f"recovery_{name}": table for name, table in self.recovery.tables().items()}
        return found


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
    trace = run(model, prompt, bos=bos)
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    found = _build(question, keep=keep, sign=sign, rule=rule)
    if not test:
        return found
    from ffnprobe.circuits.checking import check_circuit

    return replace_fields(found, recovery=check_circuit(found, seed=seed))


def _build(question: Question, *, keep: int, sign: str, rule: str | None) -> Circuit:
    pushes, contrast = question.pushes, question.contrast
    trace = pushes.pieces[0].trace
    openings = choose_activation_slopes(trace, contrast, rule)
    replacement = question.removal.on(trace)
    back = follow_back(trace, read_answers(pushes.pieces), openings)
    influence = (trace.activations - replacement) * back.activations
    kept = choose_kept(influence, keep, sign=sign)
    sources = gather_sources(trace, kept, replacement, contrast)
    targets = list_targets(trace, kept, pushes.pieces)
    slopes, embedded = torch.stack([_slope(back, target) for target in targets]), back.embeddings
    del back, replacement  # as large as the activations; edges need the room
    shown = " ".join(trace.model.vocab.show_all([piece.answer for piece in pushes.pieces]))
    settings = {"keep": keep, "sign": sign, "rule": openings.rule, **question.removal.settings()}
    return Circuit(
        question=question,
        influence=influence,
        kept=tuple(kept),
        sources=sources,
        targets=tuple(targets),
        account=draw_edges(trace, targets, sources, kept),
        openings=_open(openings, targets),
        slopes=slopes,
        embedded=embedded,
        provenance=replace_fields(pushes.provenance, answer=shown).including(**settings),
    )


def _open(openings: ActivationSlopes, targets: Sequence[Target]) -> Float[Tensor, " target"]:
    """Return how far each target's activation follows its score."""
    found = torch.ones(len(targets))
    by_layer: dict[int, list[int]] = {}
    for row, target in enumerate(targets):
        if target.node is not None:
            by_layer.setdefault(target.node.layer, []).append(row)
    for layer, rows in by_layer.items():
        by_score, by_gate = openings.of(layer)
        for row in rows:
            target = targets[row]
            chosen = by_gate if target.asks == "gate" and by_gate is not None else by_score
            assert target.node is not None
            found[row] = chosen[target.node.position, target.node.neuron]
    return found


def _slope(back: Slopes, target: Target) -> Tensor:
    """Return how far the answer follows a target's activation; itself, the answer follows wholly."""
    node = target.node
    if node is None:
        return torch.ones(())
    return back.activations[node.layer, node.position, node.neuron]
