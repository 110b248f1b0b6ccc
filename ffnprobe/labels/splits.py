"""The texts of a scan in two splits: one to find rules on (train), the other to score them on (held out).

Whole texts go to one split or the other, by a hash of their number, so that no sentence is in both. A
corpus of fewer than `FEW` texts is divided by passages instead.

Each token has classes, read off its shown form: what a rule can speak of besides single tokens.

    start of a word      a space, then a letter or digit
    number               digits, no letters
    punctuation          no letters and no digits
    capitalised          the first letter is upper case

It also has one class as the token before another: the first of `BEFORE` that fits.

>>> classes = classify(["␣Paris", "42", "ing", "."])
>>> [BEFORE[each] for each in classes.before]
['capital', 'number', 'piece', 'punctuation']

A split is run a batch at a time. Behind the neurons asked for, each layer has controls: some of the same
neurons with their activations moved to other tokens of the batch at random. They go through the whole
search as neurons do, so that what chance alone would score is measured and not assumed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.corpora.accumulators import group_passages
from ffnprobe.corpora.passages import Passage, ScanSettings, hash_numbers
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.statistics import number_ranges
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId

SPACE, NEWLINE = "␣", "⏎"
ENDS = (".", "!", "?", NEWLINE)
# The classes a previous token may have, in the order they are tried; none: nothing is before.
BEFORE = ("nothing", "number", "punctuation", "capital", "word", "piece")
FEW = 20
BLOCK_TOKENS = 16_384
CONTROLS = 64
# Neurons that a few named ones are compared with.
COMPANY = 16
# Sees a layer's activations and the numbers of their tokens in the split.
See = Callable[[int, Float[Tensor, "token column"], np.ndarray], None]


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """For every token of a vocabulary, which classes it is in, `[vocab]`."""

    marks: dict[str, np.ndarray]
    ends_sentence: np.ndarray
    before: np.ndarray


def classify(shown: Sequence[str]) -> TokenClasses:
    """Find the classes of every token."""
    bare = [text.lstrip(SPACE) for text in shown]
    has_letter = np.array([any(c.isalpha() for c in text) for text in bare])
    has_digit = np.array([any(c.isdigit() for c in text) for text in bare])
    pairs = zip(shown, bare, strict=True)
    # In the order of `BEFORE`.
    marks = {
        "numbers": has_digit & ~has_letter,
        "punctuation": ~has_digit & ~has_letter,
        "capitals": np.array([rest[:1].isupper() for rest in bare]),
        "starts of words": np.array(
            [t.startswith(SPACE) and rest[:1].isalnum() for t, rest in pairs]
        ),
    }
    before = np.select([*marks.values()], range(1, 5), default=BEFORE.index("piece"))
    ends = np.array([rest.endswith(ENDS) for rest in bare])
    return TokenClasses(marks, ends, before.astype(np.int8))


@dataclass(frozen=True, eq=False)
class Split:
    """The tokens of half a corpus, one after another, and what stands around each.

    `previous` and `before` are the one and two tokens before, −1 where a passage begins; `part` says
    which half of the split a token is in, so that a choice can be checked inside it.
    """

    passages: tuple[Passage, ...]
    tokens: np.ndarray
    previous: np.ndarray
    before: np.ndarray
    ranges: np.ndarray
    begins_text: np.ndarray
    is_repeated: np.ndarray
    part: np.ndarray
    firsts: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def blocks(self) -> list[range]:
        """Cut the passages into blocks of about `BLOCK_TOKENS` tokens."""
        blocks, begun, tokens = [], 0, 0
        for number, passage in enumerate(self.passages):
            tokens += len(passage.ids)
            if tokens >= BLOCK_TOKENS or number == len(self.passages) - 1:
                blocks.append(range(begun, number + 1))
                begun, tokens = number + 1, 0
        return blocks


def split_texts(scan: Scan, settings: ScanSettings) -> tuple[Split, Split, str]:
    """Divide a scan's passages into train and held out, and say by what."""
    passages = list(scan.kept)
    texts = np.array([passage.text for passage in passages])
    by = "text" if len(set(texts.tolist())) >= FEW else "passage"
    numbers = texts if by == "text" else np.arange(len(passages))
    # Sorted by hash and dealt in turn: splits of equally many texts, whatever their numbers are.
    distinct, inverse = np.unique(numbers, return_inverse=True)
    dealt = np.empty(len(distinct), dtype=np.int64)
    dealt[np.argsort(hash_numbers(distinct + 2**42), kind="stable")] = np.arange(len(distinct))
    turns = dealt[inverse]
    # In the order they are dealt: the beginning of a split is a fair sample of it.
    order = np.argsort(turns, kind="stable")
    train, held_out = (
        gather(
            [passages[number] for number in own],
            [int(turns[number] // 2 % 2) for number in own],
            settings.length,
        )
        for own in (order[turns[order] % 2 == 0], order[turns[order] % 2 == 1])
    )
    return train, held_out, by


def number_runs(sizes: np.ndarray) -> np.ndarray:
    """Number the members of runs of these sizes, each run from 0."""
    return np.asarray(np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes))


def gather(passages: Sequence[Passage], parts: Sequence[int], length: int) -> Split:
    """Put the passages of a split one after another."""
    lengths = np.array([len(passage.ids) for passage in passages], dtype=np.int64)
    many = int(lengths.sum())
    tokens = np.fromiter((t for p in passages for t in p.ids), dtype=np.int64, count=many)
    offsets = number_runs(lengths)
    is_start = np.repeat(np.array([passage.start == 0 for passage in passages], bool), lengths)
    passage_of = np.repeat(np.arange(len(passages)), lengths)
    _, seen_first = np.unique(passage_of * 2**32 + tokens, return_index=True)
    is_repeated = np.ones(many, dtype=bool)
    is_repeated[seen_first] = False
    return Split(
        passages=tuple(passages),
        tokens=tokens,
        previous=np.where(offsets >= 1, np.roll(tokens, 1), -1),
        before=np.where(offsets >= 2, np.roll(tokens, 2), -1),
        ranges=number_ranges(length).numpy()[offsets] if many else offsets,
        begins_text=is_start & (offsets == 0),
        is_repeated=is_repeated,
        part=np.repeat(np.array(parts, dtype=np.int64), lengths),
        firsts=np.cumsum(lengths) - lengths,
    )


def mark_classes(split: Split, classes: TokenClasses) -> dict[str, np.ndarray]:
    """Say of every token of a split in which classes it is, `[token]` each."""
    after_end = np.where(split.previous >= 0, classes.ends_sentence[split.previous], False)
    marks = {name: is_in[split.tokens] for name, is_in in classes.marks.items()}
    return marks | {
        "starts of sentences": after_end | split.begins_text,
        "repeated tokens": split.is_repeated,
    }


@dataclass(frozen=True, eq=False)
class Columns:
    """Which neurons of each layer are labelled, and which of them are controls too."""

    neurons: tuple[Tensor, ...]

    @classmethod
    def choose(cls, names: Sequence[NeuronId], *, layers: int, neurons: int) -> "Columns":
        """Sort neurons into layers; where few are named, others of the layer keep them company."""
        rows: list[set[int]] = [set() for _ in range(layers)]
        for name in names:
            rows[name.layer].add(name.neuron)
        others = set(_spread(neurons, COMPANY).tolist())
        held = [row | others if row else row for row in rows]
        return cls(tuple(torch.tensor(sorted(row), dtype=torch.int64) for row in held))

    @property
    def layers(self) -> list[int]:
        """The layers with neurons to label."""
        return [layer for layer, row in enumerate(self.neurons) if len(row)]

    def controls(self, layer: int) -> Tensor:
        """Pick a layer's controls, evenly spaced among its neurons."""
        return _spread(len(self.neurons[layer]), CONTROLS)

    def count(self, layer: int) -> int:
        """How many columns a layer has, neurons and controls."""
        return len(self.neurons[layer]) + len(self.controls(layer))


def _spread(many: int, most: int) -> Tensor:
    """Choose at most so many numbers below `many`, evenly spaced."""
    return torch.linspace(0, many - 1, min(many, most)).round().long()


def watch_block(
    model: Model, split: Split, block: range, settings: ScanSettings, columns: Columns, see: See
) -> None:
    """Run a block of a split's passages; `see` is called for each layer of each batch."""

    def show(layer: int, numbers: np.ndarray, shuffled: Tensor, activations: Tensor) -> None:
        rows = rearrange(
            activations[:, int(settings.bos) :], "batch pos neuron -> (batch pos) neuron"
        ).cpu()
        neurons = columns.neurons[layer]
        own = rows if len(neurons) == rows.shape[1] else rows[:, neurons]
        moved = own[:, columns.controls(layer)][shuffled]
        see(layer, torch.cat([own, moved], dim=1), numbers)

    passages = split.passages[block.start : block.stop]
    for members, ids in group_passages(passages, settings, model.vocab.bos):
        firsts = split.firsts[block.start + members.numpy()]
        numbers = (firsts[:, None] + np.arange(ids.shape[1] - settings.bos)).ravel()
        generator = torch.Generator().manual_seed(int(numbers[0]))
        shuffled = torch.randperm(len(numbers), generator=generator)
        hooks = {("activations", n): partial(show, n, numbers, shuffled) for n in columns.layers}
        watch(model, ids, hooks)
