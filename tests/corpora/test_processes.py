"""Scanning sets nothing for the process that asks, and outlives what may happen to its helper."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

import ffnprobe as fp
from ffnprobe.corpora import engines
from ffnprobe.errors import DataRefused
from tests.builders import TINY, write_model
from tests.corpora.conftest import OPTIONS, bytes_of


@pytest.fixture
def two_threads():
    """A process that computes with two threads, whatever the tests were started with."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_with_one_thread_here_it_has_the_same_bytes(tiny, speeches, whole, tmp_path, one_thread):
    fp.scan(tiny, speeches, store=tmp_path / "scan", **OPTIONS)
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)


def test_threads_are_as_they_were_before_during_and_after(
    tiny, speeches, whole, tmp_path, two_threads, monkeypatch
):
    plain = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda _: pytest.fail("this is not ours to set"))
    matrix = torch.randn(300, 700, generator=torch.Generator().manual_seed(0))
    alone, seen = matrix @ matrix.T, []

    def see(tokens, share):
        seen.append(torch.get_num_threads())
        assert torch.equal(matrix @ matrix.T, alone)

    fp.scan(tiny, speeches, store=tmp_path / "scan", progress=see, **OPTIONS)
    monkeypatch.setattr(torch, "set_num_threads", plain)
    assert len(seen) > 5
    assert {*seen, torch.get_num_threads()} == {2}
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)


def test_the_process_is_kept_for_the_next_scan_also_after_an_error(tiny, two_threads, tmp_path):
    fp.scan(tiny, {"a": "the cat"}, workers=1)
    (kept,) = engines._idle
    (tmp_path / "bad.txt").write_bytes(b"the cat " * 200 + b"\xe9")
    with pytest.raises(DataRefused, match="is not UTF-8"):
        fp.scan(tiny, tmp_path / "bad.txt", **OPTIONS)
    assert engines._idle == [kept]
    fp.scan(tiny, {"a": "the dog"}, workers=2)
    assert engines._idle == [kept]


def test_a_process_that_dies_is_named_and_the_scan_resumes(
    tiny, speeches, whole, tmp_path, two_threads
):
    def kill(tokens, share):
        if tokens:
            (child,) = (
                each for each in psutil.Process().children() if "serve()" in each.cmdline()[-1]
            )
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(DataRefused) as refusal:
        fp.scan(tiny, speeches, store=tmp_path / "scan", progress=kill, **OPTIONS)
    assert "the process that measures has ended (SIGKILL)" in refusal.value.what
    assert engines._idle == []
    fp.scan(tiny, speeches, store=tmp_path / "scan", **OPTIONS)
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)


def test_interrupted_in_the_middle_of_a_message_the_next_scan_has_a_new_process(
    tiny, speeches, whole, tmp_path, two_threads, monkeypatch
):
    left = [3]

    def interrupt(file):
        left[0] -= 1
        if left[0] == 0:
            file.read(100)
            raise KeyboardInterrupt
        return pickle.load(file)

    with monkeypatch.context() as patch:
        # Not in the module itself, which torch uses too.
        patch.setattr(engines, "pickle", SimpleNamespace(**vars(pickle) | {"load": interrupt}))
        with pytest.raises(KeyboardInterrupt):
            fp.scan(tiny, speeches, store=tmp_path / "scan", **OPTIONS)
    assert engines._idle == []
    assert fp.Scan.open(tmp_path / "scan").done.blocks == 2
    fp.scan(tiny, speeches, store=tmp_path / "scan", **OPTIONS)
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)


def test_a_model_whose_files_have_changed_is_refused(tmp_path, two_threads):
    folder = write_model(tmp_path / "model", seed=1)
    model = fp.load(folder, device="cpu")
    write_model(tmp_path / "new", seed=2)
    os.replace(tmp_path / "new" / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(DataRefused, match="where it is measured: it differs in weights"):
        fp.scan(model, {"a": "the cat"}, workers=1)
    assert TINY.layers == model.config.layers


KILLED = """
import sys, time, torch
import ffnprobe as fp
torch.set_num_threads(2)
def wait(tokens, share):
    if tokens:
        print("begun", flush=True)
        time.sleep(600)
fp.scan(fp.load(sys.argv[1], device="cpu"), {"a": "the cat sat " * 300}, block_tokens=30, progress=wait)
"""


def test_it_ends_with_the_process_that_asked(tiny_folder):
    words = [sys.executable, "-c", KILLED, str(tiny_folder)]
    asking = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    assert asking.stdout.readline() == "begun\n"
    children = psutil.Process(asking.pid).children()
    assert len(children) == 1
    asking.kill()
    asking.stdout.close()
    asking.wait()
    gone, _ = psutil.wait_procs(children, timeout=60)
    assert gone == children


def test_no_module_of_the_library_sets_threads_for_its_caller():
    root = Path(fp.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "set_num_threads(" in path.read_text()
    }
    # A worker's own process, and the command's own process.
    assert found == {"corpora/clusters.py", "cli/invocation.py", "cli/resumable.py"}
