"""What the finished model shows: recall, where facts sit, what removing a few neurons does.

Removed means set to the mean activation over all prompts, as `explain` does. Effects are in logits
above the vocabulary's mean.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

import ffnprobe as fp
from analyses.pocket.network import LAYERS, NEURONS, Edit, logits, run
from analyses.pocket.rows import Reader
from ffnprobe.models import pocket
from ffnprobe.models.model import Model
from ffnprobe.models.pocket import Fact

LISTED = 10
FEW = (1, 3, 5, 10)


@dataclass(frozen=True)
class Asked:
    """A fact's prompt in tokens: its answer, and where its subject begins and ends."""

    fact: Fact
    text: str
    ids: list[int]
    answer: int
    first: int
    last: int


def ask(reader: Reader, fact: Fact, template: str) -> Asked:
    """Put a fact in a template, BOS in front."""
    before, after = template.split("{subject}")
    text = before + fact.subject
    text = text[0].upper() + text[1:]
    start, ends = reader.encode(text[: len(before)].rstrip()), reader.encode(text)
    ids = [reader.bos, *ends, *reader.encode(after)]
    return Asked(fact, text + after, ids, reader.encode(fact.answer)[0], len(start) + 1, len(ends))


def ask_all(reader: Reader) -> list[Asked]:
    """Put every fact in every template of its relation."""
    return [
        ask(reader, fact, template)
        for fact in pocket.facts()
        for template in pocket.templates()[fact.relation]
    ]


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
def average(model: GPT2LMHeadModel, asked: Sequence[Asked]) -> tuple[Tensor, int]:
    """Average each neuron's activation over all tokens of the prompts but BOS."""
    sums = torch.zeros(LAYERS, model.transformer.h[0].mlp.c_fc.nf, dtype=torch.float64)
    count = 0

    def add(layer: int, activations: Tensor) -> Tensor:
        sums[layer] += activations[:, 1:].double().sum((0, 1))
        return activations

    for numbers in group(asked):
        ids = torch.tensor([asked[n].ids for n in numbers])
        run(model, ids, edit=add)
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


def list_neurons(probed: Model, one: Asked) -> list[Place]:
    """List the neurons that `explain` lists, at all positions, the costliest first; ten at most."""
    found = fp.explain(probed, one.text, one.fact.answer, top=LISTED)
    costliest = found.neurons.sort_values("effect", ascending=False, kind="stable").head(LISTED)
    return [
        Place(position, layer, neuron)
        for position, layer, neuron in zip(
            costliest.position.tolist(), costliest.layer.tolist(), costliest.neuron.tolist(), strict=True
        )
    ]  # fmt: skip


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
    probed: Model,
    reader: Reader,
    means: Tensor,
    *,
    sample: int = 200,
    others: int = 20,
    seed: int = 0,
) -> dict[str, float]:
    """Measure every figure that the card names; `probed` is the same model, loaded by ffnprobe."""
    asked = ask_all(reader)
    is_held_out = torch.tensor([prompt.is_held_out for prompt in pocket.prompts()])
    hits = recall(model, asked)
    figures = {
        "recall": float(hits.float().mean()),
        "recall_held_out": float(hits[is_held_out].float().mean()),
        "recall_mlps_at_mean": float(recall(model, asked, at_mean(means)).float().mean()),
    }
    first = asked[:: len(asked) // len(pocket.facts())]
    by_relation = defaultdict(list)
    for one in first:
        by_relation[one.fact.relation].append(one)
    chance = random.Random(seed)
    tally: dict[str, list[float]] = defaultdict(list)
    shares = torch.zeros(LAYERS)
    for one in chance.sample(first, sample):
        listed = list_neurons(probed, one)
        said = says(model, one, means, [listed[:few] for few in range(LISTED + 1)])
        if not said[0]:
            continue
        for few in FEW:
            tally[f"flipped_by_{few}"].append(not said[few])
        # The fewest of the list that take the answer away, from the costliest on.
        fewest = said.index(False) if False in said else LISTED
        tally["flipped"].append(False in said)
        tally["neurons_removed"].append(fewest)
        drawn = chance.sample(range(LAYERS * NEURONS), LISTED)
        at_random = [
            Place(place.position, *divmod(number, NEURONS))
            for place, number in zip(listed, drawn, strict=True)
        ]
        control = says(model, one, means, [at_random[:fewest], at_random])
        tally["flipped_by_random"].append(not control[0])
        tally["flipped_by_random_10"].append(not control[1])
        rest = [other for other in by_relation[one.fact.relation] if other.fact != one.fact]
        for other in chance.sample(rest, min(others, len(rest))):
            moved = [replace(place, position=move(place, one, other)) for place in listed]
            kept = says(model, other, means, [[], moved[:fewest], moved])
            if kept[0]:
                tally["others_kept"].append(kept[1])
                tally["others_kept_without_10"].append(kept[2])
        best, subject = listed[0], range(one.first, one.last + 1)
        asks, answers = top_tokens(model, best, negative=is_negative(model, one, best))
        tally["best_at_subject"].append(best.position in subject)
        tally["best_at_subject_end"].append(best.position == one.last)
        tally["answer_readable"].append(one.answer in answers)
        tally["question_readable"].append(bool(set(asks) & set(one.ids[one.first : one.last + 1])))
        shares += remove_layers(model, one, means)[:, one.last].clamp(min=0)
    figures |= {name: sum(map(float, values)) / len(values) for name, values in tally.items()}
    shares = shares / shares.sum()
    return figures | {f"effect_of_layer_{n}": float(shares[n]) for n in range(LAYERS)}


def move(place: Place, one: Asked, other: Asked) -> int:
    """Find the position in another sentence of the same form, counted from the subject's end."""
    return max(0, min(len(other.ids) - 1, place.position - one.last + other.last))


def says(
    model: GPT2LMHeadModel, one: Asked, means: Tensor, groups: Sequence[Sequence[Place]]
) -> list[bool]:
    """Say whether the answer comes first without each group of neurons."""
    found = remove(model, one, means, groups).argmax(-1)
    return [token == one.answer for token in found.tolist()]


@torch.no_grad()
def is_negative(model: GPT2LMHeadModel, one: Asked, place: Place) -> bool:
    """Say whether a neuron acts with a negative activation."""
    seen: dict[int, Tensor] = {}
    run(model, torch.tensor([one.ids]), edit=seen.setdefault)
    return bool(seen[place.layer][0, place.position, place.neuron] < 0)
