"""Texts come in whole from every kind of source, and what is not text is named."""

import io
import json
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffnprobe.corpora import text_pieces
from ffnprobe.corpora.passages import ScanSettings, cut_blocks
from ffnprobe.corpora.text_pieces import read_pieces
from ffnprobe.corpora.text_sources import find_texts
from ffnprobe.errors import DataRefused


def read(texts, *, column="text", errors="strict"):
    """Read sources whole: (source's name, number of the text, text)."""
    whole = {}
    for source in find_texts(texts):
        for number, words, _ in read_pieces(source, column=column, errors=errors):
            text = (source.name, number)
            whole[text] = whole.get(text, "") + words
    return [(*text, words) for text, words in whole.items()]


def test_files_come_once_and_in_order_however_they_are_listed(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("2.txt", "10.txt", "b/1.txt", "notes.md"):
        (tmp_path / name).write_text(f"in {name}")
    every = [("10.txt", 0, "in 10.txt"), ("2.txt", 0, "in 2.txt"), ("b/1.txt", 0, "in b/1.txt")]
    assert read(tmp_path) == every
    assert read([tmp_path / "b", tmp_path / "2.txt", str(tmp_path / "*.txt")]) == every
    assert read(tmp_path / "notes.md") == [("notes.md", 0, "in notes.md")]
    assert read(str(tmp_path / "**" / "1.txt")) == [("1.txt", 0, "in b/1.txt")]


def test_rows_and_lines_are_texts(tmp_path):
    rows = ["one", "two\nlines", None, "naïve"]
    pd.DataFrame({"text": rows, "n": range(4)}).to_parquet(tmp_path / "rows.parquet")
    lines = [json.dumps({"text": "one", "n": 1}), "", json.dumps("two\nlines"), '{"text": "naïve"}']
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "rows.parquet") == [
        ("rows.parquet", 1, "one"), ("rows.parquet", 2, "two\nlines"), ("rows.parquet", 4, "naïve")
    ]  # fmt: skip
    assert read(tmp_path / "lines.jsonl") == [
        ("lines.jsonl", 1, "one"), ("lines.jsonl", 3, "two\nlines"), ("lines.jsonl", 4, "naïve")
    ]  # fmt: skip


def test_a_dataset_is_streamed(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    (tmp_path / "train.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    (tmp_path / "test.jsonl").write_text('{"body": "three"}\n')
    name = f"hub:{tmp_path}"
    assert [row[1:] for row in read(name, column="body")] == [(1, "one"), (2, "two")]
    assert [row[1:] for row in read(f"{name}::test", column="body")] == [(1, "three")]
    with pytest.raises(DataRefused, match='has no column "text"') as refusal:
        read(name)
    assert refusal.value.remedy == "--column body"
    with pytest.raises(DataRefused, match="cannot be opened"):
        read(f"hub:{tmp_path / 'nowhere'}")


def test_standard_input_is_one_text(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("a naïve\ntext".encode())))
    assert read("-") == [("standard input", 0, "a naïve\ntext")]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.txt", b"caf\xe9 au lait", "x.txt is not UTF-8: byte 3 is 0xE9."),
        ("x.txt", b"ok" * 600_000 + b"\xff", "x.txt is not UTF-8: byte 1,200,000 is 0xFF."),
        ("x.txt", b"a" * (2**20 - 1) + b"\xe2\x82!", "byte 1,048,575 is 0xE2."),
        ("x.txt", b"cut off \xe2\x82", "byte 8 is 0xE2."),
        ("x.txt", b"GIF89a\x00\x01", "x.txt is not text: byte 6 is 0x00."),
        ("x.jsonl", b'"fine"\n{"text": 3', "x.jsonl, line 2, is not JSON"),
        ("x.jsonl", b'{"body": "a"}', 'x.jsonl, line 1, has no column "text".'),
        ("x.jsonl", b'{"text": 3}', 'x.jsonl, line 1, holds no text in "text": 3.'),
        ("x.jsonl", b'"ok"\n"caf\xe9"', "x.jsonl, line 2, is not UTF-8: byte 4 is 0xE9."),
        ("x.parquet", b"PAR1 not at all", "x.parquet is not a parquet file that can be read"),
    ],
)  # fmt: skip
def test_what_is_not_text_is_named_with_its_offset_or_line(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataRefused) as refusal:
        read(tmp_path / name)
    assert said in refusal.value.what


def test_bad_bytes_can_be_replaced(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"caf\xe9 \x00")
    (tmp_path / "y.jsonl").write_bytes(b'"caf\xe9"')
    assert [text for *_, text in read(tmp_path, errors="replace")] == [
        "caf\ufffd \x00",
        "caf\ufffd",
    ]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("nowhere.txt", "there is no file nowhere.txt."),
        ("nowhere/*.txt", "no file matches nowhere/*.txt."),
        (".", "the folder . holds no .txt, .jsonl, .parquet file."),
        ([], "no text is named."),
        ("hub:", "hub: names no dataset."),
    ],
)
def test_what_is_not_there_is_named(tmp_path, monkeypatch, texts, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataRefused) as refusal:
        find_texts(texts)
    assert refusal.value.what == said


@given(text=st.text(alphabet="ab1. \n\t'\u00a0é_-", max_size=80))
@settings(max_examples=60, deadline=None)
def test_a_text_has_the_same_tokens_in_pieces_as_whole(tiny, text):
    cut = [list(text_pieces._cut([text[:30], text[30:]]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_pieces, "PIECE", 12)
        cut.append(list(text_pieces._cut([text[:30], text[30:]])))
    assert all("".join(pieces) == text for pieces in cut)
    whole = tiny.vocab.ids(text)
    # A piece of twelve characters without a boundary is cut elsewhere.
    if all(len(piece) < 12 for piece in cut[1]):
        assert [token for piece in cut[1] for token in tiny.vocab.ids(piece)] == whole


def test_texts_become_passages_of_at_most_the_context(tiny, monkeypatch):
    monkeypatch.setattr(text_pieces, "PIECE", 40)
    texts = {"a": "the cat sat on the mat " * 9, "b": "the dog", "c": ""}
    blocks = list(
        cut_blocks(tiny.vocab, find_texts(texts), ScanSettings(context=11, block_tokens=35))
    )
    passages = [passage for block in blocks for passage in block.passages]
    assert max(len(passage.ids) for passage in passages) == 10
    for number, text in enumerate(texts.values()):
        mine = [passage for passage in passages if passage.text >> 32 == number]
        assert [token for passage in mine for token in passage.ids] == tiny.vocab.ids(text)
        assert [p.start for p in mine] == list(range(0, len(tiny.vocab.ids(text)), 10))
    assert [sum(len(p.ids) for p in block.passages) >= 35 for block in blocks[:-1]] == [True] * (
        len(blocks) - 1
    )
    assert [block.first for block in blocks[1:]] == [block.done.passages for block in blocks[:-1]]
    done = blocks[-1].done
    assert (done.texts, done.split, done.passages) == (2, 1, len(passages))
    assert len({block.done.digest for block in blocks}) == len(blocks)
