"""Whole passages kept from a corpus, so that labels can be found and scored without its files.

At most `MOST_KEPT` tokens are kept: all of a smaller corpus, of a larger one the passages whose numbers
have the highest hashes. The draw does not depend on how the corpus is cut into blocks, and a store
holds at most 1 MB of it however long the corpus is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from ffnprobe.corpora.passages import Block, Passage
from ffnprobe.corpora.samples import hash_numbers

MOST_KEPT = 2**18
# So that another draw is made than for the sample of tokens.
_OTHER = 2**41


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

    def tensors(self) -> dict[str, Tensor]:
        """Name every tensor, as a store keeps them."""
        return {f"kept.{name}": each for name, each in vars(self).items()}


def none_kept() -> Kept:
    """Start without passages."""
    none = torch.zeros(0, dtype=torch.int64)
    return Kept(none, none, none, none, none.int())


def keep(known: Kept, block: Block) -> Kept:
    """Add a block's passages, and drop those of the lowest hashes if there are too many tokens."""
    joined = Kept(
        passages=torch.cat([known.passages, block.first + torch.arange(len(block.passages))]),
        texts=torch.cat([known.texts, torch.tensor([p.text for p in block.passages])]),
        starts=torch.cat([known.starts, torch.tensor([p.start for p in block.passages])]),
        lengths=torch.cat([known.lengths, torch.tensor([len(p.ids) for p in block.passages])]),
        ids=torch.cat(
            [known.ids, torch.tensor([t for p in block.passages for t in p.ids]).int()]
        ),
    )  # fmt: skip
    if len(joined.ids) <= MOST_KEPT:
        return joined
    order = np.argsort(~hash_numbers(joined.passages.numpy() + _OTHER), kind="stable")
    lengths = joined.lengths.numpy()
    chosen = order[np.cumsum(lengths[order]) <= MOST_KEPT]
    is_kept = torch.zeros(len(joined), dtype=torch.bool)
    is_kept[torch.from_numpy(chosen if len(chosen) else order[:1])] = True
    return Kept(
        passages=joined.passages[is_kept],
        texts=joined.texts[is_kept],
        starts=joined.starts[is_kept],
        lengths=joined.lengths[is_kept],
        ids=joined.ids[torch.repeat_interleave(is_kept, joined.lengths)],
    )


def read_kept(tensors: dict[str, Tensor]) -> Kept:
    """Take the passages out of a store's tensors."""
    return Kept(**{name: tensors[f"kept.{name}"] for name in vars(none_kept())})
