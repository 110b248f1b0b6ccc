"""The two halves of a scan's texts: one to find rules on, the other to score them on.

Whole texts go to one half or the other, by a hash of their number, so that no sentence is in both. A
corpus of fewer than `FEW` texts is divided by passages instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ffnprobe.corpora.meters import group_passages
from ffnprobe.corpora.passages import Passage, ScanSettings
from ffnprobe.corpora.position_ranges import number_ranges
from ffnprobe.corpora.samples import hash_numbers
from ffnprobe.corpora.scans import Scan
from ffnprobe.labels.classes import TokenClasses

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


def split_halves(scan: Scan, settings: ScanSettings) -> tuple[Half, Half, str]:
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
