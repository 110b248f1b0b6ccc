"""What is done of a long table, kept so that an interrupted run resumes where it stopped.

A folder with one file a batch, each written whole, and `run.json`, which says of what run they are:
facts, model and options. Numbers are written so that they read back to the same bits, and batches are
the same on every run: a resumed result is the uninterrupted one. Each batch carries a checksum of its
figures, its number and its run, so that one that is damaged or of another run is refused.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ffnprobe.errors import DataRefused, FileNotWritten, OptionRefused
from ffnprobe.files import TEMPORARY, quote, sweep, write_whole
from ffnprobe.inputs import parse_json, read_input
from ffnprobe.locks import LOCK, hold

RUN = "run.json"


@dataclass(frozen=True)
class Partials:
    """The folder of one run's finished batches, held by this process."""

    folder: Path
    run: bytes

    @classmethod
    @contextmanager
    def open(cls, folder: Path, run: dict[str, Any]) -> "Iterator[Partials]":
        """Begin the folder, or resume it if it is of this very run."""
        described = json.dumps(run, sort_keys=True).encode()
        if os.path.exists(folder) and not folder.is_dir():
            raise FileNotWritten(f"{folder} is a file.", remedy=other_place(folder))
        if os.path.isdir(folder) and not (folder / RUN).is_file():
            names = os.listdir(folder)
            if any(name != LOCK and not name.startswith(TEMPORARY) for name in names):
                raise OptionRefused(f"{folder} holds something else.", remedy=other_place(folder))
        with hold(folder, remedy=f"wait for it to end, or {other_place(folder)}"):
            sweep(folder)
            head = folder / RUN
            if not head.is_file():
                write_whole(head, described)
            elif read_input(head) != described:
                raise OptionRefused(
                    f"{folder} was begun with other facts, options or another model.",
                    remedy=other_place(folder),
                )
            yield cls(folder, described)

    def read(self, batch: int) -> list[dict[str, Any]] | None:
        """Return a batch that is done, or None; refuse one that is not what was written."""
        path = self._file(batch)
        if not path.is_file():
            return None
        try:
            kept = parse_json(read_input(path), where="it")
            facts: list[dict[str, Any]] = kept["facts"]
            if kept["checksum"] == self._checksum(batch, facts):
                return facts
            why = "its checksum is another"
        except DataRefused as error:
            why = error.what.rstrip(".")
        except (OSError, LookupError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
        raise DataRefused(
            f"{path} is damaged or of another run ({why}). The other batches are checked alike.",
            remedy=other_place(self.folder),
        )

    def write(self, batch: int, facts: list[dict[str, Any]]) -> None:
        """Keep a batch that is done."""
        kept = {"checksum": self._checksum(batch, facts), "facts": facts}
        write_whole(self._file(batch), json.dumps(kept).encode())

    def _checksum(self, batch: int, facts: list[dict[str, Any]]) -> str:
        digest = xxhash.xxh3_128(self.run)
        digest.update(f"{batch} {json.dumps(facts)}".encode())
        return digest.hexdigest()

    def _file(self, batch: int) -> Path:
        return self.folder / f"batch-{batch:06}.json"


def other_place(folder: Path) -> str:
    """Name a file for the result whose partial folder does not exist yet, as a shell reads it."""
    result = folder.with_name(folder.name.removesuffix(".partial"))
    number = 2
    while os.path.exists(other := result.with_stem(f"{result.stem}-{number}")):
        number += 1
    return f"--out {quote(other)}" if folder.name.endswith(".partial") else quote(other)


def clear_partials(folder: Path) -> None:
    """Remove the folder of a run whose result is safe; nothing that is not such a folder."""
    if (folder / RUN).is_file():
        shutil.rmtree(folder)
