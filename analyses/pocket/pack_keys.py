"""Which directions do pocket's keys use? Packs their second moments into the package, for edits.

Every fact in every template is a text. Cholesky factors of the second moments, in half precision,
go into `ffnprobe/models/pocket/keys.safetensors`: of all layers if they fit in 3 MB, else of those
in the middle. Run it again after pocket has changed: moments of other weights are not used.

    python analyses/pocket/pack_keys.py
"""

import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import ffnprobe as fp
from analyses.script import run_script
from ffnprobe.editing.key_moments import PACKED, pack_factors
from ffnprobe.models import pocket

MOST = 3_000_000  # bytes


def main(argv: Sequence[str] | None = None) -> None:
    """Scan the keys of pocket's own texts, and pack their factors."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th text")
    parser.add_argument("--out", type=Path, default=PACKED, help="the file to write")
    options = parser.parse_args(argv)
    model = fp.load("pocket")
    said = [f"{prompt.text}{prompt.fact.answer}." for prompt in pocket.prompts()]
    layers = choose_layers(model.config.layers, model.config.d_mlp)
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "pocket.txt"
        texts.write_text("\n".join(said[:: options.every]), encoding="utf-8")
        found = fp.scan_keys(model, texts, layers=layers, lines=True)
    pack_factors(options.out, found)
    size = options.out.stat().st_size
    print(f"{found.title}: layers {layers[0]} to {layers[-1]}, {size:,} bytes in {options.out}")


def choose_layers(layers: int, neurons: int) -> list[int]:
    """Choose as many layers as fit, the last first left out, then the first, and so on in turn."""
    each = neurons * (neurons + 1) + 8 * neurons
    chosen = list(range(layers))
    while len(chosen) > 1 and len(chosen) * each > MOST - 50_000:
        chosen = chosen[:-1] if (layers - len(chosen)) % 2 == 0 else chosen[1:]
    return chosen


if __name__ == "__main__":
    run_script(main)
