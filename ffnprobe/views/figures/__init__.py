"""Figures of results, one family per file. `draws` names a figure where it is defined; `find_figures` loads its file.

>>> list(find_figures("Pushes"))
['layers', 'account', 'neurons']
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

# The file that draws the results of a type.
FILES = {
    "Trace": "predictions", "Lens": "predictions", "Stages": "predictions",
    "Similarity": "predictions", "Drivers": "predictions", "Pushes": "pushes", "Paths": "pushes",
    "PushesByPiece": "pushes", "Comparison": "effects", "Effects": "effects",
    "LayerEffects": "effects", "GroupEffects": "effects", "Estimates": "effects",
    "Patches": "effects", "LayerPatches": "effects", "Circuit": "circuits", "Recovery": "circuits",
    "Steering": "predictions", "Reading": "reading", "Readings": "reading", "Survey": "reading",
    "Search": "reading", "Match": "reading", "Scores": "facts", "Relations": "facts",
    "Overlap": "facts", "Specificity": "facts", "Scan": "corpora", "Examples": "corpora",
    "Edited": "editing", "Certificate": "editing", "Labels": "corpora",
    "Explanation": "explanations",
}  # fmt: skip

Draw = TypeVar("Draw", bound=Callable[..., Any])


class Drawing(NamedTuple):
    """How a figure is drawn, and whether only if asked for: it needs more than the result."""

    draw: Callable[..., Any]
    is_asked: bool


DRAWN: dict[str, dict[str, Drawing]] = {}


def draws(figure: str, *types: str, is_asked: bool = False) -> Callable[[Draw], Draw]:
    """Name a function's figure and the types of its results; a type's first figure is drawn by default."""

    def register(draw: Draw) -> Draw:
        for name in types:
            DRAWN.setdefault(name, {})[figure] = Drawing(draw, is_asked)
        return draw

    return register


def find_figures(name: str) -> Mapping[str, Drawing]:
    """Load the file that draws results of this type, and return their figures in its order."""
    import_module(f"{__name__}.{FILES[name]}")
    return DRAWN[name]
