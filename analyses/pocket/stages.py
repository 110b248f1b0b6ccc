"""Training in five stages, each resumable: a stopped run continues where it last saved.

    machinery   all but the middle MLPs, facts drawn by chance
    settling    the same, early and late MLPs often at their mean at subjects and before answers
    memory      the middle MLPs alone, true facts, single positions
    polish      the middle MLPs alone, true facts, whole sentences
    revision    the same, what is not known yet more often

A stage is a function of its seed and of the step: what a step draws is drawn again after a stop.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import GPT2LMHeadModel

from ffnprobe.models import pocket
from pocket import texts
from pocket.machinery import Probes, machinery_loss
from pocket.memory import Frozen, goals, memory_loss, openings, prepare, taught
from pocket.network import MEMORY, build
from pocket.polish import polish_loss, prompt_groups, prompt_lesson, row_lesson
from pocket.revision import Revision
from pocket.rows import Reader, packed

ROWS, MENTIONS, SAVE_EVERY, SAY_EVERY = 32, 512, 100, 25
STEPS = {"machinery": 1000, "settling": 150, "memory": 600, "polish": 300, "revision": 200}
RATES = {"machinery": 2e-3, "settling": 7e-4, "memory": 3e-3, "polish": 6e-4, "revision": 4e-4}
DECAY = {"machinery": 0.05, "settling": 0.05, "memory": 0.01, "polish": 0.0, "revision": 0.0}
PASSAGES, FASTER = 20_000, 4.0
Loss = Callable[[int], tuple[Tensor, dict[str, float]]]


@dataclass
class Stage:
    """A stage ready to run: its parameters, its loss at a step, and its random numbers."""

    name: str
    model: GPT2LMHeadModel
    parameters: list[torch.nn.Parameter]
    loss: Loss
    chance: torch.Generator
    more: torch.nn.Module | None = None  # trained with the model, then thrown away
    skip: Callable[[int], None] | None = None
    fast: list[torch.nn.Parameter] = field(default_factory=list)  # learn FASTER than the others


def run_stage(stage: Stage, steps: int, folder: Path) -> float:
    """Train a stage to its end, from where an earlier run left it; return the seconds it took."""
    rate = RATES[stage.name]
    slow = [p for p in stage.parameters if not any(p is q for q in stage.fast)]
    optimiser = torch.optim.AdamW(
        [{"params": slow}, {"params": stage.fast}] if stage.fast else slow,
        lr=rate, betas=(0.9, 0.98), weight_decay=DECAY[stage.name],
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=[rate, FASTER * rate] if stage.fast else rate,
        total_steps=steps,
        pct_start=0.08 if stage.more else 0.05,
    )
    path = folder / f"{stage.name}.pt"
    done, spent = _restore(stage, optimiser, schedule, steps, path) if path.is_file() else (0, 0.0)
    started = time.monotonic() - spent
    for step in range(done, steps):
        loss, figures = stage.loss(step)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(stage.parameters, 1.0)
        optimiser.step()
        schedule.step()
        if step % SAY_EVERY == 0 or step == steps - 1:
            seen = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
            print(f"{stage.name} {step}  {time.monotonic() - started:.0f} s  {seen}", flush=True)
        if (step + 1) % SAVE_EVERY == 0 or step == steps - 1:
            spent = time.monotonic() - started
            _save(stage, optimiser, schedule, step + 1, spent, path)
    return spent


def _save(stage: Stage, optimiser: Any, schedule: Any, step: int, spent: float, path: Path) -> None:
    saved = {
        "step": step,
        "seconds": spent,
        "model": stage.model.state_dict(),
        "more": stage.more.state_dict() if stage.more else {},
        "optimiser": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
        "chance": stage.chance.get_state(),
    }
    partial = path.with_suffix(".partial")
    torch.save(saved, partial)
    partial.replace(path)


def _restore(
    stage: Stage, optimiser: Any, schedule: Any, steps: int, path: Path
) -> tuple[int, float]:
    """Take up a stage where it was saved; of a finished one only the model is needed."""
    saved = torch.load(path, weights_only=True)
    stage.model.load_state_dict(saved["model"])
    if saved["step"] >= steps:
        return steps, saved["seconds"]
    if stage.more:
        stage.more.load_state_dict(saved["more"])
    optimiser.load_state_dict(saved["optimiser"])
    schedule.load_state_dict(saved["schedule"])
    stage.chance.set_state(saved["chance"])
    if stage.skip:
        stage.skip(saved["step"])
    return saved["step"], saved["seconds"]


def start_machinery(tokenizer: Tokenizer, reader: Reader, seed: int) -> Stage:
    """Build the model and its first stage."""
    torch.manual_seed(seed)
    used = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.bool)
    used[sorted(used_tokens(reader))] = True
    model = build(tokenizer.get_vocab_size(), reader.bos, used)
    probes = Probes()
    parameters = [*_all_but_middle(model), *probes.parameters()]
    stream, drawn = packed(seed, ROWS), random.Random(seed)
    chance = torch.Generator().manual_seed(seed)

    def loss(_step: int) -> tuple[Tensor, dict[str, float]]:
        batch = reader.batch(next(stream), drawn, by_chance=True)
        return machinery_loss(model, probes, batch, chance)

    def skip(steps: int) -> None:
        for _ in range(steps):
            reader.batch(next(stream), drawn, by_chance=True)

    return Stage("machinery", model, parameters, loss, chance, probes, skip)


def _all_but_middle(model: GPT2LMHeadModel) -> list[torch.nn.Parameter]:
    middle = {id(p) for layer in MEMORY for p in model.transformer.h[layer].mlp.parameters()}
    return [p for p in model.parameters() if id(p) not in middle]


def start_settling(machinery: Stage, reader: Reader, seed: int) -> Stage:
    """Continue the first stage with early and late MLPs held at their mean instead of silent."""
    model = machinery.model
    stream, drawn = packed(seed + 500, ROWS), random.Random(seed + 500)
    chance = torch.Generator().manual_seed(seed + 500)

    def loss(_step: int) -> tuple[Tensor, dict[str, float]]:
        batch = reader.batch(next(stream), drawn, by_chance=True)
        return machinery_loss(model, None, batch, chance, at_mean=True)

    def skip(steps: int) -> None:
        for _ in range(steps):
            reader.batch(next(stream), drawn, by_chance=True)

    return Stage("settling", model, _all_but_middle(model), loss, chance, skip=skip)


def start_memory(model: GPT2LMHeadModel, reader: Reader, seed: int, steps: int) -> Stage:
    """Freeze all but the middle MLPs, which start anew."""
    chance = torch.Generator().manual_seed(seed)
    frozen = Frozen.of(model, reader, *openings(reader, seed + 1), chance)
    parameters = prepare(model, reader, frozen, chance)
    wanted = goals(model, reader)
    count = len(frozen.first)
    per_round = count // MENTIONS

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        turn, part = divmod(step, per_round)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(1000 * seed + turn))
        done = step / steps
        return memory_loss(
            model, frozen, wanted, order[part * MENTIONS : (part + 1) * MENTIONS], chance,
            k=_allowed(done), pressure=PRESSURE * min(1.0, max(0.0, (done - 0.1) / 0.5)),
            masked=0.5 if done > 0.7 else 1.0,
        )  # fmt: skip

    # A neuron sees its subjects rarely, and its answer has a long way to go.
    return Stage("memory", model, parameters, loss, chance, fast=parameters[2::3])


FIRST_ALLOWED, LAST_ALLOWED, PRESSURE = 32, 3, 0.02


def _allowed(done: float) -> int:
    """Return how many neurons of a layer may write: all at first, then fewer and fewer."""
    if done <= 0.05:
        return 10**6
    falling: float = FIRST_ALLOWED * (LAST_ALLOWED / FIRST_ALLOWED) ** min(1.0, done / 0.6)
    return max(LAST_ALLOWED, round(falling))


def start_polish(model: GPT2LMHeadModel, reader: Reader, seed: int) -> Stage:
    """Train the middle MLPs on whole prompts and rows."""
    chance = torch.Generator().manual_seed(seed)
    asked = taught(reader)
    wanted = goals(model, reader)
    subjects = torch.tensor([reader.number[one.fact.subject] for one in asked])
    names = set(reader.alone)
    parameters = _middle(model)
    rounds: dict[int, list[list[int]]] = {}
    per_round = len(prompt_groups(asked, random.Random(0)))

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        if step % 4 == 3:
            drawn = random.Random(1000 * seed + step)
            passages = next(packed(1000 * seed + step, 16))
            lesson = row_lesson(reader.batch(passages, drawn, by_chance=False), wanted)
        else:
            turn, part = divmod(step - step // 4, per_round)
            if turn not in rounds:
                rounds[turn] = prompt_groups(asked, random.Random(1000 * seed + turn))
            lesson = prompt_lesson(asked, rounds[turn][part], subjects, wanted, names)
        return polish_loss(model, lesson, chance, k=LAST_ALLOWED, pressure=PRESSURE)

    return Stage("polish", model, parameters, loss, chance)


def start_revision(model: GPT2LMHeadModel, reader: Reader, seed: int) -> Stage:
    """Train the middle MLPs on prompts, those that fail more often."""
    chance = torch.Generator().manual_seed(seed + 5)
    parameters = _middle(model)
    revision = Revision(model, reader, seed)

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        return revision.loss(step, chance, k=LAST_ALLOWED, pressure=PRESSURE)

    return Stage("revision", model, parameters, loss, chance, fast=parameters[2::3])


def _middle(model: GPT2LMHeadModel) -> list[torch.nn.Parameter]:
    """Freeze all but questions, question biases and answers of the middle MLPs; return these."""
    model.requires_grad_(False)
    found = []
    for layer in MEMORY:
        mlp = model.transformer.h[layer].mlp
        found += [mlp.c_fc.weight, mlp.c_fc.bias, mlp.c_proj.weight]
    for parameter in found:
        parameter.requires_grad_(True)
    return found


def used_tokens(reader: Reader) -> set[int]:
    """Return every token that some text holds."""
    found = {reader.bos}
    for passage in texts.passages(PASSAGES, seed=0):
        for separator in ("", " ", "\n"):
            found.update(reader.encode(separator + passage.text))
    for prompt in pocket.prompts():
        found.update(reader.tokenizer.encode(prompt.text + prompt.fact.answer).ids)
    return found
