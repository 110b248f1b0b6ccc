"""The one door to TransformerLens: run token ids through its hooks.

The bridge is booted when first needed (importing TransformerLens costs seconds) from the very tensors the
model was loaded with, so what is run and what is read cannot differ; they are not folded. The network is
Hugging Face's code, which gets only options that are read or change no number (`families`).

Hooks, by our words; `[batch pos …]` at each layer:

    before_attention, before_mlp   the residual stream
    scores, activations            of the neurons, before and after the nonlinearity
    gate_scores                    of the gates, where neurons have gates
    attention_totals, mlp_totals   what is written, before the norm it is written through, if any
    z                              each head's output z: the values it attended to, weighted
    patterns                       attention, `[batch head query key]`
    final, final_scale             the residual stream before the last LayerNorm, and its scale

Hooks sit on the network itself, so the runs of a model take turns: two threads never see each other's
hooks. An interrupt may come before TransformerLens has taken a hook off: a hook does nothing but in its own
run.
"""

import json
import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import short_name
from ffnprobe.models.config import refuse_config
from ffnprobe.models.families import FAMILIES
from ffnprobe.models.model import Model
from ffnprobe.models.step import Hook, hooks_of

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

# Options of how a model is trained, stored, stopped or put to another task, or that only matter below
# fp32. A new option of a new version of transformers is not here: it is refused by name where it is set.
HARMLESS = frozenset(
    ("resid_pdrop", "embd_pdrop", "attn_pdrop", "resid_dropout", "embed_dropout", "attention_dropout",
     "hidden_dropout", "classifier_dropout", "dropout", "layerdrop", "initializer_range", "init_std",
     "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
     "summary_first_dropout", "use_cache", "eos_token_id", "pad_token_id", "is_decoder",
     "pretraining_tp", "reorder_and_upcast_attn", "transformers_version", "architectures",
     "output_hidden_states", "return_dict", "dtype", "chunk_size_feed_forward", "is_encoder_decoder",
     "id2label", "label2id", "problem_type")
)  # fmt: skip
# A few tokens spread over the vocabulary, on which codes are compared.
TOKENS, STRIDE = 8, 7919


class Booted(NamedTuple):
    """A model's bridge, what rotates its positions, Hugging Face's own logits of a few tokens."""

    bridge: "TransformerBridge"
    rotary: Any
    logits: Float[Tensor, "pos vocab"]
    lock: Any
    live: dict[tuple[object, str, int], Hook]  # of the current run: by the run, the name, the layer


_booted: "WeakKeyDictionary[Model, Booted]" = WeakKeyDictionary()
_turn = RLock()


def find_published(name: str) -> tuple[str, str, str] | None:
    """Return the repository, file and commit of a published Jacobian lens, by TransformerLens's list of them."""
    spec = find_spec("transformer_lens")
    assert spec is not None
    assert spec.submodule_search_locations
    listed = Path(spec.submodule_search_locations[0]) / "tools/analysis/jacobian_lens_registry.json"
    lenses = json.loads(listed.read_text(encoding="utf-8"))
    revision = lenses.pop("revision")
    for short, lens in lenses.items():
        if isinstance(lens, dict) and name in (short, *lens["aliases"]):
            return lens["repo_id"], lens["filename"], revision
    return None


def bridge_of(model: Model) -> "TransformerBridge":
    """Return the model's bridge, booting it the first time."""
    return boot(model).bridge


def boot(model: Model) -> Booted:
    with _turn:
        if model not in _booted:
            _booted[model] = _boot(model)
        return _booted[model]


def few_tokens(model: Model) -> Int[Tensor, "1 pos"]:
    count = min(TOKENS, model.config.positions)
    ids = [(1 + order * STRIDE) % model.config.vocab for order in range(count)]
    return torch.tensor([ids], device=model.device)


def _boot(model: Model) -> Booted:
    # Nothing is fetched here, and a progress bar or a warning of a library is not ours to print.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        logging.getLogger("transformers").setLevel(logging.ERROR)
        network = _build_network(model)
        rotary = getattr(network.base_model, "rotary_emb", None)
        with torch.no_grad():
            logits = network(few_tokens(model)).logits[0]  # before TransformerLens changes it
        named = {"model_name": model.name, "device": str(model.device), "hf_config": network.config}
        # No tokenizer: only token ids come here, BOS among them, and not every BOS has a string.
        bridge = build_bridge_from_module(network, type(network).__name__, **named)
        return Booted(bridge, rotary, logits, RLock(), {})


def _build_network(model: Model) -> Any:
    """Build the Hugging Face model around the loaded tensors, without a second copy of them."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError
    from transformers.initialization import no_init_weights

    family = FAMILIES[model.config.family]
    config_class, network_class = (getattr(transformers, name) for name in family.classes)
    _refuse_unknown(model, config_class)
    native = {n: v for n, v in model.config.native.items() if n in family.all_options}
    tensors = {name: model.raw(name) for name in model.weights}
    options, changed = family.rewrite(model.config, tensors) if family.rewrite else ({}, {})
    try:
        config = config_class(**native | options, architectures=[family.classes[1]])
        # Kept in fp32 and computed step by step, so that every hook sees what is computed.
        config.dtype, config._attn_implementation = torch.float32, "eager"
        with no_init_weights():
            network = network_class(config)
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise refuse_config(model.name, error) from None
    names = {short_name(name, model.config): name for name in network.state_dict()}
    named = {names[name]: tensor for name, tensor in (tensors | changed).items()}
    try:
        network.load_state_dict(named, assign=True, strict=not model.config.is_tied)
    except RuntimeError as error:
        why = "Hugging Face reads other sizes from its configuration"
        raise refuse_config(model.name, error, why) from None
    network.tie_weights()
    return network.requires_grad_(False).eval()


def _refuse_unknown(model: Model, config_class: Any) -> None:
    """Refuse an option that this version of transformers has and we do not know, where it is set."""
    options = FAMILIES[model.config.family].all_options | HARMLESS
    for option in fields(config_class):
        value = model.config.native.get(option.name)
        if option.name not in options and value not in (None, option.default):
            raise ModelNotLoaded(
                f"{model.name}: the option {option.name} is {value!r}; ffnprobe does not know what it "
                "changes.",
                remedy="pip install --upgrade ffnprobe, or the transformers this version was made for",
            )


def forget_bridge(model: Model) -> None:
    """Let go of a model's bridge, if it has one."""
    with _turn:
        _booted.pop(model, None)


def run_hooked(
    model: Model, ids: Int[Tensor, "batch pos"], hooks: Mapping[tuple[str, int], Hook]
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids through the hooks; they do nothing when this returns, whether or not it succeeds."""
    booted, run, names = boot(model), object(), hooks_of(model)
    live = booted.live

    def call_live(name: str, layer: int, tensor: Tensor, hook: object) -> Tensor | None:
        own = live.get((run, name, layer))
        return None if own is None else own(tensor)

    theirs = [(names[n].format(layer=layer), partial(call_live, n, layer)) for n, layer in hooks]
    with booted.lock:
        try:
            live.clear()  # an interrupt may have come before this was done below
            live.update({(run, *place): hook for place, hook in hooks.items()})
            logits: Tensor = booted.bridge.run_with_hooks(ids, fwd_hooks=theirs)
        finally:
            live.clear()
    return logits
