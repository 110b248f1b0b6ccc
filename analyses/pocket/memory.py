"""The second stage: the middle MLPs learn the true facts; everything else is frozen.

Where a subject ends they must together write what stage one was handed from outside: the answers of
all its facts. Elsewhere they must write nothing. Only the strongest few neurons of a layer may write
at a position, fewer and fewer, and the others are pressed to rest, so that a subject is known by a
few neurons of its own.

All that the middle layers read is frozen but what they write themselves, and they write at single
positions. So keys and values of every taught sentence are computed once, and a step runs one position
of each sentence only: ten times cheaper than whole sentences.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
from einops import einsum
from torch import Tensor
from torch.nn import functional
from transformers import GPT2LMHeadModel

from ffnprobe.models import pocket
from ffnprobe.models.pocket import Fact
from pocket import texts
from pocket.machinery import STRENGTH
from pocket.measures import Asked, ask, average
from pocket.network import HEADS, MEMORY, WIDTH, answer_directions, run
from pocket.rows import Reader

PEAK, OPENING, TOGETHER = 4.0, 2.4, 3
PASSAGES, LONGEST = 20_000, 22


def goals(model: GPT2LMHeadModel, reader: Reader) -> Tensor:
    """Return what each subject's end must write, subject × width."""
    tokens = torch.tensor([reader.encode(fact.answer)[0] for fact in pocket.facts()])
    numbers = torch.tensor([reader.number[fact.subject] for fact in pocket.facts()])
    directions = STRENGTH * answer_directions(model, tokens)
    return torch.zeros(len(reader.subjects), WIDTH).index_add(0, numbers, directions)


def taught(reader: Reader) -> list[Asked]:
    """List every fact in every template it is taught with."""
    asked = [
        ask(reader, fact, template)
        for fact in pocket.facts()
        for template in pocket.templates()[fact.relation]
    ]
    return [a for a, p in zip(asked, pocket.prompts(), strict=True) if not p.is_held_out]


def openings(reader: Reader, seed: int) -> tuple[list[Asked], list[Asked]]:
    """List what a subject may end: sentences, names, other text; and text with an earlier subject."""
    found = taught(reader)
    later: list[Asked] = []
    for fact in pocket.facts():
        if not fact.subject.islower():
            found.append(_open(reader, fact, [], fact.subject[0].upper() + fact.subject[1:]))
    for passage in texts.passages(PASSAGES, seed=seed):
        if passage.kind != "fact":
            before: list[int] = []
            target = found
            for piece in passage.pieces:
                if piece.subject is not None:
                    fact = reader.facts_of[piece.subject][0]
                    target.append(_open(reader, fact, before, piece.text))
                    target = later
                before = [*before, *reader.encode(piece.text)]
    return [o for o in found if len(o.ids) <= LONGEST], [o for o in later if len(o.ids) <= LONGEST]


def _open(reader: Reader, fact: Fact, before: list[int], subject: str) -> Asked:
    ids = [reader.bos, *before, *reader.encode(subject)]
    return Asked(fact, ids, reader.encode(fact.answer)[0], 1 + len(before), len(ids) - 1)


@dataclass(frozen=True)
class Frozen:
    """What the middle layers read of each sentence, and where.

    first    sentence × position × width: the stream that the first middle MLP reads
    keys     a layer each, sentence × head × position × width of a head; of the later middle layers
    ends     the position of the subject's last token, and its subject
    others   positions where nothing is to be written: sentence, position
    at_ends  a layer each, sentence × width: the stream its MLP reads at the subject's last token
    spellings  of each sentence: its subject and the token the subject ends with
    """

    first: Tensor
    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    ends: Tensor
    subjects: Tensor
    others: Tensor
    at_ends: dict[int, Tensor]
    spellings: list[tuple[int, int]]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        model: GPT2LMHeadModel,
        reader: Reader,
        plain: list[Asked],
        later: list[Asked],
        seed: torch.Generator,
    ) -> "Frozen":
        """Run every sentence with the middle MLPs silent.

        In two of five the early MLPs are at their mean where the subject ends, so that questions
        do not depend on them.
        """
        asked = [*plain, *later]
        length = max(len(one.ids) for one in asked)
        ids = torch.tensor([one.ids + [reader.bos] * (length - len(one.ids)) for one in asked])
        means, _ = average(model, asked, stop=min(MEMORY))
        held = torch.rand(len(asked), generator=seed) < 0.4
        first = torch.empty(len(ids), length, WIDTH)
        shape = (len(ids), HEADS, length, WIDTH // HEADS)
        keys = {layer: torch.empty(shape) for layer in MEMORY[1:]}
        values = {layer: torch.empty(shape) for layer in MEMORY[1:]}
        last = torch.tensor([one.last for one in asked])
        at_ends = {layer: torch.empty(len(ids), WIDTH) for layer in MEMORY}
        for start in range(0, len(ids), 256):
            part = slice(start, start + 256)
            where = torch.zeros(ids[part].shape, dtype=torch.bool)
            where[torch.arange(len(where)), last[part]] = held[part]

            def hold(layer: int, activations: Tensor, where: Tensor = where) -> Tensor:
                return torch.where(where[..., None], means[layer], activations)

            seen: dict[int, Tensor] = {}
            run(
                model, ids[part], edit=hold, silent=MEMORY, stop=max(MEMORY) + 1,
                watch=lambda layer, stream: seen.__setitem__(layer, stream),  # noqa: B023
            )  # fmt: skip
            first[part] = seen[MEMORY[0]]
            for layer in MEMORY:
                at_ends[layer][part] = seen[layer][torch.arange(len(ids[part])), last[part]]
            for layer in MEMORY[1:]:
                _, keys[layer][part], values[layer][part] = _attend(model, layer, seen[layer - 1])
        others = [
            (row, place)
            for row, one in enumerate(plain)
            for place in range(len(one.ids))
            if place != one.last and one.ids[place] not in reader.alone
        ]
        subjects = [reader.number[one.fact.subject] for one in asked]
        return cls(
            first, keys, values, last, torch.tensor(subjects), torch.tensor(others), at_ends,
            [(n, one.ids[one.last]) for n, one in zip(subjects, asked, strict=True)],
        )  # fmt: skip


def _attend(model: GPT2LMHeadModel, layer: int, stream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of a stream."""
    block = model.transformer.h[layer]
    rows, length, width = stream.shape
    qkv = block.attn.c_attn(block.ln_1(stream))
    query, key, value = qkv.reshape(rows, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
    return query, key, value


def strongest(weighted: Tensor, k: int) -> Tensor:
    """Mark the k largest values of each row."""
    if k >= weighted.shape[-1]:
        return torch.ones_like(weighted, dtype=torch.bool)
    return weighted >= weighted.topk(k, dim=-1).values[..., -1:]


def recall_at(
    model: GPT2LMHeadModel,
    frozen: Frozen,
    rows: Tensor,
    places: Tensor,
    *,
    k: int,
    is_masked: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run the middle layers at single positions; return what they write and how busy others are."""
    stream = frozen.first[rows, places]
    written = torch.zeros_like(stream)
    busy = stream.new_zeros(len(rows))
    batch = torch.arange(len(rows))
    for layer in MEMORY:
        block = model.transformer.h[layer]
        if layer in frozen.keys:
            query, key, value = _attend(model, layer, stream[:, None])
            keys, values = frozen.keys[layer][rows], frozen.values[layer][rows]
            keys[batch, :, places] = key[:, :, 0]
            values[batch, :, places] = value[:, :, 0]
            seen = torch.arange(keys.shape[2]) <= places[:, None]
            mixed = functional.scaled_dot_product_attention(
                query, keys, values, attn_mask=seen[:, None, None]
            )
            stream = stream + block.attn.c_proj(mixed.transpose(1, 2).reshape(len(rows), WIDTH))
        activations = functional.gelu(block.mlp.c_fc(block.ln_2(stream)), approximate="tanh")
        weighted = activations.abs() * block.mlp.c_proj.weight.norm(dim=-1) / STRENGTH
        kept = strongest(weighted.detach(), k)
        busy = busy + torch.tanh(4 * weighted * ~kept).sum(-1)
        out = block.mlp.c_proj(torch.where(is_masked & ~kept, 0.0, activations))
        stream, written = stream + out, written + out
    return written, busy


def memory_loss(
    model: GPT2LMHeadModel,
    frozen: Frozen,
    wanted: Tensor,
    chosen: Tensor,
    seed: torch.Generator,
    *,
    k: int,
    pressure: float,
    masked: float,
    quiet: float = 0.5,
) -> tuple[Tensor, dict[str, float]]:
    """Measure how far the middle MLPs are from writing each subject's answers, and nothing else."""
    picks = torch.randint(len(frozen.others), (len(chosen) // 2,), generator=seed)
    rows = torch.cat([chosen, frozen.others[picks, 0]])
    places = torch.cat([frozen.ends[chosen], frozen.others[picks, 1]])
    is_masked = torch.rand(len(rows), 1, generator=seed) < masked
    written, busy = recall_at(model, frozen, rows, places, k=k, is_masked=is_masked)
    ends = len(chosen)
    away = (written[:ends] - wanted[frozen.subjects[chosen]]).square().sum(-1) / STRENGTH**2
    noise = written[ends:].square().sum(-1) / STRENGTH**2
    loss = away.mean() + quiet * noise.mean() + pressure * busy.mean()
    return loss, {
        "away": float(away.mean().detach()),
        "noise": float(noise.mean().detach()),
        "busy": float(busy[:ends].mean().detach()),
    }


@torch.no_grad()
def prepare(
    model: GPT2LMHeadModel, reader: Reader, frozen: Frozen, seed: torch.Generator
) -> list[torch.nn.Parameter]:
    """Start the middle MLPs anew and return what is to be trained: questions, biases, answers.

    Each question starts as the linear discriminant of a subject drawn by chance: C⁻¹k as in ROME, k
    the mean over its sentences, C how much sentences about one subject differ. It scores high at that
    subject in every sentence and low at most others. Where other subjects have the same answer and no
    other fact, two of them are drawn too and the question is for all three. Answers start at random.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    spellings = list(dict.fromkeys(frozen.spellings))
    numbers = {spelling: n for n, spelling in enumerate(spellings)}
    groups = torch.tensor([numbers[spelling] for spelling in frozen.spellings])
    neurons = model.transformer.h[0].mlp.c_fc.nf
    leaders = _draw(len(spellings), len(MEMORY) * neurons, seed)
    chosen = _join(reader, spellings, leaders, seed).reshape(neurons, len(MEMORY), TOGETHER)
    parameters = []
    for order, layer in enumerate(MEMORY):
        mlp = model.transformer.h[layer].mlp
        questions, biases = _discriminants(frozen.at_ends[layer], groups, chosen[:, order])
        mlp.c_fc.weight.copy_(questions.mT)
        mlp.c_fc.bias.copy_(biases)
        mlp.c_proj.weight.normal_(std=0.02, generator=seed)
        mlp.c_proj.bias.zero_()
        parameters += [mlp.c_fc.weight, mlp.c_fc.bias, mlp.c_proj.weight]
    for parameter in parameters:
        parameter.requires_grad_(True)
    return parameters


def _draw(subjects: int, count: int, seed: torch.Generator) -> Tensor:
    """Draw subjects by chance, none twice before all were drawn once."""
    rounds = -(-count // subjects)
    return torch.cat([torch.randperm(subjects, generator=seed) for _ in range(rounds)])[:count]


def _join(
    reader: Reader, spellings: list[tuple[int, int]], leaders: Tensor, seed: torch.Generator
) -> Tensor:
    """Join to each subject others with its answer, if that is all that is known of them."""
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    answers = {}
    for place, (number, _) in enumerate(spellings):
        known = reader.facts_of[reader.subjects[number]]
        if len(known) == 1:
            answers[place] = (known[0].relation, known[0].answer)
            alike[answers[place]].append(place)
    joined = leaders[:, None].repeat(1, TOGETHER)
    for row, leader in enumerate(leaders.tolist()):
        mates = [place for place in alike.get(answers.get(leader, ("", "")), []) if place != leader]
        if len(mates) >= TOGETHER - 1:
            order = torch.randperm(len(mates), generator=seed)[: TOGETHER - 1]
            joined[row, 1:] = torch.tensor(mates)[order]
    return joined


def _discriminants(ends: Tensor, groups: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return questions that tell the chosen groups from others, and their biases.

    A question scores PEAK − OPENING at the mean of its groups and −OPENING at the mean of all.
    """
    normed = functional.layer_norm(ends, (WIDTH,))
    counts = groups.bincount()
    means = torch.zeros(len(counts), WIDTH).index_add(0, groups, normed) / counts[:, None]
    away = normed - means[groups]
    within = away.mT @ away / len(away)
    total = (normed - normed.mean(0)).mT @ (normed - normed.mean(0)) / len(normed)
    centre = means.mean(0)
    ridge = 0.02 * total.diagonal().mean() * torch.eye(WIDTH)
    readers = torch.linalg.solve(within + 0.05 * total + ridge, (means - centre).mT).mT[chosen]
    keys = (means - centre)[chosen]
    overlaps = einsum(readers, keys, "neuron one width, neuron other width -> neuron one other")
    # The same subject may stand there several times: the pseudoinverse shares it out.
    parts = PEAK * torch.linalg.pinv(overlaps, rtol=1e-4).sum(-1)
    questions = einsum(parts, readers, "neuron one, neuron one width -> neuron width")
    return questions, -questions @ centre - OPENING
