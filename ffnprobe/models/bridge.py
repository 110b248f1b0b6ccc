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

Hooks sit on the network itself, so the runs of a model take turns: two threads never see each other's
hooks. Every model has a network of its own, so those of two models do not wait for each other.
"""

import logging
import os
import warnings
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.agreement import check_agreement, few_tokens
from ffnprobe.models.model import Model
from ffnprobe.models.network import build_network
from ffnprobe.models.own_pass import Rotary, Tap, Taps, Turns, run_own, turn

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

_booted: "WeakKeyDictionary[Model, TransformerBridge]" = WeakKeyDictionary()
_rotaries: "WeakKeyDictionary[Model, Any]" = WeakKeyDictionary()
_compared: "WeakSet[Model]" = WeakSet()
_running: "WeakKeyDictionary[Model, RLock]" = WeakKeyDictionary()
_turn = RLock()


def bridge_of(model: Model) -> "TransformerBridge":
    """Return the model's bridge, booting it the first time."""
    with _turn:
        if model not in _booted:
            _booted[model] = _boot(model)
            _running[model] = RLock()
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
            logits = {
                "Hugging Face": theirs,
                "TransformerLens": bridge(ids)[0],
                "ffnprobe": run_own(model, ids, {}, turns)[0],
            }
        if check_agreement(model, logits):
            _compared.add(model)
        return bridge


def was_compared(model: Model) -> bool:
    """Say whether a bridge of this model was booted and gave the same logits as our own pass."""
    return model in _compared


def forget_bridge(model: Model) -> None:
    """Let go of a model's bridge, if it has one."""
    with _turn:
        _booted.pop(model, None)


def rotations(model: Model, layer: int, length: int) -> Turns:
    """Return the cosines and sines positions are told by in a layer; None where they are embedded."""
    bridge_of(model)
    return _rotations(model, layer, length)


def _rotations(model: Model, layer: int, length: int, *, first: int = 0) -> Turns:
    if model not in _rotaries:
        return None
    rotary, like = _rotaries[model], torch.zeros(1, device=model.device)
    where = torch.arange(first, length, device=model.device)[None]
    with torch.no_grad():
        cosines, sines = rotary(like, where, *_kinds(rotary, layer))
    return cosines[0], sines[0]


def _kinds(rotary: Any, layer: int) -> list[str]:
    # Gemma 3 turns by one base where attention sees all and by another where it has a window.
    return [rotary.config.layer_types[layer]] if hasattr(rotary, "layer_types") else []


def rotary_of(model: Model) -> tuple[Rotary, ...]:
    """Return what each layer's positions are turned by, checked at the last position; or nothing."""
    bridge_of(model)
    if model not in _rotaries:
        return ()
    module, last, found = _rotaries[model], model.config.positions, []
    for layer in range(model.config.layers):
        named = "".join(f"{kind}_" for kind in _kinds(module, layer))
        frequencies = getattr(module, f"{named}inv_freq").float().cpu().tolist()
        found.append((tuple(frequencies), float(getattr(module, f"{named}attention_scaling"))))
        ours = turn(model, found[-1], last, first=last - 1)
        theirs = _rotations(model, layer, last, first=last - 1)
        if not all(map(torch.allclose, ours, theirs or ())):
            raise ModelNotLoaded(
                f"{model.name}: ffnprobe and Hugging Face tell its last position differently.",
                remedy="--hooks, which runs it by TransformerLens",
            )
    return tuple(found)


def run_hooked(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Taps
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids through the hooks; they are gone when this returns, whether or not it succeeds."""

    def hook(tap: Tap) -> Callable[..., Tensor | None]:
        return lambda tensor, hook: tap(tensor)

    names = hooks_of(model)
    hooks = [(names[name].format(layer=layer), hook(tap)) for (name, layer), tap in taps.items()]
    bridge = bridge_of(model)
    with _running[model]:
        logits: Tensor = bridge.run_with_hooks(ids, fwd_hooks=hooks)
    return logits
