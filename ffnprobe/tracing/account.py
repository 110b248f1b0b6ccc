"""Exact accounts: what each part of the stream adds to one number the model computed.

The residual stream is a sum: token embedding, position embedding, every head, every neuron, every
b_O and b_out. Read along a direction v through a LayerNorm of scale s, a part p adds v · p / s, in
the units of what v reads: logits for an unembedding, score for a question. v is centred over
d_model, so the mean that LayerNorm takes away adds nothing. Where attention or MLP write through a
norm of their own, its scale too is taken as it was.

A head's part is what it carried from the positions it read. Its value bias adds the same vector
wherever it looks (a pattern sums to 1), so that is counted with b_O, as published tables do.

An account closes if parts and constants add up to the number measured within 1e-3, or within 1e-5
of the number where that is more (fp32 keeps seven digits). If it does not, no number is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import AccountNotClosed
from ffnprobe.models.model import Model
from ffnprobe.models.step import cap, normalise
from ffnprobe.tracing.trace import Trace

WITHIN = 1e-3
WITHIN_OF_LARGE = 1e-5


@dataclass(frozen=True, eq=False)
class Account:
    """One number, part by part; the layers are those that wrote before it was read."""

    measured: float
    embedding: float
    position: float
    heads: Float[Tensor, "attention head"]
    attention_biases: Float[Tensor, " attention"]
    neurons: Float[Tensor, "mlp neuron"]
    mlp_biases: Float[Tensor, " mlp"]
    constants: Mapping[str, float]

    @property
    def total(self) -> float:
        """What all parts and constants add up to."""
        parts = (self.heads, self.attention_biases, self.neurons, self.mlp_biases)
        written = sum(float(part.double().sum()) for part in parts)
        return self.embedding + self.position + written + sum(self.constants.values())

    @property
    def remainder(self) -> float:
        """What the parts leave unexplained of the number measured: zero within tolerance."""
        return self.measured - self.total

    def table(self, column: str, activations: Float[Tensor, "mlp neuron"]) -> pd.DataFrame:
        """Table every part once, so that the column adds up to the number measured.

        What a model does not have (biases, embedded positions) adds nothing and has no row.
        Neurons stand as two rows a layer: those with an activation above zero, and the others.
        """
        rows: list[tuple[str, str, int | None, int | None, float]] = [
            ("embedding", "embedding", None, None, self.embedding)
        ]
        if self.position:
            rows.append(("position", "position", None, None, self.position))
        above = torch.where(activations > 0, self.neurons, 0.0).double().sum(-1).tolist()
        below = torch.where(activations > 0, 0.0, self.neurons).double().sum(-1).tolist()
        for layer, heads in enumerate(self.heads.tolist()):
            rows += [
                (f"L{layer}H{head}", "head", layer, head, value) for head, value in enumerate(heads)
            ]
            if bias := float(self.attention_biases[layer]):
                rows.append((f"L{layer} b_O", "attention bias", layer, None, bias))
            if layer < len(above):
                rows += [
                    (f"L{layer} neurons above zero", "neurons", layer, None, above[layer]),
                    (f"L{layer} neurons below zero", "neurons", layer, None, below[layer]),
                ]
                if bias := float(self.mlp_biases[layer]):
                    rows.append((f"L{layer} b_out", "MLP bias", layer, None, bias))
        rows += [(name, name, None, None, value) for name, value in self.constants.items()]
        table = pd.DataFrame(rows, columns=["part", "kind", "layer", "head", column])
        return table.astype({"layer": "Int64", "head": "Int64"})


def close_account(
    trace: Trace,
    direction: Float[Tensor, " d_model"],
    *,
    position: int,
    scale: float,
    attentions: int,
    mlps: int,
    constants: Mapping[str, float],
    measured: float,
    named: str,
) -> Account:
    """Account for a number read along a direction after so many attentions and MLPs, or raise."""
    model = trace.model
    along = direction / scale
    amounts = trace.amounts[:mlps, position].to(model.device)
    answers = einsum(model.answers[:mlps], along, "mlp neuron d_model, d_model -> mlp neuron")
    heads = torch.zeros(attentions, model.config.heads, device=model.device)
    biases = torch.zeros(attentions, device=model.device)
    for layer in range(attentions):
        out, attention = write_along(trace, layer, position, along), model.attention[layer]
        reader = einsum(attention.out, out, "head d_head d_model, d_model -> head d_head")
        z = trace.z[layer, position].to(model.device)
        bias = attention.for_heads(attention.value_bias)
        heads[layer] = einsum(z - bias, reader, "head d_head, head d_head -> head")
        constant = einsum(bias, reader, "head d_head, head d_head ->")
        biases[layer] = constant + attention.out_bias @ out
    positions = model.position_embedding
    account = Account(
        measured=measured,
        embedding=float(model.embedding[trace.ids[position]] @ along),
        position=0.0 if positions is None else float(positions[position] @ along),
        heads=heads.cpu(),
        attention_biases=biases.cpu(),
        neurons=(amounts * answers).cpu(),
        mlp_biases=(model.answer_biases[:mlps] @ along).cpu(),
        constants=constants,
    )
    check_closed(account.total, measured, named=named)
    return account


def write_along(
    trace: Trace, layer: int, position: int, along: Float[Tensor, " d_model"]
) -> Float[Tensor, " d_model"]:
    """Turn a direction of the stream into one of what attention wrote, before its own norm if any."""
    gain, scales = trace.model.attention[layer].post_gain, trace.attention_post_scales
    if gain is None or scales is None:
        return along
    return along * gain / float(scales[layer, position])


def check_closed(total: float, measured: float, *, named: str) -> None:
    """Raise, with both numbers, unless what was added up is what was measured."""
    if not abs(measured - total) <= max(WITHIN, WITHIN_OF_LARGE * abs(measured)):
        raise AccountNotClosed(
            f"{named} is {measured:.4f} in the model, and its parts add up to {total:.4f}.",
            remedy="load the model and run the prompt again: the weights are not those of this run",
        )


def account_logit(
    trace: Trace, answer: int, versus: int | None, position: int, convention: str
) -> Account:
    """Account for a token's logit at a position, or for how far it is above another's."""
    model, logits = trace.model, trace.logits[position]
    constants = {"unembedding bias": float(model.unembedding_bias[answer])}
    measured = float(logits[answer])
    named = f"the logit of {model.vocab.show(answer)}"
    if versus is not None:
        constants["unembedding bias"] -= float(model.unembedding_bias[versus])
        measured -= float(logits[versus])
        named += f" less that of {model.vocab.show(versus)}"
    elif convention == "centred":
        constants["unembedding bias"] -= float(model.unembedding_bias.mean())
        mean = logits.double().mean()
        if model.config.logit_cap is not None:  # before the cap
            seen = normalise(model, trace.final[position].to(model.device))
            mean = seen @ model.mean_unembedding + model.unembedding_bias.mean()
        constants["vocabulary mean"] = float(mean)
    if model.config.logit_cap is not None:
        constants["logit cap"] = measured - _uncap(trace, position, answer)
        if versus is not None:
            constants["logit cap"] += _uncap(trace, position, versus)
    layers = model.config.layers
    return close_account(
        trace, read_direction(model, answer, versus, convention), position=position,
        scale=float(trace.final_scale[position]), attentions=layers, mlps=layers,
        constants=constants, measured=measured, named=named,
    )  # fmt: skip


def read_direction(
    model: Model, answer: int, versus: int | None, convention: str
) -> Float[Tensor, " d_model"]:
    """Return the direction of the stream along which an answer is pushed."""
    if versus is not None:
        return model.unembedding[answer] - model.unembedding[versus]
    if convention == "centred":
        return model.unembedding[answer] - model.mean_unembedding
    return model.unembedding[answer]


def _uncap(trace: Trace, position: int, token: int) -> float:
    """Return a token's logit before the cap, or raise if the cap does not lead to the model's own."""
    model = trace.model
    seen = normalise(model, trace.final[position].to(model.device))
    logit = seen @ model.unembedding[token] + model.unembedding_bias[token]
    own = float(trace.logits[position, token])
    check_closed(float(cap(model, logit)), own, named=f"the logit of {model.vocab.show(token)}")
    return float(logit)
