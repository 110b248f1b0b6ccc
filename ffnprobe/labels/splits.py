"""Classes of tokens, read off their shown form: what a rule can speak of besides single tokens.

    start of a word      a space, then a letter or digit
    number               digits, no letters
    punctuation          no letters and no digits
    capitalised          the first letter is upper case

Each token also has one class as the token before another: the first of `BEFORE` that fits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
from ffnprobe.models.step import Hook
from ffnprobe.names import NeuronId

SPACE, NEWLINE = "␣", "⏎"
ENDS = (".", "!", "?", NEWLINE)
# The classes a previous token may have, in the order they are tried; none: nothing is before.
BEFORE = ("nothing", "number", "punctuation", "capital", "word", "piece")


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """For every token of a vocabulary, which classes it is in, `[vocab]`."""

    starts_word: np.ndarray
    number: np.ndarray
    punctuation: np.ndarray
    capitalised: np.ndarray
    ends_sentence: np.ndarray
    before: np.ndarray


def classify(shown: Sequence[str]) -> TokenClasses:
    """Find the classes of every token.

    >>> found = classify(["␣Paris", "42", "ing", "."])
    >>> [BEFORE[each] for each in found.before]
    ['capital', 'number', 'piece', 'punctuation']
    """
    bare = [text.lstrip(SPACE) for text in shown]
    has_letter = np.array([any(c.isalpha() for c in text) for text in bare])
    has_digit = np.array([any(c.isdigit() for c in text) for text in bare])
    starts = [
        text.startswith(SPACE) and rest[:1].isalnum()
        for text, rest in zip(shown, bare, strict=True)
    ]
    found = {
        "starts_word": np.array(starts),
        "number": has_digit & ~has_letter,
        "punctuation": ~has_digit & ~has_letter,
        "capitalised": np.array([rest[:1].isupper() for rest in bare]),
        "ends_sentence": np.array([rest.endswith(ENDS) for rest in bare]),
    }
    order = (found["number"], found["punctuation"], found["capitalised"], found["starts_word"])
    before = np.select(order, range(1, 5), default=BEFORE.index("piece")).astype(np.int8)
    return TokenClasses(**found, before=before)


# MERGED: ffnprobe.labels.halves
# The two halves of a scan's texts: one to find rules on, the other to score them on.
#
# Whole texts go to one half or the other, by a hash of their number, so that no sentence is in both. A
# corpus of fewer than `FEW` texts is divided by passages instead.


FEW = 20
BLOCK_TOKENS = 16_384


@dataclass(frozen=True, eq=False)
class Half:
    """The tokens of half a corpus, one after another, and what stands around each.

    `previous` and `before` are the one and two tokens before, −1 where a passage begins; `part` says
    which quarter of the whole corpus a token is in, so that a choice can be checked inside the half.
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
        found, begun, tokens = [], 0, 0
        for number, passage in enumerate(self.passages):
            tokens += len(passage.ids)
            if tokens >= BLOCK_TOKENS or number == len(self.passages) - 1:
                found.append(range(begun, number + 1))
                begun, tokens = number + 1, 0
        return found

    def batches(
        self, block: range, settings: ScanSettings, bos: int | None
    ) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Batch a block's passages: the ids to run, and each token's number in this half."""
        passages = self.passages[block.start : block.stop]
        for numbers, ids in group_passages(passages, settings, bos):
            length = ids.shape[1] - settings.bos
            firsts = self.firsts[block.start + numbers.numpy()]
            yield ids, (firsts[:, None] + np.arange(length)).ravel()


def split_texts(scan: Scan, settings: ScanSettings) -> tuple[Half, Half, str]:
    """Divide a scan's passages in two halves, and say by what."""
    passages = list(scan.kept)
    texts = np.array([passage.text for passage in passages])
    by = "text" if len(set(texts.tolist())) >= FEW else "passage"
    numbers = texts if by == "text" else np.arange(len(passages))
    # Sorted by hash and dealt in turn: halves of equally many texts, whatever their numbers are.
    kinds, inverse = np.unique(numbers, return_inverse=True)
    dealt = np.empty(len(kinds), dtype=np.int64)
    dealt[np.argsort(hash_numbers(kinds + 2**42), kind="stable")] = np.arange(len(kinds))
    turns = dealt[inverse]
    # In the order they are dealt: the beginning of a half is a fair sample of it.
    order = np.argsort(turns, kind="stable")
    mine = [[number for number in order if turns[number] % 2 == half] for half in (0, 1)]
    first, second = (
        gather(
            [passages[number] for number in numbers_of_half],
            [int(turns[number] // 2 % 2) for number in numbers_of_half],
            settings.length,
        )
        for numbers_of_half in mine
    )
    return first, second, by


def gather(passages: Sequence[Passage], parts: Sequence[int], length: int) -> Half:
    """Put the passages of a half one after another."""
    lengths = np.array([len(passage.ids) for passage in passages], dtype=np.int64)
    firsts = np.cumsum(lengths) - lengths
    many = int(lengths.sum())
    tokens = np.fromiter((t for p in passages for t in p.ids), dtype=np.int64, count=many)
    offsets = np.arange(many) - np.repeat(firsts, lengths)
    previous = np.where(offsets >= 1, np.roll(tokens, 1), -1)
    before = np.where(offsets >= 2, np.roll(tokens, 2), -1)
    is_start = np.repeat(np.array([passage.start == 0 for passage in passages], bool), lengths)
    passage_of = np.repeat(np.arange(len(passages)), lengths)
    _, seen_first = np.unique(passage_of * 2**32 + tokens, return_index=True)
    is_repeated = np.ones(many, dtype=bool)
    is_repeated[seen_first] = False
    return Half(
        passages=tuple(passages),
        tokens=tokens,
        previous=previous,
        before=before,
        ranges=number_ranges(length).numpy()[offsets] if many else offsets,
        begins_text=is_start & (offsets == 0),
        is_repeated=is_repeated,
        part=np.repeat(np.array(parts, dtype=np.int64), lengths),
        firsts=firsts,
    )


def mark_classes(half: Half, classes: TokenClasses) -> dict[str, np.ndarray]:
    """Say of every token of a half in which classes it is, `[token]` each."""
    after_end = np.where(half.previous >= 0, classes.ends_sentence[half.previous], False)
    return {
        "starts of words": classes.starts_word[half.tokens],
        "starts of sentences": after_end | half.begins_text,
        "numbers": classes.number[half.tokens],
        "punctuation": classes.punctuation[half.tokens],
        "capitals": classes.capitalised[half.tokens],
        "repeated tokens": half.is_repeated,
    }


def class_before(half: Half, classes: TokenClasses) -> np.ndarray:
    """Return the class of the token before each token, as a number of `BEFORE`."""
    return np.where(half.previous >= 0, classes.before[half.previous], 0).astype(np.int64)


# MERGED: ffnprobe.labels.watching
# Run half a corpus and hand each layer's activations, a batch at a time, to whoever counts them.
#
# Behind the neurons asked for, each layer has controls: some of the same neurons with their activations
# moved to other tokens of the batch at random. They go through the whole search as neurons do, so that
# what chance alone would score is measured and not assumed.


CONTROLS = 64
# Neurons that a few named ones are compared with.
COMPANY = 16
# Sees a layer's activations and the numbers of their tokens in the half.
See = Callable[[int, Float[Tensor, "token column"], np.ndarray], None]


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
        others = torch.linspace(0, neurons - 1, min(neurons, COMPANY)).round().long().tolist()
        held = [row | set(others) if row else row for row in rows]
        return cls(tuple(torch.tensor(sorted(row), dtype=torch.int64) for row in held))

    @property
    def layers(self) -> list[int]:
        """The layers with neurons to label."""
        return [layer for layer, row in enumerate(self.neurons) if len(row)]

    def controls(self, layer: int) -> Tensor:
        """Pick a layer's controls, evenly spaced among its neurons."""
        many = len(self.neurons[layer])
        return torch.linspace(0, many - 1, min(many, CONTROLS)).round().long()

    def count(self, layer: int) -> int:
        """How many columns a layer has, neurons and controls."""
        return len(self.neurons[layer]) + len(self.controls(layer))


def watch_block(
    model: Model, half: Half, block: range, settings: ScanSettings, columns: Columns, see: See
) -> None:
    """Run a block of a half's passages; `see` is called for each layer of each batch."""
    for ids, numbers in half.batches(block, settings, model.vocab.bos):
        generator = torch.Generator().manual_seed(int(numbers[0]))
        shuffled = torch.randperm(len(numbers), generator=generator)

        def tap(layer: int, numbers: np.ndarray = numbers, shuffled: Tensor = shuffled) -> Hook:
            def look(activations: Tensor) -> None:
                rows = rearrange(
                    activations[:, int(settings.bos) :], "batch pos neuron -> (batch pos) neuron"
                ).cpu()
                neurons = columns.neurons[layer]
                own = rows if len(neurons) == rows.shape[1] else rows[:, neurons]
                moved = own[:, columns.controls(layer)][shuffled]
                see(layer, torch.cat([own, moved], dim=1), numbers)

            return look

        watch(model, ids, {("activations", layer): tap(layer) for layer in columns.layers})
