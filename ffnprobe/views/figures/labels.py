"""Which points of a figure are labelled: the strongest whose labels do not overlap."""

from collections.abc import Sequence

NAMED = 8
# Width and height of a label, as shares of the axes.
_WIDE, _HIGH = 0.12, 0.07


def keep_apart(
    xs: Sequence[float], ys: Sequence[float], *, span: float, strengths: Sequence[float]
) -> set[int]:
    """Choose the strongest points whose labels do not overlap."""
    kept: list[tuple[int, float, float]] = []
    for order in sorted(range(len(xs)), key=lambda n: -strengths[n]):
        x, y = xs[order] / span, ys[order] / span
        if all(abs(x - a) > _WIDE or abs(y - b) > _HIGH for _, a, b in kept):
            kept.append((order, x, y))
    return {order for order, _, _ in kept[:NAMED]}
