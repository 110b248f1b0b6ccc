"""How good are labels on a real model, and what do they cost?

Scans texts, labels every neuron, and prints by layer: the share explained, the median F1 next to the
look-up of the current token and to shuffled activations, the output test next to other neurons; then
where rules beyond the token win, the roles by layer, and the cost of labelling next to the scan's, in
processor time of one process, so that other work on the machine cancels out.

    OMP_NUM_THREADS=1 python analyses/measured/labels_measured.py TEXT… --model smollm2 --store DIR
"""

import json
import resource
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import ffnprobe as fp
from analyses.script import run_script

BEYOND = ("position", "previous", "after", "pair", "triple")


def main(argv: Sequence[str] | None = None) -> None:
    """Scan, label, and print what was found."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--out", type=Path, help="a JSON file of the numbers printed")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    began = time.process_time()
    context = min(options.context, model.config.positions)
    scan = fp.scan(
        model, options.texts, store=options.store, lines=True, context=context, workers=1
    )
    scanned, before = time.process_time(), _peak()
    print(f"{scan.corpus}: {scanned - began:.0f} s", flush=True)
    labels = fp.label(model, options.store)
    labelled = time.process_time()
    table = labels.table
    beyond = table[table.rule_kind.isin(BEYOND)]
    explained = beyond[beyond.f1 >= labels.least]
    numbers = {
        "corpus": scan.corpus, "summary": labels.summary,
        "scan_seconds": scanned - began, "label_seconds": labelled - scanned,
        "label_over_scan": (labelled - scanned) / (scanned - began),
        "peak_gb_scan": before, "peak_gb_label": _peak(),
        "beyond_the_token": len(beyond), "beyond_f1": beyond.f1.median(),
        "beyond_lookup_f1": beyond.lookup_f1.median(),
        "beyond_wins": (beyond.f1 > beyond.lookup_f1).mean(),
        "beyond_explained": len(explained),
        "beyond_explained_f1": explained.f1.median(),
        "beyond_explained_lookup_f1": explained.lookup_f1.median(),
        "beyond_explained_wins": (explained.f1 > explained.lookup_f1).mean(),
        "kinds": table.rule_kind.value_counts().to_dict(),
        "layers": labels.by_layer().round(4).to_dict("records"),
    }  # fmt: skip
    print(labels.by_layer().round(3).to_string(index=False))
    print(json.dumps({name: each for name, each in numbers.items() if name != "layers"}, indent=1))
    if options.out is not None:
        options.out.write_text(json.dumps(numbers, indent=1))


def _peak() -> float:
    """The most memory this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    run_script(main)
