"""The third stage: whole sentences, true facts; the middle MLPs alone still learn.

The second stage looked at single positions and at vectors. Here the answer itself is asked for, in
prompts and in rows of text, with the same pressure to few neurons.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GPT2LMHeadModel

from pocket.machinery import STRENGTH
from pocket.measures import Asked, group
from pocket.memory import strongest
from pocket.network import MEMORY, logits, run
from pocket.rows import Batch

ANCHOR = 0.3


@dataclass(frozen=True)
class Lesson:
    """Tokens, where subjects end and what is wanted there, what is asked, and where nothing is.

    ids                     row × position
    rows, places, wanted    a mention each; wanted: mention × width
    read, targets           marks the positions before an answer; the answers
    still                   marks the positions where the middle MLPs must write nothing
    """

    ids: Tensor
    rows: Tensor
    places: Tensor
    wanted: Tensor
    read: Tensor
    targets: Tensor
    still: Tensor


def polish_loss(
    model: GPT2LMHeadModel,
    lesson: Lesson,
    seed: torch.Generator,
    *,
    k: int,
    pressure: float,
    masked: float = 0.5,
) -> tuple[Tensor, dict[str, float]]:
    """Measure the surprise at answers, the distance from what is wanted at subjects, and busyness."""
    rows, places = lesson.rows, lesson.places
    is_masked = torch.rand(len(lesson.ids), 1, 1, generator=seed) < masked
    # Early and late MLPs are at their mean where a subject ends, in some rows.
    held = torch.zeros(lesson.ids.shape, dtype=torch.bool)
    held[rows, places] = True
    held = held[..., None] & (torch.rand(len(lesson.ids), 1, 1, generator=seed) < 0.3)
    busy = torch.zeros(())
    written: list[Tensor] = []

    def edit(layer: int, activations: Tensor) -> Tensor:
        nonlocal busy
        if layer not in MEMORY:
            mean = activations[:, 1:].mean((0, 1)).detach()
            return torch.where(held, mean, activations)
        mlp = model.transformer.h[layer].mlp
        weighted = activations.abs() * mlp.c_proj.weight.norm(dim=-1) / STRENGTH
        kept = strongest(weighted.detach(), k)
        busy = busy + torch.tanh(4 * (weighted * ~kept)[rows, places]).sum(-1).mean()
        edited = torch.where(is_masked & ~kept, 0.0, activations)
        written.append(mlp.c_proj(edited))
        return edited

    with torch.no_grad():
        stream = run(model, lesson.ids, edit=edit, stop=min(MEMORY))
    final = run(model, lesson.ids, edit=edit, start=min(MEMORY), stream=stream)
    surprise = functional.cross_entropy(logits(model, final[lesson.read]), lesson.targets)
    total = torch.stack(written).sum(0)
    away = (total[rows, places] - lesson.wanted).square().sum(-1).mean() / STRENGTH**2
    noise = total[lesson.still].square().sum(-1).mean() / STRENGTH**2
    loss = surprise + ANCHOR * (away + 0.5 * noise) + pressure * busy
    return loss, {
        "surprise": float(surprise.detach()),
        "away": float(away.detach()),
        "noise": float(noise.detach()),
        "busy": float(busy.detach()),
    }


def prompt_lesson(
    asked: list[Asked], numbers: list[int], subjects: Tensor, wanted: Tensor, names: set[int]
) -> Lesson:
    """Gather what `polish_loss` takes for prompts of one length."""
    ids = torch.tensor([asked[n].ids for n in numbers])
    rows = torch.arange(len(ids))
    places = torch.tensor([asked[n].last for n in numbers])
    read = torch.zeros_like(ids, dtype=torch.bool)
    read[:, -1] = True
    still = ~torch.isin(ids, torch.tensor(sorted(names)))
    still[rows, places] = False
    answers = torch.tensor([asked[n].answer for n in numbers])
    return Lesson(ids, rows, places, wanted[subjects[numbers]], read, answers, still)


def row_lesson(batch: Batch, wanted: Tensor) -> Lesson:
    """Gather what `polish_loss` takes for rows of text."""
    rows, places = batch.places.unbind(-1)
    read = functional.pad(batch.answers[:, 1:], (0, 1))
    still = batch.inside & ~batch.answers
    still[rows, places] = False
    answers = functional.pad(batch.ids[:, 1:], (0, 1))[read]
    return Lesson(batch.ids, rows, places, wanted[batch.subjects], read, answers, still)


def prompt_groups(asked: list[Asked], chance: random.Random, most: int = 160) -> list[list[int]]:
    """Deal all prompts into groups of one length, in random order."""
    order = list(range(len(asked)))
    chance.shuffle(order)
    mixed = [asked[n] for n in order]
    groups = [[order[n] for n in part] for part in group(mixed, most)]
    chance.shuffle(groups)
    return groups
