"""The Hugging Face network of a model, around the very tensors that were loaded.

It is what TransformerLens hooks and what rotary embeddings are asked of. Only options that are read
or change no number reach it; what TransformerLens misreads is written so that it reads it right.
"""

from dataclasses import fields
from typing import Any

import torch

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import short_name
from ffnprobe.models.families import FAMILIES
from ffnprobe.models.model import Model

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


def build_network(model: Model) -> Any:
    """Build the Hugging Face model around the loaded tensors, without a second copy of them."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError
    from transformers.initialization import no_init_weights

    family = FAMILIES[model.config.family]
    config_class, network_class = family.classes
    kind = getattr(transformers, config_class)
    _refuse_unknown(model, kind)
    native = {n: v for n, v in model.config.native.items() if n in family.all_options}
    tensors = {name: model.raw(name) for name in model.weights}
    options, changed = family.rewrite(model.config, tensors) if family.rewrite else ({}, {})
    try:
        config = kind(**native | options, architectures=[network_class])
        # Kept in fp32 and computed step by step, so that every hook sees what is computed.
        config.dtype, config._attn_implementation = torch.float32, "eager"
        with no_init_weights():
            network = getattr(transformers, network_class)(config)
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        cause = str(error).strip().splitlines()[-1].strip()
        raise ModelNotLoaded(f"{model.name}: its configuration is refused: {cause}") from None
    held = {short_name(name, model.config): name for name in network.state_dict()}
    named = {held[name]: tensor for name, tensor in (tensors | changed).items()}
    try:
        network.load_state_dict(named, assign=True, strict=not model.config.is_tied)
    except RuntimeError as error:
        cause = str(error).strip().splitlines()[-1].strip()
        raise ModelNotLoaded(
            f"{model.name}: Hugging Face reads other sizes from its configuration: {cause}"
        ) from None
    network.tie_weights()
    return network.requires_grad_(False).eval()


def _refuse_unknown(model: Model, kind: Any) -> None:
    """Refuse an option that this version of transformers has and we do not know, where it is set."""
    known = FAMILIES[model.config.family].all_options | HARMLESS
    for option in fields(kind):
        value = model.config.native.get(option.name)
        if option.name not in known and value not in (None, option.default):
            raise ModelNotLoaded(
                f"{model.name}: the option {option.name} is {value!r}; ffnprobe does not know what it "
                "changes.",
                remedy="pip install --upgrade ffnprobe, or the transformers this version was made for",
            )
