"""Run a batch of facts at once: how the model ranks each answer, and which neurons pushed it.

    push of neuron n toward the answer = Σ over its pieces t:  a_n (w_n · (u_t − mean u)) / s

as in `attribute` (convention `centred`), each piece read at its own position. For every piece all
parts are added up and must give the model's own logit; if they do not, it is an error.

Of a batch only the neurons and heads at the positions that predict a piece are kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import FfnProbeError
from ffnprobe.facts.rows import FactRow, Problem
from ffnprobe.models.forward import forward, watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import Hook, cap, measure_scale, normalise, unembed, write_heads
from ffnprobe.reading.projection import top_tokens
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.runs import prompt_ids
from ffnprobe.tracing.trace import answer_ids, rank_of

# MERGED: ffnprobe.facts.batches
# Facts as token ids, in batches of one length: nothing is padded.
#
# An answer of several tokens is teacher-forced: all its pieces but the last follow the prompt, and
# each is read at the position before it.


# About 100 MB of GPT-2 small's logits; more at once is not faster.
TOKENS_AT_ONCE = 512


@dataclass(frozen=True)
class FactIds:
    """One fact, ready to run: piece i of its answer is read at position `first + i`."""

    row: FactRow
    ids: tuple[int, ...]
    pieces: tuple[int, ...]

    @property
    def first(self) -> int:
        """The prompt's last position, where the answer begins."""
        return len(self.ids) - len(self.pieces)


def prepare(
    model: Model, rows: Sequence[FactRow], *, bos: bool
) -> tuple[list[FactIds], list[Problem]]:
    """Turn rows into token ids; a row this model cannot run is a problem."""
    facts: list[FactIds] = []
    problems: list[Problem] = []
    for row in rows:
        try:
            prompt = prompt_ids(model, row.prompt, bos=bos)
            pieces = answer_ids(model, row.answer)
        except FfnProbeError as error:
            problems.append(Problem(row.where, error.what))
            continue
        ids = (*prompt, *pieces[:-1])
        if len(ids) > model.config.positions:
            problems.append(
                Problem(
                    row.where,
                    f"the prompt is {len(prompt)} tokens and the answer {len(pieces)}; "
                    f"{model.name} has {model.config.positions} positions.",
                )
            )
            continue
        facts.append(FactIds(row, ids, pieces))
    return facts, problems


def plan(facts: Sequence[FactIds], *, most: int) -> list[list[int]]:
    """Split facts, by number, into batches of one length, with at most so many in each."""
    by_length: dict[int, list[int]] = {}
    for number, fact in enumerate(facts):
        by_length.setdefault(len(fact.ids), []).append(number)
    batches = []
    for length, numbers in sorted(by_length.items()):
        size = max(1, min(most, TOKENS_AT_ONCE // length))
        batches += [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return batches


@dataclass(frozen=True)
class Reads:
    """Where each piece of each answer of a batch is read: one entry per piece."""

    ids: Int[Tensor, "batch pos"]
    owners: list[int]
    positions: list[int]
    tokens: list[int]

    @classmethod
    def of(cls, facts: Sequence[FactIds]) -> "Reads":
        """List the pieces of all facts in order."""
        listed = [
            (owner, fact.first + order, token)
            for owner, fact in enumerate(facts)
            for order, token in enumerate(fact.pieces)
        ]
        owners, positions, tokens = (list(column) for column in zip(*listed, strict=True))
        return cls(torch.tensor([q.ids for q in facts]), owners, positions, tokens)

    def add_up(self, values: Float[Tensor, "piece ..."]) -> Float[Tensor, "batch ..."]:
        """Sum over the pieces of each answer."""
        total = torch.zeros(len(self.ids), *values.shape[1:], dtype=values.dtype)
        return total.index_add_(0, torch.tensor(self.owners), values.cpu())


@dataclass(frozen=True, eq=False)
class Outcomes:
    """How likely each answer is: its worst piece's rank; logs and logits summed over pieces.

    `above_mean` is the logit above the vocabulary's mean, as pushes count it.
    """

    ranks: Int[Tensor, " batch"]
    log_probabilities: Float[Tensor, " batch"]
    logits: Float[Tensor, " batch"]
    above_mean: Float[Tensor, " batch"]

    @classmethod
    def read(cls, logits: Float[Tensor, "piece vocab"], reads: Reads) -> "Outcomes":
        """Read the figures off the logits of every piece."""
        pieces = range(len(logits))
        logs = torch.log_softmax(logits.double(), dim=-1)[pieces, reads.tokens]
        own, means = logits[pieces, reads.tokens].double(), logits.double().mean(-1)
        ranks = torch.stack(
            [rank_of(row, token) for row, token in zip(logits, reads.tokens, strict=True)]
        )
        owners = torch.tensor(reads.owners)
        worst = torch.zeros(len(reads.ids), dtype=ranks.dtype)
        return cls(
            worst.scatter_reduce(0, owners, ranks.cpu(), "amax", include_self=False),
            reads.add_up(logs),
            reads.add_up(own),
            reads.add_up(own - means),
        )

    @classmethod
    def join(cls, parts: Sequence["Outcomes"]) -> "Outcomes":
        """Put batches one after the other."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))


@dataclass(frozen=True, eq=False)
class Recall:
    """A batch of facts: the figures of each, and the k neurons (by flat number) that pushed it most."""

    outcomes: Outcomes
    mlp: Float[Tensor, " batch"]
    attention: Float[Tensor, " batch"]
    openings: Float[Tensor, "batch vocab"]
    neurons: Int[Tensor, "batch k"]
    pushes: Float[Tensor, "batch k"]


@torch.no_grad()
def recall(model: Model, facts: Sequence[FactIds], *, k: int) -> Recall:
    """Run facts of one length together; `openings` are the logits where each answer begins."""
    reads = Reads.of(facts)
    activations: list[Tensor] = []
    mixes: list[Tensor] = []
    finals: list[Tensor] = []
    totals: list[Tensor] = []
    layers = range(model.config.layers)
    taps = {("activations", layer): _keep(reads, activations) for layer in layers}
    taps |= {("mixes", layer): _keep(reads, mixes) for layer in layers}
    if model.config.has_post_norms:
        taps |= {("mlp_totals", layer): _keep(reads, totals) for layer in layers}
    logits = run_batch(model, reads, taps | {("final", 0): _keep(reads, finals)})
    own = logits[range(len(logits)), reads.tokens]
    scales = measure_scale(model, finals[0])[:, None]
    along = (model.unembedding[reads.tokens] - model.mean_unembedding) / scales
    pushes = einsum(
        model.answers, along, "layer neuron d_model, piece d_model -> piece layer neuron"
    )
    pushes *= rearrange(activations, "layer piece neuron -> piece layer neuron")
    if totals:
        post = measure_scale(model, torch.stack(totals))
        pushes /= rearrange(post, "layer piece -> piece layer 1")
    last = reads.ids[reads.owners, reads.positions].to(model.device)
    written = [write_heads(model, layer, mix) for layer, mix in enumerate(mixes)]
    biases = reduce(model.answer_biases, "layer d_model -> d_model", "sum")
    mlp = reduce(pushes.double(), "piece layer neuron -> piece", "sum") + (along @ biases)
    attention = _read(torch.stack(written).sum(0), along)
    embedded = model.embedding[last]
    if model.position_embedding is not None:
        embedded = embedded + model.position_embedding[reads.positions]
    means = _mean_logits(model, logits, finals[0])
    constant = model.unembedding_bias[reads.tokens] - model.unembedding_bias.mean()
    sums = cap(model, mlp + attention + _read(embedded, along) + constant + means)
    for total, measured, token in zip(sums.tolist(), own.tolist(), reads.tokens, strict=True):
        check_closed(total, measured, named=f"the logit of {model.vocab.show(token)}")
    summed = rearrange(reads.add_up(pushes), "batch layer neuron -> batch (layer neuron)")
    strongest, numbers = top_tokens(summed, k)
    begins = [reads.owners.index(owner) for owner in range(len(facts))]
    return Recall(
        outcomes=Outcomes.read(logits, reads),
        mlp=reads.add_up(mlp),
        attention=reads.add_up(attention.double()),
        openings=logits[begins].cpu(),
        neurons=numbers,
        pushes=strongest,
    )  # fmt: skip


def run_batch(
    model: Model, reads: Reads, taps: Mapping[tuple[str, int], Hook]
) -> Float[Tensor, "piece vocab"]:
    """Run a batch once and return the logits where each piece is predicted."""
    return forward(model, reads.ids, taps)[reads.owners, reads.positions]


def _mean_logits(
    model: Model, logits: Float[Tensor, "piece vocab"], final: Float[Tensor, "piece d_model"]
) -> Float[Tensor, " piece"]:
    """Return the mean of all logits of each piece, before the cap if there is one."""
    if model.config.logit_cap is None:
        return logits.double().mean(-1)
    seen = normalise(model, final)
    return (seen @ model.mean_unembedding + model.unembedding_bias.mean()).double()


def _keep(reads: Reads, kept: list[Tensor]) -> Hook:
    """Keep what a hook sees where pieces are read, and nothing else of it."""

    def tap(tensor: Tensor) -> None:
        kept.append(tensor[reads.owners, reads.positions])

    return tap


def _read(
    stream: Float[Tensor, "piece d_model"], along: Float[Tensor, "piece d_model"]
) -> Float[Tensor, " piece"]:
    return einsum(stream, along, "piece d_model, piece d_model -> piece")


# MERGED: ffnprobe.editing.outcomes
# Ask a model many prompts: each answer's rank and log-probability, and what it says instead.
#
# The figures are those of `score` (an answer of several tokens is teacher-forced), without the neurons
# behind them: the logits are made where an answer is read and nowhere else.


PROMPTS_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class Replies:
    """What a model makes of each prompt: the answer's rank, its log-probability, and the first choice."""

    ranks: Int[Tensor, " prompt"]
    log_probabilities: Float[Tensor, " prompt"]
    said: Int[Tensor, " prompt"]


@torch.no_grad()
def ask(model: Model, facts: Sequence[FactIds]) -> Replies:
    """Run facts of one length together and read every answer."""
    ranks = torch.zeros(len(facts), dtype=torch.long)
    logs = torch.zeros(len(facts), dtype=torch.float64)
    said = torch.zeros(len(facts), dtype=torch.long)
    for numbers in plan(facts, most=PROMPTS_AT_ONCE):
        reads = Reads.of([facts[number] for number in numbers])
        logits = read_logits(model, reads.ids, reads.owners, reads.positions)
        found = Outcomes.read(logits, reads)
        ranks[numbers], logs[numbers] = found.ranks, found.log_probabilities
        begins = [reads.owners.index(owner) for owner in range(len(numbers))]
        said[numbers] = logits[begins].argmax(dim=-1).cpu()
    return Replies(ranks, logs, said)


@torch.no_grad()
def weigh(
    model: Model, ones: Sequence[FactIds], others: Sequence[FactIds]
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """Return the log-probabilities of two answers to each prompt; answers of one token share a run."""
    if any(len(one.pieces) > 1 or len(other.pieces) > 1 for one, other in zip(ones, others, strict=True)):  # fmt: skip
        return ask(model, ones).log_probabilities, ask(model, others).log_probabilities
    found = torch.zeros(2, len(ones), dtype=torch.float64)
    for numbers in plan(ones, most=PROMPTS_AT_ONCE):
        ids = torch.tensor([ones[number].ids for number in numbers])
        rows = list(range(len(numbers)))
        logits = read_logits(model, ids, rows, [ids.shape[1] - 1] * len(rows))
        logs = logits.double().log_softmax(-1).cpu()
        for side, facts in enumerate((ones, others)):
            found[side, numbers] = logs[rows, [facts[number].pieces[0] for number in numbers]]
    return found[0], found[1]


def read_logits(
    model: Model, ids: Int[Tensor, "batch pos"], owners: Sequence[int], positions: Sequence[int]
) -> Float[Tensor, "read vocab"]:
    """Run token ids and make the logits of some positions alone."""
    found: list[Tensor] = []

    def keep(stream: Tensor) -> None:
        found.append(stream[list(owners), list(positions)])

    watch(model, ids, {("final", 0): keep})
    return unembed(model, normalise(model, found[0]))
