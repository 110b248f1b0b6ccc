"""Who asked the question: what in the stream gave a neuron its score, in units of score.

    score h_n = Σ over parts p of the stream before the MLP:  q_n · p / s  + c_n

The parts are the token and position embedding, every head up to the neuron's own layer, every
neuron and bias of the layers before it, and the question bias c_n. s is the scale of the LayerNorm
before the MLP, as it was. The account is closed against the score captured, or raises.

A head's drive is shared among the positions it read from: pattern × the value found there.
"""

from dataclasses import dataclass
from itertools import product
from typing import Annotated, ClassVar

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import TOP, Argument, Option, verb
from ffnprobe.errors import OptionRefused
from ffnprobe.models.step import normalise
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result
from ffnprobe.tracing.account import Account, close_account, write_along
from ffnprobe.tracing.trace import Trace, find_sinks


@dataclass(frozen=True, eq=False, repr=False)
class Drivers(Result):
    """Every part's share in one neuron's score at one position.

    `gate` holds the same for the gate's score, where neurons have gates.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> list(fp.drivers(trace, "L1N7", position=2).heads(1).columns)
    ['part', 'layer', 'head', 'position', 'token', 'pattern', 'drive']
    """

    most: ClassVar = 10

    trace: Trace
    neuron: NeuronId
    position: int
    direction: Float[Tensor, " d_model"]
    account: Account
    asks: str = "question"
    gate: "Drivers | None" = None

    @property
    def title(self) -> str:
        """Name the neuron, the token and the score."""
        gate = "" if self.gate is None else f", its gate's {self.gate.score:+.3f}"
        token = self.trace.tokens[self.position]
        return f"{self.neuron} at {token}: score {self.score:+.3f}{gate}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "all parts add up to the score"

    @property
    def table(self) -> pd.DataFrame:
        """Every part of the score, the strongest first."""
        parts = self.by_part().sort_values("drive", key=abs, ascending=False, kind="stable")
        return self.provenance.note(parts.reset_index(drop=True))

    @property
    def score(self) -> float:
        """The neuron's score in the model."""
        return self.account.measured

    @property
    def remainder(self) -> float:
        """What the parts leave unexplained of the score: zero within tolerance."""
        return self.account.remainder

    @property
    def provenance(self) -> Provenance:
        """The model, prompt, position and neuron behind these numbers."""
        of = str(self.neuron) if self.asks == "question" else f"the {self.asks} of {self.neuron}"
        return self.trace.provenance_at(self.position, settings={"drivers_of": of})

    @property
    def _activations(self) -> Float[Tensor, "layer neuron"]:
        return self.trace.activations[: self.neuron.layer, self.position]

    def by_part(self) -> pd.DataFrame:
        """Table every part once: the column `drive` adds up to the score.

        Where neurons have gates, `gate_drive` adds up to the gate's score.
        """
        table = self.account.table("drive", self._activations)
        if self.gate is not None:
            gate = self.gate.account.table("gate_drive", self._activations)
            table = table.merge(gate, how="outer", on=["part", "kind", "layer", "head"], sort=False)
            table = table.fillna({"drive": 0.0, "gate_drive": 0.0})
        return self.provenance.note(table)

    def tables(
        self,
        top: Annotated[int | None, TOP.but("How many rows in each table.", default="10")] = None,
    ) -> dict[str, pd.DataFrame]:
        """Name the tables a file of these drivers holds; what there is none of is left out."""
        tables, top = {"parts": self.table}, 10 if top is None else top
        if earlier := self.account.neurons.numel():
            tables["neurons"] = self.top(min(top, earlier))
        if self.trace.patterns is not None and (readings := self.account.heads.numel()):
            tables["heads"] = self.heads(min(top, readings * (self.position + 1)))
        if self.gate is not None:
            own = self.gate.tables(top)
            tables |= {f"gate_{name}": own[name] for name in ("neurons", "heads") if name in own}
        return tables

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` earlier neurons that drove the score most, up or down."""
        drives = self.account.neurons
        if not drives.numel():
            raise OptionRefused(
                f"{self.neuron} is in the first layer: no neuron comes before it.",
                remedy="by_part() or heads()",
            )
        columns = {"activation": self._activations, "drive": drives}
        table = list_top(
            self.trace.model, top, by=drives.abs(), columns=columns, signs=self._activations,
            of="earlier neurons",
        )  # fmt: skip
        return self.provenance.note(table)

    @torch.no_grad()
    def heads(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` strongest readings of a head from a position, up or down.

        Over all positions a head's drives add up to its row in `by_part()`.
        """
        trace, model = self.trace, self.trace.model
        if trace.patterns is None:
            raise OptionRefused(
                "this trace was run without attention patterns.", remedy="run(…, patterns=True)"
            )
        layer, end = self.neuron.layer, self.position + 1
        attentions = len(self.account.heads)
        patterns = trace.patterns[:attentions, :, self.position, :end]
        if not patterns.numel():
            raise OptionRefused(
                f"no head comes before {self.neuron}: in this model attention and MLP of a layer read "
                "the same stream.",
                remedy="by_part(), or a neuron of a later layer",
            )
        top = check_top(top, patterns.numel(), of="readings")
        along = self.direction / float(trace.scales[layer, self.position])
        values = torch.zeros(patterns.shape)
        for number, attention in enumerate(model.attention[:attentions]):
            out = write_along(trace, number, self.position, along)
            z = einsum(attention.out, out, "head d_head d_model, d_model -> head d_head")
            value = attention.for_heads(attention.value)
            reader = einsum(z, value, "head d_head, head d_head d_model -> head d_model")
            seen = normalise(model, trace.before_attention[number, :end].to(model.device))
            values[number] = einsum(reader, seen, "head d_model, key d_model -> head key")
        rows = [
            (f"L{number}H{head}", number, head, source, trace.tokens[source])
            for number, head, source in product(*map(range, patterns.shape))
        ]
        table = pd.DataFrame(rows, columns=["part", "layer", "head", "position", "token"])
        table["pattern"] = patterns.double().ravel().numpy()
        table["drive"] = (patterns * values).double().ravel().numpy()
        strongest = table.sort_values("drive", key=abs, ascending=False, kind="stable")
        return self.provenance.note(strongest.head(top).reset_index(drop=True))


@verb
@torch.no_grad()
def drivers(
    trace: Trace,
    neuron: Annotated[
        str | NeuronId, Argument("The neuron, such as L3N12, or L3N12@2 at position 2.", str)
    ],
    *,
    position: Annotated[
        int | None, Option("The position to look at; -1 is the last.", default="where it acts most")
    ] = None,
) -> Drivers:
    """List what gave a neuron its score: heads and what they read, earlier neurons, embeddings.

    The score is accounted for exactly, and so is its gate's. The position may be in the name
    (`L1N505@2`); without one it is where the neuron acts most, attention sinks aside.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> found = fp.drivers(trace, "L3N12")
    >>> float(abs(found.by_part().drive.sum() - found.score)) < 1e-3
    True
    >>> fp.drivers(trace, "L1N505").position == fp.drivers(trace, "L1N505@2").position == 2
    True
    """
    text, named = split_position(str(neuron))
    name = trace.model.find_neuron(text)
    if named is not None and position not in (None, named):
        raise OptionRefused(
            f"{neuron} is at position {named}, and the position asked for is {position}.",
            remedy="one of the two",
        )
    position = named if position is None else position
    if position is None:
        sizes = trace.activations[name.layer, :, name.neuron].abs()
        sizes[list(find_sinks(trace.activations))] = -1
        position = int(sizes.argmax())
    index = trace.at(position)
    gate = None if trace.gate_scores is None else _drive(trace, name, index, "gate")
    return _drive(trace, name, index, "question", gate)


def _drive(
    trace: Trace, name: NeuronId, position: int, asks: str, gate: Drivers | None = None
) -> Drivers:
    """Account for the score of a neuron's question, or of its gate."""
    model = trace.model
    rows, biases, scores = model.questions, model.question_biases, trace.scores
    if asks == "gate":
        assert model.gates is not None
        assert model.gate_biases is not None
        assert trace.gate_scores is not None
        rows, biases, scores = model.gates, model.gate_biases, trace.gate_scores
    direction = rows[name.layer, name.neuron]
    # Of the layer's own attention the MLP reads what it wrote, unless both read the same stream.
    attentions = name.layer if model.config.is_parallel else name.layer + 1
    account = close_account(
        trace, direction, position=position, scale=float(trace.scales[name.layer, position]),
        mlps=name.layer, attentions=attentions,
        constants={f"{asks} bias": float(biases[name.layer, name.neuron])},
        measured=float(scores[name.layer, position, name.neuron]),
        named=f"the score of {name}" if asks == "question" else f"the score of the gate of {name}",
    )  # fmt: skip
    return Drivers(trace, name, position, direction, account, asks, gate)
