"""Three passes over a scan's passages: find rules on the train texts, score them held out, test outputs.

Each pass goes block by block and can be resumed after any. What is held does not grow with the corpus:
the scan keeps a bounded number of passages.

The current-token look-up is the baseline a rule has to beat: each token predicts the mean activation it had
in the train texts, v(t); the prediction is "strong" where v(t) is at least the value of best F1 there.

The output test: does a neuron that is turned on make the tokens it promotes more likely? At random held-out
positions, a neuron is set to its high activation and the layers after it are replayed. Of its ten promoted
tokens those count whose probability rises. The control is the same ten tokens under the neuron before it in
its layer: what any neuron does to them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Progress
from ffnprobe.corpora.passages import ScanSettings, hash_numbers
from ffnprobe.interventions.list_checks import count_risen
from ffnprobe.interventions.replay import Replay
from ffnprobe.labels.counts import SAMPLED, Collector, Quantiles, Scorer, TokenRows, raise_rare
from ffnprobe.labels.rules import Keys, Rules, Strong, find_rules, make_keys
from ffnprobe.labels.splits import Columns, Split, classify, watch_block
from ffnprobe.labels.stored_labels import Partial
from ffnprobe.models.model import Model
from ffnprobe.reading.projection import answer_readers, project_blocks, top_tokens
from ffnprobe.tracing.runs import run

PROMOTED = 10
# So many prompts in all, each neuron on so many of them; the last tokens of a prompt are enough context.
PROMPTS, TRIES, CONTEXT = 16, 2, 32


@dataclass(frozen=True, eq=False)
class Labelling:
    """All that labelling takes: the model, both splits of its texts, and the neurons to label."""

    model: Model
    settings: ScanSettings
    train: Split
    held_out: Split
    columns: Columns
    share: float
    partial: Partial
    progress: Progress | None = None

    def measure(self) -> tuple[list[Keys], dict[int, Rules], dict[str, Tensor]]:
        """Make all passes, from where an earlier run stopped.

        Return the keys of every kind, each layer's rules, and what was counted of every column.
        """
        stage, done, tensors = self.partial.resume()
        keys = make_keys(self.train, self.held_out, classify(self.model.vocab.shown))
        rows = TokenRows.choose(self.train, self.model.config.vocab)
        if stage == "first":
            tensors = self._find(keys, rows, tensors, done)
            stage, done = "second", 0
        rules = {
            layer: Rules(*(tensors[f"{each.name}.{layer}"].numpy() for each in fields(Rules)))
            for layer in self.columns.layers
        }
        if stage == "second":
            scorer = Scorer(self.held_out, keys, rows, rules, tensors)
            self._go_through(stage, done, scorer)
            done = 0
        self._test_outputs(tensors, done)
        return keys, rules, tensors

    def _find(
        self, keys: list[Keys], rows: TokenRows, tensors: dict[str, Tensor], done: int
    ) -> dict[str, Tensor]:
        """Find every column's threshold, strong tokens and rule on the train texts."""
        if not done:
            # The quantiles of every column over the beginning of the train texts.
            ends = self.train.firsts + [len(p.ids) for p in self.train.passages]
            block = range(0, min(len(ends), int(np.searchsorted(ends, SAMPLED)) + 1))
            quantiles = Quantiles(self.columns, int(ends[block.stop - 1]), self.share)
            watch_block(self.model, self.train, block, self.settings, self.columns, quantiles.see)
            tensors |= quantiles.tensors()
        collector = Collector(self.train, self.columns, rows, tensors)
        self._go_through("first", done, collector)
        kept = {n: t for n, t in tensors.items() if n.startswith(("thresholds.", "highs."))}
        for layer in self.columns.layers:
            kept[f"highs.{layer}"] = raise_rare(kept[f"highs.{layer}"], tensors[f"peaks.{layer}"])
            tokens, neurons = collector.strong(layer)
            strong = Strong(tokens, neurons, self.columns.count(layer), self.train.part)
            for name, each in vars(find_rules(strong, keys)).items():
                kept[f"{name}.{layer}"] = torch.from_numpy(each)
            kept[f"means.{layer}"], kept[f"calls.{layer}"] = make_lookup(
                tensors.pop(f"sums.{layer}"), rows.counts,
                rows.rows[self.train.tokens[tokens]], neurons,
            )  # fmt: skip
        self.partial.save("second", 0, kept)
        return kept

    def _go_through(self, stage: str, done: int, counter: Collector | Scorer) -> None:
        """Run the blocks of a stage that are not done; after each, close it, tell and save."""
        is_first, total = stage == "first", len(self.train) + len(self.held_out)
        split, before = (self.train, 0) if is_first else (self.held_out, len(self.train))
        for number, block in islice(enumerate(split.blocks()), done, None):
            watch_block(self.model, split, block, self.settings, self.columns, counter.see)
            if isinstance(counter, Collector):
                counter.close(number)
            if self.progress is not None:
                tokens = sum(len(p.ids) for p in split.passages[: block.stop])
                self.progress(before + tokens, total)
            self.partial.save(stage, number + 1, counter.tensors)

    def _test_outputs(self, tensors: dict[str, Tensor], done: int) -> None:
        columns, prompts = self.columns, draw_prompts(self.held_out)
        many = min(PROMOTED, self.model.config.vocab)
        for layer in columns.layers:
            if f"promoted.{layer}" not in tensors:
                answers = self.model.answers_of(layer)[columns.neurons[layer]]
                blocks = project_blocks(*answer_readers(self.model, answers, convention="centred"))
                tensors[f"promoted.{layer}"] = torch.cat(
                    [top_tokens(dots, many)[1].cpu() for _, dots in blocks]
                )
                tensors[f"gains.{layer}"] = torch.zeros(3, len(answers))
        for number in range(done, len(prompts)):
            chosen = {
                n: choose_tested(number, len(prompts), len(columns.neurons[n]))
                for n in columns.layers
            }
            for layer, gains in self._try_outputs(prompts[number], tensors, chosen):
                tensors[f"gains.{layer}"][:2, chosen[layer]] += gains
                tensors[f"gains.{layer}"][2, chosen[layer]] += 1
            self.partial.save("outputs", number + 1, tensors)

    def _try_outputs(
        self, prompt: Sequence[int], tensors: dict[str, Tensor], chosen: dict[int, Tensor]
    ) -> Iterator[tuple[int, Float[Tensor, "2 row"]]]:
        """Yield for each layer how many promoted tokens gain, by the neuron and by the one before it."""
        model = self.model
        trace = run(model, list(prompt), bos=self.settings.bos, patterns=False)
        replay = Replay(trace)
        for layer, rows in chosen.items():
            if not len(rows):
                continue
            neurons = self.columns.neurons[layer][rows]
            own, highs = tensors[f"promoted.{layer}"][rows], tensors[f"highs.{layer}"][rows]
            yield layer, count_risen(replay, layer, neurons, own, highs)


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


def draw_prompts(split: Split) -> list[tuple[int, ...]]:
    """Draw positions at random, each with the tokens up to it."""
    order = np.argsort(hash_numbers(np.arange(len(split)) + 2**43), kind="stable")[:PROMPTS]
    passages = np.searchsorted(split.firsts, order, side="right") - 1
    ends = (order - split.firsts[passages] + 1).tolist()
    return [
        split.passages[passage].ids[max(0, end - CONTEXT) : end]
        for passage, end in zip(passages.tolist(), ends, strict=True)
    ]


def choose_tested(number: int, prompts: int, many: int) -> Tensor:
    """Choose the neurons that the n-th prompt is for: each neuron has `TRIES` prompts."""
    tries = min(TRIES, prompts)
    # At least eight on a prompt, so that there is always another neuron to compare with.
    groups = min(prompts, max(1, many // 8))
    rows = torch.arange(many) % groups
    turns = [(rows + part * prompts // tries) % prompts == number for part in range(tries)]
    return torch.stack(turns).any(dim=0).nonzero()[:, 0]
