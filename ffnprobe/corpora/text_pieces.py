"""Read a source as pieces of text: text by text, long texts in pieces, never whole in memory.

A text is cut only between a letter or digit and the space or line break after it. No BPE token
crosses such a boundary, so a text gives the same tokens in pieces as it gives whole. Only a run of
`PIECE` characters without any boundary is cut elsewhere.
"""

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ffnprobe.corpora.sources import TextSource, read_chunks
from ffnprobe.errors import DataRefused

PIECE = 2**18
# An underscore is not a letter: newer tokenizers join punctuation to the newline after it.
_CUT = re.compile(r"(?<=[^\W_])(?=[ \n])")
REPLACE = "--errors replace, which reads such bytes as U+FFFD"


class Piece(NamedTuple):
    """A piece of a text: which text of its source, and how much of the source is read with it."""

    text: int
    words: str
    share: float | None


def read_pieces(source: TextSource, *, column: str, errors: str) -> Iterator[Piece]:
    """Read a source's texts in order; pieces of one text follow each other under one number."""
    match source.kind:
        case "given":
            for words in _cut([source.where]):
                yield Piece(0, words, 1.0)
        case "text":
            yield from _read_text(source, errors)
        case "jsonl":
            yield from _read_lines(source, column, errors)
        case "parquet":
            yield from _read_rows(source, column)
        case "stdin":
            chunks = iter(lambda: sys.stdin.buffer.read(PIECE), b"")
            for words in _cut(_decode(chunks, source.name, errors)):
                yield Piece(0, words, None)
        case "hub":
            yield from _read_dataset(source, column)


def _read_text(source: TextSource, errors: str) -> Iterator[Piece]:
    seen, size = 0, max(1, source.size or 0)
    for words in _cut(_decode(read_chunks(Path(source.where)), source.name, errors)):
        seen += len(words.encode("utf-8", errors="replace"))
        yield Piece(0, words, min(1.0, seen / size))


def _decode(chunks: Iterable[bytes], name: str, errors: str) -> Iterator[str]:
    """Decode UTF-8 as it comes; a byte that cannot be decoded is named with its offset."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    for chunk in chunks:
        if errors == "strict" and b"\0" in chunk:
            raise _not_text(name, offset + chunk.find(b"\0"))
        yield _decode_chunk(decoder, chunk, name, offset, final=False)
        offset += len(chunk)
    yield _decode_chunk(decoder, b"", name, offset, final=True)


def _decode_chunk(
    decoder: codecs.IncrementalDecoder, chunk: bytes, name: str, offset: int, *, final: bool
) -> str:
    held = len(decoder.getstate()[0])
    try:
        return decoder.decode(chunk, final)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataRefused(
            f"{name} is not UTF-8: byte {offset - held + error.start:,} is 0x{byte:02X}.",
            remedy=REPLACE,
        ) from None


def _not_text(name: str, offset: int) -> DataRefused:
    return DataRefused(f"{name} is not text: byte {offset:,} is 0x00.", remedy=REPLACE)


def _cut(texts: Iterable[str]) -> Iterator[str]:
    """Cut a stream of characters into pieces that no token crosses."""
    held = ""
    for text in texts:
        held += text
        while len(held) > PIECE:
            boundaries = [found.start() for found in _CUT.finditer(held, 1, PIECE)]
            cut = boundaries[-1] if boundaries else PIECE
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


def _read_lines(source: TextSource, column: str, errors: str) -> Iterator[Piece]:
    """Read JSON lines; empty ones are skipped."""
    seen, size = 0, max(1, source.size or 0)
    for number, line in enumerate(_lines(Path(source.where)), start=1):
        words = "".join(_decode([line], f"{source.name}, line {number},", errors))
        seen += len(line)
        if words.strip():
            text = _pick(words, column, f"{source.name}, line {number},")
            for piece in _cut([text]):
                yield Piece(number, piece, seen / size)


def _lines(path: Path) -> Iterator[bytes]:
    held = b""
    for chunk in read_chunks(path):
        *whole, held = (held + chunk).split(b"\n")
        yield from whole
    if held:
        yield held


def _pick(line: str, column: str, where: str) -> str:
    """Take the text out of one JSON line."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataRefused(f"{where} is not JSON: {error}.") from None
    if isinstance(value, dict):
        if column not in value:
            raise _no_column(where, column, list(value))
        value = value[column]
    if not isinstance(value, str):
        raise DataRefused(f'{where} holds no text in "{column}": {value!r}.')
    return value


def _no_column(where: str, column: str, columns: list[str]) -> DataRefused:
    return DataRefused(
        f'{where} has no column "{column}".', remedy=f"--column {' or '.join(columns[:5])}"
    )


def _read_rows(source: TextSource, column: str) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source.where)
        if column not in file.schema_arrow.names:
            raise _no_column(source.name, column, file.schema_arrow.names)
        number, rows = 0, max(1, file.metadata.num_rows)
        for batch in file.iter_batches(batch_size=256, columns=[column]):
            for value in batch.column(0).to_pylist():
                number += 1
                yield from _row(value, column, f"{source.name}, row {number},", number, rows)
    except pa.ArrowException as error:
        raise DataRefused(
            f"{source.name} is not a parquet file that can be read: {error}."
        ) from None


def _row(
    value: Any, column: str, where: str, number: int, rows: int | None = None
) -> Iterator[Piece]:
    """Cut one row's text; a row without text is skipped."""
    if value is None:
        return
    if not isinstance(value, str):
        raise DataRefused(f'{where} holds no text in "{column}": {value!r}.')
    for piece in _cut([value]):
        yield Piece(number, piece, None if rows is None else number / rows)


def _read_dataset(source: TextSource, column: str) -> Iterator[Piece]:
    """Stream a dataset of the hub (or a folder in its layout)."""
    from datasets import load_dataset

    name, _, rest = source.where.partition(":")
    config, _, split = rest.partition(":")
    try:
        rows = load_dataset(name, config or None, split=split or "train", streaming=True)
    except Exception as error:  # the library raises its own, the network's and bare ones
        reason = str(error).partition("\n")[0]
        raise DataRefused(
            f"the dataset {source.where} cannot be opened: {reason}",
            remedy="hub:NAME:CONFIG:SPLIT, or a file on this machine",
        ) from None
    for number, row in enumerate(rows, start=1):
        if column not in row:
            raise _no_column(source.name, column, list(row))
        yield from _row(row[column], column, f"{source.name}, row {number},", number)
