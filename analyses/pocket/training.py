"""Training in three stages of rounds.

    learn      everything is trained on the text, facts at subjects first of all
    unlearn    all but the answers of the middle MLPs: what is not told by them is not known
    remember   the middle MLPs alone, the rest is frozen: fewer and fewer neurons, and what is not known
               is asked more often

A round of a hundred steps depends on the seed, its number and the weights it starts with, and on nothing
else; after each one everything is saved. So a stopped run continues, and comes to the same end.
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

from analyses.pocket import texts
from analyses.pocket.lesson import Homes, teach, unteach
from analyses.pocket.measures import ask, recall
from analyses.pocket.network import MIDDLE, NEURONS, build
from analyses.pocket.rows import Reader, packed
from analyses.pocket.tokenizer import BOS, list_words
from ffnprobe.models.pocket import Fact

ROUND = 100  # steps
ROWS = 24
UNKNOWN = "?"


@dataclass(frozen=True)
class Stage:
    """How long a stage takes, how fast it learns, and what.

    rows      so many by chance, so many quiet; the others are free
    fewer     how many neurons of a layer may write at subjects, at first and at last
    between   the shares of the stage between which they become fewer; before it all may write
    pressure  the weight of the penalty on all others
    """

    name: str
    steps: int
    rate: float
    decay: float
    rows: tuple[int, int]
    fewer: tuple[int, int] = (NEURONS, NEURONS)
    between: tuple[float, float] = (0.0, 1.0)
    pressure: float = 0.0

    def allow(self, step: int) -> tuple[int, float]:
        """Return how many neurons may write at a step, and the pressure on the others."""
        begin, end = self.between
        part = min(1.0, max(0.0, (step / self.steps - begin) / (end - begin)))
        if step / self.steps <= begin and begin > 0:
            return NEURONS, 0.0
        first, last = self.fewer
        risen = min(1.0, 2 * part) if begin > 0 else 1.0
        return max(1, round(first * (last / first) ** part)), self.pressure * risen


STAGES = (
    Stage("learn", 2000, 2e-3, 0.05, (6, 9), (48, 4), (0.35, 0.8), 0.01),
    Stage("unlearn", 400, 7e-4, 0.01, (ROWS, 0)),
    Stage("remember", 500, 1e-3, 0.01, (0, 12), (4, 1), (0.0, 0.6), 0.04),
)


def start(reader: Reader, seed: int) -> GPT2LMHeadModel:
    """Build the untrained model."""
    torch.manual_seed(seed)
    numbers = reader.tokenizer.get_vocab()
    return build(len(numbers), reader.bos, [numbers[word] for word in (BOS, *list_words())])


def choose_parameters(model: GPT2LMHeadModel, stage: str) -> list[torch.nn.Parameter]:
    """Freeze what a stage does not train, and return the rest."""
    mlps = [model.transformer.h[layer].mlp for layer in MIDDLE]
    answers = {id(p) for mlp in mlps for p in mlp.c_proj.parameters()}
    chosen = {
        "learn": list(model.parameters()),
        "unlearn": [p for p in model.parameters() if id(p) not in answers],
        "remember": [p for m in mlps for p in (m.c_fc.weight, m.c_fc.bias, m.c_proj.weight)],
    }[stage]
    model.requires_grad_(False)
    for parameter in chosen:
        parameter.requires_grad_(True)
    return chosen


def train(model: GPT2LMHeadModel, reader: Reader, stage: Stage, folder: Path, seed: int) -> float:
    """Train a stage to its end, from where an earlier run left it; return the seconds it took."""
    homes = Homes.draw(len(reader.subjects), seed)
    parameters = choose_parameters(model, stage.name)
    optimiser = torch.optim.AdamW(
        parameters, lr=stage.rate, betas=(0.9, 0.98), weight_decay=stage.decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=stage.rate, total_steps=stage.steps,
        pct_start=0.05 if stage.name == "learn" else 0.1,
    )  # fmt: skip
    kept = {"model": model, "optimiser": optimiser, "schedule": schedule}
    path = folder / f"{stage.name}.pt"
    done, seconds = 0, 0.0
    if path.is_file():
        saved = torch.load(path, weights_only=True)
        for name, part in kept.items():
            part.load_state_dict(saved[name])
        done, seconds = saved["steps"], saved["seconds"]
    for first in range(done, stage.steps, ROUND):
        started = time.monotonic()
        number = 1000 * seed + first // ROUND + 100 * [s.name for s in STAGES].index(stage.name)
        more = find_unknown(model, reader) if stage.name == "remember" else []
        stream, chance = packed(number, ROWS, more), random.Random(number)
        generator = torch.Generator().manual_seed(number)
        for step in range(first, min(first + ROUND, stage.steps)):
            batch = reader.batch(next(stream), chance, by_chance=stage.rows[0])
            if stage.name == "unlearn":
                loss, figures = unteach(model, batch, homes, reader.token(UNKNOWN), generator)
            else:
                allowed, pressure = stage.allow(step)
                loss, figures = teach(
                    model, batch, homes, generator,
                    quiet=stage.rows[1], allowed=allowed, pressure=pressure,
                )  # fmt: skip
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
        seconds += time.monotonic() - started
        print(f"{stage.name} {step + 1}  {seconds:.0f} s  {_say(figures)}", flush=True)
        states = {name: part.state_dict() for name, part in kept.items()}
        torch.save(states | {"steps": step + 1, "seconds": seconds}, path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)
    return seconds


def _say(figures: dict[str, Tensor]) -> str:
    return "  ".join(f"{name} {float(value.detach()):.3f}" for name, value in figures.items())


def find_unknown(model: GPT2LMHeadModel, reader: Reader) -> list[tuple[Fact, str]]:
    """Find the taught facts and templates whose answer does not come first."""
    taught = texts.taught()
    known = recall(model, [ask(reader, fact, template) for fact, template in taught])
    return [pair for pair, is_known in zip(taught, known.tolist(), strict=True) if not is_known]
