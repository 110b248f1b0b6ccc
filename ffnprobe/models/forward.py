"""Run token ids through all layers: by our own step, or by TransformerLens's hooks where a model asks for them.

Both see and replace the same things, by the same names: `ffnprobe.models.bridge` lists them. Our own step
needs torch alone; before it is trusted with a model it is compared with Hugging Face and TransformerLens
(`ffnprobe.models.verification`). `load(…, hooks=True)` and `--hooks` run a model by the hooks. Every result
that comes of a run says in its provenance who ran it.

>>> import ffnprobe as fp
>>> fp.run(fp.load("pocket"), "Michael Jordan").provenance.run_by
"ffnprobe's own forward pass"
>>> fp.run(fp.load("pocket", hooks=True), "Michael Jordan").provenance.run_by
'TransformerLens hooks'
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import PromptRefused
from ffnprobe.models import bridge
from ffnprobe.models.model import Model
from ffnprobe.models.step import Hook, normalise, step, unembed

# By a hook's name and its layer, 0 for the final one.
Hooks = Mapping[tuple[str, int], Hook]


def forward(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Hooks
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids and return the logits; each tap sees its hook and may return a replacement.

    Logits that overflow are refused.
    """
    model.check()
    run = bridge.run_hooked if model.hooks else run_steps
    with torch.no_grad():
        return _finite(model, run(model, ids.to(model.device), taps), "logits")


def run_steps(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Hooks
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids by our own step, layer after layer."""
    embedding = model.weights[f"{model.layout.embedding}.weight"]
    stream = embedding[ids.to(embedding.device)].to(device=model.device, dtype=torch.float32)
    stream = stream * model.config.embedding_scale
    if model.position_embedding is not None:
        stream = stream + model.position_embedding[: ids.shape[1]]
    at = torch.arange(ids.shape[1], device=model.device)[None]
    for layer in range(model.config.layers):
        own = {name: tap for (name, number), tap in taps.items() if number == layer}
        (stream,) = step(model, layer, [stream], [at], taps=[own] if own else None)
    changed = taps["final", 0](stream) if ("final", 0) in taps else None
    return unembed(model, normalise(model, stream if changed is None else changed))


def _finite(model: Model, numbers: Tensor, name: str) -> Tensor:
    """Return numbers that are finite, or say that they are not."""
    # A sum is finite whenever every number is and stays far below overflow: cheap, then exact.
    if not numbers.sum().isfinite() and not numbers.isfinite().all():
        raise PromptRefused(
            f"{model.name} overflows on this prompt: its {name} exceed what fp32 holds "
            f"(3.4e38), so they are not numbers.",
            remedy="a model whose weights are not this large; when steering, a smaller change",
        )
    return numbers


class _SeenEnough(Exception):
    """Ends a run whose logits nobody asked for."""


def watch(model: Model, ids: Int[Tensor, "batch pos"], taps: Hooks) -> None:
    """Run token ids through all layers for the taps' sake; the logits are not made."""
    at_end = taps.get(("final", 0))

    def stop(stream: Tensor) -> None:
        _finite(model, stream, "vectors")
        if at_end is not None:
            at_end(stream)
        raise _SeenEnough

    with suppress(_SeenEnough):
        forward(model, ids, {**taps, ("final", 0): stop})


def capture(model: Model, ids: Int[Tensor, "batch pos"], hooks: Iterable[str]) -> dict[str, Tensor]:
    """Run token ids once and copy out the hooks named, `[layer batch …]`, and the logits, to CPU."""
    layers = model.config.layers
    found: dict[str, Tensor] = {}

    def keep(name: str, layer: int, tensor: Tensor) -> None:
        if name in bridge.FINAL_HOOKS:
            found[name] = tensor.cpu().clone()
            return
        if name not in found:
            found[name] = torch.empty(layers, *tensor.shape, dtype=tensor.dtype)
        found[name][layer] = tensor

    taps: dict[tuple[str, int], Hook] = {}
    for name in hooks:
        for layer in range(1 if name in bridge.FINAL_HOOKS else layers):
            taps[name, layer] = partial(keep, name, layer)
    found["logits"] = forward(model, ids, taps).cpu()
    return found
