"""The last stage: what is not known yet is asked more often; the middle MLPs alone still learn."""

import random

import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

from pocket.measures import Asked, recall
from pocket.memory import goals, taught
from pocket.polish import Lesson, polish_loss, prompt_groups, prompt_lesson
from pocket.rows import Reader

REVIEW, OTHERS = 25, 800  # steps from one examination to the next; known prompts asked at least


class Revision:
    """Prompts that fail an examination, with others among them, until the next examination."""

    def __init__(self, model: GPT2LMHeadModel, reader: Reader, seed: int) -> None:
        self.model = model
        self.seed = seed
        self.asked: list[Asked] = taught(reader)
        self.wanted = goals(model, reader)
        self.subjects = torch.tensor([reader.number[one.fact.subject] for one in self.asked])
        self.names = set(reader.alone)
        self.groups: list[list[int]] = []

    def examine(self, turn: int) -> None:
        """Ask every taught prompt and deal out the next lessons."""
        chance = random.Random(1000 * self.seed + turn)
        failed = (~recall(self.model, self.asked)).nonzero()[:, 0].tolist()
        many = min(len(self.asked), 2 * len(failed) + OTHERS)
        pool = failed + chance.sample(range(len(self.asked)), many)
        dealt = prompt_groups([self.asked[n] for n in pool], chance)
        self.groups = [[pool[n] for n in part] for part in dealt]

    def lesson(self, step: int) -> Lesson:
        """Return the prompts of a step."""
        turn, part = divmod(step, REVIEW)
        if part == 0:
            self.examine(turn)
        numbers = self.groups[part % len(self.groups)]
        return prompt_lesson(self.asked, numbers, self.subjects, self.wanted, self.names)

    def loss(
        self, step: int, chance: torch.Generator, *, k: int, pressure: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Measure the loss of a step."""
        lesson = self.lesson(step)
        return polish_loss(self.model, lesson, chance, k=k, pressure=pressure / 2, masked=0.2)
