"""Load a model by name or from a folder: `load("pocket")`, `load("gpt2")`, `load("path/to/folder")`.

Weights are read here without TransformerLens, so that reading neurons starts fast; the bridge is
booted from the same weights when the first prompt is run.
"""

import os

from ffnprobe.models.checkpoint import fingerprint, read_weights
from ffnprobe.models.devices import choose_device
from ffnprobe.models.families import read_config
from ffnprobe.models.model import Model
from ffnprobe.models.sources import EMBEDDED, find_source
from ffnprobe.models.vocab import read_vocab


def load(name: str | os.PathLike[str] | None = None, *, device: str = "auto") -> Model:
    """Load a GPT-2: `pocket` (embedded), a published name, a hub repository id, or a folder.

    Without a name, `$FFNPROBE_MODEL` decides, else pocket.

    >>> load("pocket")
    Model(pocket: 6 layers × 768 neurons × 192, vocabulary 6000, ...)
    """
    chosen = default_name() if name is None else os.fspath(name)
    source = find_source(chosen)
    place = choose_device(device)
    folder = source.folder()
    config = read_config(folder)
    vocab = read_vocab(folder, size=config.vocab, bos=config.bos)
    weights = read_weights(folder, config)
    short = folder.name if source.kind == "folder" else chosen
    return Model(short, source, config, vocab, weights, fingerprint(weights), place)


def default_name() -> str:
    """Name the model used where none is named."""
    return os.environ.get("FFNPROBE_MODEL") or EMBEDDED
