"""A model that is in memory already: a Hugging Face model, or a TransformerBridge around one.

Its tensors are read as they are, not copied; load it again after you have changed them. The object itself
is not changed: prompts are run on a network of our own around the same tensors. On a few tokens it must
give the logits that the object gives.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.bridge import few_tokens
from ffnprobe.models.checkpoint import arrange, fingerprint, short_name
from ffnprobe.models.config import Config, parse_config
from ffnprobe.models.forward import run_steps
from ffnprobe.models.model import Model
from ffnprobe.models.sources import OBJECT, Source
from ffnprobe.models.tokenizer import Given
from ffnprobe.models.verification import check_agreement
from ffnprobe.models.vocab import read_vocab

# A bridge keeps the module it stands for under this name.
_INSIDE = "_original_component."


def load_object(
    given: torch.nn.Module, device: torch.device, *, tokenizer: Given | None, hooks: bool
) -> Model:
    """Make a model of an object one already has."""
    module = _open(given)
    options = module.config.to_dict()
    where = f"the {type(given).__name__} given"
    config = parse_config(options, where=where)
    weights = arrange(_wanted(module, config, is_bridge=module is not given), config, where=where)
    own = tokenizer if tokenizer is not None else getattr(given, "tokenizer", None)
    named = str(options.get("_name_or_path") or "")
    folder = Path(named or "no folder")
    if own is None and not folder.is_dir():
        raise ModelNotLoaded(
            f"{where} has no tokenizer.",
            remedy='load(…, tokenizer=…): a transformers tokenizer, a tokenizer.json, or "ids"',
        )
    vocab = read_vocab(folder, size=config.vocab, bos=config.bos, tokenizer=own)
    source = Source(OBJECT, type(given).__name__)
    name = Path(named or type(module).__name__).name
    model = Model(name, source, config, vocab, weights, fingerprint(weights), device, hooks)
    _check(model, given)
    return model


def _open(given: torch.nn.Module) -> Any:
    """Return the Hugging Face module: the object itself, or what a bridge stands for."""
    inner = getattr(given, "original_model", None)
    is_bridge = isinstance(inner, torch.nn.Module)
    if is_bridge and (
        getattr(given, "compatibility_mode", False) or getattr(given, "_weights_processed", False)
    ):
        raise ModelNotLoaded(
            "the TransformerBridge given has changed weights (compatibility mode folds them).",
            remedy="a bridge as boot_transformers returns it; ffnprobe folds a copy of its own",
        )
    module = inner if is_bridge else given
    if not hasattr(getattr(module, "config", None), "to_dict"):
        raise ModelNotLoaded(
            f"a {type(given).__name__} is not a model that ffnprobe can read.",
            remedy="a Hugging Face causal language model, a TransformerBridge, or a folder",
        )
    return module


def _wanted(module: torch.nn.Module, config: Config, *, is_bridge: bool) -> dict[str, Tensor]:
    """Take the tensors that the configuration knows; a bridge adds others, split for its hooks."""
    tensors = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    if not is_bridge:
        return tensors
    known = {*config.shapes(), f"{config.layout.head}.weight"}
    found = {name.replace(_INSIDE, ""): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in found.items() if short_name(name, config) in known}


def _check(model: Model, given: torch.nn.Module) -> None:
    """Compare with the object on a few tokens; in half precision the two would differ anyhow."""
    first = next(given.parameters())
    if first.dtype != torch.float32:
        return
    ids = few_tokens(model)
    was_training = given.training
    given.eval()
    try:
        with torch.no_grad():
            theirs = given(ids.to(first.device))
            model.check()
            ours = run_steps(model, ids, {})[0].cpu()
    finally:
        given.train(was_training)
    logits = getattr(theirs, "logits", theirs)[0].float().cpu()
    check_agreement(model, {"the object given": logits, "ffnprobe": ours})
