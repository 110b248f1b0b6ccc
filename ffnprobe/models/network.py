"""The Hugging Face network of a model, around the very tensors that were loaded.

It is what TransformerLens hooks and what rotary embeddings are asked of. Only options that are read
or change no number reach it; what TransformerLens misreads is written so that it reads it right.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import short_name
from ffnprobe.models.model import Model
from ffnprobe.models.options import HARMLESS, READ

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


def build_network(model: Model) -> Any:
    """Build the Hugging Face model around the loaded tensors, without a second copy of them."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError
    from transformers.initialization import no_init_weights

    config_class, network_class = CLASSES[model.config.family]
    kind = getattr(transformers, config_class)
    _refuse_unknown(model, kind)
    native = {n: v for n, v in model.config.native.items() if n in READ[model.config.family]}
    changed, tensors = _as_bridged(model)
    try:
        config = kind(**native | changed, architectures=[network_class])
        # Kept in fp32 and computed step by step, so that every hook sees what is computed.
        config.dtype, config._attn_implementation = torch.float32, "eager"
        with no_init_weights():
            network = getattr(transformers, network_class)(config)
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        cause = str(error).strip().splitlines()[-1].strip()
        raise ModelNotLoaded(f"{model.name}: its configuration is refused: {cause}") from None
    held = {short_name(name, model.config): name for name in network.state_dict()}
    named = {held[name]: tensor for name, tensor in tensors.items()}
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
    known = READ[model.config.family] | HARMLESS
    for option in fields(kind):
        value = model.config.native.get(option.name)
        if option.name not in known and value not in (None, option.default):
            raise ModelNotLoaded(
                f"{model.name}: the option {option.name} is {value!r}; ffnprobe does not know what it "
                "changes.",
                remedy="pip install --upgrade ffnprobe, or the transformers this version was made for",
            )


def _as_bridged(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Write what TransformerLens misreads in terms that it reads right: options, and all tensors."""
    c, lay = model.config, model.layout
    options: dict[str, Any] = {}
    if c.family == "gpt2":
        # Older configurations call it n_ctx, which Hugging Face's code no longer reads.
        options["n_positions"] = c.positions
    tensors = {name: model.raw(name) for name in model.weights}
    layers = [lay.of(layer, str(lay.fused)) for layer in range(c.layers)] if lay.fused else []
    if c.family == "gpt2" and not c.is_attention_scaled:
        # It always divides by sqrt(d_head): queries that much longer give the same scores.
        options["scale_attn_weights"] = True
        longer = torch.ones(3 * c.d_model, device=model.device)
        longer[: c.d_model] = c.d_head**0.5
        for name in layers:
            tensors[f"{name}.weight"] = tensors[f"{name}.weight"] * longer
            tensors[f"{name}.bias"] = tensors[f"{name}.bias"] * longer
    if c.family == "gpt_neox" and "query" not in c.biases:
        # It asks for biases in any case: zeros are none.
        options["attention_bias"] = True
        outs = [lay.of(layer, lay.out) for layer in range(c.layers)]
        for name in (*layers, *outs):
            tensors[f"{name}.bias"] = torch.zeros(
                len(tensors[f"{name}.weight"]), device=model.device
            )
    return options, tensors
