"""What is done of a long table, kept so that an interrupted run goes on where it stopped.

A folder with one file a batch, each written whole, and `run.json`, which says of what run they are:
facts, weights and options. Numbers are written so that they read back to the same bits, and batches
are the same on every run: a resumed result is the uninterrupted one.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnprobe.errors import FileNotWritten, OptionRefused
from ffnprobe.files import write_whole

RUN = "run.json"


@dataclass(frozen=True)
class Partials:
    """The folder of one run's finished batches."""

    folder: Path

    @classmethod
    def open(cls, folder: Path, run: dict[str, Any]) -> "Partials":
        """Begin the folder, or go on with it if it is of this very run."""
        described = json.dumps(run, ensure_ascii=False, sort_keys=True)
        head = folder / RUN
        if head.is_file():
            if head.read_text(encoding="utf-8") != described:
                raise OptionRefused(
                    f"{folder} was begun with other facts, options or weights.",
                    remedy=f"rm -r {folder}, or another place",
                )
        else:
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise FileNotWritten(f"{folder} cannot be made: {error.strerror}.") from None
            if any(folder.iterdir()):
                raise OptionRefused(f"{folder} holds something else.", remedy="another place")
            write_whole(head, described.encode())
        return cls(folder)

    def read(self, batch: int) -> list[dict[str, Any]] | None:
        """Return a batch that is done, or None."""
        path = self._file(batch)
        if not path.is_file():
            return None
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def write(self, batch: int, facts: list[dict[str, Any]]) -> None:
        """Keep a batch that is done."""
        write_whole(self._file(batch), json.dumps(facts).encode())

    def _file(self, batch: int) -> Path:
        return self.folder / f"batch-{batch:06}.json"


def clear_partials(folder: Path) -> None:
    """Remove the folder of a run whose result is safe; nothing that is no such folder."""
    if (folder / RUN).is_file():
        shutil.rmtree(folder)
