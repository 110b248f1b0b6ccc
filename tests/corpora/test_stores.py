"""A store refuses what is damaged, held by another process or of another model, in words."""

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import ffnprobe as fp
from ffnprobe.corpora import states, store
from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten, OptionRefused
from ffnprobe.locks import LOCK
from tests.builders import TINY, write_model
from tests.corpora.conftest import OPTIONS, bytes_of

FILES = (store.MANIFEST, store.TOKENS, store.STATE)


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of a finished store, to be damaged."""
    return shutil.copytree(whole, tmp_path / "my data" / "scan")


def damages(data, drawn):
    """Bits flipped at thirty places, ends cut off, garbage, other JSON: no two alike."""
    for place in drawn.sample(range(len(data)), 30):
        flipped = bytearray(data)
        flipped[place] ^= 1 << drawn.randrange(8)
        yield bytes(flipped)
    yield from (data[: drawn.randrange(len(data))] for _ in range(5))
    yield from (b"", drawn.randbytes(len(data)), data + b"\0", b"null", b"[]", b"{}", b"[" * 10**5)


@pytest.mark.parametrize("name", FILES)
def test_every_damage_is_refused_by_name(tiny, speeches, whole, folder, name):
    path, before = folder / name, bytes_of(whole)
    for data in damages(before[name], random.Random(name)):
        path.write_bytes(data)
        with pytest.raises(DataRefused) as refusal:
            fp.Scan.open(folder)
        assert refusal.value.what.startswith(f"{path} is damaged: ")
        assert "rm " not in str(refusal.value)
        if name == store.STATE:
            assert "scan.json beside it says what was scanned" in refusal.value.what
            assert refusal.value.remedy.endswith(f"--store {shlex.quote(f'{folder}-2')}")
            with pytest.raises(DataRefused, match=r"scan.safetensors is damaged"):
                fp.scan(tiny, speeches, store=folder, **OPTIONS)
            assert path.read_bytes() == data
        else:
            assert f"the same scan writes {name} again" in refusal.value.what
            assert f"--store {shlex.quote(str(folder))}," in refusal.value.remedy
    if name != store.STATE:
        fp.scan(tiny, speeches, store=folder, **OPTIONS)
        assert bytes_of(folder) == before


def test_what_is_damaged_is_not_written_again_by_another_scan(tiny, speeches, folder):
    (folder / store.MANIFEST).write_bytes(b"{}")
    with pytest.raises(DataRefused, match=r"scan.json is damaged: its checksum is another"):
        fp.scan(tiny, speeches, store=folder, **OPTIONS | {"top": 5})
    assert (folder / store.MANIFEST).read_bytes() == b"{}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_lost_is_missed(tiny, speeches, whole, folder, name):
    (folder / name).unlink()
    with pytest.raises(DataRefused) as refusal:
        fp.Scan.open(folder)
    assert ("no block yet" if name == store.STATE else "it is missing") in refusal.value.what
    fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert bytes_of(folder) == bytes_of(whole)


def test_parts_of_two_scans_do_not_mix(tiny, speeches, folder, tmp_path):
    fp.scan(tiny, speeches, store=tmp_path / "other", **OPTIONS | {"block_tokens": 60})
    for name in FILES[::2]:
        mixed = shutil.copytree(folder, tmp_path / f"mixed {name}")
        shutil.copy(tmp_path / "other" / name, mixed)
        with pytest.raises(DataRefused, match=r"scan.json is damaged: its checksum is another"):
            fp.Scan.open(mixed)


@pytest.mark.parametrize("left", [(store.MANIFEST,), (store.TOKENS,), (".ffnprobe.1.ab", LOCK), ()])
def test_killed_before_the_first_block_the_same_command_resumes(
    tiny, speeches, whole, folder, left
):
    for path in folder.iterdir():
        if path.name not in left:
            path.unlink()
    for name in left:
        (folder / name).touch()
    fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert bytes_of(folder) == bytes_of(whole)


HOLDER = """
import sys, time
from pathlib import Path
from ffnprobe.locks import hold
with hold(Path(sys.argv[1]), remedy=""):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_writer_is_refused_until_the_first_is_gone(tiny, speeches, whole, tmp_path):
    folder = tmp_path / "scan"
    words = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(FileNotWritten) as refusal:
        fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert f"another process is writing to {folder}: process {holder.pid} on " in refusal.value.what
    assert refusal.value.remedy == f"wait for it to end, or --store {folder}-2"
    holder.kill()
    holder.communicate()
    assert os.listdir(folder) == [LOCK], "a killed process leaves its lock file"
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


def test_a_lock_makes_and_leaves_no_folder(tiny, tmp_path):
    with pytest.raises(DataRefused, match="the corpus is empty"):
        fp.scan(tiny, {"a": ""}, store=tmp_path / "one" / "two")
    assert os.listdir(tmp_path) == []


def test_a_name_that_is_not_utf8_is_spelled_out(tiny, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / os.fsdecode(b"caf\xe9.txt")).write_text("the cat sat")
    scan = fp.scan(tiny, texts, store=tmp_path / "scan", workers=1)
    assert scan.manifest["texts"][0]["name"] == r"caf\xe9.txt"
    assert fp.examples(tmp_path / "scan", "L0N1").strongest[0].text == r"caf\xe9.txt"


@pytest.mark.parametrize("verb", [fp.scan, fp.scan_keys])
def test_a_store_that_could_not_be_read_again_is_not_begun(tiny, tmp_path, verb):
    """Safetensors writes under a name that is not UTF-8 and does not open it."""
    with pytest.raises(FileNotWritten, match=r"st\\xe9 is not UTF-8, and the libraries"):
        verb(tiny, {"a": "the cat sat"}, store=tmp_path / os.fsdecode(b"st\xe9"))
    assert os.listdir(tmp_path) == []


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


def make_old(folder):
    """Turn a store into one of format 1: no identity, no checksum."""
    manifest = json.loads((folder / store.MANIFEST).read_text())
    manifest["format"] = 1
    del manifest["model"]["identity"]
    (folder / store.MANIFEST).write_text(json.dumps(manifest))
    with safe_open(folder / store.STATE, framework="pt") as file:
        known = json.loads(file.metadata()["scan"])
    del known["checksum"], known["files"]
    tensors = {
        n: t.clone()
        for n, t in load_file(folder / store.STATE).items()
        if not n.startswith(("sample.", "kept.")) and not n.endswith(".scores")
    }
    save_file(tensors, folder / store.STATE, metadata={"scan": json.dumps(known)})
    return tensors, known


def test_an_older_store_is_read_and_says_what_it_lacks(tiny, speeches, whole, folder):
    tensors, known = make_old(folder)
    old = fp.Scan.open(folder).check(tiny)
    assert old.table.equals(fp.Scan.open(whole).table)
    assert old.lacks.startswith(
        "checksums, the model's configuration and vocabulary, scores (its weakest"
    )
    assert old.lacks.endswith("examples from the middle and passages to label with")
    assert len(old.kept) == 0
    shown = fp.examples(folder, "L1N7")
    assert (shown.middle, "score " in str(shown).partition("\n\n")[2].replace("by score", "")) == (
        (),
        False,
    )
    assert old.provenance.settings["lacks"] == old.lacks
    assert old.means.identity is None
    assert fp.Scan.open(whole).lacks == ""
    before = bytes_of(folder)
    assert fp.scan(tiny, speeches, store=folder, **OPTIONS).lacks == old.lacks
    assert bytes_of(folder) == before
    known["is_finished"] = False
    save_file(tensors, folder / store.STATE, metadata={"scan": json.dumps(known)})
    with pytest.raises(DataRefused, match=r"begun by an older version \(format 1\)"):
        fp.scan(tiny, speeches, store=folder, **OPTIONS)


@pytest.mark.parametrize("name", FILES)
def test_damage_to_an_older_store_is_never_a_traceback(folder, name):
    make_old(folder)
    path, drawn = folder / name, random.Random(1)
    refused = 0
    for data in damages(path.read_bytes(), drawn):
        path.write_bytes(data)
        try:
            fp.examples(fp.Scan.open(folder), "L1N2").text()
        except FfnProbeError:  # anything else is a traceback, and fails
            refused += 1
    assert refused >= 12, "without checksums only what has lost its structure is found"


def test_a_new_state_without_its_checksum_is_refused(folder):
    manifest = (folder / store.MANIFEST).read_bytes()
    make_old(folder)
    (folder / store.MANIFEST).write_bytes(manifest)
    with pytest.raises(DataRefused, match=r"scan.safetensors has no checksum"):
        fp.Scan.open(folder)


def test_the_checksum_is_of_every_tensor(whole):
    found = states.read_state(whole)
    tensors = found.state.statistics.tensors()
    known = {"files": dict(found.hashes)}
    plain = states._checksum(known, tensors)
    for name, tensor in tensors.items():
        changed = tensor.clone()
        changed.view(-1)[0] += 1  # the last may not be a number
        assert states._checksum(known, tensors | {name: changed}) != plain
