"""Who runs a model: TransformerLens's hooks, or our own forward pass. Only this module decides.

`load(…, hooks=True)`, Python's default, runs a model by the hooks; the command line loads with
`hooks=False` unless `--hooks` is typed. Both see and replace the same things, by the same names:
`ffnprobe.models.bridge` lists them. Every result that comes of a run says in its provenance who ran it.

>>> import ffnprobe as fp
>>> fp.run(fp.load("pocket"), "Michael Jordan").provenance.run_by
'TransformerLens hooks'
>>> fp.run(fp.load("pocket", hooks=False), "Michael Jordan").provenance.run_by
"ffnprobe's own forward pass"
"""

from collections.abc import Iterable
from contextlib import suppress

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import PromptRefused
from ffnprobe.models import bridge
from ffnprobe.models.model import Model
from ffnprobe.models.own_pass import Tap, Taps, Turns, run_own, turn
from ffnprobe.models.verification import verified_rotary


def prepare(model: Model) -> None:
    """Do in advance what the first run would wait for."""
    if model.hooks:
        bridge.bridge_of(model)
    else:
        verified_rotary(model)


def rotations(model: Model, layer: int, length: int) -> Turns:
    """Return the cosines and sines positions are told by in a layer; None where they are embedded."""
    if model.hooks:
        return bridge.rotations(model, layer, length)
    rotary = verified_rotary(model)
    return turn(model, rotary[layer], length) if rotary else None


def forward(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Taps
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids and return the logits; each tap sees its hook and may return a replacement.

    Logits that overflow are refused. A hook is a word of the bridge's docstring with its layer (0 for
    the final ones).
    """
    ids = ids.to(model.device)
    with torch.no_grad():
        if model.hooks:
            logits = bridge.run_hooked(model, ids, taps)
        else:
            layers = range(model.config.layers)
            turns = [rotations(model, layer, ids.shape[1]) for layer in layers]
            logits = run_own(model, ids, taps, turns)
    return _finite(model, logits, "logits")


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


def watch(model: Model, ids: Int[Tensor, "batch pos"], taps: Taps) -> None:
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

    def keep(name: str, layer: int | None) -> Tap:
        def tap(tensor: Tensor) -> None:
            if layer is None:
                found[name] = tensor.cpu().clone()
                return
            if name not in found:
                found[name] = torch.empty(layers, *tensor.shape, dtype=tensor.dtype)
            found[name][layer] = tensor

        return tap

    taps: dict[tuple[str, int], Tap] = {}
    for name in hooks:
        for layer in [None] if name in bridge.FINAL_HOOKS else range(layers):
            taps[name, layer or 0] = keep(name, layer)
    found["logits"] = forward(model, ids, taps).cpu()
    return found
