"""Load a model: `load("pocket")`, `load("gpt2")`, `load("path/to/folder")`, `load("model.gguf")`.

Weights are read here without TransformerLens, so that reading neurons starts fast; the bridge is
booted from the same weights when the first prompt is run.
"""

import os
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ffnprobe.models.checkpoint import arrange, fingerprint, read_weights
from ffnprobe.models.config import Config
from ffnprobe.models.devices import choose_device
from ffnprobe.models.families import parse_config, read_config
from ffnprobe.models.gguf import open_gguf
from ffnprobe.models.model import Model
from ffnprobe.models.sources import EMBEDDED, Source, find_source
from ffnprobe.models.tokenizer import Given, choose_tokenizer
from ffnprobe.models.vocab import Vocab, read_vocab

Parts = tuple[Source, Config, Vocab, dict[str, Tensor]]


def load(
    name: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    tokenizer: Given | None = None,
) -> Model:
    """Load a model: `pocket` (embedded), a known name, a hub repository id, a folder or a .gguf file.

    Without a name, `$FFNPROBE_MODEL` decides, else pocket. The tokenizer is the model's own unless one
    is given: a tokenizer.json or its folder, a `tokenizers.Tokenizer`, or "ids", for tokens as numbers.

    >>> load("pocket", tokenizer="ids").vocab.ids("12 7 4030")
    [12, 7, 4030]
    >>> load("pocket")
    Model(pocket: 6 layers × 768 neurons × 192, vocabulary 6000, ...)
    """
    chosen = default_name() if name is None else os.fspath(name)
    found = find_source(chosen)
    torch_device = choose_device(device)
    read = _from_gguf if found.kind == "gguf" else _from_folder
    source, config, vocab, weights = read(found, tokenizer)
    short = chosen if source.is_known_by(chosen) else Path(source.where).name
    return Model(short, source, config, vocab, weights, fingerprint(weights), torch_device)


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


def default_name() -> str:
    """Name the model used where none is named."""
    return os.environ.get("FFNPROBE_MODEL") or EMBEDDED
