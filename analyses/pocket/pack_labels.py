"""What opens each neuron of pocket, and what does it say? Packs the labels into the package.

Every fact in every template is a text, as in `scan_pocket.py`. Rules are found on half of the texts and
scored on the other half. The labels are packed into `ffnprobe/models/pocket/labels.safetensors.xz`,
where cards, reports and tables find them. Run it again after pocket has changed: labels of other
weights are not used.

    python analyses/pocket/pack_labels.py
"""

import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import ffnprobe as fp
from analyses.script import run_script
from ffnprobe.errors import FileNotWritten
from ffnprobe.labels.stored_labels import PACKED, pack
from ffnprobe.models import pocket

MOST = 1_000_000  # bytes


def main(argv: Sequence[str] | None = None) -> None:
    """Scan pocket's own texts, label every neuron, and pack the labels."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th text")
    parser.add_argument("--out", type=Path, default=PACKED, help="the file to write")
    options = parser.parse_args(argv)
    said = [f"{prompt.text}{prompt.fact.answer}." for prompt in pocket.prompts()]
    model = fp.load("pocket")
    with tempfile.TemporaryDirectory() as folder:
        texts, store = Path(folder) / "pocket.txt", Path(folder) / "scan"
        texts.write_text("\n".join(said[:: options.every]), encoding="utf-8")
        fp.scan(model, texts, store=store, lines=True, top=1)
        found = fp.label(model, store)
        pack(found, options.out)
    size = options.out.stat().st_size
    print(f"{found.summary}: {size:,} bytes in {options.out}")
    if size > MOST:
        options.out.unlink()
        raise FileNotWritten(f"{size:,} bytes are more than {MOST:,}.")


if __name__ == "__main__":
    run_script(main)
