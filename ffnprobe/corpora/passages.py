"""Texts as what the model runs: passages of at most its context, gathered in blocks.

    text → token ids → passages (at most `context` tokens, BOS among them) → blocks

A block is the unit of work, of resuming and of merging: consecutive passages, closed by the first
that brings it to `block_tokens` tokens. Each block knows the chained hash of all tokens up to its
end, so that a scan resumes only over the very texts it began with.

Whole passages are kept, so that labels can be found and scored without the corpus's files: at most
`MOST_KEPT` tokens, all of a smaller corpus, of a larger one the passages whose numbers have the highest
hashes. The draw does not depend on how the corpus is cut into blocks, and a store holds at most 1 MB of it.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
import xxhash
from jaxtyping import Int32, Int64
from torch import Tensor

from ffnprobe.corpora.text_pieces import read_pieces
from ffnprobe.corpora.text_sources import TextSource
from ffnprobe.errors import DataRefused, OptionRefused, TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.models.vocab import Vocab

# A text is one number, its source's above and its own below, so that numbers sort as texts do.
SOURCE_BITS = 32
# An example in memory: activation, passage, text, position and 16 tokens around it.
EXAMPLE_BYTES = 4 + 8 + 8 + 4 + 16 * 4
# Of all examples, unless the model itself is larger; merging two blocks takes a few times as much.
MOST_BYTES = 2 * 10**9
MOST_TOKENS = 2**24
MOST_KEPT = 2**18
# So that another draw of passages is made than for the sample of tokens.
_OTHER = 2**41


@dataclass(frozen=True)
class ScanSettings:
    """What a scan's numbers depend on, apart from the model and the texts.

    context        the most tokens of a passage, BOS included
    bos            whether each passage begins with BOS (which is left out of all numbers)
    top            how many examples are kept on each side
    column         where jsonl, parquet and datasets hold their texts
    lines          whether each line of a text file is a text
    errors         what is done about bytes that are not UTF-8: strict or replace
    block_tokens   how many tokens make a block
    """

    context: int
    bos: bool = True
    top: int = 20
    column: str = "text"
    lines: bool = False
    errors: str = "strict"
    block_tokens: int = 16_384

    def check(self, model: Model) -> "ScanSettings":
        """Refuse what this model cannot run."""
        least = 2 if self.bos else 1
        if not least <= self.context <= model.config.positions:
            raise OptionRefused(
                f"context = {self.context}: {model.name} has {model.config.positions} positions.",
                remedy=f"{least} to {model.config.positions}",
            )
        if self.bos and model.vocab.bos is None:
            raise OptionRefused(f"{model.name} has no BOS token.", remedy="bos=False (--no-bos)")
        for name, value in (("top", self.top), ("block_tokens", self.block_tokens)):
            if value < 1:
                raise OptionRefused(f"{name} = {value}: it must be at least 1.")
        if self.block_tokens > MOST_TOKENS:
            raise OptionRefused(
                f"block_tokens = {self.block_tokens}: a block is kept in memory.",
                remedy=f"at most {MOST_TOKENS}",
            )
        size = 2 * model.config.neurons * self.top * EXAMPLE_BYTES
        allowed = max(MOST_BYTES, 4 * model.config.parameters())
        if size > allowed:
            most = allowed // (2 * model.config.neurons * EXAMPLE_BYTES)
            raise OptionRefused(
                f"top = {self.top}: the examples of {model.config.neurons:,} neurons would take "
                f"{size / 1e9:,.0f} GB of memory.",
                remedy=f"at most {most}",
            )
        return self

    @property
    def length(self) -> int:
        """The most tokens of text in a passage."""
        return self.context - self.bos


class Passage(NamedTuple):
    """A run of one text's tokens: the text's number and where in it the run starts."""

    text: int
    start: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Done:
    """How far a corpus has been taken: counts, and the chained hash of every token so far."""

    blocks: int = 0
    passages: int = 0
    tokens: int = 0
    texts: int = 0
    split: int = 0
    digest: str = ""


@dataclass(frozen=True)
class Block:
    """Consecutive passages, the number of the first, and how far the corpus is done with them."""

    first: int
    passages: tuple[Passage, ...]
    done: Done
    share: float | None

    @property
    def tokens_before(self) -> int:
        """How many tokens of the corpus are before it."""
        return self.done.tokens - sum(len(passage.ids) for passage in self.passages)


def name_text(sources: Sequence[str], text: int) -> str:
    """Name a text: its source, and its line or row where the source holds several."""
    source, number = text >> SOURCE_BITS, text & (2**SOURCE_BITS - 1)
    return sources[source] if number == 0 else f"{sources[source]}:{number}"


def batch_lengths(lengths: Sequence[int], *, tokens: int, most: int) -> list[list[int]]:
    """Batch what is of one length, by number, the shortest first: about so many tokens in a batch."""
    by_length = defaultdict[int, list[int]](list)
    for number, length in enumerate(lengths):
        by_length[length].append(number)
    batches = []
    for length, numbers in sorted(by_length.items()):
        size = max(1, min(most, tokens // length))
        batches += [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return batches


def cut_blocks(
    vocab: Vocab, sources: Sequence[TextSource], settings: ScanSettings
) -> Generator[Block, None, None]:
    """Cut a corpus into blocks, in order; closing it closes the file that is read."""
    done = Done()
    held: list[Passage] = []
    tokens, share = 0, None
    for passage, share in _cut_passages(vocab, sources, settings):
        held.append(passage)
        tokens += len(passage.ids)
        if tokens >= settings.block_tokens:
            block = _close(done, held, settings.length, share)
            yield block
            done, held, tokens = block.done, [], 0
    if held:
        yield _close(done, held, settings.length, share)


def _close(done: Done, passages: list[Passage], length: int, share: float | None) -> Block:
    digest = xxhash.xxh3_128(done.digest.encode())
    for passage in passages:
        digest.update(np.array([passage.text, passage.start, *passage.ids], dtype="<i8").tobytes())
    return Block(
        first=done.passages,
        passages=tuple(passages),
        done=Done(
            blocks=done.blocks + 1,
            passages=done.passages + len(passages),
            tokens=done.tokens + sum(len(passage.ids) for passage in passages),
            texts=done.texts + sum(passage.start == 0 for passage in passages),
            # A text that is split has a second passage, which starts after a whole one.
            split=done.split + sum(passage.start == length for passage in passages),
            digest=digest.hexdigest(),
        ),
        share=share,
    )


def _cut_passages(
    vocab: Vocab, sources: Sequence[TextSource], settings: ScanSettings
) -> Iterator[tuple[Passage, float | None]]:
    """Cut every text into passages, each with the share of the corpus read so far, if known."""
    text, start = -1, 0
    held: list[int] = []
    share: float | None = None
    with closing(_number_texts(sources, settings)) as texts:
        for number, words, share in texts:
            if number != text:
                if held:
                    yield Passage(text, start, tuple(held)), share
                text, start, held = number, 0, []
            begins = start == 0 and not held
            try:
                held += vocab.ids(words) if begins else vocab.pieces(words)
            except TokenNotFound as error:
                name = name_text([source.name for source in sources], number)
                cause = error.what.removeprefix(f"{words!r} ")
                raise DataRefused(f"{name} {cause}", remedy=error.remedy) from None
            while len(held) >= settings.length:
                yield Passage(text, start, tuple(held[: settings.length])), share
                held = held[settings.length :]
                start += settings.length
    if held:
        yield Passage(text, start, tuple(held)), share


def _number_texts(
    sources: Sequence[TextSource], settings: ScanSettings
) -> Generator[tuple[int, str, float | None], None, None]:
    """Read every source, its texts numbered over the whole corpus."""
    sizes = [source.size for source in sources]
    told = [size for size in sizes if size is not None]
    total = sum(told) if len(told) == len(sizes) else None
    for order, source in enumerate(sources):
        pieces = read_pieces(
            source, column=settings.column, lines=settings.lines, errors=settings.errors
        )
        for number, words, part in pieces:
            share = None
            if total and part is not None:
                share = (sum(told[:order]) + part * told[order]) / total
            yield (order << SOURCE_BITS) + number, words, share


@dataclass(frozen=True, eq=False)
class Kept:
    """Passages in the corpus's order: their numbers, texts, starts and lengths, and all their tokens."""

    passages: Int64[Tensor, " passage"]
    texts: Int64[Tensor, " passage"]
    starts: Int64[Tensor, " passage"]
    lengths: Int64[Tensor, " passage"]
    ids: Int32[Tensor, " token"]

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        parts = torch.split(self.ids, self.lengths.tolist())
        for text, start, ids in zip(self.texts.tolist(), self.starts.tolist(), parts, strict=True):
            yield Passage(text, start, tuple(ids.tolist()))

    @classmethod
    def none(cls) -> "Kept":
        """Start without passages."""
        none = torch.zeros(0, dtype=torch.int64)
        return cls(none, none, none, none, none.int())

    @classmethod
    def read(cls, tensors: dict[str, Tensor]) -> "Kept":
        """Take the passages out of a store's tensors."""
        return cls(**{each.name: tensors[f"kept.{each.name}"] for each in fields(cls)})

    def tensors(self) -> dict[str, Tensor]:
        """Name every tensor, as a store keeps them."""
        return {f"kept.{name}": each for name, each in vars(self).items()}

    def add(self, block: Block) -> "Kept":
        """Add a block's passages, and drop those of the lowest hashes if there are too many tokens."""
        texts, starts, ids = zip(*block.passages, strict=True)
        columns = (
            block.first + torch.arange(len(ids)),
            *(torch.tensor(column) for column in (texts, starts, [len(each) for each in ids])),
            torch.tensor([token for each in ids for token in each], dtype=torch.int32),
        )
        both = zip(vars(self).items(), columns, strict=True)
        joined = Kept(**{name: torch.cat([before, added]) for (name, before), added in both})
        if len(joined.ids) <= MOST_KEPT:
            return joined
        order = np.argsort(~hash_numbers(joined.passages.numpy() + _OTHER), kind="stable")
        chosen = order[np.cumsum(joined.lengths.numpy()[order]) <= MOST_KEPT]
        is_kept = torch.zeros(len(joined), dtype=torch.bool)
        is_kept[torch.from_numpy(chosen if len(chosen) else order[:1])] = True
        is_token_kept = torch.repeat_interleave(is_kept, joined.lengths)
        return Kept(
            **{n: x[is_token_kept if n == "ids" else is_kept] for n, x in vars(joined).items()}
        )


def hash_numbers(numbers: np.ndarray) -> np.ndarray:
    """Mix numbers into evenly spread ones (splitmix64)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
