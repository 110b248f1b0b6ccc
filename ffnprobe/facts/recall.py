"""Run facts in batches: how the model ranks each answer, and which neurons pushed it.

A batch is of one length: nothing is padded. An answer of several tokens is teacher-forced: all its pieces
but the last follow the prompt, and each is read at the position before it.

    push of neuron n toward the answer = Σ over its pieces t:  a_n (w_n · (u_t − mean u)) / s

as in `attribute` (convention `centred`), each piece read at its own position. For every piece all
parts are added up and must give the model's own logit; if they do not, it is an error.

`recall` measures the pushes. `ask` and `weigh` read answers alone, with no logits made elsewhere.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.corpora.passages import batch_lengths
from ffnprobe.errors import FfnProbeError, PromptRefused
from ffnprobe.facts.rows import FactRow, Problem
from ffnprobe.models.forward import forward, watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import cap, measure_scale, normalise, unembed, write_heads
from ffnprobe.reading.projection import top_tokens
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.runs import prompt_ids
from ffnprobe.tracing.trace import answer_ids, rank_of

# About 100 MB of GPT-2 small's logits; more at once is not faster.
TOKENS_AT_ONCE = 512
# Where the logits of one position alone are made.
PROMPTS_AT_ONCE = 128


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
            ids = (*prompt, *pieces[:-1])
            if len(ids) > model.config.positions:
                raise PromptRefused(
                    f"the prompt is {len(prompt)} tokens and the answer {len(pieces)}; "
                    f"{model.name} has {model.config.positions} positions."
                )
            facts.append(FactIds(row, ids, pieces))
        except FfnProbeError as error:
            problems.append(Problem(row.where, error.what))
    return facts, problems


def plan(facts: Sequence[FactIds], *, most: int) -> list[list[int]]:
    """Split facts, by number, into batches of one length, with at most so many in each."""
    return batch_lengths([len(fact.ids) for fact in facts], tokens=TOKENS_AT_ONCE, most=most)


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
        return cls(torch.tensor([fact.ids for fact in facts]), owners, positions, tokens)

    @property
    def begins(self) -> list[int]:
        """The entry at which each answer begins."""
        return [self.owners.index(owner) for owner in range(len(self.ids))]

    def pick(self, values: Float[Tensor, "batch pos ..."]) -> Float[Tensor, "piece ..."]:
        """Take what stands where the pieces are read."""
        return values[self.owners, self.positions]

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
        pairs = zip(logits, reads.tokens, strict=True)
        ranks = torch.stack([rank_of(row, token) for row, token in pairs]).cpu()
        worst = torch.zeros(len(reads.ids), dtype=ranks.dtype)
        owners = torch.tensor(reads.owners)
        return cls(
            worst.scatter_reduce(0, owners, ranks, "amax", include_self=False),
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
    """A batch of facts: the figures of each, and the k neurons (by flat number) that pushed it most.

    `openings` are the logits where each answer begins.
    """

    outcomes: Outcomes
    mlp: Float[Tensor, " batch"]
    attention: Float[Tensor, " batch"]
    openings: Float[Tensor, "batch vocab"]
    neurons: Int[Tensor, "batch k"]
    pushes: Float[Tensor, "batch k"]


@torch.no_grad()
def recall(model: Model, facts: Sequence[FactIds], *, k: int) -> Recall:
    """Run facts of one length together; of a batch only what is where a piece is read is kept."""
    reads = Reads.of(facts)
    kept = defaultdict[str, list[Tensor]](list)

    def keep(name: str, tensor: Tensor) -> None:
        kept[name].append(reads.pick(tensor))

    names = ["activations", "z"] + ["mlp_totals"] * model.config.has_post_norms
    layers = range(model.config.layers)
    hooks = {(name, layer): partial(keep, name) for name in names for layer in layers}
    logits = reads.pick(forward(model, reads.ids, hooks | {("final", 0): partial(keep, "final")}))
    (final,) = kept["final"]
    along = model.unembedding[reads.tokens] - model.mean_unembedding
    along = along / measure_scale(model, final)[:, None]
    pushes = einsum(
        model.answers, along, "layer neuron d_model, piece d_model -> piece layer neuron"
    )
    pushes *= rearrange(kept["activations"], "layer piece neuron -> piece layer neuron")
    if model.config.has_post_norms:
        post = measure_scale(model, torch.stack(kept["mlp_totals"]))
        pushes /= rearrange(post, "layer piece -> piece layer 1")
    biases = reduce(model.answer_biases, "layer d_model -> d_model", "sum")
    mlp = reduce(pushes.double(), "piece layer neuron -> piece", "sum") + (along @ biases)
    written = [write_heads(model, layer, z) for layer, z in enumerate(kept["z"])]
    onto = "piece d_model, piece d_model -> piece"
    attention = einsum(torch.stack(written).sum(0), along, onto)
    embedded = model.embedding[reads.ids[reads.owners, reads.positions].to(model.device)]
    if model.position_embedding is not None:
        embedded = embedded + model.position_embedding[reads.positions]
    constant = model.unembedding_bias[reads.tokens] - model.unembedding_bias.mean()
    if model.config.logit_cap is None:
        means = logits.double().mean(-1)
    else:  # before the cap
        seen = normalise(model, final)
        means = (seen @ model.mean_unembedding + model.unembedding_bias.mean()).double()
    sums = cap(model, mlp + attention + einsum(embedded, along, onto) + constant + means)
    own = logits[range(len(logits)), reads.tokens]
    for total, measured, token in zip(sums.tolist(), own.tolist(), reads.tokens, strict=True):
        check_closed(total, measured, named=f"the logit of {model.vocab.show(token)}")
    summed = rearrange(reads.add_up(pushes), "batch layer neuron -> batch (layer neuron)")
    strongest, numbers = top_tokens(summed, k)
    return Recall(
        outcomes=Outcomes.read(logits, reads),
        mlp=reads.add_up(mlp),
        attention=reads.add_up(attention.double()),
        openings=logits[reads.begins].cpu(),
        neurons=numbers,
        pushes=strongest,
    )


@dataclass(frozen=True, eq=False)
class Replies:
    """What a model makes of each prompt: the answer's rank, its log-probability, and the first choice."""

    ranks: Int[Tensor, " prompt"]
    log_probabilities: Float[Tensor, " prompt"]
    said: Int[Tensor, " prompt"]


@torch.no_grad()
def ask(model: Model, facts: Sequence[FactIds]) -> Replies:
    """Run facts of one length together and read every answer."""
    ranks, said = torch.zeros(2, len(facts), dtype=torch.long)
    logs = torch.zeros(len(facts), dtype=torch.float64)
    for numbers in plan(facts, most=PROMPTS_AT_ONCE):
        reads = Reads.of([facts[number] for number in numbers])
        logits = _read_logits(model, reads)
        outcomes = Outcomes.read(logits, reads)
        ranks[numbers], logs[numbers] = outcomes.ranks, outcomes.log_probabilities
        said[numbers] = logits[reads.begins].argmax(dim=-1).cpu()
    return Replies(ranks, logs, said)


@torch.no_grad()
def weigh(
    model: Model, ones: Sequence[FactIds], others: Sequence[FactIds]
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """Return the log-probabilities of two answers to each prompt; answers of one token share a run."""
    if any(len(fact.pieces) > 1 for fact in (*ones, *others)):
        return ask(model, ones).log_probabilities, ask(model, others).log_probabilities
    weighed = torch.zeros(2, len(ones), dtype=torch.float64)
    for numbers in plan(ones, most=PROMPTS_AT_ONCE):
        reads = Reads.of([ones[number] for number in numbers])
        logs = _read_logits(model, reads).double().log_softmax(-1).cpu()
        for side, facts in enumerate((ones, others)):
            tokens = [facts[number].pieces[0] for number in numbers]
            weighed[side, numbers] = logs[reads.owners, tokens]
    return weighed[0], weighed[1]


def _read_logits(model: Model, reads: Reads) -> Float[Tensor, "piece vocab"]:
    """Run token ids and make the logits of the pieces alone."""
    kept: list[Tensor] = []
    watch(model, reads.ids, {("final", 0): lambda stream: kept.append(reads.pick(stream))})
    return unembed(model, normalise(model, kept[0]))
