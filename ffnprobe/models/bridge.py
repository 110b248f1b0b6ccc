"""The one door to TransformerLens: run token ids through its hooks.

The bridge is booted when first needed (importing TransformerLens costs seconds) from the very
tensors the model was loaded with, so what is run and what is read cannot differ. It stays raw:
scores and activations do not depend on folding.

Hooked places, by our words; `[batch pos …]` at each layer:

    before_attention, before_mlp   the residual stream
    scores, activations            of the neurons, before and after the nonlinearity
    scales                         sqrt(var + eps) of the LayerNorm before the MLP
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

from ffnprobe.models.model import Model

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

PLACES = {
    "before_attention": "blocks.{layer}.hook_resid_pre",
    "before_mlp": "blocks.{layer}.hook_resid_mid",
    "scores": "blocks.{layer}.mlp.hook_pre",
    "activations": "blocks.{layer}.mlp.hook_post",
    "scales": "blocks.{layer}.ln2.hook_scale",
    "mixes": "blocks.{layer}.attn.hook_z",
    "patterns": "blocks.{layer}.attn.hook_pattern",
}
FINAL_PLACES = {"final": "ln_final.hook_in", "final_scale": "ln_final.hook_scale"}
Tap = Callable[[Tensor], Tensor | None]

_booted: "WeakKeyDictionary[Model, TransformerBridge]" = WeakKeyDictionary()
_turn = RLock()


def bridge_of(model: Model) -> "TransformerBridge":
    """Return the model's bridge, booting it the first time."""
    with _turn:
        if model not in _booted:
            _booted[model] = _boot(model)
        return _booted[model]


def _boot(model: Model) -> "TransformerBridge":
    # Nothing is fetched here, and a progress bar or a warning of a library is not ours to print.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

        logging.getLogger("transformers").setLevel(logging.ERROR)
        network = _network(model, GPT2LMHeadModel)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=model.vocab.tokenizer,
            bos_token="<|endoftext|>", eos_token="<|endoftext|>",
            name_or_path=model.name, add_bos_token=True,
        )  # fmt: skip
        return TransformerBridge.boot_transformers(
            model.name, hf_model=network, tokenizer=tokenizer, device=str(model.device)
        )


def _network(model: Model, kind: Any) -> Any:
    """Build the Hugging Face model around the loaded tensors, without a second copy of them."""
    from transformers import GPT2Config

    c = model.config
    config = GPT2Config(
        vocab_size=c.vocab, n_positions=c.positions, n_embd=c.d_model, n_layer=c.layers,
        n_head=c.heads, n_inner=c.d_mlp, activation_function=c.activation,
        layer_norm_epsilon=c.eps, tie_word_embeddings=c.is_tied,
        scale_attn_weights=c.is_attention_scaled,
        scale_attn_by_inverse_layer_idx=c.is_attention_scaled_by_layer,
        bos_token_id=model.vocab.bos, eos_token_id=model.vocab.bos, architectures=["GPT2LMHeadModel"],
    )  # fmt: skip
    with torch.device("meta"):
        network = kind(config)
    tensors = {
        name if name.startswith("lm_head") else f"transformer.{name}": model.raw(name)
        for name in model.weights
    }
    network.load_state_dict(tensors, assign=True, strict=not c.is_tied)
    network.tie_weights()
    return network.requires_grad_(False).eval()


def forward(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Mapping[tuple[str, int], Tap]
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids and return the logits; each tap sees its place and may return a replacement.

    A place is a word of this module's docstring with its layer (any number for the final ones).
    The hooks are gone when this returns, whether or not it succeeds.
    """

    def hook(tap: Tap) -> Callable[..., Tensor | None]:
        return lambda tensor, hook: tap(tensor)

    names = PLACES | FINAL_PLACES
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
