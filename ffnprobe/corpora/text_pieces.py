"""Read a source as pieces of text: text by text, long texts in pieces, never whole in memory.

A text is cut only between a letter or digit and the space or line break after it. No BPE token
crosses such a boundary, so a text gives the same tokens in pieces as it gives whole. Only a run of
`PIECE` characters without any boundary is cut elsewhere.
"""

import codecs
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from ffnprobe.arguments import show
from ffnprobe.corpora.text_sources import TextSource, read_chunks
from ffnprobe.errors import DataRefused
from ffnprobe.files import parse_json

PIECE = 2**18
GB = 10**9
STDIN_MOST = 100 * GB
LINE_MOST = GB // 10
# What a parquet file may unpack to: so much for each of its bytes, and at least so much.
UNPACKED_MOST, UNPACKED_LEAST = 1000, GB // 10
ROWS_AT_ONCE = 16
# An underscore is not a letter: newer tokenizers join punctuation to the newline after it.
_CUT = re.compile(r"(?<=[^\W_])(?=[ \n])")
REPLACE = "--errors replace, which reads such bytes as U+FFFD"


class Piece(NamedTuple):
    """A piece of a text: which text of its source, and how much of the source is read with it."""

    text: int
    words: str
    share: float | None


def read_pieces(
    source: TextSource, *, column: str, errors: str, lines: bool = False
) -> Iterator[Piece]:
    """Read a source's texts in order; pieces of one text follow each other under one number."""
    match source.kind:
        case "given":
            for words in _cut([source.where]):
                yield Piece(0, words, 1.0)
        case "text" if lines:
            yield from _read_text_lines(source, errors)
        case "text":
            yield from _read_text(source, errors)
        case "jsonl":
            yield from _read_lines(source, column, errors)
        case "parquet":
            yield from _read_rows(source, column)
        case "stdin":
            for words in _cut(_decode(_read_stdin(), source.name, errors)):
                yield Piece(0, words, None)
        case "hub":
            yield from _read_dataset(source, column)


def _read_stdin() -> Iterator[bytes]:
    """Read standard input to its end, or to a bound: what never ends is refused."""
    seen = 0
    while chunk := sys.stdin.buffer.read(PIECE):
        seen += len(chunk)
        if seen > STDIN_MOST:
            raise DataRefused(
                f"standard input is longer than {STDIN_MOST // GB:,} GB, the most ffnprobe reads of it.",
                remedy="a file, or several",
            )
        yield chunk


def _read_text(source: TextSource, errors: str) -> Iterator[Piece]:
    seen, size = 0, max(1, source.size or 0)
    with closing(read_chunks(Path(source.where))) as chunks:
        for words in _cut(_decode(chunks, source.name, errors)):
            seen += len(words.encode("utf-8", errors="replace"))
            yield Piece(0, words, min(1.0, seen / size))


def _read_text_lines(source: TextSource, errors: str) -> Iterator[Piece]:
    """Read each line as a text of its own; blank ones are skipped."""
    seen, size = 0, max(1, source.size or 0)
    with closing(_lines(Path(source.where))) as lines:
        for number, line in enumerate(lines, start=1):
            words = "".join(_decode([line], f"{source.name}, line {number},", errors)).rstrip("\r")
            seen += len(line)
            if words.strip():
                for piece in _cut([words]):
                    yield Piece(number, piece, seen / size)


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
    with closing(_lines(Path(source.where))) as lines:
        for number, line in enumerate(lines, start=1):
            words = "".join(_decode([line], f"{source.name}, line {number},", errors))
            seen += len(line)
            if words.strip():
                text = _pick(words, column, f"{source.name}, line {number},")
                for piece in _cut([text]):
                    yield Piece(number, piece, seen / size)


def _lines(path: Path) -> Generator[bytes, None, None]:
    held = b""
    with closing(read_chunks(path)) as chunks:
        for chunk in chunks:
            *whole, held = (held + chunk).split(b"\n")
            yield from whole
            if len(held) > LINE_MOST:
                raise DataRefused(
                    f"{path} has a line of more than {LINE_MOST * 1000 // GB:,} MB, the most ffnprobe reads."
                )
    if held:
        yield held


def _pick(line: str, column: str, where: str) -> str:
    """Take the text out of one JSON line."""
    value = parse_json(line, where=where)
    if isinstance(value, dict):
        if column not in value:
            raise _no_column(where, column, list(value))
        value = value[column]
    if not isinstance(value, str):
        raise DataRefused(f'{where} holds no text in "{column}": {show(value)}.')
    return value


def _no_column(where: str, column: str, columns: list[str]) -> DataRefused:
    return DataRefused(
        f'{where} has no column "{column}".', remedy=f"--column {' or '.join(columns[:5])}"
    )


def _read_rows(source: TextSource, column: str) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A text that comes often is kept once, however often it comes.
        file = pq.ParquetFile(source.where, read_dictionary=[column])
        if column not in file.schema_arrow.names:
            raise _no_column(source.name, column, file.schema_arrow.names)
        _check_unpacked(source, file, column)
        number, rows = 0, max(1, file.metadata.num_rows)
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=[column]):
            for value in batch.column(0):
                number += 1
                where = f"{source.name}, row {number},"
                yield from _row(value.as_py(), column, where, number, rows)
    # What a damaged file makes of the reader can be any of these.
    except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        raise DataRefused(
            f"{source.name} is not a parquet file that can be read: {error}.",
            remedy="copy or write it again",
        ) from None


def _check_unpacked(source: TextSource, file: Any, column: str) -> None:
    """Refuse a file of which a little unpacks to very much, before any of it is scanned."""
    import pyarrow.compute as pc

    size = max(1, source.size or 0)
    most, unpacked = max(UNPACKED_LEAST, UNPACKED_MOST * size), 0
    for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=[column]):
        texts = batch.column(0)
        if not hasattr(texts, "dictionary"):  # numbers or lists, which are refused by their row
            return
        lengths = pc.binary_length(texts.dictionary).take(texts.indices)
        unpacked += pc.sum(lengths).as_py() or 0
        if unpacked > most:
            raise DataRefused(
                f"{source.name} has {size:,} bytes and unpacks to more than {most // 10**6:,} MB.",
                remedy="a text or .jsonl file of it, if that is what you want",
            )


def _row(
    value: Any, column: str, where: str, number: int, rows: int | None = None
) -> Iterator[Piece]:
    """Cut one row's text; a row without text is skipped."""
    if value is None:
        return
    if not isinstance(value, str):
        raise DataRefused(f'{where} holds no text in "{column}": {show(value)}.')
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
