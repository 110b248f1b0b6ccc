"""Influence: what each neuron is worth to the answer, directly and through every neuron after it.

With the patterns and scales held, a neuron's score is linear in everything written before it, but its
activation is not linear in its score. A rule puts a number, the activation slope o, on this one step. With f
the activation function, h the score, g the gate's score (a = f(g) · h where neurons have gates, else a = f(h)):

    gradient   ∂a/∂h, ∂a/∂g, at the prompt
    relp       a / h; with a gate half of a / h and half of a / g: relevance propagation
    rescale    (a − a′) / (h − h′), a′ and h′ on a contrast prompt: DeepLIFT's rule, exact between the two;
               with a gate the mean of both orders of change; with several prompts the mean over them

`rescale` is the rule wherever there is a contrast, `relp` where there is none: docs/circuits.md has the
measurement. A position without a counterpart has nothing to be rescaled to: there it is the gradient.

Then the model is linear. Its answer's slope along what layer l writes at position j is found from the answer
back, in one pass:

    R(L) = u_t / s_T at T
    R(l) = R(l + 1) + Σ_n (w_n · R(l + 1)) (o_n q_n + o′_n g_n) / s + Σ_h c(l, h)       c as in `attention`

    influence of n at j = (a_n − r_n) · (w_n · R(l + 1))       r: what a removed neuron is set to

So no edge between any two of all neurons is ever made: edges are made between the few that are kept. Without
activation slopes (no neuron follows another) the same pass gives the push, directly and through heads.

Limits: what a neuron does to patterns and scales is not in its influence. `recovery` tests, by replaying
the model, how much of the answer the neurons that are kept give back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.step import ACTIVATION_FUNCTIONS
from ffnprobe.tracing.account import read_direction
from ffnprobe.tracing.attention import read_values
from ffnprobe.tracing.attribution import Pushes
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.trace import Trace

RULES = ("rescale", "relp", "gradient")
# Scores nearer than this are one: their quotient would be rounding.
NEAR = 1e-3
LayerSlopes = Float[Tensor, "pos neuron"]
Reader = Float[Tensor, "pos d_model"]


@dataclass(frozen=True, eq=False)
class ActivationSlopes:
    """A rule, on one prompt: how far activations follow scores, layer by layer."""

    trace: Trace
    rule: str
    contrast: Contrast | None = None

    def of(self, layer: int) -> tuple[LayerSlopes, LayerSlopes | None]:
        """Return the change of each activation for a unit of score, and for a unit of gate score."""
        if self.rule == "rescale" and self.contrast is not None:
            return self._rescale(layer, self.contrast)
        scores = self.trace.scores[layer]
        gates = None if self.trace.gate_scores is None else self.trace.gate_scores[layer]
        if gates is None:
            return (self._chord if self.rule == "relp" else self._slope)(scores), None
        if self.rule == "relp":
            return self._activate(gates) / 2, scores * self._chord(gates) / 2
        return self._activate(gates), scores * self._slope(gates)

    @property
    def _activate(self) -> Callable[[Tensor], Tensor]:
        return ACTIVATION_FUNCTIONS[self.trace.model.config.activation]

    def _slope(self, scores: Tensor) -> Tensor:
        """Return f′."""
        with torch.enable_grad():
            leaf = scores.detach().clone().requires_grad_()
            (slopes,) = torch.autograd.grad(self._activate(leaf).sum(), leaf)
        return slopes

    def _chord(self, scores: Tensor, others: Tensor | None = None) -> Tensor:
        """Return the slope of the line from f of other scores (0 if none) to f of these."""
        start = torch.zeros_like(scores) if others is None else others
        run = scores - start
        rise = self._activate(scores) - self._activate(start)
        is_near = run.abs() < NEAR
        return torch.where(is_near, self._slope(scores), rise / run.masked_fill(is_near, 1.0))

    def _rescale(self, layer: int, contrast: Contrast) -> tuple[LayerSlopes, LayerSlopes | None]:
        """Return the mean over the contrast prompts of the slope between each and this prompt."""
        trace = self.trace
        by_score, by_gate = ActivationSlopes(trace, "gradient").of(layer)
        totals = [torch.zeros_like(by_score), torch.zeros_like(by_score)]
        counts = torch.zeros(len(by_score), 1)
        for other, matched in zip(contrast.others, contrast.alignment.counterparts, strict=True):
            here = [position for position, there in enumerate(matched) if there is not None]
            there = [position for position in matched if position is not None]
            scores, others = trace.scores[layer, here], other.scores[layer, there]
            if trace.gate_scores is None or other.gate_scores is None:
                totals[0][here] += self._chord(scores, others)
            else:
                gates, other_gates = trace.gate_scores[layer, here], other.gate_scores[layer, there]
                totals[0][here] += (self._activate(gates) + self._activate(other_gates)) / 2
                totals[1][here] += (scores + others) / 2 * self._chord(gates, other_gates)
            counts[here] += 1
        means = [total / counts.clamp(min=1) for total in totals]
        is_matched = counts > 0
        by_score = torch.where(is_matched, means[0], by_score)
        return by_score, None if by_gate is None else torch.where(is_matched, means[1], by_gate)


def choose_rule(trace: Trace, contrast: Contrast | None, rule: str | None) -> ActivationSlopes:
    """Return the rule asked for; by default `rescale` with contrast prompts, `relp` without."""
    if rule is None:
        rule = "relp" if contrast is None else "rescale"
    if rule not in RULES:
        raise OptionRefused(f'"{rule}" is not a rule of influence.', remedy=", ".join(RULES))
    if rule == "rescale" and contrast is None:
        raise OptionRefused(
            'the rule "rescale" needs contrast prompts to rescale to.', remedy="contrast=…, or relp"
        )
    return ActivationSlopes(trace, rule, contrast)


def read_answers(pieces: Sequence[Pushes]) -> Reader:
    """Return the direction along which the stream before the final norm counts toward an answer."""
    trace = pieces[0].trace
    model = trace.model
    reader = torch.zeros(len(trace), model.config.d_model, device=model.device)
    for piece in pieces:
        along = read_direction(model, piece.answer, piece.versus, piece.convention)
        reader[piece.position] += along / trace.final_scale[piece.position]
    return reader


@torch.no_grad()
def follow_back(
    trace: Trace, reader: Reader, rule: ActivationSlopes | None
) -> tuple[Float[Tensor, "layer pos neuron"], Reader]:
    """Follow the answer back: how far its logit moves for a unit of each activation, and of the embeddings."""
    model = trace.model
    activations = torch.empty_like(trace.activations)
    for layer in reversed(range(model.config.layers)):
        slopes = einsum(reader, model.answers[layer], "pos d_model, neuron d_model -> pos neuron")
        if trace.mlp_post_scales is not None:
            slopes = slopes / rearrange(trace.mlp_post_scales[layer], "pos -> pos 1").to(slopes)
        activations[layer] = slopes.cpu()
        asked = torch.zeros_like(reader)
        if rule is not None:
            by_score, by_gate = rule.of(layer)
            pattern = "pos neuron, neuron d_model -> pos d_model"
            asked = einsum(slopes * by_score.to(slopes), model.questions[layer], pattern)
            if by_gate is not None and model.gates is not None:
                asked = asked + einsum(slopes * by_gate.to(slopes), model.gates[layer], pattern)
            asked = asked / rearrange(trace.scales[layer], "pos -> pos 1").to(asked)
        # Attention's writing is read by the layer's own MLP, unless both read the same stream.
        written = reader if model.config.is_parallel else reader + asked
        values = model.attention[layer].for_heads(model.attention[layer].value)
        pattern = "head pos d_head, head d_head d_model -> pos d_model"
        reader = reader + asked + einsum(read_values(trace, layer, written), values, pattern)
    return activations, reader
