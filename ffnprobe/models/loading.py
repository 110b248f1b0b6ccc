"""Load a model: `load("pocket")`, `load("gpt2")`, `load("path/to/folder")`, `load("model.gguf")`.

Weights are read here without TransformerLens, so that reading neurons starts fast; a bridge is booted
from the same weights when it is asked for. The tensors of a model that is in memory already are read as
they are, not copied: load it again after you have changed them.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from ffnprobe.arguments import verb
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.bridge import few_tokens
from ffnprobe.models.checkpoint import arrange, fingerprint, read_weights, short_name
from ffnprobe.models.config import Config, parse_config, read_config
from ffnprobe.models.folding import read_layer
from ffnprobe.models.forward import check_agreement, run_steps
from ffnprobe.models.model import Model
from ffnprobe.models.sources import EDITED, EMBEDDED, OBJECT, Source, find_source
from ffnprobe.models.tokenizer import Given, choose_tokenizer, find_bos
from ffnprobe.models.vocab import Vocab

# A bridge keeps the module it stands for under this name.
_INSIDE = "_original_component."
# Made of other weights than W_down: what is folded already is folded for both.
_SHARED = (
    "_questions", "_gates", "attention", "answer_biases", "embedding", "position_embedding", "head",
    "final_gain", "final_shift", "_folded_head", "mean_unembedding", "mean_logit", "rotary",
)  # fmt: skip
Parts = tuple[Source, Config, Vocab, dict[str, Tensor]]


@verb
def load(
    name: str | os.PathLike[str] | Module | None = None,
    *,
    device: str = "auto",
    tokenizer: Given | None = None,
    hooks: bool = False,
) -> Model:
    """Load a model: `pocket` (embedded), a known name, a hub repository id, a folder or a .gguf file.

    A model you already have in memory is taken as it is: a Hugging Face causal language model, or a
    TransformerLens `TransformerBridge`.

    Without a name, `$FFNPROBE_MODEL` decides, else pocket. The tokenizer is the model's own unless one
    is given: a tokenizer.json or its folder, a `tokenizers.Tokenizer`, or "ids", for tokens as numbers.

    Prompts are run by ffnprobe's own forward pass, which is compared with TransformerLens on the first use
    of a model; with `hooks=True`, by TransformerLens. Every provenance names which (`run_by`).

    >>> load("pocket", tokenizer="ids").vocab.ids("12 7 4030")
    [12, 7, 4030]
    >>> load("pocket")
    Model(pocket: 7 layers × 768 neurons × 192, vocabulary 5022, ...)
    """
    torch_device = _choose_device(device)
    if isinstance(name, Module):
        short, (source, config, vocab, weights) = _from_object(name, tokenizer)
    else:
        chosen = default_name() if name is None else os.fspath(name)
        source = find_source(chosen)
        read = _from_gguf if source.kind == "gguf" else _from_folder
        source, config, vocab, weights = read(source, tokenizer)
        short = chosen if source.is_known_by(chosen) else Path(source.where).name
    model = Model(short, source, config, vocab, weights, fingerprint(weights), torch_device, hooks)
    if isinstance(name, Module):
        _check_object(model, name)
    return model


def read_vocab(
    folder: Path, *, size: int, bos: int | None, tokenizer: Given | None = None
) -> Vocab:
    """Read a folder's vocabulary, or that of a tokenizer given; `bos` is what the configuration says."""
    tokenizer = choose_tokenizer(tokenizer, folder, size=size)
    return Vocab(tokenizer, size=size, bos=find_bos(folder, tokenizer, size=size, bos=bos))


def _from_folder(source: Source, tokenizer: Given | None) -> Parts:
    folder = source.folder()
    config = read_config(folder)
    vocab = read_vocab(folder, size=config.vocab, bos=config.bos, tokenizer=tokenizer)
    return source, config, vocab, read_weights(folder, config)


def _from_gguf(source: Source, tokenizer: Given | None) -> Parts:
    from ffnprobe.models.gguf import open_gguf

    file = open_gguf(Path(source.where))
    config = parse_config(file.values, where=source.where)
    size = config.vocab
    if tokenizer is None:
        own = file.tokenizer()
    else:
        own = choose_tokenizer(tokenizer, file.path.parent, size=size)
    vocab = Vocab(own, size=size, bos=file.bos, is_begun_by_bos=file.puts_bos)
    weights = arrange(file.read_tensors(), config, where=source.where)
    return replace(source, note=file.quantisation), config, vocab, weights


def _from_object(module: Module, tokenizer: Given | None) -> tuple[str, Parts]:
    """Take an object's name and its very tensors; prompts are run on a network of our own around them."""
    network = _find_network(module)
    options = network.config.to_dict()
    where = f"the {type(module).__name__} given"
    config = parse_config(options, where=where)
    tensors = {name: tensor.detach() for name, tensor in network.state_dict().items()}
    if network is not module:  # a bridge adds tensors of its own, split for its hooks
        wanted = {*config.shapes(), f"{config.layout.head}.weight"}
        plain = {name.replace(_INSIDE, ""): tensor for name, tensor in tensors.items()}
        tensors = {n: tensor for n, tensor in plain.items() if short_name(n, config) in wanted}
    weights = arrange(tensors, config, where=where)
    if tokenizer is None:
        tokenizer = getattr(module, "tokenizer", None)
    path = str(options.get("_name_or_path") or "")
    folder = Path(path or "no folder")
    if tokenizer is None and not folder.is_dir():
        remedy = 'load(…, tokenizer=…): a transformers tokenizer, a tokenizer.json, or "ids"'
        raise ModelNotLoaded(f"{where} has no tokenizer.", remedy=remedy)
    vocab = read_vocab(folder, size=config.vocab, bos=config.bos, tokenizer=tokenizer)
    name = Path(path or type(network).__name__).name
    return name, (Source(OBJECT, type(module).__name__), config, vocab, weights)


def _find_network(module: Module) -> Any:
    """Return the Hugging Face module: the object itself, or what a bridge stands for."""
    inner = getattr(module, "original_model", None)
    is_bridge = isinstance(inner, Module)
    flags = ("compatibility_mode", "_weights_processed")
    if is_bridge and any(getattr(module, flag, False) for flag in flags):
        raise ModelNotLoaded(
            "the TransformerBridge given has changed weights (compatibility mode folds them).",
            remedy="a bridge as boot_transformers returns it; ffnprobe folds a copy of its own",
        )
    network = inner if is_bridge else module
    if not hasattr(getattr(network, "config", None), "to_dict"):
        raise ModelNotLoaded(
            f"a {type(module).__name__} is not a model that ffnprobe can read.",
            remedy="a Hugging Face causal language model, a TransformerBridge, or a folder",
        )
    return network


def _check_object(model: Model, module: Module) -> None:
    """Compare with the object on a few tokens; in half precision the two would differ anyhow."""
    first = next(module.parameters())
    if first.dtype != torch.float32:
        return
    ids, was_training = few_tokens(model), module.training
    module.eval()
    try:
        with torch.no_grad():
            theirs = module(ids.to(first.device))
            model.check()
            ours = run_steps(model, ids, {})[0].cpu()
    finally:
        module.train(was_training)
    logits = getattr(theirs, "logits", theirs)[0].float().cpu()
    check_agreement(model, {"the object given": logits, "ffnprobe": ours})


def _choose_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `mps` into a device this machine has."""
    fast = {"cuda": torch.cuda, "mps": torch.backends.mps}
    here = ["cpu", *(kind for kind, backend in fast.items() if backend.is_available())]
    if name == "auto":
        name = next(iter(here[1:]), "cpu")
    if name not in here:
        remedy = f"auto, {', '.join(here)}"
        raise ModelNotLoaded(f'device "{name}" is not on this machine.', remedy=remedy)
    return torch.device(name)


def default_name() -> str:
    """Name the model used where none is named."""
    return os.environ.get("FFNPROBE_MODEL") or EMBEDDED


def change_rows(model: Model, changes: Mapping[int, Float[Tensor, "neuron d_model"]]) -> Model:
    """Return a model with so much added to W_down, `[neuron d_model]` for each layer named.

    It shares every other tensor. Those that change are copied in fp32, whatever the file holds: a small
    change would be lost in half precision. The model handed in keeps its weights and its fingerprint.

    >>> model = load("pocket")
    >>> changed = change_rows(model, {2: torch.zeros_like(model.answers_of(2)) + 0.01})
    >>> changed.fingerprint == model.fingerprint, model.is_unchanged()
    (False, True)
    >>> sum(changed.weights[name] is not model.weights[name] for name in model.weights)
    1
    """
    weights = dict(model.weights)
    for layer, change in changes.items():
        name = f"{model.layout.of(layer, model.layout.down)}.weight"
        if not model.layout.is_transposed:
            change = rearrange(change, "neuron d_model -> d_model neuron")
        weights[name] = (model.raw(name) + change.to(model.device, torch.float32)).contiguous()
    name, source = model.name, model.source
    if source.kind != EDITED:  # else it was made from what the first edit was made from
        name += " edited"
        source = Source(EDITED, f"from {source}, weights {model.fingerprint[:8]}")
    new = fingerprint(weights)
    # A lens is of the weights as they were.
    changed = replace(model, name=name, source=source, weights=weights, fingerprint=new, lens=None)
    cached = vars(model)
    vars(changed).update({name: cached[name] for name in _SHARED if name in cached})
    if "blocks" in cached:
        vars(changed)["blocks"] = tuple(
            read_layer(changed, layer) if layer in changes else block
            for layer, block in enumerate(model.blocks)
        )
    return changed
