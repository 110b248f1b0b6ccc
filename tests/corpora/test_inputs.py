"""What a scan is handed: pipes, devices, damaged and swollen files, far too much."""

import io
import os
import random
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ffnprobe as fp
from ffnprobe.corpora import text_pieces, text_sources
from ffnprobe.corpora.text_sources import TextSize, measure_texts
from ffnprobe.errors import DataRefused, OptionRefused


def refused(tiny, texts, **named):
    with pytest.raises((DataRefused, OptionRefused)) as refusal:
        fp.scan(tiny, texts, workers=1, **named)
    return str(refusal.value)


def test_only_regular_files_are_read(tiny, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    said = refused(tiny, tmp_path / "pipe.txt")
    assert "pipe.txt is a pipe; ffnprobe reads regular files." in said
    assert "/dev/zero is a device" in refused(tiny, "/dev/zero")
    # In a folder they are passed over.
    assert "holds no .txt" in refused(tiny, tmp_path)


def test_names_that_no_file_can_have(tiny, tmp_path):
    assert "there is no file nnn" in refused(tiny, "n" * 300)
    assert "there is no file" in refused(tiny, "a\0b")
    assert "File name too long" in refused_store(tiny, tmp_path / ("n" * 300))


def refused_store(tiny, store):
    with pytest.raises(fp.FfnProbeError) as refusal:
        fp.scan(tiny, {"a": "the cat"}, store=store, workers=1)
    return refusal.value.what


def test_a_parquet_file_that_unpacks_to_very_much_is_refused(tiny, tmp_path):
    path = tmp_path / "bomb.parquet"
    rows = pa.DictionaryArray.from_arrays([0] * 300, ["x" * 2**20])
    pq.write_table(pa.table({"text": rows}), path, compression="zstd")
    assert path.stat().st_size < 2**16
    said = refused(tiny, path)
    assert "bomb.parquet has " in said
    assert "unpacks to more than 100 MB." in said


def test_damaged_parquet_is_refused_or_read(tiny, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["the cat sat on the mat"] * 5, "n": [1] * 5}), path)
    data = path.read_bytes()
    damaged = [data[:length] for length in (0, 3, len(data) // 2, len(data) - 1)]
    drawn = random.Random(0)
    for _ in range(60):
        where = drawn.randrange(len(data))
        damaged.append(
            data[:where] + bytes([data[where] ^ 1 << drawn.randrange(8)]) + data[where + 1 :]
        )
    said = []
    for content in damaged:
        path.write_bytes(content)
        try:
            fp.scan(tiny, path, workers=1)
        except DataRefused as error:
            said.append(error.what)
    assert all("\n" not in line for line in said)
    assert sum("is not a parquet file that can be read" in line for line in said) >= 10


def test_parquet_columns_of_other_types_and_long_values(tiny, tmp_path):
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "n.parquet")
    assert 'row 1, holds no text in "text": 1.' in refused(tiny, tmp_path / "n.parquet")
    pq.write_table(pa.table({"text": ["the cat", None, "the dog"]}), tmp_path / "t.parquet")
    assert fp.scan(tiny, tmp_path / "t.parquet", workers=1).done.texts == 2


def test_json_lines_of_every_shape(tiny, tmp_path):
    path = tmp_path / "x.jsonl"
    for line, words in {
        "[" * 100_000: "line 1, is nested too deeply",
        f'{{"text": {"9" * 5000}}}': "a number in it has thousands of digits",
        '{"text": [1]}': 'line 1, holds no text in "text": [1].',
        "5": 'holds no text in "text": 5.',
        "{": "line 1, is not JSON",
    }.items():
        path.write_text(line + "\n")
        assert words in refused(tiny, path)


def test_a_line_and_standard_input_are_read_to_a_bound(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(text_pieces, "LINE_MOST", 2_000_000)
    (tmp_path / "long.jsonl").write_bytes(b" " * 4_000_000)
    assert "has a line of more than" in refused(tiny, tmp_path / "long.jsonl")
    monkeypatch.setattr(text_pieces, "STDIN_MOST", 1000)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"the cat " * 1000)))
    assert "standard input is longer than" in refused(tiny, "-")


def test_memory_is_bounded_before_it_is_taken(tiny):
    said = refused(tiny, {"a": "the cat"}, top=1_000_000)
    assert "top = 1000000: the examples of 156 neurons would take 27 GB of memory." in said
    most = int(said.rpartition("at most ")[2])
    assert f"top = {most + 1}: " in refused(tiny, {"a": "the cat"}, top=most + 1)
    assert "block_tokens = " in refused(tiny, {"a": "the cat"}, block_tokens=2**25)


def test_files_are_counted_before_they_are_read(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "b.jsonl").write_text('"de"')
    (tmp_path / "c.csv").write_text("not read")
    assert measure_texts(str(tmp_path)) == TextSize(2, 7)
    assert measure_texts([tmp_path / "a.txt", f"{tmp_path}/*.txt"]) == TextSize(1, 3)
    assert measure_texts({"a": "b"}) == TextSize(0, 0)


def test_a_walk_ends_at_what_is_allowed(tmp_path, monkeypatch):
    looked_at = []
    for number in range(50):
        (tmp_path / f"{number:02}.txt").write_text("abc")
        (tmp_path / f"{number:02}.csv").write_text("not read")
    real = text_sources._walk
    monkeypatch.setattr(
        text_sources, "_walk", lambda word: (looked_at.append(p) or p for p in real(word))
    )
    assert measure_texts(tmp_path, files=3) == TextSize(4, 12, is_all=False)
    assert len(looked_at) < 60
    looked_at.clear()
    assert not measure_texts(tmp_path, names=7).is_all
    assert len(looked_at) == 8
    assert measure_texts(tmp_path, size=5).size == 6
    assert measure_texts(tmp_path, files=50, size=150, names=100) == TextSize(50, 150)


def test_a_scan_ends_with_the_block_of_its_last_token_and_resumes_there(tiny, tmp_path):
    texts = {f"{number}": "the cat sat on the mat" for number in range(30)}
    whole = fp.scan(tiny, texts, workers=1, store=tmp_path / "whole", block_tokens=20)
    first = fp.scan(tiny, texts, workers=1, store=tmp_path / "parts", block_tokens=20, tokens=50)
    assert 50 <= first.done.tokens < 50 + 20 + 10 < whole.done.tokens
    again = fp.scan(tiny, texts, workers=1, store=tmp_path / "parts", block_tokens=20, tokens=50)
    assert again.done == first.done
    fp.scan(tiny, texts, workers=1, store=tmp_path / "parts", block_tokens=20)
    written = [(tmp_path / name / "scan.safetensors").read_bytes() for name in ("whole", "parts")]
    assert written[0] == written[1]
    assert "tokens = 0: it must be at least 1" in refused(tiny, texts, tokens=0)


def open_below(folder):
    """List the files below a folder that this process holds open."""
    held = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    named = [os.readlink(each) for each in held if os.path.islink(each)]
    return [name for name in named if name.startswith(str(folder))]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to see open files")
@pytest.mark.parametrize("verb", [fp.scan, fp.scan_keys])
def test_a_file_is_closed_when_the_work_ends_in_an_error(tiny, tmp_path, verb):
    """Also while the error is kept: it holds the frames that were reading."""
    words = b"the cat sat on the mat \n" * 60_000  # more than is read at once
    (tmp_path / "bad.txt").write_bytes(words + b"\xff" + words)
    (tmp_path / "good.txt").write_bytes(words)

    def stop(done, share):
        if done:
            raise InterruptedError

    with pytest.raises(DataRefused) as refusal:
        verb(tiny, tmp_path / "bad.txt", block_tokens=10**6)
    assert not open_below(tmp_path), refusal
    with pytest.raises(InterruptedError) as stopped:
        verb(tiny, tmp_path / "good.txt", block_tokens=256, progress=stop)
    assert not open_below(tmp_path), stopped
