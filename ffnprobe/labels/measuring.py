"""Three passes over a scan's passages: find rules on one half, score them on the other, test outputs.

Each pass goes block by block and can be resumed after any. What is held does not grow with the corpus:
the scan keeps a bounded number of passages.

The current-token look-up: the baseline a rule has to beat.

Each token predicts the mean activation it had in the first half, v(t); the prediction is "strong" where
v(t) is at least the value that had the best F1 there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffnprobe.arguments import Progress
from ffnprobe.corpora.passages import ScanSettings
from ffnprobe.labels.counts import (
    SAMPLED,
    Collector,
    Quantiles,
    Scorer,
    TokenRows,
    choose_rows,
    index_rules,
    raise_rare,
)
from ffnprobe.labels.output_tests import choose_rows as choose_tested
from ffnprobe.labels.output_tests import draw_prompts, list_promoted, try_outputs
from ffnprobe.labels.rules import Keys, Rules, Strong, find_rules, make_keys
from ffnprobe.labels.splits import Columns, Half, classify, watch_block
from ffnprobe.labels.stored_labels import Partial
from ffnprobe.models.model import Model

# Called with how many tokens are done, and of how many.


def make_lookup(
    sums: Tensor, counts: np.ndarray, rows: np.ndarray, neurons: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Return the means by token `[row column]`, in half precision, and the value to call strong.

    `rows` and `neurons` are the strong tokens' rows and columns.
    """
    many, columns = sums.shape
    means = (sums / torch.from_numpy(counts.clip(min=1))[:, None]).half().float()
    hits = torch.bincount(
        torch.from_numpy(rows * columns + neurons), minlength=many * columns
    ).reshape(many, columns)
    values, order = torch.sort(means, dim=0, descending=True, stable=True)
    all_hits = torch.take_along_dim(hits, order, dim=0).cumsum(0)
    all_seen = torch.from_numpy(counts)[order].cumsum(0)
    f1 = 2 * all_hits / (all_seen + hits.sum(dim=0))
    best = f1.argmax(dim=0)
    return means.half(), values.gather(0, best[None])[0]


@dataclass(frozen=True, eq=False)
class LabelMeasures:
    """What was found of every column: rules, counts on the other half, outputs."""

    keys: list[Keys]
    rules: dict[int, Rules]
    tensors: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Labelling:
    """All that labelling takes: the model, both halves of its texts, and the neurons to label."""

    model: Model
    settings: ScanSettings
    first: Half
    second: Half
    columns: Columns
    share: float
    partial: Partial
    progress: Progress | None = None

    def measure(self) -> LabelMeasures:
        """Make all passes, from where an earlier run stopped."""
        stage, done, tensors = self.partial.resume()
        keys = make_keys(self.first, self.second, classify(self.model.vocab.shown))
        rows = choose_rows(self.first, self.model.config.vocab)
        if stage == "first":
            tensors = self._find(keys, rows, tensors, done)
            stage, done = "second", 0
        rules = {layer: _read_rules(tensors, layer) for layer in self.columns.layers}
        if stage == "second":
            self._score(keys, rows, rules, tensors, done)
            stage, done = "outputs", 0
        self._try(tensors, done)
        return LabelMeasures(keys, rules, tensors)

    def _find(
        self, keys: list[Keys], rows: TokenRows, tensors: dict[str, Tensor], done: int
    ) -> dict[str, Tensor]:
        """Find every column's threshold, strong tokens and rule on the first half."""
        if not done:
            tensors |= self._find_thresholds()
        collector = Collector(self.first, self.columns, rows, tensors)
        blocks = self.first.blocks()
        firsts = [int(self.first.firsts[block.start]) for block in blocks]
        for number in range(done, len(blocks)):
            self._watch(self.first, blocks[number], collector.see)
            collector.close(number, firsts[number])
            self._tell(self._count(self.first, blocks[: number + 1]))
            self.partial.save("first", number + 1, tensors)
        found = {n: t for n, t in tensors.items() if n.startswith(("thresholds.", "highs."))}
        for layer in self.columns.layers:
            found[f"highs.{layer}"] = raise_rare(found[f"highs.{layer}"], tensors[f"peaks.{layer}"])
            tokens, neurons = collector.strong(layer, firsts)
            strong = Strong(tokens, neurons, self.columns.count(layer), self.first.part)
            rules = find_rules(strong, keys)
            found |= {f"{name}.{layer}": torch.from_numpy(each) for name, each in vars(rules).items()}  # fmt: skip
            found[f"means.{layer}"], found[f"calls.{layer}"] = make_lookup(
                tensors.pop(f"sums.{layer}"), rows.counts,
                rows.rows[self.first.tokens[tokens]], neurons,
            )  # fmt: skip
        self.partial.save("second", 0, found)
        return found

    def _find_thresholds(self) -> dict[str, Tensor]:
        """Find the quantiles of every column over the beginning of the first half."""
        ends = self.first.firsts + [len(p.ids) for p in self.first.passages]
        block = range(0, min(len(ends), int(np.searchsorted(ends, SAMPLED)) + 1))
        quantiles = Quantiles(self.columns, int(ends[block.stop - 1]), self.share)
        self._watch(self.first, block, quantiles.see)
        found = {}
        for layer in self.columns.layers:
            found[f"thresholds.{layer}"] = quantiles.thresholds(layer)
            found[f"highs.{layer}"] = quantiles.highs(layer).clone()
        return found

    def _score(
        self,
        keys: list[Keys],
        rows: TokenRows,
        rules: dict[int, Rules],
        tensors: dict[str, Tensor],
        done: int,
    ) -> None:
        """Score every rule on the second half."""
        indexed = {layer: index_rules(each, keys) for layer, each in rules.items()}
        scorer = Scorer(self.second, keys, rows, indexed, tensors)
        blocks = self.second.blocks()
        for number in range(done, len(blocks)):
            self._watch(self.second, blocks[number], scorer.see)
            self._tell(len(self.first) + self._count(self.second, blocks[: number + 1]))
            self.partial.save("second", number + 1, tensors)

    def _try(self, tensors: dict[str, Tensor], done: int) -> None:
        """Test what every neuron says."""
        model, columns = self.model, self.columns
        prompts, layers = draw_prompts(self.second), columns.layers
        for layer in layers:
            if f"promoted.{layer}" not in tensors:
                tensors[f"promoted.{layer}"] = list_promoted(model, layer, columns.neurons[layer])
                tensors[f"gains.{layer}"] = torch.zeros(3, len(columns.neurons[layer]))
        highs, promoted = ({n: tensors[f"{name}.{n}"] for n in layers} for name in ("highs", "promoted"))  # fmt: skip
        for number in range(done, len(prompts)):
            chosen = {
                n: choose_tested(number, len(prompts), len(columns.neurons[n])) for n in layers
            }
            found = try_outputs(
                model, prompts[number], columns, highs, promoted, chosen, bos=self.settings.bos
            )
            for layer, gains in found:
                tensors[f"gains.{layer}"][:2, chosen[layer]] += gains
                tensors[f"gains.{layer}"][2, chosen[layer]] += 1
            self.partial.save("outputs", number + 1, tensors)

    def _watch(self, half: Half, block: range, see: Callable[[int, Tensor, np.ndarray], None]) -> None:  # fmt: skip
        watch_block(self.model, half, block, self.settings, self.columns, see)

    @staticmethod
    def _count(half: Half, blocks: list[range]) -> int:
        return sum(len(p.ids) for p in half.passages[: blocks[-1].stop])

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.first) + len(self.second))


def _read_rules(tensors: dict[str, Tensor], layer: int) -> Rules:
    return Rules(**{n: tensors[f"{n}.{layer}"].numpy() for n in ("kinds", "neurons", "keys", "f1")})
