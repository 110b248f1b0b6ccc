"""Files that promise more than any model has, or what cannot be, are refused in bounded time."""

import os
import struct

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.files import safe_read
from ffnprobe.models.gguf import open_gguf, read_header
from tests.builders import TINY, random_weights, write_model

U32, F32, STRING, ARRAY, U64, TRUE = 4, 6, 8, 9, 10, 7
SIZES = {
    "gpt2.block_count": (U32, 3), "gpt2.context_length": (U32, 29), "gpt2.embedding_length": (U32, 35),
    "gpt2.feed_forward_length": (U32, 52), "gpt2.attention.head_count": (U32, 5),
    "gpt2.attention.layer_norm_epsilon": (F32, 1e-5),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, 301, bytes(301 * 8))),
}  # fmt: skip


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def written(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        inner, count, data = value
        return struct.pack("<IQ", inner, count) + data
    return struct.pack({U32: "<I", F32: "<f", U64: "<Q", TRUE: "<?"}[kind], value)


def write(path, fields=None, tensors=(), *, counts=None):
    """Write the head of a GGUF file byte by byte, with room for some data after it."""
    fields = {"general.architecture": (STRING, "gpt2")} | (fields or {})
    many = counts or (len(tensors), len(fields))
    head = b"GGUF" + struct.pack("<IQQ", 3, *many)
    for name, (kind, value) in fields.items():
        head += text(name) + struct.pack("<I", kind) + written(kind, value)
    for name, shape, start in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, start)
    path.write_bytes(head + bytes(4096))
    return path


REFUSED = {
    "says it holds 1,099,511,627,776 tensors; ffnprobe reads at most": {"counts": (2**40, 1)},
    "says it holds 1,099,511,627,776 fields; ffnprobe reads at most": {"counts": (0, 2**40)},
    "general.alignment is 0, not a power of two": {"fields": {"general.alignment": (U32, 0)}},
    "general.alignment is 'much', not a power": {"fields": {"general.alignment": (STRING, "much")}},
    "a list of 1,099,511,627,776 texts": {"fields": {"t": (ARRAY, (STRING, 2**40, b""))}},
    "a list of 1,099,511,627,776 numbers is longer": {"fields": {"t": (ARRAY, (U32, 2**40, b""))}},
    r"a.weight is \[0, 5\], which holds no number": {"tensors": [("a.weight", (5, 0), 0)]},
    "a.weight begins at byte 33 of the data, not at a multiple": {
        "tensors": [("a.weight", (5,), 33)]
    },
    "holds a.weight twice": {"tensors": [("a.weight", (5,), 0), ("a.weight", (5,), 32)]},
    "b.weight and a.weight overlap": {"tensors": [("a.weight", (50,), 0), ("b.weight", (5,), 32)]},
    "split.count is 'two', not a number": {"fields": {"split.count": (STRING, "two")}},
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_head_that_promises_too_much_is_refused_by_name(words, tmp_path):
    path = write(tmp_path / "a.gguf", **REFUSED[words])
    with pytest.raises(ModelNotLoaded, match=words):
        open_gguf(path)
    # The same file without what is wrong is read.
    assert open_gguf(write(path, SIZES, [("a.weight", (5,), 0), ("b.weight", (5,), 32)]))


def test_a_number_of_layers_is_checked_before_anything_is_made_for_each(tmp_path):
    path = write(tmp_path / "a.gguf", SIZES | {"gpt2.block_count": (U64, 2**40)})
    with pytest.raises(
        ModelNotLoaded, match="n_layer is 1099511627776; ffnprobe reads at most 10,000"
    ):
        _ = open_gguf(path).values


def test_a_missing_bos_is_none_and_refused_where_it_is_asked_for(tmp_path):
    path = tmp_path / "a.gguf"
    assert open_gguf(write(path, SIZES)).bos is None
    asked = {"tokenizer.ggml.add_bos_token": (TRUE, True)}
    with pytest.raises(ModelNotLoaded, match=r"asks for BOS \(add_bos_token\) and does not say"):
        _ = open_gguf(write(path, SIZES | asked)).bos
    token = {"tokenizer.ggml.bos_token_id": (U32, 301)}
    with pytest.raises(ModelNotLoaded, match="bos_token_id is 301; the model has tokens 0–300"):
        _ = open_gguf(write(path, SIZES | token)).bos


def test_lists_of_numbers_are_read_whole(tmp_path):
    numbers = [3, 1, 4, 1_000_000, 5]
    data = struct.pack("<5I", *numbers)
    fields = {"t": (ARRAY, (U32, 5, data)), "after": (STRING, "it")}
    assert read_header(write(tmp_path / "a.gguf", fields))[0]["t"] == numbers
    assert read_header(tmp_path / "a.gguf")[0]["after"] == "it"


def test_a_header_of_half_a_million_tensors_is_refused_before_it_is_read(tmp_path):
    folder = write_model(tmp_path)
    tensor = '"xxxxxxxxxxxxxxxxxxxx%d":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'
    listed = ",".join(tensor % (n, 4 * n, 4 * n + 4) for n in range(500_000))
    data = f"{{{listed}}}".encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(4 * 500_000))
    with pytest.raises(
        ModelNotLoaded, match=r"has a header of \d\d MB; ffnprobe reads at most 8 MB"
    ):
        fp.load(folder)


def test_far_more_tensors_than_the_configuration_asks_for_are_refused(tmp_path):
    from safetensors.torch import save_file

    folder = write_model(tmp_path)
    many = {f"h.{n}.extra": torch.zeros(1) for n in range(2000)}
    save_file(random_weights(TINY) | many, folder / "model.safetensors")
    with pytest.raises(
        ModelNotLoaded, match=r"holds 2,0\d\d tensors; the configuration asks for less"
    ):
        fp.load(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "pytorch_model.bin"])
def test_only_regular_files_of_a_model_are_read(name, tmp_path):
    folder = write_model(tmp_path / "model")
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ModelNotLoaded, match=f"{name} is a pipe; ffnprobe reads regular files"):
        fp.load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ModelNotLoaded, match=f"{name} is a device; ffnprobe reads regular files"):
        fp.load(folder)


def test_a_tokenizer_is_read_to_a_bound(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "model")
    monkeypatch.setitem(safe_read.__kwdefaults__, "most", 1000)
    with pytest.raises(ModelNotLoaded, match=r"tokenizer\.json is larger than 0 MB, the most"):
        fp.load(folder)


def test_a_folder_whose_name_is_not_utf8_is_refused_as_that(tmp_path):
    folder = write_model(tmp_path / "model").rename(tmp_path / os.fsdecode(b"mod\xe9l"))
    with pytest.raises(ModelNotLoaded, match=r"mod\\xe9l is not UTF-8") as refusal:
        fp.load(folder)
    assert refusal.value.remedy == "another name"
