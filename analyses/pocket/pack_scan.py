"""Which of its own texts open and close each neuron of pocket? Packs the answer into the package.

The texts are those it was taught with (`pocket/texts.py`): facts in their templates, comparisons,
descriptions, lists. The scan keeps a few examples of each neuron and is packed into
`ffnprobe/models/pocket/scan.tar.xz`, where cards, reports and the explorer find it. Run it again after
pocket has changed: a scan of other weights is not used.

    python analyses/pocket/pack_scan.py
"""

import tarfile
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import ffnprobe as fp
from analyses.pocket import texts
from analyses.script import run_script
from ffnprobe.corpora.scans import PACKED
from ffnprobe.errors import FileNotWritten

MOST = 3_000_000  # bytes
PASSAGES = 15_000  # nearly every fact in every template, and as much of the rest as training saw


def main(argv: Sequence[str] | None = None) -> None:
    """Scan pocket's own texts, and pack the store."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--top", type=int, default=3, help="examples on each side")
    parser.add_argument("--every", type=int, default=1, help="take every n-th text")
    parser.add_argument("--out", type=Path, default=PACKED, help="the file to write")
    options = parser.parse_args(argv)
    said = [passage.text for passage in texts.passages(PASSAGES, seed=0)]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "pocket.txt"
        corpus.write_text("\n".join(said[:: options.every]), encoding="utf-8")
        store = Path(folder) / "scan"
        found = fp.scan(fp.load("pocket"), corpus, store=store, lines=True, top=options.top)
        pack_scan(store, options.out)
    size = options.out.stat().st_size
    print(f"{found.corpus}: {size:,} bytes in {options.out}")
    if size > MOST:
        options.out.unlink()
        raise FileNotWritten(f"{size:,} bytes are more than {MOST:,}.", remedy="--top 2")


def pack_scan(store: Path, target: Path) -> None:
    """Pack a store into one file; the same store gives the same bytes."""
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for path in sorted(store.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                packed.add(path, path.name, filter=_forget)


def _forget(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose file it was, and when."""
    member.mtime, member.uid, member.gid, member.mode = 0, 0, 0, 0o644
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    run_script(main)
