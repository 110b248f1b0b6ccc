"""The one door to TransformerLens: run token ids through its hooks.

The bridge is booted when first needed (importing TransformerLens costs seconds) from the very
tensors the model was loaded with, so what is run and what is read cannot differ. It stays raw:
scores and activations do not depend on folding.

Hooks, by our words; `[batch pos …]` at each layer:

    before_attention, before_mlp   the residual stream
    scores, activations            of the neurons, before and after the nonlinearity
    gate_scores                    of the gates, where neurons have gates
    attention_totals, mlp_totals   what is written, before the norm it is written through, if any
    mixes                          what each head mixed from the values it attended to
    patterns                       attention, `[batch head query key]`
    final, final_scale             the residual stream before the last LayerNorm, and its scale

Hooks sit on the network itself, so runs take turns: two threads never see each other's hooks.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import PromptRefused
from ffnprobe.models.agreement import check_agreement, few_tokens, logits_of
from ffnprobe.models.model import Model
from ffnprobe.models.network import build_network

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

HOOKS = {
    "before_attention": "blocks.{layer}.hook_resid_pre",
    "before_mlp": "blocks.{layer}.ln2.hook_in",
    "scores": "blocks.{layer}.mlp.hook_pre",
    "activations": "blocks.{layer}.mlp.hook_post",
    "mixes": "blocks.{layer}.attn.hook_z",
    "patterns": "blocks.{layer}.attn.hook_pattern",
}
# With a gate, TransformerLens calls the gate's score `hook_pre` and the question's `hook_pre_linear`.
GATED_PLACES = {
    "scores": "blocks.{layer}.mlp.hook_pre_linear",
    "gate_scores": "blocks.{layer}.mlp.hook_pre",
}
POST_PLACES = {
    "attention_totals": "blocks.{layer}.ln1_post.hook_in",
    "mlp_totals": "blocks.{layer}.ln2_post.hook_in",
}
FINAL_HOOKS = {"final": "ln_final.hook_in"}
Tap = Callable[[Tensor], Tensor | None]

_booted: "WeakKeyDictionary[Model, TransformerBridge]" = WeakKeyDictionary()
_rotaries: "WeakKeyDictionary[Model, Any]" = WeakKeyDictionary()
_turn = RLock()


def bridge_of(model: Model) -> "TransformerBridge":
    """Return the model's bridge, booting it the first time."""
    with _turn:
        if model not in _booted:
            _booted[model] = _boot(model)
        return _booted[model]


def hooks_of(model: Model) -> dict[str, str]:
    """Name the hooks this model has, each with TransformerLens's name for it."""
    gated = GATED_PLACES if model.config.is_gated else {}
    post = POST_PLACES if model.config.has_post_norms else {}
    return HOOKS | gated | post | FINAL_HOOKS


def _boot(model: Model) -> "TransformerBridge":
    # Nothing is fetched here, and a progress bar or a warning of a library is not ours to print.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        logging.getLogger("transformers").setLevel(logging.ERROR)
        network = build_network(model)
        if (rotary := getattr(network.base_model, "rotary_emb", None)) is not None:
            _rotaries[model] = rotary
        some = few_tokens(model)
        ids = torch.tensor([some], device=model.device)
        with torch.no_grad():
            theirs = network(ids).logits[0]
        # No tokenizer: only token ids come here, BOS among them, and not every BOS has a string.
        bridge = build_bridge_from_module(
            network,
            type(network).__name__,
            hf_config=network.config,
            device=str(model.device),
            model_name=model.name,
        )
        turns = [_rotations(model, layer, len(some)) for layer in range(model.config.layers)]
        with torch.no_grad():
            check_agreement(
                model,
                {
                    "Hugging Face": theirs,
                    "TransformerLens": bridge(ids)[0],
                    "ffnprobe": logits_of(model, some, turns),
                },
            )
        return bridge


def rotations(
    model: Model, layer: int, length: int
) -> tuple[Float[Tensor, "pos rotated"], Float[Tensor, "pos rotated"]] | None:
    """Return the cosines and sines positions are told by in a layer; None where they are embedded."""
    bridge_of(model)
    return _rotations(model, layer, length)


def _rotations(model: Model, layer: int, length: int) -> tuple[Tensor, Tensor] | None:
    if model not in _rotaries:
        return None
    rotary, like = _rotaries[model], torch.zeros(1, device=model.device)
    where = torch.arange(length, device=model.device)[None]
    # Gemma 3 turns by one base where attention sees all and by another where it has a window.
    kinds = [rotary.config.layer_types[layer]] if hasattr(rotary, "layer_types") else []
    with torch.no_grad():
        cosines, sines = rotary(like, where, *kinds)
    return cosines[0], sines[0]


def forward(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Mapping[tuple[str, int], Tap]
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids and return the logits; each tap sees its hook and may return a replacement.

    Logits that overflow are refused. A hook is a word of this module's docstring with its layer (any number for the final ones).
    The hooks are gone when this returns, whether or not it succeeds.
    """

    def hook(tap: Tap) -> Callable[..., Tensor | None]:
        return lambda tensor, hook: tap(tensor)

    names = hooks_of(model)
    hooks = [(names[name].format(layer=layer), hook(tap)) for (name, layer), tap in taps.items()]
    with _turn, torch.no_grad():
        logits: Tensor = bridge_of(model).run_with_hooks(ids.to(model.device), fwd_hooks=hooks)
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


def watch(model: Model, ids: Int[Tensor, "batch pos"], taps: Mapping[tuple[str, int], Tap]) -> None:
    """Run token ids through all layers for the taps' sake; the logits are not made."""

    def stop(stream: Tensor) -> None:
        _finite(model, stream, "vectors")
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
        for layer in [None] if name in FINAL_HOOKS else range(layers):
            taps[name, layer or 0] = keep(name, layer)
    found["logits"] = forward(model, ids, taps).cpu()
    return found
