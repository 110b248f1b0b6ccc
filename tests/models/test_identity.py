"""A model's identity: equal for equal models, another for whatever changes a number."""

import json
from dataclasses import fields, replace

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, pre_tokenizers

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import identify, tell_apart
from ffnprobe.models.config import Config
from tests.builders import TINY, write_model


def test_it_is_the_same_however_the_model_is_loaded(tiny, tmp_path):
    folder = write_model(tmp_path / "model")
    assert fp.load(folder, device="cpu").identity == tiny.identity
    assert tiny.identity.split("-")[0] == tiny.fingerprint
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({"resid_pdrop": 0.3, "use_cache": False} | values)
    )
    assert fp.load(folder, device="cpu").identity == tiny.identity


def test_every_field_of_a_configuration_counts(tiny):
    drawn = {"family": "opt", "activation": "relu", "biases": frozenset(), "windows": (3, None, 3)}
    for field in fields(Config):
        if not field.compare:
            continue
        value = getattr(TINY, field.name)
        if field.name in drawn:
            other = drawn[field.name]
        else:
            other = not value if isinstance(value, bool) else (value or 0) + 0.5
        changed = identify("f", replace(TINY, **{field.name: other}), tiny.vocab)
        assert tell_apart(identify("f", TINY, tiny.vocab), changed) == "configuration", field.name
    turned = replace(TINY, native={"rope_theta": 500_000})
    assert identify("f", turned, tiny.vocab) != identify("f", TINY, tiny.vocab)


def test_a_vocabulary_that_splits_otherwise_is_another(tiny):
    plain = identify("f", TINY, tiny.vocab)
    written = json.loads(tiny.vocab.tokenizer.to_str())
    merges = written["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    spaced = Tokenizer.from_str(tiny.vocab.tokenizer.to_str())
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    for tokenizer in (Tokenizer.from_str(json.dumps(written)), spaced):
        vocab = type(tiny.vocab)(tokenizer, size=TINY.vocab, bos=0)
        assert tell_apart(plain, identify("f", TINY, vocab)) == "vocabulary"
    other = type(tiny.vocab)(tiny.vocab.tokenizer, size=TINY.vocab, bos=3)
    assert tell_apart(plain, identify("f", TINY, other)) == "vocabulary"


def test_the_parts_that_differ_are_named():
    assert tell_apart("a-b-c", "a-b-c") == ""
    assert tell_apart("a-b-c", "x-b-y") == "weights and vocabulary"
    assert tell_apart("a-b-c", "a") == "identity"


def test_means_in_a_folder_are_of_its_configuration(tiny, tmp_path):
    folder = write_model(tmp_path / "model", replace(TINY, eps=1e-3))
    known = {"fingerprint": tiny.fingerprint, "identity": tiny.identity}
    save_file({"activations": torch.zeros(3, 52)}, folder / "means.safetensors", known)
    model = fp.load(folder, device="cpu")
    with pytest.raises(ModelNotLoaded, match="measured on a model with another configuration"):
        fp.ablate(fp.run(model, "the cat"), " sat", replace="mean")
