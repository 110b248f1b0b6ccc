"""A small corpus, and the scan of it that was never stopped."""

from pathlib import Path

import pytest

import ffnprobe as fp
from tests.builders import TEXT

WORDS = TEXT.split()
OPTIONS = {"top": 4, "block_tokens": 30, "workers": 1}


@pytest.fixture(scope="session")
def speeches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of seven texts: short and long, one with two kinds of blanks, one with odd letters."""
    folder = tmp_path_factory.mktemp("speeches")
    for number in range(5):
        words = [*WORDS[number : 9 + 23 * number], "Zürich", "x" * number]
        (folder / f"{number}.txt").write_text(" ".join(words))
    (folder / "blanks.txt").write_text("the cat\n\n\n  sat on\tthe mat \n")
    (folder / "odd.txt").write_text("naïve café 中文 \u00a0 done")
    return folder


@pytest.fixture(scope="session")
def whole(tiny: fp.Model, speeches: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of an uninterrupted scan."""
    store = tmp_path_factory.mktemp("whole") / "scan"
    fp.scan(tiny, speeches, store=store, **OPTIONS)
    return store


def bytes_of(store: Path) -> dict[str, bytes]:
    """Read every file of a store."""
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}
