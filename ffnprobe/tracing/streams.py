"""The residual stream at one position: after the embedding, and after each attention and MLP."""

from typing import TYPE_CHECKING

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise, unembed, write_heads

if TYPE_CHECKING:
    from ffnprobe.tracing.trace import Trace


@torch.no_grad()
def read_logits(trace: "Trace", after: str, *, position: int = -1) -> Float[Tensor, " vocab"]:
    """Read the stream at a position after the embedding or after a layer's MLP, as if it were the last."""
    points = name_streams(trace.model)
    if after not in points:
        raise OptionRefused(
            f'the stream is not read after "{after}".', remedy=f"{points[0]}, L0–{points[-1]}"
        )
    # Between the embedding and the end every layer has two stages: attention, then MLP.
    stream = line_up(trace, trace.at(position))[2 * points.index(after), None]
    seen = normalise(trace.model, stream.to(trace.model.device))
    return unembed(trace.model, seen)[0].cpu()


def name_streams(model: Model) -> list[str]:
    """Name the points after which the stream can be read: the embedding, then every layer."""
    return ["embedding", *(f"L{layer}" for layer in range(model.config.layers))]


def line_up(trace: "Trace", position: int) -> Float[Tensor, "stage d_model"]:
    """Line up the stream at a position: the embedding, then after each attention and MLP."""
    before, after = trace.before_attention[:, position], trace.before_mlp[:, position]
    if trace.model.config.is_parallel:  # what the MLP reads has not been through attention
        device, layers = trace.model.device, range(len(before))
        mixes = trace.mixes[:, position].to(device)
        written = [write_heads(trace.model, layer, mixes[layer]).cpu() for layer in layers]
        after = before + torch.stack(written)
    both = torch.stack([before, after])
    inside = rearrange(both, "part layer d_model -> (layer part) d_model")
    return torch.cat([inside, trace.final[position, None]])
