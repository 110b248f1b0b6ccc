"""Load a model: `load("pocket")`, `load("gpt2")`, `load("path/to/folder")`, `load("model.gguf")`.

Weights are read here without TransformerLens, so that reading neurons starts fast; a bridge is booted
from the same weights when it is asked for.
"""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Module

from ffnprobe.arguments import verb
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import arrange, fingerprint, read_weights
from ffnprobe.models.config import Config, parse_config, read_config
from ffnprobe.models.gguf import open_gguf
from ffnprobe.models.model import Model
from ffnprobe.models.sources import EMBEDDED, Source, find_source
from ffnprobe.models.tokenizer import Given, choose_tokenizer
from ffnprobe.models.vocab import Vocab, read_vocab

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
        from ffnprobe.models.objects import load_object

        return load_object(name, torch_device, tokenizer=tokenizer, hooks=hooks)
    chosen = default_name() if name is None else os.fspath(name)
    found = find_source(chosen)
    read = _from_gguf if found.kind == "gguf" else _from_folder
    source, config, vocab, weights = read(found, tokenizer)
    short = chosen if source.is_known_by(chosen) else Path(source.where).name
    return Model(short, source, config, vocab, weights, fingerprint(weights), torch_device, hooks)


def _from_folder(source: Source, tokenizer: Given | None) -> Parts:
    folder = source.folder()
    config = read_config(folder)
    vocab = read_vocab(folder, size=config.vocab, bos=config.bos, tokenizer=tokenizer)
    return source, config, vocab, read_weights(folder, config)


def _from_gguf(source: Source, tokenizer: Given | None) -> Parts:
    file = open_gguf(Path(source.where))
    config = parse_config(file.values, where=source.where)
    vocab = Vocab(
        file.tokenizer() if tokenizer is None
        else choose_tokenizer(tokenizer, Path(source.where).parent, size=config.vocab),
        size=config.vocab, bos=file.bos,
        is_begun_by_bos=file.puts_bos,
    )  # fmt: skip
    weights = arrange(file.tensors(), config, where=source.where)
    return replace(source, note=file.quantisation), config, vocab, weights


def _choose_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `mps` into a device this machine has."""
    fast = {"cuda": torch.cuda, "mps": torch.backends.mps}
    here = ["cpu", *(kind for kind, backend in fast.items() if backend.is_available())]
    if name == "auto":
        name = next(iter(here[1:]), "cpu")
    if name not in here:
        raise ModelNotLoaded(
            f'device "{name}" is not on this machine.', remedy=f"auto, {', '.join(here)}"
        )
    return torch.device(name)


def default_name() -> str:
    """Name the model used where none is named."""
    return os.environ.get("FFNPROBE_MODEL") or EMBEDDED
