"""Our own forward pass runs a model that it was seen to run right; the record of that can be trusted."""

import json
import os

import pytest

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded, PromptRefused
from ffnprobe.models import bridge, forward
from ffnprobe.models.bridge import HARMLESS
from ffnprobe.models.sources import cache_folder
from tests.builders import TINY, random_weights, write_model
from tests.families.builders import write_family


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose positions are turned, so that a record holds numbers."""
    return write_family(tmp_path_factory.mktemp("turned"), "llama")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FFNPROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def booted(monkeypatch):
    """Count how often TransformerLens is asked."""
    asked, plain = [], bridge._boot
    monkeypatch.setattr(bridge, "_boot", lambda model: asked.append(model.name) or plain(model))
    return asked


def run_own(folder):
    return fp.run(fp.load(folder, device="cpu"), "the cat sat on the mat")


def record_of(cache):
    (path,) = (cache / "verified").iterdir()
    return path


def test_a_folder_is_compared_once_and_then_run_without_the_bridge(folder, cache, booted):
    first, second = run_own(folder), run_own(folder)
    assert len(booted) == 1
    assert first.logits.equal(second.logits)
    assert second.provenance.run_by == "ffnprobe's own forward pass"
    assert record_of(cache).stem == second.model.identity


def test_the_bridge_is_let_go_once_it_has_been_compared_with(folder, cache):
    assert run_own(folder).model not in bridge._booted


def test_pocket_needs_no_comparison_and_no_record(cache, booted):
    assert fp.run(fp.load("pocket"), "Michael Jordan").predictions(1) is not None
    assert booted == []
    assert not cache.exists()


def changed(record, *path, value):
    """The record with one entry changed."""
    known = json.loads(record)
    inner = known
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(known).encode()


DAMAGES = {
    "cut off": lambda record: record[:-20],
    "empty": lambda record: b"",
    "not text": lambda record: b"\xff" + record,
    "nested": lambda record: b"[" * 100_000,
    "a list": lambda record: b"[1, 2]",
    "without figures": lambda record: b"{}",
    "another frequency": lambda record: changed(record, "rotary", 0, 0, 1, value=0.5),
    "another scale": lambda record: changed(record, "rotary", 1, 1, value=2.0),
    "no frequencies": lambda record: changed(record, "rotary", value=[]),
    "another model": lambda record: changed(record, "made_for", "identity", value="a-b-c"),
    "an older torch": lambda record: changed(record, "made_for", "versions", "torch", value="2.0"),
    "another checksum": lambda record: changed(record, "checksum", value="0" * 32),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_record_that_is_damaged_or_foreign_is_ignored(damage, folder, cache, booted):
    wanted = run_own(folder).logits
    path = record_of(cache)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    assert run_own(folder).logits.equal(wanted)
    assert len(booted) == 2
    assert path.read_bytes() == whole, "it is written again"


def test_a_record_of_other_libraries_is_ignored(folder, cache, booted, monkeypatch):
    run_own(folder)
    monkeypatch.setattr(forward, "version", lambda name: "99.1")
    run_own(folder)
    assert len(booted) == 2


def test_a_cache_that_cannot_be_written_means_another_comparison(folder, cache, booted):
    cache.write_text("a file in the way")
    assert run_own(folder).logits.equal(run_own(folder).logits)
    assert len(booted) == 2


def test_an_option_that_the_identity_does_not_hold_is_seen(tmp_path, cache, booted, monkeypatch):
    folder = write_family(tmp_path, "llama")
    run_own(folder)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"pretraining_tp": 7}))
    assert run_own(folder) is not None
    assert len(booted) == 2
    monkeypatch.setattr("ffnprobe.models.bridge.HARMLESS", HARMLESS - {"pretraining_tp"})
    path.write_text(json.dumps(values | {"pretraining_tp": 8}))
    with pytest.raises(ModelNotLoaded, match="the option pretraining_tp is 8"):
        run_own(folder)


def test_a_pass_that_disagrees_is_refused_and_not_recorded(tmp_path, cache, monkeypatch):
    folder = write_family(tmp_path, "gpt2")
    plain = forward.run_steps
    monkeypatch.setattr(forward, "run_steps", lambda *given: plain(*given) * 1.01)
    with pytest.raises(ModelNotLoaded, match="the logits of ffnprobe are off by"):
        run_own(folder)
    assert not cache.exists()


def test_logits_that_overflow_are_not_recorded_as_compared(tmp_path, cache):
    weights = random_weights(TINY)
    for name in ("ln_f.weight", "h.1.mlp.c_proj.weight"):
        weights[name] = weights[name] * 1e38
    with pytest.raises(PromptRefused, match="overflows on this prompt"):
        run_own(write_model(tmp_path / "model", weights=weights))
    assert not cache.exists()


def test_positions_turned_otherwise_are_refused(folder, cache, monkeypatch):
    plain = forward.measure_angles
    monkeypatch.setattr(
        forward, "measure_angles", lambda model, layer, at: plain(model, layer, at - 1)
    )
    with pytest.raises(ModelNotLoaded, match="tell its last position differently"):
        run_own(folder)


def test_positions_that_change_with_the_length_are_refused_by_name(tmp_path, cache):
    factors = [1.0, 1.1, 1.2, 1.3]
    longer = {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": factors, "long_factor": factors,
        "factor": 2.0, "original_max_position_embeddings": 16,
    }  # fmt: skip
    folder = write_family(tmp_path, "llama", rope_parameters=longer)
    with pytest.raises(ModelNotLoaded, match='rotary embeddings are of kind "longrope"'):
        run_own(folder)
    assert fp.read(fp.load(folder), "L1N2") is not None


def test_the_cache_is_where_it_is_said_to_be(monkeypatch, tmp_path):
    monkeypatch.setenv("FFNPROBE_CACHE", "~/here")
    assert cache_folder() == tmp_path.home() / "here"
    monkeypatch.delenv("FFNPROBE_CACHE")
    if os.name == "posix" and os.uname().sysname == "Linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_folder() == tmp_path / "ffnprobe"
