"""What happened on one prompt: every residual, score and activation, as plain tensors on CPU.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> trace.predictions(1).token.item()
'␣basketball'

Positions count from 0, BOS included (if it was prepended, it is position 0); negative positions
count from the end, so -1 is where the next token is predicted.

Memory: a trace of GPT-2 small holds about 0.6 MB a token, and 576 bytes for each pair of tokens
for the attention patterns (at 1,024 tokens 0.6 GB and 0.6 GB); `patterns=False` leaves these out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, overload

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.cards import card, table_html, tokens_html
from ffnprobe.errors import OptionRefused
from ffnprobe.models.arithmetic import measure_scale
from ffnprobe.models.bridge import capture, places_of
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Provenance
from ffnprobe.names import NeuronId
from ffnprobe.tracing.predictions import table_predictions
from ffnprobe.tracing.prompts import prompt_ids

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.comparison import Comparison
    from ffnprobe.tracing.drivers import Drivers
    from ffnprobe.tracing.lens import Lens
    from ffnprobe.tracing.similarity import Similarity
    from ffnprobe.tracing.stages import Stages

PLACES = ("before_attention", "before_mlp", "scores", "activations", "mixes", "final")
EXTRA_PLACES = ("gate_scores", "attention_totals", "mlp_totals")
# Prompts of one length run together up to this many tokens at a time.
TOKENS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Trace:
    """One prompt's run through the model, captured by TransformerLens hooks.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> trace
    Trace(pocket: <|endoftext|> Michael ␣Jordan ␣plays ␣the ␣sport ␣of)
    >>> list(trace.activations.shape)
    [6, 7, 768]
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

    def __repr__(self) -> str:
        return f"Trace({self.model.name}: {' '.join(self.tokens)})"

    def _repr_html_(self) -> str:
        shown = self.predictions(min(5, len(self.model.vocab)))
        note = f"{self.model.name}, weights {self.model.fingerprint[:8]}; {len(self)} tokens"
        tokens, table = tokens_html(self.tokens), table_html(shown)
        return card("what the model says next", tokens, table, note=note)

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

    def provenance_at(self, position: int | None, **known: object) -> Provenance:
        """Say what a number at a position comes from; a position that is BOS is noted."""
        if position == 0 and self.has_bos:
            known = {"settings": "position 0 is BOS"} | known
        return self.model.provenance(
            bos=self.has_bos, prompt=self.prompt, tokens=self.tokens, position=position, **known
        )

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
        k: int = 10,
        *,
        temperature: float = 1.0,
        position: int = -1,
        after: str | None = None,
    ) -> "pd.DataFrame":
        """Table the k likeliest next tokens: rank, token, id, logit, probability at a temperature.

        `after` ("embedding" or a layer such as "L2") reads the stream there as if it were the last.
        """
        place, settings = self.at(position), []
        logits = self.logits[place]
        if after is not None:
            from ffnprobe.tracing.lens import read_logits

            logits = read_logits(self, after, position=place)
            settings.append(f"the stream read after {after}")
        if temperature != 1.0:
            settings.append(f"temperature {temperature:g}")
        table = table_predictions(logits, self.model.vocab, k, temperature=temperature)
        known = {"settings": ", ".join(settings)} if settings else {}
        return self.provenance_at(place, **known).note(table)

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables a file of this trace holds: the ten likeliest next tokens."""
        return {"predictions": self.predictions(min(10, len(self.model.vocab)))}

    def lens(self, answer: str | int | None = None, *, position: int = -1) -> "Lens":
        """Read the stream after each attention and MLP as if it were the last."""
        from ffnprobe.tracing.lens import read_stream

        return read_stream(self, answer, position=position)

    def stages(self, layer: int) -> "Stages":
        """Follow every token through one FFN: input, scores, activations, output."""
        from ffnprobe.tracing.stages import follow

        return follow(self, layer)

    def drivers(self, neuron: str | NeuronId, *, position: int = -1) -> "Drivers":
        """Account for a neuron's score: what in the stream asked its question."""
        from ffnprobe.tracing.drivers import drive

        return drive(self, neuron, position=position)

    def similarity(self) -> "Similarity":
        """Compare the tokens' vectors with each other, before and after each layer."""
        from ffnprobe.tracing.similarity import compare

        return compare(self)

    def compare(
        self,
        other: "Trace",
        answer: str | int | None = None,
        *,
        versus: str | int | None = None,
        position: int = -1,
        other_position: int = -1,
    ) -> "Comparison":
        """Compare this prompt with another, neuron by neuron: what differs, and what it is worth."""
        from ffnprobe.tracing.comparison import compare_prompts

        return compare_prompts(
            self, other, answer, versus=versus, position=position, other_position=other_position
        )

    def neuron(self, neuron: str | NeuronId, answer: str | int | None = None) -> "pd.DataFrame":
        """Table one neuron's score, activation and push at every position."""
        from ffnprobe.tracing.neurons import table_neuron

        known = {} if answer is None else {"answer": str(answer)}
        noted = self.provenance_at(None, settings=str(neuron), **known)
        return noted.note(table_neuron(self, neuron, answer))

    def fired(self, position: int = -1, k: int = 10) -> "pd.DataFrame":
        """Table the k most active neurons at a position, with what they promote."""
        from ffnprobe.tracing.neurons import table_fired

        noted = self.provenance_at(self.at(position), settings="the most active neurons")
        return noted.note(table_fired(self, position, k))


@overload
def run(model: Model, prompt: str, *, bos: bool | None = None, patterns: bool = True) -> Trace: ...
@overload
def run(
    model: Model, prompt: Sequence[int], *, bos: bool | None = None, patterns: bool = True
) -> Trace: ...
@overload
def run(
    model: Model, prompt: list[str], *, bos: bool | None = None, patterns: bool = True
) -> list[Trace]: ...
def run(
    model: Model,
    prompt: str | Sequence[int] | Sequence[str],
    *,
    bos: bool | None = None,
    patterns: bool = True,
) -> Trace | list[Trace]:
    """Run a prompt (a text, or token ids) and keep what happened; several texts give several traces.

    BOS is put in front unless `bos=False`, or the model has none or says it is not put. Prompts of
    one length run as one batch, without padding, so that no number depends on its neighbours.

    >>> import ffnprobe as fp
    >>> prompts = ["Michael Jordan plays the sport of", "Tiger Woods plays the sport of"]
    >>> [trace.predictions(1).token.item() for trace in fp.run(fp.load("pocket"), prompts)]
    ['␣basketball', '␣golf']
    """
    bos = model.vocab.puts_bos(bos)
    if not isinstance(prompt, str) and prompt and all(isinstance(p, str) for p in prompt):
        return _run_all(model, [str(text) for text in prompt], bos=bos, patterns=patterns)
    ids = prompt_ids(model, prompt, bos=bos)  # type: ignore[arg-type]
    text = prompt if isinstance(prompt, str) else model.vocab.text(prompt)  # type: ignore[arg-type]
    return _run_batch(model, [text], [ids], bos=bos, patterns=patterns)[0]


def _run_all(model: Model, texts: list[str], *, bos: bool, patterns: bool) -> list[Trace]:
    all_ids = [prompt_ids(model, text, bos=bos) for text in texts]
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(all_ids):
        by_length.setdefault(len(ids), []).append(number)
    traces: dict[int, Trace] = {}
    for length, numbers in by_length.items():
        size = max(1, TOKENS_AT_ONCE // length)
        for start in range(0, len(numbers), size):
            chosen = numbers[start : start + size]
            batch = _run_batch(
                model, [texts[n] for n in chosen], [all_ids[n] for n in chosen],
                bos=bos, patterns=patterns,
            )  # fmt: skip
            traces |= dict(zip(chosen, batch, strict=True))
    return [traces[number] for number in range(len(texts))]


def _run_batch(
    model: Model, texts: list[str], ids: list[tuple[int, ...]], *, bos: bool, patterns: bool
) -> list[Trace]:
    """Run prompts of one length together and cut the batch into traces."""
    places = [name for name in (*PLACES, *EXTRA_PLACES) if name in places_of(model)]
    found = capture(model, torch.tensor(ids), [*places, "patterns"] if patterns else places)
    scales = {
        "scales": measure_scale(model, found["before_mlp"]),
        "final_scale": measure_scale(model, found["final"]),
    }
    if model.config.has_post_norms:
        scales["attention_post_scales"] = measure_scale(model, found.pop("attention_totals"))
        scales["mlp_post_scales"] = measure_scale(model, found.pop("mlp_totals"))
    return [
        Trace(
            model=model, prompt=text, ids=ids[row], has_bos=bos, logits=found["logits"][row],
            final=found["final"][row], final_scale=scales["final_scale"][row],
            before_attention=found["before_attention"][:, row],
            before_mlp=found["before_mlp"][:, row],
            scores=found["scores"][:, row],
            activations=found["activations"][:, row],
            mixes=found["mixes"][:, row],
            patterns=found["patterns"][:, row] if patterns else None,
            gate_scores=found["gate_scores"][:, row] if model.config.is_gated else None,
            **{name: scale[:, row] for name, scale in scales.items() if name != "final_scale"},
        )
        for row, text in enumerate(texts)
    ]  # fmt: skip
