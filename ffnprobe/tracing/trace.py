"""What happened on one prompt: every residual, score and activation, as plain tensors on CPU.

Positions count from 0, BOS included (if it was prepended, it is position 0); negative positions
count from the end, so -1 is where the next token is predicted.

Memory: a trace of GPT-2 small holds about 0.6 MB a token, and 576 bytes for each pair of tokens
for the attention patterns (at 1,024 tokens 0.6 GB and 0.6 GB); `patterns=False` leaves these out.

Single neurons on a prompt: one at every position, or the most active at one position.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import TOP, Option, Position
from ffnprobe.documents.blocks import Block, Tokens
from ffnprobe.errors import OptionRefused, TokenNotFound
from ffnprobe.models.bridge import hooks_of
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise, unembed, write_heads
from ffnprobe.models.vocab import Vocab
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd


# MERGED: ffnprobe.tracing.answers
# Turn what a user calls an answer into token ids, never repaired.


def answer_ids(model: Model, answer: str | int) -> tuple[int, ...]:
    """Return the token ids of an answer: all pieces of a text, or the id given."""
    if isinstance(answer, str) and answer:
        return tuple(model.vocab.pieces(answer))
    return (one_token(model, answer, use="an answer"),)


def one_token(model: Model, token: str | int, *, use: str) -> int:
    """Return the id of a text that is one token, or an id if the vocabulary has it."""
    if isinstance(token, str):
        return model.vocab.one(token, use=use)
    if not 0 <= token < model.config.vocab:
        raise TokenNotFound(
            f"token id {token} does not exist: {model.name} has 0–{model.config.vocab - 1}."
        )
    return int(token)


def predicted(trace: "Trace", position: int = -1) -> int:
    """Return the id of the token the model says next; of equals, the first."""
    logits = trace.logits[trace.at(position)]
    return int((logits == logits.max()).nonzero()[0])


def describe_spelling(vocab: Vocab, answer: str) -> list[str]:
    """Say how an answer is split into tokens, and that the leading space may be missing."""
    said, pieces = [], vocab.pieces(answer)
    if len(pieces) > 1:
        shown = " ".join(f'"{piece}"' for piece in vocab.show_all(pieces))
        said.append(f'"{answer}" is {len(pieces)} tokens: {shown}; each is predicted in turn')
    if not answer.startswith(" ") and len(vocab.pieces(" " + answer)) == 1:
        said.append(f'with a leading space, " {answer}" is one token, a different one')
    return said


# MERGED: ffnprobe.tracing.predictions
# What the model says next: the likeliest tokens, a token's rank, and the options they take.


def table_predictions(
    logits: Float[Tensor, " vocab"], vocab: Vocab, top: int | None, *, temperature: float
) -> "pd.DataFrame":
    """Table the `top` likeliest tokens: rank, token, id, logit, probability at a temperature."""
    import pandas as pd

    check_temperature(temperature)
    top = check_top(top, len(logits), of="tokens")
    logits = logits.double()
    probabilities = torch.softmax(logits / temperature, dim=-1)
    # A stable sort breaks ties by token id, so that a table is the same on every run.
    order = torch.sort(logits, descending=True, stable=True).indices[:top].tolist()
    return pd.DataFrame(
        {
            "rank": range(1, top + 1),
            "token": vocab.show_all(order),
            "id": order,
            "logit": logits[order].numpy(),
            "probability": probabilities[order].numpy(),
        }
    )


def rank_of(logits: Float[Tensor, "... vocab"], token: int) -> Tensor:
    """Count a token's rank among all, the likeliest being 1; ties by token id."""
    own = logits[..., token, None]
    ahead = (logits > own).sum(-1) + (logits[..., :token] == own).sum(-1)
    return 1 + ahead


def check_temperature(temperature: float) -> None:
    """Refuse temperatures that have no distribution."""
    if not 0 < temperature < float("inf"):
        raise OptionRefused(
            f"temperature {temperature} has no distribution.",
            remedy="a number above 0, such as 1.0",
        )


# MERGED: ffnprobe.tracing.sinks
# Attention sinks: positions that heads look at when they have nothing to look for.
#
# The first position is one, and any whose largest activation is more than ten times the median, over
# positions, of the largest at each; the last position is never one. A sink's neurons matter to every
# sentence alike, so they are evidence for none, and on other prompts they are no measure of a word.
#
# A neuron's own quantiles over a corpus do not find sinks: at every token some neurons are beyond their own
# 99.9 %, most of all at a rare subject, and a neuron that opens once in each text, at the sink, is not
# beyond its own.
#
# >>> import torch
# >>> sizes = torch.ones(2, 5, 3)
# >>> sizes[1, 2, 0] = -40.0
# >>> find_sinks(sizes)
# (0, 2)


FAR_BEYOND = 10.0


def find_sinks(activations: Float[Tensor, "layer pos neuron"]) -> tuple[int, ...]:
    """Find the attention sinks before the last position."""
    earlier = compare_sizes(activations)[:-1]
    return tuple(
        position for position, ratio in enumerate(earlier) if position == 0 or ratio > FAR_BEYOND
    )


def compare_sizes(activations: Float[Tensor, "layer pos neuron"]) -> list[float]:
    """Compare the largest activation at each position with the median of these."""
    largest = activations.abs().amax(dim=(0, 2)).double()
    return (largest / largest.quantile(0.5).clamp(min=1e-30)).tolist()


def describe_sinks(trace: "Trace") -> dict[str, list[str]]:
    """Name the attention sinks of a prompt, and by which rule each is one, as a setting."""
    ratios = compare_sizes(trace.activations)
    named = [
        f"{trace.tokens[position]} at {position} "
        + (
            f"(activation {ratios[position]:,.0f} times the median)"
            if position
            else "(first position)"
        )
        for position in find_sinks(trace.activations)
    ]
    return {"set_aside": named}


# MERGED: ffnprobe.tracing.streams
# The residual stream at one position: after the embedding, and after each attention and MLP.


@torch.no_grad()
def read_logits(trace: "Trace", after: str, *, position: int = -1) -> Float[Tensor, " vocab"]:
    """Read the stream at a position after the embedding or after a layer's MLP, as if it were the last."""
    points = name_streams(trace.model)
    if after not in points:
        raise OptionRefused(
            f'the stream is not read after "{after}".', remedy=f"{points[0]}, L0–{points[-1]}"
        )
    # Between the embedding and the end every layer has two stages: attention, then MLP.
    stream = line_up(trace, trace.at(position))[2 * points.index(after), None]
    seen = normalise(trace.model, stream.to(trace.model.device))
    return unembed(trace.model, seen)[0].cpu()


def name_streams(model: Model) -> list[str]:
    """Name the points after which the stream can be read: the embedding, then every layer."""
    return ["embedding", *(f"L{layer}" for layer in range(model.config.layers))]


def line_up(trace: "Trace", position: int) -> Float[Tensor, "stage d_model"]:
    """Line up the stream at a position: the embedding, then after each attention and MLP."""
    before, after = trace.before_attention[:, position], trace.before_mlp[:, position]
    if trace.model.config.is_parallel:  # what the MLP reads has not been through attention
        device, layers = trace.model.device, range(len(before))
        mixes = trace.mixes[:, position].to(device)
        written = [write_heads(trace.model, layer, mixes[layer]).cpu() for layer in layers]
        after = before + torch.stack(written)
    both = torch.stack([before, after])
    inside = rearrange(both, "part layer d_model -> (layer part) d_model")
    return torch.cat([inside, trace.final[position, None]])


@torch.no_grad()
def table_neuron(
    trace: "Trace", neuron: str | NeuronId, answer: str | int | None = None
) -> "pd.DataFrame":
    """Table a neuron's score (and its gate's, if it has one), activation and push at every position.

    With an answer, which comes after the last position: its direct push there (0 before), and what heads
    carried there of what it wrote at each position, as `attribute`, `paths` and `explain` have them. Without
    one, its direct push toward the model's own prediction at each position. Both are centred, in logits.
    """
    import pandas as pd

    from ffnprobe.tracing.attention import find_owners
    from ffnprobe.tracing.attribution import attribute

    model = trace.model
    name = model.find_neuron(neuron)
    if answer is None:
        toward = [predicted(trace, position) for position in range(len(trace))]
    else:
        toward = [one_token(model, answer, use="a neuron's push")] * len(trace)
    activations = trace.activations[name.layer, :, name.neuron]
    amounts = trace.amounts[name.layer, :, name.neuron]
    directions = model.unembedding[toward] - model.mean_unembedding
    lifts = einsum(
        directions, model.answers[name.layer, name.neuron], "pos d_model, d_model -> pos"
    )
    pushes = amounts * lifts.cpu() / trace.final_scale
    through = dict[str, list[float]]()
    if answer is not None:
        pushes[:-1] = 0
        if trace.patterns is not None:
            owners = find_owners(attribute(trace, toward[-1]).pieces[0])
            carried = owners.through[name.layer, :, name.neuron]
            through["push_through_attention"] = carried.tolist()
    gates = trace.gate_scores
    opened = {} if gates is None else {"gate_score": gates[name.layer, :, name.neuron].tolist()}
    return pd.DataFrame(
        {
            "position": range(len(trace)),
            "token": trace.tokens,
            **opened,
            "score": trace.scores[name.layer, :, name.neuron].tolist(),
            "activation": activations.tolist(),
            "push": pushes.tolist(),
            **through,
            "toward": model.vocab.show_all(toward),
        }
    )


@torch.no_grad()
def table_fired(trace: "Trace", position: int = -1, top: int | None = 10) -> "pd.DataFrame":
    """Table the `top` neurons of highest activation at a position, with what they promote."""
    index = trace.at(position)
    activations = trace.activations[:, index]
    columns = {} if trace.gate_scores is None else {"gate_score": trace.gate_scores[:, index]}
    columns |= {"score": trace.scores[:, index], "activation": activations}
    return list_top(trace.model, top, by=activations, columns=columns, signs=activations)


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Result):
    """One prompt's run through the model, captured by TransformerLens hooks or by our own forward pass.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> trace
    Trace(pocket: <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of)
    >>> list(trace.activations.shape)
    [7, 7, 768]
    """

    model: Model
    prompt: str
    ids: tuple[int, ...]
    has_bos: bool
    before_attention: Float[Tensor, "layer pos d_model"]
    before_mlp: Float[Tensor, "layer pos d_model"]
    scores: Float[Tensor, "layer pos neuron"]
    activations: Float[Tensor, "layer pos neuron"]
    scales: Float[Tensor, "layer pos"]
    mixes: Float[Tensor, "layer pos head d_head"]
    final: Float[Tensor, "pos d_model"]
    final_scale: Float[Tensor, " pos"]
    logits: Float[Tensor, "pos vocab"]
    patterns: Float[Tensor, "layer head query key"] | None
    # Of the gates, where neurons have gates.
    gate_scores: Float[Tensor, "layer pos neuron"] | None = None
    # Of the norms attention and MLP write through, where they write through norms of their own.
    attention_post_scales: Float[Tensor, "layer pos"] | None = None
    mlp_post_scales: Float[Tensor, "layer pos"] | None = None

    def __post_init__(self) -> None:
        c = self.model.config
        held = (*self.activations.shape, *self.logits.shape[-1:])
        if held != (c.layers, len(self.ids), c.d_mlp, c.vocab):
            raise OptionRefused(
                f"this trace is of another model than {self.model.name}: it holds {held[0]} layers "
                f"× {held[2]} neurons and {held[3]} tokens, not {c.layers} × {c.d_mlp} and {c.vocab}.",
                remedy="run the prompt on this model",
            )

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Show what the model has read, then what it says next."""
        yield Tokens(self.tokens)
        yield from super().document(tables)

    @property
    def title(self) -> str:
        """The model and the tokens it has read."""
        return f"{self.model.name}: {' '.join(self.tokens)}"

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The prompt's tokens in their shown form, BOS included."""
        return tuple(self.model.vocab.show_all(self.ids))

    @property
    def provenance(self) -> Provenance:
        """The model, prompt and tokens behind this trace."""
        return self.provenance_at(None)

    def provenance_at(
        self,
        position: int | None,
        *,
        convention: str | None = None,
        answer: str | None = None,
        versus: str | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> Provenance:
        """Say what a number at a position comes from."""
        return self.model.provenance(
            convention=convention, bos=self.has_bos, prompt=self.prompt, tokens=self.tokens,
            position=position, answer=answer, versus=versus, run_by=self.model.run_by,
            settings=dict(settings or {}),
        )  # fmt: skip

    @property
    def hooks(self) -> dict[str, str]:
        """TransformerLens's name for what each field holds, with `{layer}` for the layer.

        `model.bridge.run_with_cache(ids)[1][trace.hooks["activations"].format(layer=3)]` holds what
        `trace.activations[3]` holds.
        """
        own = {field.name for field in fields(self)}
        return {name: hook for name, hook in hooks_of(self.model).items() if name in own}

    @property
    def nbytes(self) -> int:
        """How much memory the trace holds, in bytes."""
        held = (getattr(self, field.name) for field in fields(self))
        return sum(part.nbytes for part in held if isinstance(part, Tensor))

    @property
    def amounts(self) -> Float[Tensor, "layer pos neuron"]:
        """How much of each answer was added: the activations, over the scale they are written with."""
        scales = self.mlp_post_scales
        return self.activations if scales is None else self.activations / scales[..., None]

    def at(self, position: int) -> int:
        """Turn a position (negative from the end) into a plain index, or say which there are."""
        if not -len(self) <= position < len(self):
            raise OptionRefused(
                f"position {position} is outside the prompt: it has 0–{len(self) - 1}"
                f"{' (0 is BOS)' if self.has_bos else ''}.",
                remedy="-1 is the last",
            )
        return position % len(self)

    def log_probabilities(self, position: int = -1) -> Float[Tensor, " vocab"]:
        """The natural logarithm of each next token's probability at a position."""
        return torch.log_softmax(self.logits[self.at(position)].double(), dim=-1)

    def predictions(
        self,
        top: int | None = 10,
        *,
        temperature: float = 1.0,
        position: int = -1,
        after: str | None = None,
    ) -> "pd.DataFrame":
        """Table the `top` likeliest next tokens: rank, token, id, logit, probability at a temperature.

        `after` ("embedding" or a layer such as "L2") reads the stream there as if it were the last.
        """
        index = self.at(position)
        settings: dict[str, Setting] = {}
        logits = self.logits[index]
        if after is not None:
            logits = read_logits(self, after, position=index)
            settings["after"] = after
        if temperature != 1.0:
            settings["temperature"] = temperature
        table = table_predictions(logits, self.model.vocab, top, temperature=temperature)
        return self.provenance_at(index, settings=settings).note(table)

    @property
    def table(self) -> "pd.DataFrame":
        """The ten likeliest next tokens."""
        return self.predictions(min(10, len(self.model.vocab)))

    @property
    def headline(self) -> str:
        """Say what the table is about."""
        return f"next token after {' '.join(self.tokens)}"

    def tables(
        self,
        top: Annotated[int | None, TOP.but("How many tokens to show.", default="10")] = None,
        temperature: Annotated[float, Option("Divide the logits by this number.")] = 1.0,
        position: Position = -1,
        after: Annotated[
            str | None,
            Option("Read the stream after this layer, such as L2, as if it were the last."),
        ] = None,
    ) -> "dict[str, pd.DataFrame]":
        """Name the table a file of this trace holds: the likeliest next tokens, ten by default."""
        many = min(10, len(self.model.vocab)) if top is None else top
        found = self.predictions(many, temperature=temperature, position=position, after=after)
        return {"predictions": found}

    def neuron(self, neuron: str | NeuronId, answer: str | int | None = None) -> "pd.DataFrame":
        """Table one neuron's score, activation and push at every position."""
        known = self.provenance_at(
            None, answer=None if answer is None else str(answer), settings={"neuron": str(neuron)}
        )
        return known.note(table_neuron(self, neuron, answer))

    def fired(self, position: int = -1, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` most active neurons at a position, with what they promote."""
        known = self.provenance_at(self.at(position), settings={"neurons": "most active"})
        return known.note(table_fired(self, position, top))
