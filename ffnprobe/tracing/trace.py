"""What happened on one prompt: every residual, score and activation, as plain tensors on CPU.

Positions count from 0, BOS included (if it was prepended, it is position 0); negative positions
count from the end, so -1 is where the next token is predicted.

Memory: a trace of GPT-2 small holds about 0.6 MB a token, and 576 bytes for each pair of tokens
for the attention patterns (at 1,024 tokens 0.6 GB and 0.6 GB); `patterns=False` leaves these out.

What is read from a trace stands here too: the tokens an answer means, the stream at a position as if it
were the last, and attention sinks. These are positions that heads look at when they have nothing to look
for: the first, and any whose largest activation is more than ten times the median, over positions, of
the largest at each; the last position is never one. A sink's neurons matter to every sentence alike, so
they are evidence for none, and on other prompts they are no measure of a word.

A neuron's own quantiles over a corpus do not find sinks: at every token some neurons are beyond their own
99.9 %, most of all at a rare subject, and a neuron that opens once in each text, at the sink, is not
beyond its own.

>>> sizes = torch.ones(2, 5, 3)
>>> sizes[1, 2, 0] = -40.0
>>> find_sinks(sizes)
(0, 2)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import TOP, Option, Position
from ffnprobe.documents.blocks import Block, Tokens
from ffnprobe.errors import OptionRefused, TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.models.step import hooks_of, normalise, unembed, write_heads
from ffnprobe.models.vocab import Vocab
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd  # a run alone, in Python, does not wait for it

FAR_BEYOND = 10.0  # of a sink's largest activation, in medians


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
    z: Float[Tensor, "layer pos head d_head"]
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
        layers, length, neurons, vocab = *self.activations.shape, self.logits.shape[-1]
        if (layers, length, neurons, vocab) != (c.layers, len(self.ids), c.d_mlp, c.vocab):
            raise OptionRefused(
                f"this trace is of another model than {self.model.name}: it holds {layers} layers "
                f"× {neurons} neurons and {vocab} tokens, not {c.layers} × {c.d_mlp} and {c.vocab}.",
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
        import pandas as pd

        index = self.at(position)
        settings: dict[str, Setting] = {}
        logits = self.logits[index]
        if after is not None:
            logits = _read_logits(self, after, index)
            settings["after"] = after
        if temperature != 1.0:
            settings["temperature"] = temperature
        check_temperature(temperature)
        top = check_top(top, len(logits), of="tokens")
        logits = logits.double()
        probabilities = torch.softmax(logits / temperature, dim=-1)
        # A stable sort breaks ties by token id, so that a table is the same on every run.
        order = torch.sort(logits, descending=True, stable=True).indices[:top].tolist()
        table = pd.DataFrame(
            {
                "rank": range(1, top + 1),
                "token": self.model.vocab.show_all(order),
                "id": order,
                "logit": logits[order].numpy(),
                "probability": probabilities[order].numpy(),
            }
        )
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
        top = min(10, len(self.model.vocab)) if top is None else top
        rows = self.predictions(top, temperature=temperature, position=position, after=after)
        return {"predictions": rows}

    def neuron(self, neuron: str | NeuronId, answer: str | int | None = None) -> "pd.DataFrame":
        """Table one neuron's score, activation and push at every position."""
        from ffnprobe.tracing.attention import table_neuron

        provenance = self.provenance_at(
            None, answer=None if answer is None else str(answer), settings={"neuron": str(neuron)}
        )
        return provenance.note(table_neuron(self, neuron, answer))

    def fired(self, position: int = -1, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` most active neurons at a position, with what they promote."""
        index = self.at(position)
        activations = self.activations[:, index]
        columns = {} if self.gate_scores is None else {"gate_score": self.gate_scores[:, index]}
        columns |= {"score": self.scores[:, index], "activation": activations}
        table = list_top(self.model, top, by=activations, columns=columns, signs=activations)
        return self.provenance_at(index, settings={"neurons": "most active"}).note(table)


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


def predicted(trace: Trace, position: int = -1) -> int:
    """Return the id of the token the model says next; of equals, the first."""
    logits = trace.logits[trace.at(position)]
    return int((logits == logits.max()).nonzero()[0])


def describe_spelling(vocab: Vocab, answer: str) -> list[str]:
    """Say how an answer is split into tokens, and that the leading space may be missing."""
    sentences, pieces = [], vocab.pieces(answer)
    if len(pieces) > 1:
        shown = " ".join(f'"{piece}"' for piece in vocab.show_all(pieces))
        sentences.append(f'"{answer}" is {len(pieces)} tokens: {shown}; each is predicted in turn')
    if not answer.startswith(" ") and len(vocab.pieces(" " + answer)) == 1:
        sentences.append(f'with a leading space, " {answer}" is one token, a different one')
    return sentences


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


def find_sinks(activations: Float[Tensor, "layer pos neuron"]) -> tuple[int, ...]:
    """Find the attention sinks before the last position."""
    earlier = enumerate(_compare_sizes(activations)[:-1])
    return tuple(position for position, ratio in earlier if position == 0 or ratio > FAR_BEYOND)


def _compare_sizes(activations: Float[Tensor, "layer pos neuron"]) -> list[float]:
    """Compare the largest activation at each position with the median of these."""
    largest = activations.abs().amax(dim=(0, 2)).double()
    return (largest / largest.quantile(0.5).clamp(min=1e-30)).tolist()


def describe_sinks(trace: Trace) -> dict[str, list[str]]:
    """Name the attention sinks of a prompt, and by which rule each is one, as a setting."""
    ratios = _compare_sizes(trace.activations)
    named = [
        f"{trace.tokens[at]} at {at} "
        + (f"(activation {ratios[at]:,.0f} times the median)" if at else "(first position)")
        for at in find_sinks(trace.activations)
    ]
    return {"set_aside": named}


def name_streams(model: Model) -> list[str]:
    """Name the points after which the stream can be read: the embedding, then every layer."""
    return ["embedding", *(f"L{layer}" for layer in range(model.config.layers))]


@torch.no_grad()
def _read_logits(trace: Trace, after: str, position: int) -> Float[Tensor, " vocab"]:
    """Read the stream at a position after the embedding or a layer's MLP, as if it were the last."""
    points = name_streams(trace.model)
    if after not in points:
        raise OptionRefused(
            f'the stream is not read after "{after}".', remedy=f"{points[0]}, L0–{points[-1]}"
        )
    # Between the embedding and the end every layer has two stages: attention, then MLP.
    stream = line_up(trace, position)[2 * points.index(after), None]
    seen = normalise(trace.model, stream.to(trace.model.device))
    return unembed(trace.model, seen)[0].cpu()


def line_up(trace: Trace, position: int) -> Float[Tensor, "stage d_model"]:
    """Line up the stream at a position: the embedding, then after each attention and MLP."""
    before, after = trace.before_attention[:, position], trace.before_mlp[:, position]
    if trace.model.config.is_parallel:  # what the MLP reads has not been through attention
        z = trace.z[:, position].to(trace.model.device)
        written = [write_heads(trace.model, layer, own).cpu() for layer, own in enumerate(z)]
        after = before + torch.stack(written)
    both = torch.stack([before, after])
    inside = rearrange(both, "part layer d_model -> (layer part) d_model")
    return torch.cat([inside, trace.final[position, None]])
