"""Fit pocket's Jacobian lens on the text it was taught with, and pack it into the package.

Method: the means over the first passages of a drawn text, BOS aside, in half precision: 0.96 MB.

    python analyses/pocket/pack_lens.py
"""

import ffnprobe as fp
from analyses.pocket import texts
from analyses.script import new_parser, run_script
from ffnprobe.files import atomic_write
from ffnprobe.reading.jacobian import PACKED, encode_lens
from ffnprobe.store import encode_part

PASSAGES, SEED = 200, 38


def main(argv: list[str] | None = None) -> None:
    """Fit, and write."""
    new_parser(__doc__).parse_args(argv)
    drawn = {str(n): each.text for n, each in enumerate(texts.passages(PASSAGES, seed=SEED))}
    lens = fp.fit_lens(fp.load("pocket"), drawn, passages=PASSAGES, skip=1)
    atomic_write(PACKED, encode_part(*encode_lens(lens)))
    print(f"wrote {PACKED.name}: {lens.title}, {PACKED.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    run_script(main)
