"""A scan is what brute force finds, and the same after every interruption, order and number of workers."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import torch

import ffnprobe as fp
from ffnprobe import store
from ffnprobe.corpora import text_pieces
from ffnprobe.corpora.text_sources import find_texts
from ffnprobe.errors import DataRefused, FileNotWritten, OptionRefused
from tests.builders import TINY, write_model
from tests.corpora.conftest import OPTIONS, bytes_of
from tests.corpora.reference import collect


class Killed(BaseException):
    """Stands in for the end of the process."""


def stop_after(blocks):
    """Make a progress callback that ends the scan after so many blocks."""
    left = [blocks + 1]

    def progress(tokens, share):
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return progress


@pytest.mark.parametrize("context", [29, 8])
def test_it_is_what_brute_force_finds(tiny, hooked_tiny, speeches, context):
    # One block, so that the products are the same as those of the reference to the last bit.
    scan = fp.scan(tiny, speeches, context=context, top=5, block_tokens=10**6, workers=1)
    names = [source.name for source in find_texts(speeches)]
    texts = [tiny.vocab.ids((speeches / name).read_text()) for name in names]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    everything = collect(tiny, texts, context=context)  # as a scan is run
    hooked = collect(hooked_tiny, texts, context=context)
    torch.set_num_threads(threads)
    np.testing.assert_allclose(everything.activations, hooked.activations, rtol=1e-4, atol=1e-4)
    facts = scan.statistics
    sides = ((1, "activations", facts.strongest), (-1, "scores", facts.weakest))
    for sign, by, peaks in sides:
        for layer, neuron in np.ndindex(TINY.layers, TINY.d_mlp):
            at = (layer, neuron)
            found = zip(
                getattr(peaks, by)[at].tolist(), (peaks.texts[at] >> 32).tolist(),
                peaks.positions[at].tolist(), strict=True,
            )  # fmt: skip
            assert list(found) == everything.examples(layer, neuron, 5, by=by, sign=sign)
    values = everything.activations.astype(np.float64)
    moments = facts.moments
    assert moments.count == values.shape[1] == sum(map(len, texts))
    assert moments.mean.numpy() == pytest.approx(values.mean(1), rel=1e-6)
    assert moments.variance.numpy() == pytest.approx(values.var(1), rel=1e-6)
    assert moments.skew.numpy() == pytest.approx(scipy.stats.skew(values, axis=1), rel=1e-6)
    kurtosis = scipy.stats.kurtosis(values, axis=1, fisher=False)
    assert moments.kurtosis.numpy() == pytest.approx(kurtosis, rel=1e-6)
    assert np.array_equal(facts.above.numpy(), (values > 0).sum(1))
    for position in range(context - 1):
        here = values[:, everything.offsets == position].mean(1)
        assert facts.position_means[:, position].numpy() == pytest.approx(here, rel=1e-9)
    assert tiny.is_unchanged()


def test_an_example_is_what_the_model_does_on_its_text(tiny, speeches, whole):
    scan = fp.Scan.open(whole)
    for name in ("L0N3", "L2N51"):
        for example in fp.examples(scan, name).strongest:
            ids = tiny.vocab.ids((speeches / example.text).read_text())
            start = example.position // 28 * 28
            trace = fp.run(tiny, ids[start : start + 28])
            neuron = fp.NeuronId.parse(name)
            seen = trace.activations[neuron.layer, 1:, neuron.neuron]
            assert float(seen.max()) == pytest.approx(example.activation, abs=1e-5)
            at = example.position - start
            assert float(seen[at]) == pytest.approx(example.activation, abs=1e-5)
            shown = tiny.vocab.show_all(ids[start : start + 28])
            assert example.token == shown[at]
            assert list(example.before) == shown[max(0, at - 10) : at]
            assert list(example.after) == shown[at + 1 : at + 6]


def test_it_goes_on_where_it_was_stopped_and_ends_with_the_same_bytes(
    tiny, speeches, whole, tmp_path
):
    blocks = fp.Scan.open(whole).done.blocks
    assert blocks >= 6
    drawn = random.Random(0)
    for number in range(10):
        folder = tmp_path / str(number)
        points = [drawn.randrange(1, blocks) for _ in range(drawn.randrange(1, 3))]
        for point in points:
            try:
                fp.scan(tiny, speeches, store=folder, progress=stop_after(point), **OPTIONS)
            except Killed:
                assert fp.Scan.open(folder).done.blocks <= blocks
        fp.scan(tiny, speeches, store=folder, **OPTIONS)
        assert bytes_of(folder) == bytes_of(whole), points


def test_stopped_it_has_lost_the_last_block_at_most(tiny, speeches, tmp_path):
    with pytest.raises(Killed):
        fp.scan(tiny, speeches, store=tmp_path / "scan", progress=stop_after(3), **OPTIONS)
    part = fp.Scan.open(tmp_path / "scan")
    assert part.done.blocks == 3
    assert not part.is_finished
    assert "not finished" in part.corpus


KILLED = """
import os, signal, sys
from ffnprobe import files
import ffnprobe as fp
replaced, left = os.replace, [int(sys.argv[4])]
def kill(source, target):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replaced(source, target)
files.os.replace = kill
fp.scan(fp.load(sys.argv[1], device="cpu"), sys.argv[2], store=sys.argv[3], top=4, block_tokens=30, workers=1)
"""


def test_sigkill_in_the_middle_of_a_write_changes_nothing(
    tiny_folder, tiny, speeches, whole, tmp_path
):
    folder = tmp_path / "scan"
    words = [sys.executable, "-c", KILLED, tiny_folder, speeches, folder, "5"]
    done = subprocess.run(list(map(str, words)), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert any(name.startswith(".ffnprobe.") for name in os.listdir(folder))
    assert fp.Scan.open(folder).done.blocks == 3
    fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert bytes_of(folder) == bytes_of(whole)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_no_bit(tiny, speeches, whole, tmp_path, workers):
    options = OPTIONS | {"workers": workers}
    threads = torch.get_num_threads()
    fp.scan(tiny, speeches, store=tmp_path / "scan", **options)
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)
    assert torch.get_num_threads() == threads


def test_the_order_of_the_files_changes_no_bit(tiny, speeches, whole, tmp_path):
    files = list(speeches.iterdir())
    random.Random(1).shuffle(files)
    moved = tmp_path / "moved"
    shutil.copytree(speeches, moved)
    fp.scan(tiny, files, store=tmp_path / "a", **OPTIONS)
    fp.scan(tiny, f"{moved}/*.txt", store=tmp_path / "b", **OPTIONS)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b") == bytes_of(whole)


def test_texts_split_over_files_otherwise_give_the_same_numbers(tiny, speeches, whole, tmp_path):
    import json

    texts = [(speeches / s.name).read_text() for s in find_texts(speeches)]
    for name, part in (("a", texts[:3]), ("b", texts[3:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
    ours, theirs = fp.scan(tiny, tmp_path, **OPTIONS).statistics, fp.Scan.open(whole).statistics
    assert torch.equal(ours.strongest.activations, theirs.strongest.activations)
    assert torch.equal(ours.weakest.windows, theirs.weakest.windows)
    assert torch.equal(ours.histogram, theirs.histogram)
    assert torch.equal(ours.moments.mean, theirs.moments.mean)
    # Blocks that end elsewhere move the last digits only.
    other = fp.scan(tiny, tmp_path, **OPTIONS | {"block_tokens": 77}).statistics
    assert torch.allclose(other.moments.mean, theirs.moments.mean, rtol=1e-6, atol=1e-9)
    assert torch.allclose(other.moments.kurtosis, theirs.moments.kurtosis, rtol=1e-5)
    assert torch.allclose(
        other.strongest.activations, theirs.strongest.activations, atol=1e-5, equal_nan=True
    )


def test_a_finished_scan_is_read_and_not_made_again(tiny, speeches, whole, tmp_path, monkeypatch):
    folder = tmp_path / "scan"
    shutil.copytree(whole, folder)
    monkeypatch.setattr(store.files, "atomic_write", lambda *_: pytest.fail("nothing is written"))
    monkeypatch.setattr(text_pieces, "read_pieces", lambda *_: pytest.fail("nothing is to be read"))
    assert repr(fp.scan(tiny, speeches, store=folder, **OPTIONS)) == repr(fp.Scan.open(whole))


def test_a_store_of_another_scan_is_refused(tiny, speeches, whole, tmp_path):
    folder = tmp_path / "scan"
    shutil.copytree(whole, folder)
    other = fp.load(write_model(tmp_path / "other", seed=7), device="cpu")
    changed = tmp_path / "changed"
    shutil.copytree(speeches, changed)
    (changed / "3.txt").write_text("another text")
    fewer = [path for path in speeches.iterdir() if path.name != "odd.txt"]
    for model, texts, options, said in (
        (other, speeches, {}, "is a scan of another model: tiny"),
        (tiny, speeches, {"context": 20}, "was made with context=29, not 20."),
        (tiny, speeches, {"bos": False}, "was made with bos=True, not False."),
        (tiny, speeches, {"top": 5}, "was made with top=4, not 5."),
        (tiny, changed, {}, "is a scan of other texts: 3.txt has changed."),
        (tiny, fewer, {}, "is a scan of other texts: it has odd.txt."),
    ):
        with pytest.raises(DataRefused) as refusal:
            fp.scan(model, texts, store=folder, **OPTIONS | options)
        assert said in refusal.value.what
        assert refusal.value.remedy == f"--store {folder}-2"
    assert bytes_of(folder) == bytes_of(whole)


def test_a_stream_that_changed_is_refused(tiny, tmp_path, monkeypatch):
    import io
    from types import SimpleNamespace

    def pipe(text):
        stdin = SimpleNamespace(buffer=io.BytesIO(text.encode()))
        monkeypatch.setattr("sys.stdin", stdin)

    folder, text = tmp_path / "scan", "the cat sat on the mat and ran " * 40
    pipe(text)
    with pytest.raises(Killed):
        fp.scan(tiny, "-", store=folder, progress=stop_after(2), **OPTIONS)
    pipe("A" + text)
    with pytest.raises(DataRefused, match="these have other tokens"):
        fp.scan(tiny, "-", store=folder, **OPTIONS)
    pipe(text)
    fp.scan(tiny, "-", store=folder, **OPTIONS)
    # A text that ends with its block and then goes on.
    two = " cat" * 56
    options = OPTIONS | {"block_tokens": len(tiny.vocab.ids(two)) // 2, "context": 29}
    assert options["block_tokens"] % 28 == 0
    pipe(two)
    assert fp.scan(tiny, "-", store=tmp_path / "two", **options).done.blocks == 2
    pipe(two * 2)
    with pytest.raises(DataRefused, match="these have other tokens"):
        fp.scan(tiny, "-", store=tmp_path / "two", **options)


def test_a_folder_that_is_no_store_is_left_alone(tiny, speeches, whole, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileNotWritten, match="holds files that are not of this scan"):
        fp.scan(tiny, speeches, store=tmp_path)
    with pytest.raises(FileNotWritten, match="is a file; a store is a folder"):
        fp.scan(tiny, speeches, store=tmp_path / "notes.txt")
    with pytest.raises(DataRefused, match="there is no scan in"):
        fp.Scan.open(tmp_path)
    folder = tmp_path / "broken"
    shutil.copytree(whole, folder)
    data = (folder / "scan.safetensors").read_bytes()
    (folder / "scan.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataRefused, match=r"scan.safetensors is damaged or of another store: "):
        fp.scan(tiny, speeches, store=folder, **OPTIONS)


def test_a_full_disk_keeps_the_last_block(tiny, speeches, whole, tmp_path, monkeypatch):
    # A file and its folder are synced for the manifest and for each state: the third state fails.
    folder, left = tmp_path / "scan", [7]

    def full(_):
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("ffnprobe.files.os.fsync", full)
        with pytest.raises(FileNotWritten, match=r"cannot be written: No space left on device"):
            fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert fp.Scan.open(folder).done.blocks == 2
    assert set(bytes_of(folder)) == set(bytes_of(whole))
    fp.scan(tiny, speeches, store=folder, **OPTIONS)
    assert bytes_of(folder) == bytes_of(whole)


def test_an_empty_corpus_leaves_nothing(tiny, tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataRefused, match="the corpus is empty: 1 source, no text"):
        fp.scan(tiny, tmp_path / "a.txt", store=tmp_path / "scan")
    assert not (tmp_path / "scan").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": 30}, "context = 30: tiny has 29 positions."),
        ({"context": 1}, "context = 1: tiny has 29 positions."),
        ({"top": 0}, "top = 0: it must be at least 1."),
        ({"errors": "ignore"}, "errors = 'ignore': it must be strict or replace."),
        ({"engine": "spark"}, "engine = 'spark': it must be local or ray."),
        ({"workers": 0}, "workers = 0: it must be at least 1."),
        ({"address": "auto"}, "an address belongs to a Ray cluster."),
    ],
)
def test_options_that_cannot_be_used_are_refused(tiny, options, said):
    with pytest.raises(OptionRefused) as refusal:
        fp.scan(tiny, {"a": "the cat"}, **options)
    assert refusal.value.what.replace(tiny.name, "tiny") == said


def test_memory_does_not_hold_the_corpus(tiny, speeches, whole, monkeypatch):
    """At most two blocks a worker are cut ahead of the one that is merged."""
    ahead, most = [0], [0]
    from ffnprobe.corpora import scans

    cut = scans.cut_blocks

    def count(*things):
        for block in cut(*things):
            ahead[0] += 1
            most[0] = max(most[0], ahead[0])
            yield block

    monkeypatch.setattr(scans, "cut_blocks", count)

    def merged(tokens, share):
        ahead[0] -= tokens > 0

    fp.scan(tiny, speeches, progress=merged, **OPTIONS | {"workers": 2})
    assert most[0] <= 2 * 2


@pytest.mark.shared
def test_real_text_on_the_embedded_model(pocket, shared):
    texts = shared / "data" / "nltk_public_domain" / "inaugural" / "1793-Washington.txt"
    scan = fp.scan(pocket, texts, workers=1)
    assert scan.done.tokens == len(pocket.vocab.ids(texts.read_text()))
    assert scan.manifest["texts"][0]["bytes"] == texts.stat().st_size
    assert 0.2 < float(scan.statistics.firing_rate[0].mean()) < 0.8
