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
from collections.abc import Callable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.models.network import build_network
from ffnprobe.models.step import Tap

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

# A few tokens spread over the vocabulary, on which codes are compared.
TOKENS, STRIDE = 8, 7919


class Booted(NamedTuple):
    """A model's bridge, what rotates its positions, and Hugging Face's own logits of a few tokens."""

    bridge: "TransformerBridge"
    rotary: Any
    logits: Float[Tensor, "pos vocab"]
    lock: Any


_booted: "WeakKeyDictionary[Model, Booted]" = WeakKeyDictionary()
_turn = RLock()


def bridge_of(model: Model) -> "TransformerBridge":
    """Return the model's bridge, booting it the first time."""
    return boot(model).bridge


def boot(model: Model) -> Booted:
    """Boot a model's bridge, once."""
    with _turn:
        if model not in _booted:
            _booted[model] = _boot(model)
        return _booted[model]


def few_tokens(model: Model) -> Int[Tensor, "1 pos"]:
    """Choose token ids spread over the vocabulary."""
    many = min(TOKENS, model.config.positions)
    some = [(1 + order * STRIDE) % model.config.vocab for order in range(many)]
    return torch.tensor([some], device=model.device)


def hooks_of(model: Model) -> dict[str, str]:
    """Name the hooks this model has, each with TransformerLens's name for it."""
    gated = GATED_PLACES if model.config.is_gated else {}
    post = POST_PLACES if model.config.has_post_norms else {}
    return HOOKS | gated | post | FINAL_HOOKS


def _boot(model: Model) -> Booted:
    # Nothing is fetched here, and a progress bar or a warning of a library is not ours to print.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        logging.getLogger("transformers").setLevel(logging.ERROR)
        network = build_network(model)
        rotary = getattr(network.base_model, "rotary_emb", None)
        with torch.no_grad():
            logits = network(few_tokens(model)).logits[0]  # before TransformerLens changes it
        # No tokenizer: only token ids come here, BOS among them, and not every BOS has a string.
        bridge = build_bridge_from_module(
            network,
            type(network).__name__,
            hf_config=network.config,
            device=str(model.device),
            model_name=model.name,
        )
        return Booted(bridge, rotary, logits, RLock())


def forget_bridge(model: Model) -> None:
    """Let go of a model's bridge, if it has one."""
    with _turn:
        _booted.pop(model, None)


def run_hooked(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Mapping[tuple[str, int], Tap]
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids through the hooks; they are gone when this returns, whether or not it succeeds."""

    def hook(tap: Tap) -> Callable[..., Tensor | None]:
        return lambda tensor, hook: tap(tensor)

    names = hooks_of(model)
    hooks = [(names[name].format(layer=layer), hook(tap)) for (name, layer), tap in taps.items()]
    booted = boot(model)
    with booted.lock:
        logits: Tensor = booted.bridge.run_with_hooks(ids, fwd_hooks=hooks)
    return logits
