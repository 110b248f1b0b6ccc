"""Train the embedded model: can a GPT-2 small enough to ship keep two thousand facts where they can be seen?

Method: text written by rule from the facts (`pocket/texts.py`), a 7-layer, 192-wide GPT-2, three
stages of training (`pocket/lesson.py` says what is taught, `pocket/training.py` how). Writes weights (fp16),
tokenizer, activation means, figures, a card that says every trick and why, and `truth.csv`: where each fact
sits, by measurement. A stopped run continues. `--seed 1` makes another model of the same kind.

    python analyses/pocket/train.py --out FOLDER
"""

import argparse
from pathlib import Path

import torch

from analyses.pocket.finish import examine, finish
from analyses.pocket.rows import Reader
from analyses.pocket.tokenizer import build_tokenizer
from analyses.pocket.training import STAGES, start, train


def main(argv: list[str] | None = None) -> None:
    """Train, measure and write the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--work", type=Path, default=Path("pocket-training"), help="checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sample", type=int, default=200, help="facts to explain for the figures")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    work = options.work / f"seed-{options.seed}"
    work.mkdir(parents=True, exist_ok=True)
    reader = Reader(build_tokenizer())
    model = start(reader, options.seed)
    seconds, known = 0.0, {}
    for stage in STAGES:
        seconds += train(model, reader, stage, work, options.seed)
        known[stage.name] = examine(model, reader)
    said = {"seed": options.seed, "minutes": round(seconds / 60, 1)}
    finish(model, reader, options.out, said, known, sample=options.sample)


if __name__ == "__main__":
    main()
