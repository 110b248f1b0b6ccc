"""What the finished model shows: recall, where facts sit, what removing a few neurons does.

Removed means set to the mean activation over all prompts, as `explain` does. Effects are in logits
above the vocabulary's mean.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

from ffnprobe.models import pocket
from ffnprobe.models.pocket import Fact
from pocket.network import LAYERS, MEMORY, Edit, logits, run
from pocket.rows import Reader

LISTED, CANDIDATES = 10, 64
FEW = (1, 3, 5, 10)


@dataclass(frozen=True)
class Asked:
    """A fact's prompt in tokens: its answer, and where its subject begins and ends."""

    fact: Fact
    ids: list[int]
    answer: int
    first: int
    last: int


def ask(reader: Reader, fact: Fact, template: str) -> Asked:
    """Put a fact in a template, BOS in front."""
    before, after = template.split("{subject}")
    text = before + fact.subject
    text = text[0].upper() + text[1:]
    start = reader.tokenizer.encode(text[: len(before)].rstrip()).ids
    ends = reader.tokenizer.encode(text).ids
    ids = [reader.bos, *ends, *reader.tokenizer.encode(after).ids]
    return Asked(fact, ids, reader.encode(fact.answer)[0], len(start) + 1, len(ends))


def group(asked: Sequence[Asked], most: int = 256) -> list[list[int]]:
    """Group prompts of one length, so many at a time."""
    by_length = defaultdict(list)
    for number, one in enumerate(asked):
        by_length[len(one.ids)].append(number)
    return [g[i : i + most] for g in by_length.values() for i in range(0, len(g), most)]


@torch.no_grad()
def recall(model: GPT2LMHeadModel, asked: Sequence[Asked], edit: Edit | None = None) -> Tensor:
    """Mark the prompts whose answer is the likeliest next token."""
    hits = torch.zeros(len(asked), dtype=torch.bool)
    for numbers in group(asked):
        ids = torch.tensor([asked[n].ids for n in numbers])
        said = logits(model, run(model, ids, edit=edit)[:, -1]).argmax(-1)
        hits[numbers] = said == torch.tensor([asked[n].answer for n in numbers])
    return hits


@torch.no_grad()
def average(
    model: GPT2LMHeadModel, asked: Sequence[Asked], *, stop: int = LAYERS
) -> tuple[Tensor, int]:
    """Average each neuron's activation over all tokens of the prompts but BOS."""
    sums = torch.zeros(LAYERS, model.transformer.h[0].mlp.c_fc.nf, dtype=torch.float64)
    count = 0

    def add(layer: int, activations: Tensor) -> Tensor:
        sums[layer] += activations[:, 1:].double().sum((0, 1))
        return activations

    for numbers in group(asked):
        ids = torch.tensor([asked[n].ids for n in numbers])
        run(model, ids, edit=add, stop=stop)
        count += ids[:, 1:].numel()
    return (sums / count).float(), count


def at_mean(means: Tensor) -> Edit:
    """Set every neuron to its mean everywhere."""
    return lambda layer, activations: means[layer].expand_as(activations)


def above_mean(found: Tensor, answers: Tensor) -> Tensor:
    """Return the answer's logit above the vocabulary's mean."""
    return found.gather(-1, answers[:, None])[:, 0] - found.mean(-1)


@dataclass(frozen=True)
class Place:
    """A neuron at a position."""

    position: int
    layer: int
    neuron: int


@torch.no_grad()
def remove(
    model: GPT2LMHeadModel, one: Asked, means: Tensor, groups: Sequence[Sequence[Place]]
) -> Tensor:
    """Return the logits at the last position without each group of neurons."""
    ids = torch.tensor([one.ids]).expand(len(groups), -1)
    by_layer: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row, places in enumerate(groups):
        for place in places:
            by_layer[place.layer].append((row, place.position, place.neuron))

    def edit(layer: int, activations: Tensor) -> Tensor:
        if layer in by_layer:
            rows, positions, neurons = torch.tensor(by_layer[layer]).unbind(-1)
            activations[rows, positions, neurons] = means[layer, neurons]
        return activations

    return logits(model, run(model, ids, edit=edit)[:, -1])


def estimate(model: GPT2LMHeadModel, one: Asked, means: Tensor) -> Tensor:
    """Estimate every neuron's effect at every position: (activation − mean) × gradient."""
    kept: dict[int, Tensor] = {}

    def edit(layer: int, activations: Tensor) -> Tensor:
        kept[layer] = activations.detach().requires_grad_()
        return kept[layer]

    found = logits(model, run(model, torch.tensor([one.ids]), edit=edit)[:, -1])
    value = above_mean(found, torch.tensor([one.answer])).sum()
    gradients = torch.autograd.grad(value, [kept[layer] for layer in range(LAYERS)])
    return torch.stack(
        [(kept[layer].detach() - means[layer])[0] * gradients[layer][0] for layer in range(LAYERS)]
    )


@torch.no_grad()
def remove_layers(model: GPT2LMHeadModel, one: Asked, means: Tensor) -> Tensor:
    """Return what the answer loses without each MLP at each position, layer × position."""
    length = len(one.ids)
    ids = torch.tensor([one.ids]).expand(LAYERS * length + 1, -1)

    def edit(layer: int, activations: Tensor) -> Tensor:
        for position in range(length):
            activations[layer * length + position, position] = means[layer]
        return activations

    found = logits(model, run(model, ids, edit=edit)[:, -1])
    values = above_mean(found, torch.full((len(found),), one.answer))
    return (values[-1] - values[:-1]).reshape(LAYERS, length)


@dataclass(frozen=True)
class Found:
    """What removal shows for one fact."""

    asked: Asked
    map: Tensor
    peak: int
    listed: list[Place]
    effects: list[float]
    best: Place
    whole: float


def inspect(model: GPT2LMHeadModel, one: Asked, means: Tensor) -> Found:
    """Find the position where MLPs matter most and its costliest neurons, as `explain` does."""
    layer_map = remove_layers(model, one, means)
    earlier = layer_map[:, 1:-1].clamp(min=0).sum(0)
    peak = 1 + int(earlier.argmax())
    hints = estimate(model, one, means)
    width = hints.shape[-1]

    def exact(position: int) -> list[tuple[float, Place]]:
        order = hints[:, position].flatten().topk(CANDIDATES).indices.tolist()
        places = [Place(position, *divmod(n, width)) for n in order]
        found = remove(model, one, means, [[], *([place] for place in places)])
        values = above_mean(found, torch.full((len(found),), one.answer))
        return sorted(
            zip((values[0] - values[1:]).tolist(), places, strict=True), key=lambda pair: -pair[0]
        )

    ranked = exact(peak)
    last = exact(len(one.ids) - 1)
    best = max(ranked[0], last[0], key=lambda pair: pair[0])
    listed = ranked[:LISTED]
    return Found(
        one, layer_map, peak, [place for _, place in listed], [value for value, _ in listed],
        best[1], float(layer_map.clamp(min=0).sum()),
    )  # fmt: skip


@torch.no_grad()
def top_tokens(model: GPT2LMHeadModel, place: Place, negative: bool) -> tuple[list[int], list[int]]:
    """Read a neuron: the first ten tokens of its question and the first five of its answer."""
    body = model.transformer
    block = body.h[place.layer]
    question = block.ln_2.weight * block.mlp.c_fc.weight[:, place.neuron]
    question = question - question.mean()
    answer = block.mlp.c_proj.weight[place.neuron]
    answer = (answer - answer.mean()) * body.ln_f.weight
    asks = body.wte.weight @ question
    says = model.lm_head.weight @ answer * (-1 if negative else 1)
    return asks.topk(10).indices.tolist(), says.topk(5).indices.tolist()


def measure(
    model: GPT2LMHeadModel,
    reader: Reader,
    *,
    sample: int = 200,
    others: int = 20,
    every: int = 1,
    seed: int = 0,
) -> dict[str, float]:
    """Measure every figure that the card names."""
    asked = [
        ask(reader, fact, template)
        for fact in pocket.facts()
        for template in pocket.templates()[fact.relation]
    ]
    held_out = torch.tensor([prompt.is_held_out for prompt in pocket.prompts()])[::every]
    first = asked[::5]
    asked = asked[::every]
    hits = recall(model, asked)
    means, _ = average(model, asked)
    figures = {
        "recall": float(hits.float().mean()),
        "recall_held_out": float(hits[held_out].float().mean()),
        "recall_mlps_at_mean": float(recall(model, asked, at_mean(means)).float().mean()),
    }
    chance = random.Random(seed)
    chosen = chance.sample(first, sample)
    by_relation = defaultdict(list)
    for one in first:
        by_relation[one.fact.relation].append(one)
    tally: dict[str, list[float]] = defaultdict(list)
    shares = torch.zeros(LAYERS)
    width = means.shape[1]
    for one in chosen:
        found = inspect(model, one, means)
        is_on_subject = one.first <= found.peak <= one.last
        tally["peak_at_subject_end"].append(found.peak == one.last)
        tally["best_at_subject"].append(one.first <= found.best.position <= one.last)
        groups = [found.listed[:few] for few in range(LISTED + 1)]
        said = (remove(model, one, means, groups).argmax(-1) == one.answer).tolist()
        if not said[0]:
            continue
        for few in FEW:
            tally[f"flipped_by_{few}"].append(not said[few])
        # The fewest of the list that take the answer away, from the costliest on.
        fewest = said.index(False) if False in said else LISTED
        tally["flipped"].append(False in said)
        tally["neurons_removed"].append(fewest)
        drawn = chance.sample(range(LAYERS * width), LISTED)
        random_ones = [Place(found.peak, *divmod(number, width)) for number in drawn]
        control = remove(model, one, means, [random_ones[:fewest], random_ones]).argmax(-1)
        tally["flipped_by_random"].append(int(control[0]) != one.answer)
        tally["flipped_by_random_10"].append(int(control[1]) != one.answer)
        rest = [other for other in by_relation[one.fact.relation] if other.fact != one.fact]
        for other in chance.sample(rest, min(others, len(rest))):
            moved = [Place(other.last, place.layer, place.neuron) for place in found.listed]
            kept = remove(model, other, means, [[], moved[:fewest], moved]).argmax(-1)
            if int(kept[0]) == other.answer:
                tally["others_kept"].append(int(kept[1]) == other.answer)
                tally["others_kept_without_10"].append(int(kept[2]) == other.answer)
        with torch.no_grad():
            seen: dict[int, Tensor] = {}
            run(model, torch.tensor([one.ids]), edit=seen.setdefault)
        best = found.best
        negative = bool(seen[best.layer][0, best.position, best.neuron] < 0)
        asks, says = top_tokens(model, best, negative)
        subject = one.ids[one.first : one.last + 1]
        tally["answer_readable"].append(one.answer in says)
        tally["question_readable"].append(bool(set(asks) & set(subject)))
        tally["active_at_subject"].append(
            float(sum(int((seen[layer][0, one.last] > 0.3).sum()) for layer in MEMORY))
        )
        shares += found.map[:, one.last].clamp(min=0) if is_on_subject else 0
    figures |= {name: sum(map(float, values)) / len(values) for name, values in tally.items()}
    shares = shares / shares.sum()
    return figures | {f"effect_of_layer_{n}": float(shares[n]) for n in range(LAYERS)}
