"""Train encoders that differ in their FFN alone, over several seeds, and measure each.

Measured on the dev split after the last epoch, nothing being chosen by it: accuracy; what share of
the activations is small and negative; what enters the nonlinearity (for SwiGLU, the gate), before
training and after. Gradients are measured over training: `unsteadiness` is the standard deviation
of the gradient norm within an epoch over its mean, averaged over epochs.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from einops import rearrange
from torch import Tensor

from analyses.encoders.encoder import VARIANTS, Encoder, EncoderSettings
from analyses.encoders.training import History, train_encoder
from analyses.encoders.wordpieces import Pieces
from analyses.lab.activations import find_bump
from analyses.lab.tallies import Tally
from ffnprobe.errors import OptionRefused

MEASURES = ("accuracy", "train_loss", "dev_loss", "gradient", "unsteadiness", "small_negative",
            "below_zero", "in_bump", "in_bump_at_start", "in_bump_if_normal")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One trained encoder: its history, and how its FFN's numbers are spread over the dev split."""

    variant: str
    seed: int
    ffn_parameters: int
    history: History
    entering_at_start: Tally
    entering: Tally
    leaving: Tally

    def row(self) -> dict[str, Any]:
        """Put the measures in one tidy row."""
        steps = len(self.history.losses) // len(self.history.accuracies)
        gradients = self.history.gradients
        epochs = [gradients[start : start + steps] for start in range(0, len(gradients), steps)]
        return {
            "ffn": self.variant,
            "seed": self.seed,
            "ffn_parameters": self.ffn_parameters,
            "accuracy": self.history.accuracies[-1],
            "train_loss": statistics.mean(self.history.losses[-steps:]),
            "dev_loss": self.history.dev_losses[-1],
            "gradient": statistics.mean(gradients),
            "unsteadiness": statistics.mean(
                statistics.stdev(norms) / statistics.mean(norms) for norms in epochs
            ),
            "small_negative": self.leaving.small_negative.item(),
            "below_zero": self.entering.below_zero.item(),
            "in_bump": self.entering.in_bump.item(),
            "in_bump_at_start": self.entering_at_start.in_bump.item(),
            "in_bump_if_normal": self.entering.in_bump_if_normal().item(),
        }


@dataclass(frozen=True)
class EncoderComparison:
    """Every encoder of every seed, trained on one corpus."""

    pieces: Pieces
    settings: EncoderSettings
    outcomes: tuple[Outcome, ...]

    @property
    def seeds(self) -> int:
        return len({outcome.seed for outcome in self.outcomes})

    def table(self) -> pd.DataFrame:
        """Table every run."""
        return pd.DataFrame([outcome.row() for outcome in self.outcomes])

    def means(self) -> pd.DataFrame:
        """Table each FFN's means over seeds."""
        grouped = self.table().groupby("ffn", sort=False)[["ffn_parameters", *MEASURES]]
        return grouped.mean().astype({"ffn_parameters": int}).reset_index()

    def mean(self, variant: str, measure: str) -> float:
        """Return the mean over seeds of one measure of one FFN."""
        return float(statistics.mean(outcome.row()[measure] for outcome in self.of(variant)))

    def of(self, variant: str) -> list[Outcome]:
        """Pick one FFN's runs."""
        return [outcome for outcome in self.outcomes if outcome.variant == variant]


def train_all(
    pieces: Pieces,
    *,
    seeds: Sequence[int],
    settings: EncoderSettings,
    store: Path | None = None,
    variants: Sequence[str] = tuple(VARIANTS),
    on_epoch: Callable[[], None] = lambda: None,
) -> EncoderComparison:
    """Train each FFN with each seed; `store` is a folder to resume from, written after each epoch."""
    if len(set(seeds)) < 2:
        raise OptionRefused(f"{len(set(seeds))} seed has no interval.", remedy="2 seeds or more")
    outcomes = []
    for seed in seeds:
        for variant in variants:
            checkpoint = None if store is None else store / f"{variant}-{seed}.pt"
            start = Encoder(
                settings, vocab=pieces.vocab, pad=pieces.pad, variant=variant, seed=seed
            )
            encoder, history = train_encoder(
                pieces, variant, seed=seed, settings=settings, checkpoint=checkpoint, on_epoch=on_epoch
            )  # fmt: skip
            parameters = sum(p.numel() for p in encoder.ffn.parameters())
            tallies = _tally(start, pieces)[0], *_tally(encoder, pieces)
            outcomes.append(Outcome(variant, seed, parameters, history, *tallies))
    return EncoderComparison(pieces, settings, tuple(outcomes))


def _tally(encoder: Encoder, pieces: Pieces) -> tuple[Tally, Tally]:
    """Count what enters the nonlinearity and what leaves the layer, over the dev split."""
    bump = find_bump(encoder.ffn.activation)

    def flat(values: Tensor) -> Tensor:
        return rearrange(values, "word neuron -> 1 (word neuron)")

    entering, leaving = encoder.open(pieces.dev[0])
    return Tally.of(flat(entering), bump=bump), Tally.of(flat(leaving), bump=bump)
