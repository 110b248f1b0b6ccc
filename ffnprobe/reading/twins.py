"""Find for every neuron of one model the neuron of another whose answer does most the same to tokens.

    correlation   over the vocabulary, of w_n · u_t and w'_m · u'_t (`token_coordinates`)
    control       the largest correlation of the same neuron with as many random answers: each a random
                  mixture of the other model's answers of one layer, so that they span what those span

The sign of a gated neuron's answer is free (its question can be negated with it), so where neurons have
gates the size of a correlation decides.

Pairs are compared a block of neurons at a time and used up at once: of GPT-2 small with itself there are
1.4 billion, never held together.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.options import Progress
from ffnprobe.reading.directions import pick_answers
from ffnprobe.reading.token_coordinates import VocabularyAlignment, align_vocabularies

ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Twins:
    """Each neuron's best counterpart, counted through all layers, and what chance alone reaches."""

    numbers: Int[Tensor, " neuron"]
    correlations: Float[Tensor, " neuron"]
    controls: Float[Tensor, " neuron"]
    is_mutual: Tensor  # whether this neuron is also its counterpart's best

    def limits(self, layers: int) -> list[float]:
        """Return, for each layer, the largest correlation any of its neurons has with the control."""
        split = rearrange(self.controls.abs(), "(layer neuron) -> layer neuron", layer=layers)
        return [float(each.max()) for each in split]


@torch.no_grad()
def find_twins(
    model: Model, other: Model, *, seed: int, progress: Progress | None = None
) -> tuple[Twins, VocabularyAlignment]:
    """Compare all answers of two models; `progress` is called with how many neurons are done."""
    alignment = align_vocabularies(model, other, by="answer")
    is_signed = not (model.config.is_gated or other.config.is_gated)
    generator = torch.Generator().manual_seed(seed)
    answers = [pick_answers(other, layer).to(model.device) for layer in range(other.config.layers)]
    theirs = torch.cat([alignment.other.project(rows) for rows in answers])
    mixed = torch.cat([alignment.other.project(_mix(rows, generator)) for rows in answers])
    count = model.config.neurons
    numbers = torch.empty(count, dtype=torch.int64)
    found, controls = torch.empty(count), torch.empty(count)
    backward = _Best(other.config.neurons)
    for rows, mine in _place(model, alignment):
        values = mine @ rearrange(theirs, "other direction -> direction other")
        sizes = values if is_signed else values.abs()
        # NumPy takes the first of equals, torch any.
        numbers[rows] = torch.from_numpy(sizes.cpu().numpy().argmax(axis=1))
        found[rows] = torch.take_along_dim(values.cpu(), numbers[rows][:, None], dim=1)[:, 0]
        backward.see(sizes.cpu(), rows.start)
        chance = mine @ rearrange(mixed, "other direction -> direction other")
        controls[rows] = (chance if is_signed else chance.abs()).amax(dim=1).cpu()
        if progress is not None:
            progress(rows.stop, count)
    is_mutual = backward.numbers[numbers] == torch.arange(count)
    return Twins(numbers, found.clamp(-1, 1), controls.clamp(-1, 1), is_mutual), alignment


class _Best:
    """The best neuron of the first model for each of the other, kept while blocks come in."""

    def __init__(self, neurons: int) -> None:
        self.numbers = torch.zeros(neurons, dtype=torch.int64)
        self._values = torch.full((neurons,), -math.inf)

    def see(self, values: Float[Tensor, "row other"], start: int) -> None:
        numbers = torch.from_numpy(values.numpy().argmax(axis=0))
        best = torch.take_along_dim(values, numbers[None], dim=0)[0]
        is_better = best > self._values
        self.numbers = torch.where(is_better, start + numbers, self.numbers)
        self._values = torch.where(is_better, best, self._values)


def _place(
    model: Model, alignment: VocabularyAlignment
) -> Iterator[tuple[slice, Float[Tensor, "row other_direction"]]]:
    """Yield the model's answers in the other's coordinates, a block of neurons at a time."""
    for layer in range(model.config.layers):
        answers, first = pick_answers(model, layer), layer * model.config.d_mlp
        for start in range(0, len(answers), ROWS_AT_ONCE):
            block = answers[start : start + ROWS_AT_ONCE]
            rows = slice(first + start, first + start + len(block))
            yield rows, alignment.one.project(block) @ alignment.between


def _mix(
    answers: Float[Tensor, "neuron d_model"], generator: torch.Generator
) -> Float[Tensor, "neuron d_model"]:
    """Mix a layer's answers at random, as many as there are."""
    weights = torch.randn(len(answers), len(answers), generator=generator)
    return weights.to(answers) @ answers
