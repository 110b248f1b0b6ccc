"""The one door to TransformerLens: run token ids through its hooks.

The bridge is booted when first needed (importing TransformerLens costs seconds) from the very
tensors the model was loaded with, so what is run and what is read cannot differ. It stays raw:
scores and activations do not depend on folding.

Hooked places, by our words; `[batch pos …]` at each layer:

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

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import short_name
from ffnprobe.models.model import Model

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

PLACES = {
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
FINAL_PLACES = {"final": "ln_final.hook_in"}
# The classes of transformers that a family's network is built of.
CLASSES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "gpt_neo": ("GPTNeoConfig", "GPTNeoForCausalLM"),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM"),
    "opt": ("OPTConfig", "OPTForCausalLM"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM"),
    "gemma3_text": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
}
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


def places_of(model: Model) -> dict[str, str]:
    """Name the hooked places this model has, each with TransformerLens's name for it."""
    gated = GATED_PLACES if model.config.is_gated else {}
    post = POST_PLACES if model.config.has_post_norms else {}
    return PLACES | gated | post | FINAL_PLACES


def _boot(model: Model) -> "TransformerBridge":
    # Nothing is fetched here, and a progress bar or a warning of a library is not ours to print.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        logging.getLogger("transformers").setLevel(logging.ERROR)
        network = _network(model)
        # No tokenizer: only token ids come here, BOS among them, and not every BOS has a string.
        return build_bridge_from_module(
            network,
            type(network).__name__,
            hf_config=network.config,
            device=str(model.device),
            model_name=model.name,
        )


def _network(model: Model) -> Any:
    """Build the Hugging Face model around the loaded tensors, without a second copy of them."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError
    from transformers.initialization import no_init_weights

    config_class, network_class = CLASSES[model.config.family]
    try:
        config = getattr(transformers, config_class)(
            **model.config.native, architectures=[network_class]
        )
        # Kept in fp32 and computed step by step, so that every hook sees what is computed.
        config.dtype, config._attn_implementation = torch.float32, "eager"
        with no_init_weights():
            network = getattr(transformers, network_class)(config)
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        cause = str(error).strip().splitlines()[-1].strip()
        raise ModelNotLoaded(f"{model.name}: its configuration is refused: {cause}") from None
    named = network.state_dict()
    held = {short_name(name, model.config): name for name in named}
    tensors = {held[name]: model.raw(name) for name in model.weights}
    network.load_state_dict(tensors, assign=True, strict=not model.config.is_tied)
    network.tie_weights()
    if (rotary := getattr(network.base_model, "rotary_emb", None)) is not None:
        _rotaries[model] = rotary
    return network.requires_grad_(False).eval()


def rotations(
    model: Model, layer: int, length: int
) -> tuple[Float[Tensor, "pos rotated"], Float[Tensor, "pos rotated"]] | None:
    """Return the cosines and sines positions are told by in a layer; None where they are embedded."""
    bridge_of(model)
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
    """Run token ids and return the logits; each tap sees its place and may return a replacement.

    A place is a word of this module's docstring with its layer (any number for the final ones).
    The hooks are gone when this returns, whether or not it succeeds.
    """

    def hook(tap: Tap) -> Callable[..., Tensor | None]:
        return lambda tensor, hook: tap(tensor)

    names = places_of(model)
    hooks = [(names[place].format(layer=layer), hook(tap)) for (place, layer), tap in taps.items()]
    with _turn, torch.no_grad():
        logits: Tensor = bridge_of(model).run_with_hooks(ids.to(model.device), fwd_hooks=hooks)
    return logits


class _SeenEnough(Exception):
    """Ends a run whose logits nobody asked for."""


def watch(model: Model, ids: Int[Tensor, "batch pos"], taps: Mapping[tuple[str, int], Tap]) -> None:
    """Run token ids through all layers for the taps' sake; the logits are not made."""

    def stop(_: Tensor) -> None:
        raise _SeenEnough

    with suppress(_SeenEnough):
        forward(model, ids, {**taps, ("final", 0): stop})


def capture(
    model: Model, ids: Int[Tensor, "batch pos"], places: Iterable[str]
) -> dict[str, Tensor]:
    """Run token ids once and copy out the places named, `[layer batch …]`, and the logits, to CPU."""
    layers = model.config.layers
    found: dict[str, Tensor] = {}

    def keep(place: str, layer: int | None) -> Tap:
        def tap(tensor: Tensor) -> None:
            if layer is None:
                found[place] = tensor.cpu().clone()
                return
            if place not in found:
                found[place] = torch.empty(layers, *tensor.shape, dtype=tensor.dtype)
            found[place][layer] = tensor

        return tap

    taps: dict[tuple[str, int], Tap] = {}
    for place in places:
        for layer in [None] if place in FINAL_PLACES else range(layers):
            taps[place, layer or 0] = keep(place, layer)
    found["logits"] = forward(model, ids, taps).cpu()
    return found
