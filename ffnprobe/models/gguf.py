"""GGUF files: one file with configuration, tokenizer and (mostly quantised) tensors.

    "GGUF" version counts | metadata: name type value … | tensors: name shape kind offset … | data

All before the data is read here, since the gguf package takes ten seconds over the strings of one vocabulary;
a file that ends too early is told before any work. The rest is what transformers makes of such a file: its
table of the configuration's names, its layout of the tensors, its tokenizer. Tensors are dequantised to fp32
one by one. What transformers would leave out in silence (a tensor, a scaling of the positions) is refused.

Neither transformers nor gguf is imported before a file is read.
"""

import json
import logging
import mmap
import os
import re
import struct
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.config import Fields, refuse_config
from ffnprobe.models.families import ARCHITECTURES, Family, Layout
from ffnprobe.models.sources import truncated
from ffnprobe.models.tokenizer import build_tokenizer, without_prefix

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

INSTALL = "pip install gguf"
_FOLDER = "the same model as a folder in Hugging Face layout"
# Stated by files and needed by models, but in none of transformers' tables.
_ALSO = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
# By which positions are scaled even where no type of scaling is said.
_FACTORS = ("scaling.factor", "scale_linear")
# What GGUF calls a tensor, and which name of a `Layout` that is. transformers finds it by trying every
# name of every architecture on every module, which takes longer than all the rest of loading.
_WHOLE = {
    "token_embd": "embedding", "position_embd": "positions", "output_norm": "final_norm",
    "output": "head",
}  # fmt: skip
_IN_BLOCK = {
    "attn_norm": "attention_norm", "attn_qkv": "fused", "attn_q": "query", "attn_k": "key",
    "attn_v": "value", "attn_q_norm": "query_norm", "attn_k_norm": "key_norm", "attn_output": "out",
    "post_attention_norm": "attention_post_norm", "ffn_norm": "mlp_norm", "ffn_gate": "gate",
    "ffn_up": "up", "ffn_down": "down", "post_ffw_norm": "mlp_post_norm",
}  # fmt: skip
# How texts are cut: as GPT-2 does; and so with each digit by itself, which transformers' table leaves out.
_AS_GPT2, _DIGITS_APART = "gpt-2", "smollm"
_PARTS = re.compile(r"(?:blk\.(?P<layer>0|[1-9][0-9]*)\.)?(?P<name>\w+)\.(?P<kind>weight|bias)")
# The head: the numbers of its types, and ten times what the largest published models have.
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_MOST_TENSORS, _MOST_FIELDS, _MOST_TEXTS = 100_000, 10_000, 2**23


class TensorEntry(NamedTuple):
    """Where one tensor lies in the file."""

    name: str
    shape: tuple[int, ...]  # in torch's order
    kind: int  # ggml's number
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape)


Header = tuple[dict[str, Any], tuple[TensorEntry, ...]]


def read_header(path: Path) -> Header:
    """Read a file's head, or say why it is none."""
    with path.open("rb") as file:
        opening = file.read(8)
        if opening[:4] != b"GGUF":
            raise ModelNotLoaded(f"{path} is not a GGUF file: it begins with {opening[:4]!r}.")
        version = int.from_bytes(opening[4:], "little")
        if version not in (2, 3):
            raise ModelNotLoaded(f"{path} is GGUF version {version}; ffnprobe reads 2 and 3.")
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                metadata, tensors = _Cursor(data).read(path)
        except (struct.error, ValueError, KeyError, OverflowError, MemoryError) as error:
            raise truncated(path, str(error)) from None
    if "general.architecture" not in metadata:
        raise ModelNotLoaded(f"{path} does not say its architecture.")
    return metadata, tensors


class _Cursor:
    """Reads one value after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 8

    def read(self, path: Path) -> Header:
        tensors, fields = self.number("Q"), self.number("Q")
        bounds = (tensors, _MOST_TENSORS, "tensors"), (fields, _MOST_FIELDS, "fields")
        for count, most, what in bounds:
            if count > most:
                why = f"says it holds {count:,} {what}; ffnprobe reads at most {most:,}"
                raise ModelNotLoaded(f"{path} {why}.")
        metadata = {self.text(): self.value(self.number("I")) for _ in range(fields)}
        entries = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ModelNotLoaded(f"{path}: general.alignment is {alignment!r}, not a power of two.")
        names: set[str] = set()
        for entry in entries:
            name, shape, _, start = entry
            if not shape or not entry.size:
                raise ModelNotLoaded(f"{path}: {name} is {list(shape)}, which holds no number.")
            if name in names:
                raise ModelNotLoaded(f"{path} holds {name} twice.")
            if start % alignment:
                place = f"begins at byte {start:,} of the data, not at a multiple of {alignment}"
                raise ModelNotLoaded(f"{path}: {name} {place}.")
            names.add(name)
        data_start = -(-self.at // alignment) * alignment
        return metadata, tuple(each._replace(start=data_start + each.start) for each in entries)

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def text(self) -> str:
        start = self.at + 8
        self.skip_text()
        return self.data[start : self.at].decode("utf-8")

    def skip_text(self) -> None:
        end = self.number("Q") + self.at
        if end > len(self.data):
            raise ValueError(f"a text ends at byte {end:,} of {len(self.data):,}")
        self.at = end

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_NUMBERS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner == _STRING:
            if count > _MOST_TEXTS:
                raise ValueError(f"a list of {count:,} texts; at most {_MOST_TEXTS:,} are read")
            for _ in range(count):
                self.skip_text()
            return count
        length = count * struct.calcsize(f"<{_NUMBERS[inner]}")
        if length > len(self.data) - self.at:
            raise ValueError(f"a list of {count:,} numbers is longer than the file")
        self.at += length
        # All at once: one by one takes half a second a megabyte.
        return list(struct.unpack_from(f"<{count}{_NUMBERS[inner]}", self.data, self.at - length))

    def tensor(self) -> TensorEntry:
        name, axes = self.text(), self.number("I")
        if axes > 4:
            raise ValueError(f"{name} has {axes} axes")
        # ggml names the fastest axis first.
        shape = tuple(reversed([self.number("Q") for _ in range(axes)]))
        return TensorEntry(name, shape, self.number("I"), self.number("Q"))


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file, its head read; the rest is read when asked for."""

    path: Path
    metadata: dict[str, Any]  # a list of strings is only counted
    tensors: tuple[TensorEntry, ...]

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def family(self) -> Family:
        return ARCHITECTURES[self.architecture]

    @cached_property
    def values(self) -> dict[str, Any]:
        """The configuration, by Hugging Face's names; only what the format lets a file leave out is a default."""
        from huggingface_hub.errors import StrictDataclassError
        from transformers import AutoConfig
        from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

        own, metadata = self.architecture, self.metadata
        for key in sorted(self.family.gguf_needs):
            if f"{own}.{key}" not in metadata:
                raise self._refusal(f"does not say {own}.{key}, for which GGUF has no default")
        is_scaled = any(metadata.get(f"{own}.rope.{key}", 1) not in (0, 1) for key in _FACTORS)
        scaling = metadata.get(f"{own}.rope.scaling.type", "linear" if is_scaled else "none")
        if scaling != "none":
            raise self._not_read(f'scales its positions ("{scaling}")')
        has_head = any(entry.name == "output.weight" for entry in self.tensors)
        values: dict[str, Any] = {"tie_word_embeddings": not has_head}
        table = _ALSO | GGUF_CONFIG_MAPPING.get(own, {}) | self.family.gguf_options
        for key, value in metadata.items():
            prefix, _, rest = key.partition(".")
            names_of = table if prefix == own else GGUF_CONFIG_MAPPING.get(prefix, {})
            if option := names_of.get(rest):
                values[option] = value
        values.setdefault("vocab_size", metadata.get("tokenizer.ggml.tokens"))
        values["model_type"] = self.family.name
        # Before anything is made for each layer.
        sizes = Fields(values, str(self.path))
        sizes.tokens("vocab_size")
        _, heads, d_model = sizes.layers, sizes.heads, sizes.d_model
        if not self.family.layout.positions:
            # GGUF's own defaults, which are not transformers'.
            key = f"{own}.attention.key_length"
            width = values["head_dim"] = metadata.get(key, d_model // heads)
            values.setdefault("num_key_value_heads", heads)
            if (rotated := metadata.get(f"{own}.rope.dimension_count", width)) != width:
                raise self._not_read(f"rotates {rotated} of the {width} dimensions of a head")
        try:
            whole: dict[str, Any] = AutoConfig.for_model(**values).to_dict()
        except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
            raise refuse_config(str(self.path), error) from None
        scale = whole.get("query_pre_attn_scalar")
        if scale not in (None, values.get("head_dim")):
            width = values.get("head_dim")
            why = "for which it does not say how Gemma's attention is scaled"
            raise self._refusal(f"has heads of {width}, {why}")
        return whole | values

    @property
    def puts_bos(self) -> bool:
        """Say whether texts begin with BOS: the file's own word, yes where it says nothing."""
        return bool(self.metadata.get("tokenizer.ggml.add_bos_token", True))

    @property
    def bos(self) -> int | None:
        """The file's BOS; none where it names none, and refused where it asks for one all the same."""
        size, token = self.values["vocab_size"], self.metadata.get("tokenizer.ggml.bos_token_id")
        if token is None and self.metadata.get("tokenizer.ggml.add_bos_token"):
            why = "does not say which token it is (bos_token_id)"
            raise self._refusal(f"asks for BOS (add_bos_token) and {why}")
        if token is not None and not (isinstance(token, int) and 0 <= token < size):
            why = f"bos_token_id is {token!r}; the model has tokens 0–{size - 1}"
            raise ModelNotLoaded(f"{self.path}: {why}.")
        return token

    @property
    def quantisation(self) -> str:
        """The file's types in words, the one of most numbers first: `Q4_1: 210 tensors Q4_1, 61 F32`."""
        from gguf import LlamaFileType

        counts, sizes = Counter[str](), Counter[str]()
        for entry in self.tensors:
            name = self._measure(entry)[0].name
            counts[name] += 1
            sizes[name] += entry.size
        listed = [f"{counts[name]} {name}" for name, _ in sizes.most_common()]
        listed[0] = listed[0].replace(" ", " tensors ", 1)
        try:
            named = LlamaFileType(self.metadata["general.file_type"]).name
        except (KeyError, ValueError):
            return ", ".join(listed)
        return f"{named.removeprefix('MOSTLY_').removeprefix('ALL_')}: {', '.join(listed)}"

    def read_tensors(self) -> "dict[str, Tensor]":
        """Dequantise every tensor, by Hugging Face's names and in its layout."""
        import numpy as np
        import torch
        from gguf import dequantize
        from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

        processor = TENSOR_PROCESSORS.get(self.architecture, TensorProcessor)(config=self.values)
        data = np.memmap(self.path, mode="r", dtype=np.uint8).view(np.ndarray)
        tensors: dict[str, Tensor] = {}
        for entry in self.tensors:
            name = rename(self.family.layout, entry.name)
            if name is None:
                raise self._not_read(f"holds {entry.name}")
            stored, block, end = self._measure(entry)
            if end > len(data):
                raise truncated(self.path, f"{entry.name} ends at byte {end:,} of {len(data):,}")
            if entry.shape[-1] % block:
                raise truncated(self.path, f"{entry.name} is {list(entry.shape)} of {stored.name}")
            packed = data[entry.start : end].reshape(*entry.shape[:-1], -1)
            try:
                weights = dequantize(packed, stored)
            except NotImplementedError:
                raise ModelNotLoaded(
                    f"{self.path}: {entry.name} is of type {stored.name}, which gguf cannot dequantise.",
                    remedy="another quantisation of the model, Q8_0 for one",
                ) from None
            parsed: dict[str, Any] = {"tensors": {}}
            try:
                processed = processor.process(weights, name=entry.name, parsed_parameters=parsed)
            except (ValueError, IndexError, TypeError) as error:
                raise truncated(self.path, f"{entry.name}: {error}") from None
            whole = np.ascontiguousarray(processed.weights)
            # A view of the file cannot be written to, which torch would warn of.
            tensors[name] = torch.from_numpy(whole if whole.flags.writeable else whole.copy())
        return tensors

    def tokenizer(self) -> "Tokenizer":
        """Build the tokenizer, refusing one whose text would be cut in another way than the model's."""
        from tokenizers import pre_tokenizers
        from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

        path, metadata = self.path, self.metadata
        if "tokenizer.ggml.tokens" not in metadata:
            raise ModelNotLoaded(f"{path} has no tokenizer.")
        cut = metadata.get("tokenizer.ggml.pre", "default")
        cuts = (*GGUF_PRE_TOKENIZER_SPLITS, _AS_GPT2, _DIGITS_APART)
        is_known = cut in cuts or (cut == "default" and self.family.is_cut_by_default)
        if metadata.get("tokenizer.ggml.model") == "gpt2" and not is_known:
            raise self._not_read(f'cuts its text by "{cut}"')
        tokenizer: Tokenizer = build_tokenizer(
            lambda: convert_gguf_tokenizer(*get_gguf_tokenizer(str(path))[:2])[0], f"of {path}"
        )
        if cut == _DIGITS_APART:
            apart = pre_tokenizers.Digits(individual_digits=True)
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([apart, tokenizer.pre_tokenizer])
        if metadata.get("tokenizer.ggml.add_space_prefix") is False:
            tokenizer = without_prefix(tokenizer)
        size = metadata["tokenizer.ggml.tokens"]
        if tokenizer.get_vocab_size() <= size:
            return tokenizer
        # transformers adds special tokens of its own, which the file does not have.
        state = json.loads(tokenizer.to_str())
        state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < size]
        return type(tokenizer).from_str(json.dumps(state))

    def _refusal(self, why: str) -> ModelNotLoaded:
        return ModelNotLoaded(f"{self.path} {why}.", remedy=_FOLDER)

    def _not_read(self, what: str) -> ModelNotLoaded:
        return self._refusal(f"{what}, which transformers does not read from GGUF")

    def _measure(self, entry: TensorEntry) -> tuple[Any, int, int]:
        """Return a tensor's type, how many numbers make one block of it, and where its bytes end."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            stored = GGMLQuantizationType(entry.kind)
        except ValueError:
            raise ModelNotLoaded(
                f"{self.path} holds tensors of type {entry.kind}, which gguf does not know.",
                remedy=f"{INSTALL} --upgrade",
            ) from None
        block, width = GGML_QUANT_SIZES[stored]
        return stored, block, entry.start + entry.size // block * width


def rename(layout: Layout, name: str) -> str | None:
    """Return Hugging Face's name of a tensor, or nothing where it has none.

    >>> rename(ARCHITECTURES["llama"].layout, "blk.3.ffn_gate.weight")
    'model.layers.3.mlp.gate_proj.weight'
    """
    parts = _PARTS.fullmatch(name)
    if parts is None:
        return None
    layer = parts["layer"]
    part = (_WHOLE if layer is None else _IN_BLOCK).get(parts["name"], "")
    own = getattr(layout, part, None)
    if not own:
        return None
    prefix = "" if part == "head" else layout.prefixes[0]
    return f"{prefix}{own if layer is None else layout.of(int(layer), own)}.{parts['kind']}"


def open_gguf(path: Path) -> GgufFile:
    """Open a GGUF file; its head is read and its types are known."""
    if find_spec("gguf") is None:
        raise ModelNotLoaded(f"{path} needs the package gguf to be read.", remedy=INSTALL)
    file = GgufFile(path, *read_header(path))
    if file.architecture not in ARCHITECTURES:
        names = ", ".join(ARCHITECTURES)
        why = f'is of architecture "{file.architecture}"; from GGUF ffnprobe reads {names}'
        raise file._refusal(why)
    parts = file.metadata.get("split.count", 1)
    if not isinstance(parts, int):
        raise ModelNotLoaded(f"{path}: split.count is {parts!r}, not a number.")
    if parts > 1:
        remedy = "llama-gguf-split --merge makes them one file"
        raise ModelNotLoaded(f"{path} is one of {parts} parts.", remedy=remedy)
    ends, before = 0, ""
    for entry in sorted(file.tensors, key=lambda entry: entry.start):
        _, _, end = file._measure(entry)
        if entry.start < ends:  # one of them is not what it is called
            raise ModelNotLoaded(f"{path}: {entry.name} and {before} overlap.")
        ends, before = end, entry.name
    # Nothing is fetched here, and a warning of a library is not ours to print.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return file
