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

from ffnprobe.errors import OptionRefused
from ffnprobe.models.bridge import capture
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Provenance
from ffnprobe.tracing.prompts import prompt_ids

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("before_attention", "before_mlp", "scores", "activations", "scales", "mixes",
          "final", "final_scale")  # fmt: skip
# Prompts of one length run together up to this many tokens at a time.
TOKENS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Trace:
    """One prompt's run through the model, captured by TransformerLens hooks."""

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

    def __repr__(self) -> str:
        return f"Trace({self.model.name}: {' '.join(self.tokens)})"

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The prompt's tokens in their shown form, BOS included."""
        return tuple(self.model.vocab.show_all(self.ids))

    @property
    def provenance(self) -> Provenance:
        """The model, prompt and tokens behind this trace."""
        return self.model.provenance(bos=self.has_bos, prompt=self.prompt, tokens=self.tokens)

    @property
    def nbytes(self) -> int:
        """How much memory the trace holds, in bytes."""
        held = (getattr(self, field.name) for field in fields(self))
        return sum(part.nbytes for part in held if isinstance(part, Tensor))

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
        self, k: int = 10, *, temperature: float = 1.0, position: int = -1
    ) -> "pd.DataFrame":
        """Table the k likeliest next tokens: rank, token, id, logit, probability at a temperature."""
        import pandas as pd

        check_temperature(temperature)
        k = check_k(k, self.model.config.vocab, of="tokens")
        logits = self.logits[self.at(position)].double()
        probabilities = torch.softmax(logits / temperature, dim=-1)
        # A stable sort breaks ties by token id, so that a table is the same on every run.
        order = torch.sort(logits, descending=True, stable=True).indices[:k].tolist()
        return pd.DataFrame(
            {
                "rank": range(1, k + 1),
                "token": self.model.vocab.show_all(order),
                "id": order,
                "logit": logits[order].numpy(),
                "probability": probabilities[order].numpy(),
            }
        )


def check_temperature(temperature: float) -> None:
    """Refuse temperatures that have no distribution."""
    if not 0 < temperature < float("inf"):
        raise OptionRefused(
            f"temperature {temperature} has no distribution.",
            remedy="a number above 0, such as 1.0",
        )


def check_k(k: int, most: int, *, of: str) -> int:
    """Refuse a k that no table can have."""
    if not 1 <= k <= most:
        raise OptionRefused(f"k = {k}: there are {most} {of}.", remedy=f"1 to {most}")
    return k


@overload
def run(model: Model, prompt: str, *, bos: bool = True, patterns: bool = True) -> Trace: ...
@overload
def run(
    model: Model, prompt: Sequence[int], *, bos: bool = True, patterns: bool = True
) -> Trace: ...
@overload
def run(
    model: Model, prompt: list[str], *, bos: bool = True, patterns: bool = True
) -> list[Trace]: ...
def run(
    model: Model,
    prompt: str | Sequence[int] | Sequence[str],
    *,
    bos: bool = True,
    patterns: bool = True,
) -> Trace | list[Trace]:
    """Run a prompt (a text, or token ids) and keep what happened; several texts give several traces.

    BOS is put in front unless `bos=False`, which is what Hugging Face does. Prompts of one length
    run as one batch, without padding, so that no number depends on its neighbours.
    """
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
    places = (*PLACES, "patterns") if patterns else PLACES
    found = capture(model, torch.tensor(ids), places)
    return [
        Trace(
            model=model, prompt=text, ids=ids[row], has_bos=bos,
            before_attention=found["before_attention"][:, row],
            before_mlp=found["before_mlp"][:, row],
            scores=found["scores"][:, row],
            activations=found["activations"][:, row],
            scales=found["scales"][:, row, :, 0],
            mixes=found["mixes"][:, row],
            final=found["final"][row],
            final_scale=found["final_scale"][row, :, 0],
            logits=found["logits"][row],
            patterns=found["patterns"][:, row] if patterns else None,
        )
        for row, text in enumerate(texts)
    ]  # fmt: skip
