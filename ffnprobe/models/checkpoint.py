"""A checkpoint's tensors, by their family's own names, mapped from disk and never executed; its identity.

Published checkpoints differ in layout: with or without a prefix such as `transformer.`, with causal-mask
buffers, with an explicit copy of a tied head, in one file or in shards, safetensors or `.bin`.
Here they all become one dictionary with exactly the names and shapes the configuration demands.
A `.bin` file is a pickle: it is read with `weights_only`, which refuses anything but tensors.

    identity = fingerprint of the weights - hash of the configuration - hash of the vocabulary

The same weights with another epsilon, activation or tokenizer give other numbers. Of the configuration only
what differs from GPT-2's defaults is hashed, and of the vocabulary what it does (its tokens, its merges, and
the ids of a sample), so that the identity does not change with the version of a library.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.files import check_regular
from ffnprobe.models.config import Config
from ffnprobe.models.folding import is_finite
from ffnprobe.models.sources import WEIGHT_FILES, list_shards, truncated
from ffnprobe.models.vocab import Vocab

# A hundred bytes a tensor: a longer header takes minutes to read, and no model has one.
HEADER_MOST = 8 * 2**20
PARTS = ("weights", "configuration", "vocabulary")
# Letters, digits, blanks, contractions, punctuation, accents (composed and not), other scripts.
_SAMPLE = (
    "The  cat's 12,345.67 don’t\n\n\tNAÏVE café cafe\u0301 — 中文 Привет 🙂 ﬁ x_y <s> \u00a0 end."
)


def read_weights(folder: Path, config: Config) -> dict[str, Tensor]:
    """Map a folder's tensors, checked against the configuration: names, shapes, finite numbers."""
    for name in WEIGHT_FILES:
        check_regular(folder / name, refuse=ModelNotLoaded)
        if (folder / name).is_file():
            # Buffers and a second copy of the head come on top of what is needed.
            most = 1000 + 2 * len(config.shapes())
            return arrange(_open(folder / name, most), config, where=str(folder))
    remedy = f"one of {', '.join(WEIGHT_FILES)} beside config.json"
    raise ModelNotLoaded(f"{folder} has no weights.", remedy=remedy)


def _open(path: Path, most: int) -> dict[str, Tensor]:
    """Map the tensors of one file, or of every shard an index names, if they are not far too many."""
    if path.suffix == ".json":
        placed: list[tuple[str, str, Tensor]] = []
        for shard in list_shards(path):
            if not (path.parent / shard).is_file():
                raise ModelNotLoaded(f"{path} names {shard}, which is not there.")
            tensors = _open(path.parent / shard, most)
            placed += [(name, f"in {shard}", tensor) for name, tensor in tensors.items()]
            _check_count(path, len(placed), most)
        return _gather(placed, path.parent)
    try:
        if path.suffix == ".safetensors":
            _check_header(path)
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
                _check_count(path, len(names), most)
                return {name: file.get_tensor(name) for name in names}
        content = _load_pickle(path)
    except pickle.UnpicklingError:
        raise ModelNotLoaded(
            f"{path} holds more than tensors and was not run.",
            remedy="a safetensors file of the same model",
        ) from None
    # What a damaged file makes of a reader of pickles can be any of these.
    except (SafetensorError, RuntimeError, ValueError, EOFError, OSError, LookupError, TypeError,
            AttributeError, AssertionError) as error:  # fmt: skip
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise truncated(path, cause) from None
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise ModelNotLoaded(f"{path} is not a dictionary of tensors.")
    return content


def _gather(placed: list[tuple[str, str, Tensor]], where: str | Path) -> dict[str, Tensor]:
    """Return tensors by name, or refuse one that is not plain, or is in two places."""
    places: dict[str, str] = {}
    for name, place, tensor in placed:
        if tensor.is_meta or tensor.layout != torch.strided:
            kind = "meta" if tensor.is_meta else tensor.layout
            raise ModelNotLoaded(
                f"{where}: {name} is {kind}, not kept number by number.",
                remedy="the same weights as safetensors",
            )
        if name in places:
            raise ModelNotLoaded(
                f"{where} holds {name} twice: {places[name]} and {place}.",
                remedy="a checkpoint that holds each tensor once",
            )
        places[name] = place
    return {name: tensor for name, _, tensor in placed}


def _check_header(path: Path) -> None:
    """Refuse a header that is longer than any model's, before it is read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if HEADER_MOST < length < path.stat().st_size:
        raise ModelNotLoaded(
            f"{path} has a header of {length / 1e6:,.0f} MB; ffnprobe reads at most "
            f"{HEADER_MOST / 1e6:.0f} MB, some 80,000 tensors."
        )


def _check_count(path: Path, count: int, most: int) -> None:
    if count > most:
        raise ModelNotLoaded(
            f"{path} holds {count:,} tensors; the configuration asks for less than {most:,}.",
            remedy="the config.json these weights belong to",
        )


def _load_pickle(path: Path) -> object:
    """Load what torch.save wrote: a zip, which is mapped, or before 2020 a row of pickles."""
    with path.open("rb") as file:
        opening = file.read(24)
    if opening and not opening.startswith((b"PK", b"\x80")):
        is_pointer = opening.startswith(b"version https://git-lfs")
        raise ModelNotLoaded(
            f"{path} is not a file of weights: it begins with {opening!r}.",
            remedy="git lfs pull" if is_pointer else "download or copy it again",
        )
    is_zip = zipfile.is_zipfile(path)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)


def arrange(tensors: Mapping[str, Tensor], config: Config, *, where: str) -> dict[str, Tensor]:
    """Bring tensors under the names the configuration demands, in its order: all of them, and finite."""
    own, shapes = _rename(tensors, config, where), config.shapes()
    if missing := [name for name in shapes if name not in own]:
        raise ModelNotLoaded(f"{where} lacks {_some(missing)}.")
    if unknown := [name for name in own if name not in shapes]:
        raise ModelNotLoaded(
            f"{where} holds {_some(unknown)}, which its configuration does not know."
        )
    for name, shape in shapes.items():
        tensor = own[name]
        if tensor.shape != shape:
            raise ModelNotLoaded(
                f"{where}: {name} is {list(tensor.shape)}; config.json says {list(shape)}."
            )
        if not tensor.is_floating_point():
            raise ModelNotLoaded(f"{where}: {name} holds {tensor.dtype}, not floats.")
        if not is_finite(tensor):
            raise ModelNotLoaded(f"{where}: {name} holds numbers that are not finite (NaN or inf).")
    return {name: own[name] for name in shapes}


def _rename(tensors: Mapping[str, Tensor], config: Config, where: str) -> dict[str, Tensor]:
    """Return tensors by the family's own names, without buffers or a second copy of a tied head."""
    lay = config.layout
    placed = [(short_name(name, config), f"as {name}", t) for name, t in tensors.items()]
    # Causal masks and rotary frequencies, which older checkpoints carry and no newer one needs.
    attention = re.escape(lay.out.rpartition(".")[0])
    buffers = rf"{lay.block}\.\d+\.{attention}\.(bias|masked_bias|rotary_emb\.inv_freq)"
    own = {n: t for n, t in _gather(placed, where).items() if not re.fullmatch(buffers, n)}
    head, embedding = (own.get(f"{name}.weight") for name in (lay.head, lay.embedding))
    if config.is_tied and head is not None and embedding is not None:
        if not torch.equal(head, embedding):
            raise ModelNotLoaded(
                f"the configuration ties the head to the embedding, but {lay.head}.weight differs "
                f"from {lay.embedding}.weight.",
                remedy='"tie_word_embeddings": false in config.json, if the head is its own',
            )
        del own[f"{lay.head}.weight"]
    return own


def short_name(name: str, config: Config) -> str:
    """Return a tensor's name without the family's prefix, whatever it was once called."""
    lay = config.layout
    for prefix in lay.prefixes:
        name = name.removeprefix(prefix)
    return f"{lay.head}.weight" if name == f"{lay.published_head}.weight" else name


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Hash names, types, shapes and bytes: equal for equal weights, whatever file they came in."""
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def identify(fingerprint: str, config: Config, vocab: Vocab) -> str:
    differing = {  # a field without a default differs from what stands for it, too
        each.name: value
        for each in fields(config)
        if each.compare and (value := getattr(config, each.name)) != each.default
    }
    options = config.native.items()
    positions = {name: value for name, value in options if "rope" in name or "rotary" in name}
    tokenizer = vocab.tokenizer
    tokens = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    merges = json.loads(tokenizer.to_str())["model"].get("merges", ())
    pairs = [each if isinstance(each, str) else " ".join(each) for each in merges]
    try:
        sample = tokenizer.encode(_SAMPLE, add_special_tokens=False).ids
    except Exception:  # a tokenizer of words or numbers, without a token for what it does not know
        sample = []
    described = {"config": differing, "positions": positions}
    vocabulary = [vocab.size, vocab.bos, tokens, pairs, sample]
    return f"{fingerprint}-{_hash(described)}-{_hash(vocabulary)}"


def tell_apart(identity: str, wanted: str) -> str:
    """Name what two identities differ in, or nothing if they are the same."""
    if identity == wanted:
        return ""
    pairs = zip(PARTS, identity.split("-"), wanted.split("-"), strict=False)
    return " and ".join(name for name, ours, theirs in pairs if ours != theirs) or "identity"


def _hash(value: object) -> str:
    def plain(value: object) -> list[str] | str:
        return sorted(value) if isinstance(value, frozenset) else str(value)

    return xxhash.xxh3_64_hexdigest(json.dumps(value, sort_keys=True, default=plain).encode())
