"""Which token of one prompt stands where a token of another stands.

Tokens that all prompts have in common at the front are aligned, and so are those at the back. In the
middle, where they differ (the subject), the last token is aligned with the last, and the others from
the end while there are any. A position may have no counterpart. One that is set aside has none either.

>>> found = align((0, 7, 8, 9, 5), [(0, 3, 9, 5)])
>>> found.counterparts
((0, None, 1, 2, 3),)
>>> list(found.middle), found.unmatched
([1, 2], (1,))
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile


@dataclass(frozen=True)
class Alignment:
    """A prompt's positions and, for each other prompt, their counterparts there."""

    length: int
    front: int
    back: int
    counterparts: tuple[tuple[int | None, ...], ...]
    aside: tuple[int, ...] = ()

    @property
    def middle(self) -> range:
        """The positions where the prompts differ: the subject."""
        return range(self.front, self.length - self.back)

    @property
    def unmatched(self) -> tuple[int, ...]:
        """The positions that have no counterpart in any other prompt."""
        return tuple(
            position
            for position in range(self.length)
            if all(matched[position] is None for matched in self.counterparts)
        )


def set_aside(alignment: Alignment, positions: Sequence[int]) -> Alignment:
    """Take their counterparts from some positions, in every prompt."""
    counterparts = tuple(
        tuple(None if position in positions else there for position, there in enumerate(matched))
        for matched in alignment.counterparts
    )
    return replace(alignment, counterparts=counterparts, aside=tuple(positions))


def align(ids: Sequence[int], others: Sequence[Sequence[int]]) -> Alignment:
    """Align a prompt's tokens with those of others."""
    prompts = [tuple(ids), *(tuple(other) for other in others)]
    front = _count_common(prompts)
    shortest = min(map(len, prompts)) - front
    back = min(_count_common([prompt[::-1] for prompt in prompts]), shortest)
    length = len(ids)
    counterparts = tuple(
        (*range(front), *(_from_end(position, length, len(other), front) for position in range(front, length)))
        for other in prompts[1:]
    )  # fmt: skip
    return Alignment(length, front, back, counterparts)


def _count_common(prompts: Sequence[Sequence[int]]) -> int:
    """Count the tokens that all prompts begin with."""
    columns = zip(*prompts, strict=False)  # the shortest ends it
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _from_end(position: int, length: int, other: int, front: int) -> int | None:
    """Return the position as far from the other's end, or none where that is in the common front."""
    matched = position - length + other
    return matched if matched >= front else None
