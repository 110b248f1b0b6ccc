"""One FFN, token by token: input → scores → activations → output → the stream after it.

    input       x̂, the stream before the MLP, normalised (gain and shift are in the questions)
    scores      q_n · x̂ + c_n
    activations gelu(scores); with gates, f(gate scores) × scores
    output      Σ_n a_n w_n + b_out
    after       before + output

Every token goes through alone: `shuffled(order)` sends the same vectors through in another order,
and the columns come out in that order, unchanged. Only attention looks at other positions; its
pattern is kept too, `[head query key]`, if the trace has it.

The stream after is the one the model had (less what attention wrote beside, where the two run in
parallel); an FFN that does not lead there raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Option, verb
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.models.step import activate_neurons, normalise, score_questions, write, write_heads
from ffnprobe.names import NeuronId, check_layer
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.trace import Trace


@dataclass(frozen=True, eq=False, repr=False)
class Stages(Result):
    """What one FFN layer took in, asked, answered and gave out, for each token.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.stages(trace, 0).table.token.tolist()[1:3]
    ['Michael', '␣Jordan']
    """

    model: Model
    layer: int
    tokens: tuple[str, ...]
    before: Float[Tensor, "pos d_model"]
    input: Float[Tensor, "pos d_model"]
    scores: Float[Tensor, "pos neuron"]
    gate_scores: Float[Tensor, "pos neuron"] | None
    activations: Float[Tensor, "pos neuron"]
    output: Float[Tensor, "pos d_model"]
    after: Float[Tensor, "pos d_model"]
    pattern: Float[Tensor, "head query key"] | None
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say which layer, on which tokens."""
        return f"L{self.layer} on {' '.join(self.tokens)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "before, output and after are norms; an MLP treats each token on its own"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of these stages holds."""
        return {"stages": self.table}

    @property
    def table(self) -> pd.DataFrame:
        """Each token's way: sizes (norms) of the stages, neurons above zero, the strongest.

        `reads` is the position the layer's heads attend to most, on average, with its weight.
        """
        strongest = self.activations.max(dim=-1)
        names = [str(NeuronId(self.layer, n)) for n in strongest.indices.tolist()]
        columns: dict[str, object] = {
            "position": range(len(self.tokens)),
            "token": self.tokens,
            "before": self.before.norm(dim=-1).tolist(),
        }
        if self.gate_scores is not None:
            columns["highest_gate_score"] = self.gate_scores.amax(dim=-1).tolist()
        columns |= {
            "highest_score": self.scores.amax(dim=-1).tolist(),
            "above_zero": (self.activations > 0).sum(dim=-1).tolist(),
            "strongest": names,
            "activation": strongest.values.tolist(),
            "output": self.output.norm(dim=-1).tolist(),
            "after": self.after.norm(dim=-1).tolist(),
        }
        if self.pattern is not None:
            most = reduce(self.pattern, "head query key -> query key", "mean").max(dim=-1)
            columns["reads"] = most.indices.tolist()
            columns["weight"] = most.values.tolist()
        return self.provenance.note(pd.DataFrame(columns))

    def shuffled(self, order: Sequence[int]) -> "Stages":
        """Send the same vectors through the FFN in another order (without attention's pattern)."""
        if sorted(order) != list(range(len(self.tokens))):
            raise OptionRefused(
                f"{list(order)} is not an order of {len(self.tokens)} positions.",
                remedy=f"0 to {len(self.tokens) - 1}, each once",
            )
        tokens = tuple(self.tokens[position] for position in order)
        return _send_through(
            self.model, self.layer, tokens, self.before[list(order)], self.provenance
        )


@verb
@torch.no_grad()
def stages(
    trace: Trace, layer: Annotated[int, Option("The layer, counted from 0.", flag="-l")] = 0
) -> Stages:
    """List, for each token, the input, scores, activations and output of one MLP.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> found = fp.stages(trace, 0)
    >>> bool((found.before + found.output - found.after).abs().max() < 1e-4)
    True
    """
    model, layers = trace.model, trace.model.config.layers
    check_layer(layer, layers=layers, named=f"L{layer}", model=model.name)
    provenance = trace.provenance_at(None, settings={"layer": layer})
    pattern = None if trace.patterns is None else trace.patterns[layer]
    before = trace.before_mlp[layer]
    ours = _send_through(model, layer, trace.tokens, before, provenance, pattern)
    after = trace.final if layer + 1 == layers else trace.before_attention[layer + 1]
    if model.config.is_parallel:
        # Attention wrote beside this MLP, into the same stream.
        after = after - write_heads(model, layer, trace.mixes[layer].to(model.device)).cpu()
    worst = (ours.after - after).abs().argmax()
    named = f"the stream after L{layer}, where they differ most,"
    check_closed(float(ours.after.take(worst)), float(after.take(worst)), named=named)
    return ours


@torch.no_grad()
def _send_through(
    model: Model,
    layer: int,
    tokens: tuple[str, ...],
    before: Float[Tensor, "pos d_model"],
    provenance: Provenance,
    pattern: Float[Tensor, "head query key"] | None = None,
) -> Stages:
    """Take vectors through an FFN layer, one row each."""
    seen = normalise(model, before.to(model.device))
    scores, gates = score_questions(model, layer, seen)
    activations = activate_neurons(model, scores, gates)
    output = write(model, layer, activations).cpu()
    return Stages(
        model, layer, tokens, before, seen.cpu(), scores.cpu(),
        None if gates is None else gates.cpu(), activations.cpu(), output, before + output, pattern,
        provenance,
    )  # fmt: skip
