"""A prompt run again with changes, from any layer and position on, and the answer read at its end.

A change at position p leaves earlier positions as they were, so a variant is only its stream at positions
p, p+1, …; keys and values before p are kept from the clean run, one copy for all variants. Where p is the
last position, a variant is a single vector and the work is matrix products alone. A layer is computed by
`ffnprobe.models.step`, on the weights as they are on disk. At the end are read:

    logit            u_t · x̂_final + d_t, with `versus` v: u_t − u_v and d_t − d_v
    log-probability  logit − log Σ_t′ exp(logit_t′), over the whole vocabulary; with `versus` none

Of an answer of several tokens each is read at the position that predicts it, and both are summed.

Convention `centred` (the default, as for pushes) reads the logit above the vocabulary's mean: there,
as with `versus` and in the log-probability, a change that moves all logits alike counts for nothing.
Convention `folded` reads the model's own logit, where it counts. Where a model caps its
logits, the logit is that before the cap, as a push is; the log-probability is the model's own.

Limits: exact in real arithmetic; in fp32 a logit differs from the model's own by about 1e-5. The
arithmetic is done in the trace's dtype: a trace in float64 is replayed in float64.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> replay = Replay(trace)
>>> final = replay.finish(replay.entering(2, start=3)[None], layer=2, start=3)
>>> bool((final[0] - trace.final[3:]).abs().max() < 1e-3)
True
>>> chance = read_answer(trace, " basketball").values(final, start=3).log_probability.exp()
>>> bool((chance - trace.predictions(1).probability.item()).abs() < 1e-3)
True
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ffnprobe.errors import AccountNotClosed
from ffnprobe.models.model import Model
from ffnprobe.models.step import (
    Past,
    Stream,
    add_up,
    cap,
    finish_write,
    keep_past,
    normalise,
    step,
    write,
)
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.tracing.attribution import Question
from ffnprobe.tracing.trace import Trace

# Given a layer and the activations of its neurons, return the activations to continue with.
Edit = Callable[[int, Float[Tensor, "variant pos neuron"]], Float[Tensor, "variant pos neuron"]]

# So many logits at a time, whatever the vocabulary: 32 MB in fp32.
LOGITS_AT_ONCE = 2**23
CLOSED_WITHIN = 1e-3
# In nats, as multiples of the dtype's epsilon: 4e-6 in fp32, as a sum over a vocabulary may be off.
SHIFT_WITHIN = 32
HEAVIEST = 512
TOKENS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Replay:
    """A prompt's clean run, ready to be run again from any layer and position with changes."""

    trace: Trace

    @property
    def model(self) -> Model:
        return self.trace.model

    def held(self, tensor: Tensor) -> Tensor:
        """Bring a tensor to the model's device, in the trace's dtype."""
        return tensor.to(device=self.model.device, dtype=self.trace.final.dtype)

    def entering(self, layer: int, *, start: int) -> Float[Tensor, "pos d_model"]:
        """Return the clean stream that enters a layer (or, past the last, the final LayerNorm)."""
        is_past = layer == self.model.config.layers
        stream = self.trace.final if is_past else self.trace.before_attention[layer]
        return self.held(stream[start:])

    def moved(
        self, layer: int, positions: Sequence[int], shifts: Float[Tensor, "variant pos d_model"]
    ) -> Float[Tensor, "variant pos d_model"]:
        """Return how far shifts of what a layer's answers add up to move the stream at positions."""
        if not self.model.config.has_post_norms:
            return shifts
        activations = self.held(self.trace.activations[layer, list(positions)])
        total = add_up(self.model, layer, activations)[None]
        written = finish_write(self.model, layer, torch.cat([total, total + shifts]))
        return written[1:] - written[:1]

    def replaced(
        self, layer: int, values: Float[Tensor, "pos neuron"]
    ) -> Float[Tensor, "pos d_model"]:
        """Return how far other activations of all a layer's neurons move the stream, from position 0 on."""
        activations = self.held(self.trace.activations[layer, : len(values)])
        values = self.held(values)
        if self.model.config.has_post_norms:
            # Not by a shift: what is left of a sum that cancels would be blown up by the norm.
            return write(self.model, layer, values) - write(self.model, layer, activations)
        rows = self.held(self.model.rows[layer])
        return einsum(values - activations, rows, "pos neuron, neuron d_model -> pos d_model")

    @cached_property
    def _at(self) -> Tensor:
        return torch.arange(len(self.trace), device=self.model.device)[None]

    @cached_property
    def _clean(self) -> tuple[Past, ...]:
        """Every layer's keys and values on the clean prompt, one copy."""
        pasts = (
            keep_past(self.model, layer, self.entering(layer, start=0)[None], self._at)
            for layer in range(self.model.config.layers)
        )
        return tuple(Past(past.keys[0], past.values[0], past.at) for past in pasts)

    def finish(
        self, stream: Stream, *, layer: int, start: int, edit: Edit | None = None
    ) -> Float[Tensor, "variant pos d_model"]:
        """Take streams that enter `layer` at position `start` through to the final norm."""
        for number in range(layer, self.model.config.layers):
            edits = None if edit is None else [edit]
            (stream,) = advance([self], [stream], [start], layer=number, edits=edits)
        return stream

    def past(self, layer: int, start: int) -> Past | None:
        """Return a layer's keys and values before a position."""
        if not start:
            return None
        clean = self._clean[layer]
        return Past(clean.keys[:, :start], clean.values[:, :start], clean.at[:, :start])


def advance(
    replays: Sequence[Replay],
    streams: Sequence[Stream],
    starts: Sequence[int],
    *,
    layer: int,
    edits: Sequence[Edit] | None = None,
    firsts: Sequence[int] | None = None,
) -> list[Stream]:
    """Take streams, each of a prompt and from a position on, through one layer, their products in common.

    Positions before `firsts` are dropped once heads have looked at them: for the last layer, of which
    nothing else is read. There is an edit for each of the streams, or none.
    """
    each = list(zip(replays, starts, strict=True))
    return step(
        replays[0].model, layer, streams, [replay._at[:, start:] for replay, start in each],
        past=[replay.past(layer, start) for replay, start in each],
        hooks=None if edits is None else [{"activations": partial(e, layer)} for e in edits],
        drop=None if firsts is None else [max(0, f - start) for f, start in zip(firsts, starts, strict=True)],
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The log of the sum over the vocabulary for many states near one, without all their logits.

    At a state x with softmax p the sum changes, when the state moves by δ, by the factor

        Σ_heavy p_t exp(u_t·δ)  +  ε · E exp(u_t·δ)        ε and E: the mass and the mean of all other tokens

    The few heaviest tokens are taken exactly. For the others let ū be their mean row under p, C their
    covariance, V = δᵀ C δ and h = max ‖u_t − ū‖ · ‖δ‖. Then

        log E exp(u_t·δ) = ū·δ + V / 2 + R,    |R| ≤ (h + V eʰ) V eʰ / 6

    R is a third derivative of this cumulant generating function somewhere along δ, a third central moment.
    There no deviation exceeds h + V eʰ and no variance V eʰ, since X = (u_t − ū)·δ has |X| ≤ h and
    E exp(sX) ≥ 1. Of R the log of the sum has the share that the other tokens have in the sum.

    To read ū and C costs as much as d_model states do by their logits; each state after that costs next to
    nothing. Most neurons of a model move the final state so little that the error is below the rounding of
    fp32. What is not proven to be is read by its logits.
    """

    heavy: Float[Tensor, "token d_model"]
    weights: Float[Tensor, " token"]
    rest: float
    mean: Float[Tensor, " d_model"]
    covariance: Float[Tensor, "d_model d_model"]
    farthest: float

    @classmethod
    def of(
        cls, unembedding: Float[Tensor, "vocab d_model"], logits: Float[Tensor, " vocab"]
    ) -> "Surroundings":
        """Read them a few tokens at a time."""
        weights = torch.softmax(logits.double(), dim=-1)
        order = weights.argsort(descending=True, stable=True)
        heavy, others = order[:HEAVIEST], order[HEAVIEST:]
        rest = float(weights[others].sum())

        mean = torch.zeros_like(unembedding[0], dtype=torch.double)
        for ids in torch.split(others, TOKENS_AT_ONCE):
            mean += (weights[ids] / rest) @ unembedding[ids].double()
        covariance, farthest = torch.zeros_like(mean).diag(), 0.0
        for ids in torch.split(others, TOKENS_AT_ONCE):
            away = unembedding[ids] - mean.to(unembedding)
            farthest = max([farthest, *torch.linalg.vector_norm(away, dim=-1).tolist()])
            away *= (weights[ids] / rest).sqrt().to(away)[:, None]
            covariance += away.T @ away
        return cls(
            unembedding[heavy], weights[heavy], rest, mean, covariance.to(unembedding), farthest
        )

    def follow(
        self, moves: Float[Tensor, "variant d_model"]
    ) -> tuple[Float[Tensor, " variant"], Float[Tensor, " variant"]]:
        """Return how far each move changes the log of the sum, and what that is off by at most."""
        products = einsum(moves, self.heavy, "variant d_model, token d_model -> variant token")
        exact = products.double().exp() @ self.weights
        spread = einsum(moves, self.covariance, "variant d_model, d_model other -> variant other")
        variance = reduce(spread.double() * moves, "variant d_model -> variant", "sum")
        reach = self.farthest * torch.linalg.vector_norm(moves, dim=-1).double()
        grown = variance * reach.exp()
        error = (reach + grown) * grown / 6
        others = self.rest * (moves.double() @ self.mean + variance / 2).exp()
        most = others * error.exp()
        return (exact + others).log(), error / (1 + exact / most)


class AnswerValues(NamedTuple):
    """The answer as each variant gives it, in logits and in nats (None: not asked for)."""

    logit: Float[Tensor, " variant"]
    log_probability: Float[Tensor, " variant"] | None

    def lay_out(self, arrange: Callable[[Tensor], Tensor]) -> "AnswerValues":
        """Arrange both alike."""
        logs = self.log_probability
        return AnswerValues(arrange(self.logit), None if logs is None else arrange(logs))


@dataclass(frozen=True, eq=False)
class Readout:
    """Which tokens are read, and where: `tokens[i]` is predicted at position `first + i`."""

    replay: Replay
    tokens: tuple[int, ...]
    versus: int | None
    first: int
    has_log_probability: bool
    convention: str = "centred"

    @cached_property
    def _reader(self) -> tuple[Float[Tensor, "piece d_model"], float]:
        """The directions along which the pieces are read, and what is added."""
        model, tokens = self.replay.model, list(self.tokens)
        rows, biases = model.unembedding[tokens], model.unembedding_bias[tokens]
        if self.versus is not None:
            rows = rows - model.unembedding[self.versus]
            biases = biases - model.unembedding_bias[self.versus]
        elif self.convention != "folded":
            mean_row, mean_bias = model.mean_logit
            rows, biases = rows.double() - mean_row, biases.double() - mean_bias
        return self.replay.held(rows), float(biases.sum())

    @property
    def _head(self) -> tuple[Float[Tensor, "vocab d_model"], Float[Tensor, " vocab"]]:
        model, held = self.replay.model, self.replay.held
        return held(model.unembedding), held(model.unembedding_bias)

    def _normalised(self, final: Stream, start: int) -> Float[Tensor, "variant piece d_model"]:
        """Normalise the final streams, which begin at `start`, where the answer's tokens are read."""
        read = slice(self.first - start, self.first - start + len(self.tokens))
        return normalise(self.replay.model, final[:, read])

    def values(self, final: Stream, *, start: int) -> AnswerValues:
        """Read the answer off final streams, which begin at `start`."""
        states = self._normalised(final, start)
        # Not einsum: its rounding depends on where in the batch a row stands.
        directions, bias = self._reader
        products = states.double() * directions.double()
        logit = reduce(products, "variant piece d_model -> variant", "sum") + bias
        if not self.has_log_probability:
            return AnswerValues(logit.cpu(), None)
        pieces = rearrange(states, "variant piece d_model -> piece variant d_model")
        logs = torch.stack([self._follow(near, piece) for piece, near in enumerate(pieces)])
        return AnswerValues(logit.cpu(), reduce(logs, "piece variant -> variant", "sum").cpu())

    def _follow(
        self, states: Float[Tensor, "variant d_model"], piece: int
    ) -> Float[Tensor, " variant"]:
        """Return a piece's log-probability; of many variants only those far from the first by all logits."""
        model, token = self.replay.model, self.tokens[piece]
        if len(states) <= model.config.d_model or model.config.logit_cap is not None:
            return self._log_probabilities(states, token)
        unembedding, bias = self._head
        if piece not in self._around:
            logits = functional.linear(states[0], unembedding, bias)
            self._around[piece] = states[0], Surroundings.of(unembedding, logits)
        center, surroundings = self._around[piece]
        moves = states - center
        shifts, errors = surroundings.follow(moves)
        # Each is told from the first, so both errors count.
        is_far = ~(errors + errors[0] <= SHIFT_WITHIN * torch.finfo(states.dtype).eps)
        is_far[0] = True
        logs = torch.empty_like(shifts)
        logs[is_far] = self._log_probabilities(states[is_far], token).to(logs)
        gains = moves.double() @ unembedding[token].double() - shifts
        logs[~is_far] = logs[0] + (gains - gains[0])[~is_far]
        return logs

    @cached_property
    def _around(self) -> dict[int, tuple[Float[Tensor, " d_model"], Surroundings]]:
        """For each piece the first state that many variants were compared with, and what is around it."""
        return {}

    def _log_probabilities(
        self, states: Float[Tensor, "variant d_model"], token: int
    ) -> Float[Tensor, " variant"]:
        """Return a token's log-probability, a few variants at a time."""
        model, head, logs = self.replay.model, self._head, []
        for part in torch.split(states, max(1, LOGITS_AT_ONCE // model.config.vocab)):
            # One fused step: this product is the bulk of the work where the vocabulary is large.
            logits = cap(model, functional.linear(part, *head))
            tokens = torch.full((len(part),), token, device=part.device)
            logs.append(-functional.cross_entropy(logits, tokens, reduction="none"))
        return torch.cat(logs)

    def logits(self, final: Stream, *, start: int) -> Float[Tensor, "variant piece vocab"]:
        """Return all the logits that the answer's tokens are read from, of streams that begin at `start`."""
        logits = functional.linear(self._normalised(final, start), *self._head)
        return cap(self.replay.model, logits)

    def clean(self) -> AnswerValues:
        """Read the answer off the clean prompt, or raise if our replay is not the model's own run."""
        replay = self.replay
        return self.check(replay.finish(replay.entering(0, start=0)[None], layer=0, start=0))

    def check(self, final: Stream) -> AnswerValues:
        """Read the answer off a replay of the clean prompt, or raise if it is not the model's own run."""
        replay, model, many = self.replay, self.replay.model, len(self.tokens)
        states = self._normalised(final, start=0)[0]
        tokens = [*self.tokens, *([] if self.versus is None else [self.versus])]
        pattern = "pos d_model, token d_model -> pos token"
        logits = einsum(states, replay.held(model.unembedding[tokens]), pattern)
        ours = cap(model, logits + replay.held(model.unembedding_bias[tokens])).cpu()
        theirs = replay.trace.logits[self.first : self.first + many, tokens]
        worst = (ours - theirs).abs().argmax()
        one, other = float(ours.take(worst)), float(theirs.take(worst))
        if not abs(one - other) <= CLOSED_WITHIN * max(1.0, abs(other)):
            raise AccountNotClosed(
                f"our replay gives the answer {one:.6f}; the model {other:.6f}.",
                remedy="report the model's config.json; pushes (attribute) do not need the replay",
            )
        return self.values(final, start=0)

    def provenance(
        self, trace: Trace, *, settings: Mapping[str, Setting], positions: Sequence[int] = ()
    ) -> Provenance:
        """Say what was read and what was changed, on the prompt the user gave."""
        show = trace.model.vocab.show_all
        where: dict[str, Setting] = {"positions": list(positions)} if len(positions) > 1 else {}
        if where and len(self.tokens) > 1:
            # The pieces of a long answer are read at positions of their own, where nothing is changed.
            where["positions_of"] = "the prompt, not the answer"
        return trace.provenance_at(
            positions[0] if len(positions) == 1 else None,
            convention=self.convention,
            answer=" ".join(show(self.tokens)),
            versus=None if self.versus is None else show([self.versus])[0],
            settings={**settings, **where},
        )


def read_answer(
    trace: Trace,
    answer: str | int,
    *,
    versus: str | int | None = None,
    log_probability: bool = True,
    convention: str = "centred",
) -> Readout:
    """Prepare to read an answer (a text or a token id), alone or against another token's logit."""
    question = Question(trace, answer, versus, convention, len(trace) - 1)
    return read_question(question, log_probability=log_probability)


def read_question(question: Question, *, log_probability: bool) -> Readout:
    """Prepare to read a question's answer; against a rival it has no log-probability."""
    replay, has_one = Replay(question.forced), log_probability and question.rival is None
    return Readout(
        replay, question.tokens, question.rival, question.position, has_one, question.convention
    )
