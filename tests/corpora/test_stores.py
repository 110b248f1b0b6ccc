"""A scan's store is of one scan of one model: nothing is mixed, lost files are missed."""

import json
import os
import shutil
import threading
from dataclasses import replace

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten, OptionRefused
from ffnprobe.store import MANIFEST
from tests.builders import TINY, write_model
from tests.corpora.conftest import OPTIONS, bytes_of

STATE = "scan.safetensors"


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of a finished store, to be damaged."""
    return shutil.copytree(whole, tmp_path / "my data" / "scan")


def test_what_is_damaged_is_not_written_again_by_another_scan(tiny, speeches, folder):
    (folder / MANIFEST).write_bytes(b"{}")
    with pytest.raises(DataRefused, match=r"store.json is damaged: its checksum does not fit"):
        fp.scan(tiny, speeches, store=folder, **OPTIONS | {"top": 5})
    assert (folder / MANIFEST).read_bytes() == b"{}"


@pytest.mark.parametrize("name", [MANIFEST, STATE])
def test_a_file_that_is_lost_is_missed(tiny, speeches, whole, folder, name):
    (folder / name).unlink()
    with pytest.raises(DataRefused, match="no block yet" if name == STATE else "there is no scan"):
        fp.Scan.open(folder)
    fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert bytes_of(folder) == bytes_of(whole)


def test_two_scans_of_one_process_do_not_mix(tiny, speeches, whole, tmp_path):
    said = []

    def begin_another(tokens, share):
        if tokens and not said:
            said.append("")
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    def other():
        try:
            fp.scan(tiny, {"a": "the cat"}, store=tmp_path / "scan", workers=1)
        except FileNotWritten as error:
            said.append(error.what)

    fp.scan(tiny, speeches, store=tmp_path / "scan", progress=begin_another, **OPTIONS)
    assert f"another process is writing to {tmp_path / 'scan'}: process {os.getpid()}" in said[1]
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)


def test_a_name_that_is_not_utf8_is_spelled_out(tiny, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / os.fsdecode(b"caf\xe9.txt")).write_text("the cat sat")
    scan = fp.scan(tiny, texts, store=tmp_path / "scan", workers=1)
    assert scan.manifest["texts"][0]["name"] == r"caf\xe9.txt"
    assert fp.examples(tmp_path / "scan", "L0N1").strongest[0].text == r"caf\xe9.txt"


def other_models(tiny, tmp_path):
    """The same weights with another epsilon, activation and vocabulary."""
    eps = fp.load(write_model(tmp_path / "eps", replace(TINY, eps=1e-3)), device="cpu")
    act = fp.load(write_model(tmp_path / "act", replace(TINY, activation="gelu")), device="cpu")
    words = write_model(tmp_path / "words")
    written = json.loads((words / "tokenizer.json").read_text())
    known = written["model"]["vocab"]
    known["a"], known["b"] = known["b"], known["a"]
    (words / "tokenizer.json").write_text(json.dumps(written))
    found = {"configuration": [eps, act], "vocabulary": [fp.load(words, device="cpu")]}
    for model in (*found["configuration"], *found["vocabulary"]):
        assert model.fingerprint == tiny.fingerprint
    return found


def test_the_same_weights_are_another_model_with_another_configuration_or_vocabulary(
    tiny, speeches, whole, tmp_path
):
    scan = fp.Scan.open(whole)
    for differs, models in other_models(tiny, tmp_path).items():
        for model in models:
            with pytest.raises(DataRefused, match=f"is a scan of .* with another {differs}."):
                fp.scan(model, speeches, store=whole, **OPTIONS)
            with pytest.raises(DataRefused, match=f"the scan is of .* with another {differs}."):
                scan.check(model)
            trace = fp.run(model, "the cat")
            with pytest.raises(OptionRefused, match=f"the means are of .* another {differs}."):
                fp.ablate(trace, " sat", replace=scan.means)
            assert trace.provenance.as_dict()["identity"] == model.identity != tiny.identity
    again = fp.load(write_model(tmp_path / "again"), device="cpu")
    assert again.identity == tiny.identity == scan.provenance.identity
    assert scan.check(again) is scan
