"""The relation's other answers: what an answer has to beat.

Answers are compared where they begin, by the logit of their first token: answers that begin alike
are not told apart there. The true answers of one prompt are not each other's rivals. Facts without a
relation form one relation.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.facts.batches import FactIds


class Rivals:
    """Every relation's answers, by their first tokens."""

    def __init__(self, facts: Sequence[FactIds]) -> None:
        self._all: dict[str, set[int]] = {}
        self._true: dict[tuple[str, str], set[int]] = {}
        for fact in facts:
            row, opening = fact.row, fact.pieces[0]
            self._all.setdefault(row.relation, set()).add(opening)
            self._true.setdefault((row.relation, row.prompt), set()).add(opening)

    def best(
        self, fact: FactIds, logits: Float[Tensor, " vocab"]
    ) -> tuple[int | None, float | None]:
        """Return the likeliest rival and how far the answer's first token is above it, in logits."""
        row = fact.row
        others = sorted(self._all[row.relation] - self._true[row.relation, row.prompt])
        if not others:
            return None, None
        rival = others[int(torch.argmax(logits[others]))]
        return rival, float(logits[fact.pieces[0]]) - float(logits[rival])
