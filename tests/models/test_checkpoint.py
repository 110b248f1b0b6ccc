"""Published checkpoints come in several layouts; each must give the same model."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import save_file

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from tests.builders import TINY, config_json, prefixed, random_weights, write_model


def rewrite(folder, weights, *, name="model.safetensors", is_zip=True):
    (folder / "model.safetensors").unlink(missing_ok=True)
    if name.endswith(".bin"):
        torch.save(weights, folder / name, _use_new_zipfile_serialization=is_zip)
    else:
        save_file(
            {key: tensor.contiguous().clone() for key, tensor in weights.items()}, folder / name
        )


def shard(folder, weights, ending):
    """Split the tensors over two files with an index, as large models are published."""
    names = sorted(weights)
    halves = {f"part-{n}{ending}": names[n::2] for n in range(2)}
    for file, chosen in halves.items():
        rewrite(folder, {key: weights[key] for key in chosen}, name=file)
    index = {"weight_map": {key: file for file, chosen in halves.items() for key in chosen}}
    stem = "model.safetensors" if ending == ".safetensors" else "pytorch_model.bin"
    (folder / f"{stem}.index.json").write_text(json.dumps(index))


LAYOUTS = {
    "as OpenAI's gpt2: no prefix, mask buffers, no head": lambda folder, w: rewrite(
        folder,
        w
        | {f"h.{n}.attn.bias": torch.ones(1, 1, 29, 29).tril() for n in range(3)}
        | {f"h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(3)},
    ),
    "prefix and explicit tied head": lambda folder, w: rewrite(
        folder, prefixed(w) | {"lm_head.weight": w["wte.weight"]}
    ),
    "prefix, no head": lambda folder, w: rewrite(folder, prefixed(w)),
    ".bin": lambda folder, w: rewrite(folder, prefixed(w), name="pytorch_model.bin"),
    ".bin of before 2020, no zip": lambda folder, w: rewrite(
        folder, prefixed(w), name="pytorch_model.bin", is_zip=False
    ),
    "sharded safetensors": lambda folder, w: shard(folder, prefixed(w), ".safetensors"),
    "sharded .bin": lambda folder, w: shard(folder, prefixed(w), ".bin"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_weights(layout, tiny, tmp_path):
    write_model(tmp_path)
    LAYOUTS[layout](tmp_path, random_weights(TINY))
    model = fp.load(tmp_path)
    assert model.fingerprint == tiny.fingerprint
    torch.testing.assert_close(model.questions, tiny.questions, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_folded_in_fp32(dtype, tmp_path):
    weights = {name: tensor.to(dtype) for name, tensor in random_weights(TINY).items()}
    model = fp.load(write_model(tmp_path, weights=weights))
    assert model.questions.dtype == model.unembedding.dtype == torch.float32
    exact = weights["h.1.mlp.c_fc.weight"].double() * weights["h.1.ln_2.weight"].double()[:, None]
    exact = exact.T - exact.T.mean(-1, keepdim=True)
    torch.testing.assert_close(model.questions[1].double(), exact, rtol=1e-5, atol=1e-6)
    assert model.weights["wte.weight"].dtype == dtype


def test_an_untied_head_is_read(tmp_path):
    from dataclasses import replace

    config = replace(TINY, is_tied=False)
    model = fp.load(write_model(tmp_path, config))
    assert not torch.equal(model.head, model.embedding)
    assert model.config.parameters() == TINY.parameters() + 301 * 35


def test_loading_leaves_the_file_alone(tmp_path):
    write_model(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    model = fp.load(tmp_path)
    assert model.questions.sum() + model.unembedding.sum() + model.attention[0].value.sum() != 0
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert model.is_unchanged()


def test_weights_changed_after_loading_are_seen_when_asked(tmp_path):
    model = fp.load(write_model(tmp_path))
    before = model.fingerprint
    model.weights["h.1.mlp.c_fc.bias"][3] += 1
    assert not model.is_unchanged()
    assert model.fingerprint == before, "of what was read"


class Trap:
    """A pickle that would create a file if it were executed."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_would_execute_something_is_refused_and_not_run(tmp_path):
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    target = tmp_path / "executed"
    torch.save({"wte.weight": Trap(target)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelNotLoaded, match="holds more than tensors and was not run"):
        fp.load(folder)
    assert not target.exists()
    torch.save(
        {"wte.weight": Trap(target)}, folder / "pytorch_model.bin",
        _use_new_zipfile_serialization=False,
    )  # fmt: skip
    with pytest.raises(ModelNotLoaded, match="holds more than tensors and was not run"):
        fp.load(folder)
    assert not target.exists()
    # The trap is a real one: an ordinary load springs it.
    (folder / "plain.pkl").write_bytes(pickle.dumps(Trap(target)))
    pickle.loads((folder / "plain.pkl").read_bytes())
    assert target.exists()


def spoil_truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def spoil_bin(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04 not a zip")


def spoil_pointer(folder):
    (folder / "model.safetensors").unlink()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    (folder / "pytorch_model.bin").write_text(pointer)


def spoil_old_bin(folder):
    rewrite(folder, random_weights(TINY), name="pytorch_model.bin", is_zip=False)
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-1000])


def spoil_nan(folder):
    weights = random_weights(TINY)
    weights["h.1.mlp.c_fc.weight"][3, 4] = float("nan")
    rewrite(folder, weights)


def spoil_shape(folder):
    rewrite(folder, random_weights(TINY) | {"wpe.weight": torch.zeros(28, 35)})


def spoil_missing(folder):
    weights = random_weights(TINY)
    del weights["h.2.mlp.c_fc.bias"]
    rewrite(folder, weights)


def spoil_unknown(folder):
    rewrite(folder, random_weights(TINY) | {"h.0.mlp.gate.weight": torch.zeros(3)})


def spoil_integers(folder):
    rewrite(folder, random_weights(TINY) | {"ln_f.bias": torch.zeros(35, dtype=torch.int64)})


def spoil_tie(folder):
    weights = random_weights(TINY)
    rewrite(folder, weights | {"lm_head.weight": weights["wte.weight"] + 1})


def spoil_two_shards(folder):
    weights = prefixed(random_weights(TINY))
    shard(folder, weights, ".safetensors")
    names = sorted(weights)[1::2]
    twice = {name: weights[name] for name in (*names, "transformer.wpe.weight")}
    rewrite(folder, twice, name="part-1.safetensors")


def spoil_two_names(folder):
    weights = random_weights(TINY)
    rewrite(folder, prefixed(weights) | {"wte.weight": weights["wte.weight"] + 1})


def spoil_index(folder, named):
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"wte.weight": named}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def spoil_kind(folder, change):
    """Keep one tensor of a .bin, the head's second copy too, in another way than number by number."""
    weights = random_weights(TINY)
    odd = change(weights["wte.weight"])
    weights |= {"wte.weight": odd, "lm_head.weight": odd}
    rewrite(folder, weights, name="pytorch_model.bin")


def spoil_config(folder, **values):
    (folder / "config.json").write_text(json.dumps(config_json(TINY) | values))


SPOILED = {
    "is truncated or corrupt": spoil_truncate,
    "pytorch_model.bin is truncated or corrupt": spoil_bin,
    r"pytorch_model.bin is not a file of weights: .* git lfs pull": spoil_pointer,
    r"pytorch_model.bin is truncated or corrupt \(unexpected EOF": spoil_old_bin,
    "h.1.mlp.c_fc.weight holds numbers that are not finite": spoil_nan,
    r"wpe.weight is \[28, 35\]; config.json says \[29, 35\]": spoil_shape,
    "lacks h.2.mlp.c_fc.bias": spoil_missing,
    "holds h.0.mlp.gate.weight, which its configuration does not know": spoil_unknown,
    "ln_f.bias holds torch.int64, not floats": spoil_integers,
    "lm_head.weight differs from wte.weight": spoil_tie,
    r"holds transformer.wpe.weight twice: in part-0.safetensors and in part-1.safetensors.\n"
    ".*each tensor once": spoil_two_shards,
    r"holds wte.weight twice: as transformer.wte.weight and as wte.weight.\n"
    ".*each tensor once": spoil_two_names,
    "names a shard outside its folder: '../elsewhere.safetensors'": lambda folder: spoil_index(
        folder, "../elsewhere.safetensors"
    ),
    "names a shard outside its folder: '/etc/passwd'": lambda folder: spoil_index(
        folder, "/etc/passwd"
    ),
    "names an index as a shard: 'model.safetensors.index.json'.*copy it again": lambda folder: (
        spoil_index(folder, "model.safetensors.index.json")
    ),
    "wte.weight is torch.sparse_coo, .*as safetensors": lambda folder: spoil_kind(
        folder, lambda tensor: tensor.to_sparse()
    ),
    "wte.weight is meta, .*as safetensors": lambda folder: spoil_kind(
        folder, lambda tensor: tensor.to("meta")
    ),
    "has no config.json": lambda folder: (folder / "config.json").unlink(),
    "has no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "has no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "config.json is not JSON": lambda folder: (folder / "config.json").write_text("{"),
    'is of architecture "bloom", which ffnprobe does not read': lambda folder: spoil_config(
        folder, model_type="bloom"
    ),
    'activation function "mish" is not one': lambda folder: spoil_config(
        folder, activation_function="mish"
    ),
    "n_layer is 0, not a positive whole number": lambda folder: spoil_config(folder, n_layer=0),
    "d_model 35 does not divide into 4 heads": lambda folder: spoil_config(folder, n_head=4),
    "bos_token_id is -1, not a token.*null": lambda folder: spoil_config(folder, bos_token_id=-1),
    "bos_token_id is True, not a token": lambda folder: spoil_config(folder, bos_token_id=True),
    r"bos_token_id is \[0\], not a token": lambda folder: spoil_config(folder, bos_token_id=[0]),
    "n_layer is 3 and num_hidden_layers is 2, .*one of them": lambda folder: spoil_config(
        folder, num_hidden_layers=2
    ),
    "n_embd is 35 and hidden_size is 70": lambda folder: spoil_config(folder, hidden_size=70),
    "n_head is 5 and num_attention_heads is 7": lambda folder: spoil_config(
        folder, num_attention_heads=7
    ),
    "n_positions is 29 and n_ctx is 28": lambda folder: spoil_config(folder, n_ctx=28),
    "does not say vocab_size": lambda folder: spoil_config(folder, vocab_size=None),
}


@pytest.mark.parametrize("words", SPOILED)
def test_a_spoiled_folder_is_refused_in_words(words, tmp_path):
    write_model(tmp_path)
    SPOILED[words](tmp_path)
    with pytest.raises(ModelNotLoaded, match=f"(?s){words}"):
        fp.load(tmp_path)
