"""Read a source as pieces of text: text by text, long texts in pieces, never whole in memory.

A text is cut only between a letter or digit and the space or line break after it. No BPE token
crosses such a boundary, so a text gives the same tokens in pieces as it gives whole. Only a run of
`PIECE` characters without any boundary is cut elsewhere.
"""

import codecs
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

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


# Which text of its source a piece is of, its words, and the share of the source read with it.
Piece = tuple[int, str, float | None]


def read_pieces(
    source: TextSource, *, column: str, errors: str, lines: bool = False
) -> Iterator[Piece]:
    """Read a source's texts in order; pieces of one text follow each other under one number."""
    match source.kind:
        case "given":
            for words in _cut([source.where]):
                yield (0, words, 1.0)
        case "text" if lines:
            yield from _read_lines(source, errors, lambda line, where: line.rstrip("\r"))
        case "text":
            yield from _read_text(source, errors)
        case "jsonl":
            yield from _read_lines(source, errors, partial(_pick, column=column))
        case "parquet":
            yield from _read_rows(source, column)
        case "stdin":
            for words in _cut(_decode(_read_stdin(), source.name, errors)):
                yield (0, words, None)
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
            yield (0, words, min(1.0, seen / size))


def _read_lines(
    source: TextSource, errors: str, take: Callable[[str, str], str]
) -> Iterator[Piece]:
    """Read each line as a text of its own, taken out of the line; blank ones are skipped."""
    seen, size = 0, max(1, source.size or 0)
    with closing(_lines(Path(source.where))) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{source.name}, line {number},"
            words = "".join(_decode([line], where, errors))
            seen += len(line)
            if words.strip():
                for piece in _cut([take(words, where)]):
                    yield (number, piece, seen / size)


def _decode(chunks: Iterable[bytes], name: str, errors: str) -> Iterator[str]:
    """Decode UTF-8 as it comes; a byte that cannot be decoded is named with its offset."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    for chunk in chain(chunks, [None]):
        data = chunk or b""
        if errors == "strict" and b"\0" in data:
            where = offset + data.find(b"\0")
            raise DataRefused(f"{name} is not text: byte {where:,} is 0x00.", remedy=REPLACE)
        held = len(decoder.getstate()[0])
        try:
            yield decoder.decode(data, final=chunk is None)
        except UnicodeDecodeError as error:
            where, byte = offset - held + error.start, error.object[error.start]
            raise DataRefused(
                f"{name} is not UTF-8: byte {where:,} is 0x{byte:02X}.", remedy=REPLACE
            ) from None
        offset += len(data)


def _cut(texts: Iterable[str]) -> Iterator[str]:
    """Cut a stream of characters into pieces that no token crosses."""
    held = ""
    for text in texts:
        held += text
        while len(held) > PIECE:
            boundaries = [match.start() for match in _CUT.finditer(held, 1, PIECE)]
            cut = boundaries[-1] if boundaries else PIECE
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


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


def _pick(line: str, where: str, column: str) -> str:
    """Take the text out of one JSON line."""
    value = parse_json(line, where=where)
    if isinstance(value, dict):
        _check_column(where, column, list(value))
        value = value[column]
    return _check_text(value, column, where)


def _check_text(value: Any, column: str, where: str) -> str:
    if not isinstance(value, str):
        raise DataRefused(f'{where} holds no text in "{column}": {show(value)}.')
    return value


def _check_column(where: str, column: str, columns: list[str]) -> None:
    if column not in columns:
        raise DataRefused(
            f'{where} has no column "{column}".', remedy=f"--column {' or '.join(columns[:5])}"
        )


def _read_rows(source: TextSource, column: str) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A text that comes often is kept once, however often it comes.
        file = pq.ParquetFile(source.where, read_dictionary=[column])
        _check_column(source.name, column, file.schema_arrow.names)
        _check_unpacked(source, file, column)
        rows = max(1, file.metadata.num_rows)
        batches = file.iter_batches(batch_size=ROWS_AT_ONCE, columns=[column])
        values = (value.as_py() for batch in batches for value in batch.column(0))
        for number, value in enumerate(values, start=1):
            yield from _cut_row(source, column, value, number, number / rows)
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


def _cut_row(
    source: TextSource, column: str, value: Any, number: int, share: float | None
) -> Iterator[Piece]:
    """Cut one row's text; a row without text is skipped."""
    if value is not None:
        text = _check_text(value, column, f"{source.name}, row {number},")
        for piece in _cut([text]):
            yield (number, piece, share)


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
        _check_column(source.name, column, list(row))
        yield from _cut_row(source, column, row[column], number, None)
