"""Who pushed this word: every neuron's push toward a token, in logits.

    push of n on t = a_n (w_n · u_t) / s        with `versus` v: u_t − u_v

a_n is the activation at the position, w_n the answer, s the scale of the final LayerNorm, which is
taken as it was (frozen): pushes are direct, and what later layers made of a neuron is not in them.

Two conventions for u_t of a single token, which `versus` makes one:

    centred   u_t less its mean over the vocabulary (the default, as published tables have it); the
              mean logit at the position, which is taken from every token alike, is a part of its own
    folded    u_t as the model's logit reads it; the mean is spread over all parts

The account is closed against the model's own logit each time, or an error says both numbers. Where
a model caps its logits, pushes are in logits before the cap, and what it takes is a part of its own.

An answer of several tokens is teacher-forced: each piece is predicted at its own position after the
pieces before it, and log-probabilities add. `versus` compares two tokens at one position, so there
both must be one token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, overload

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import CONTRAST, Answer, Convention, Position, Shown, Versus, verb
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top, order_columns
from ffnprobe.results import Result
from ffnprobe.tracing.account import Account, account_logit, read_direction
from ffnprobe.tracing.runs import extend
from ffnprobe.tracing.trace import Trace, answer_ids, one_token, predicted, rank_of

if TYPE_CHECKING:
    from ffnprobe.names import Site
    from ffnprobe.tracing.attention import Owners
    from ffnprobe.tracing.comparison import ContrastPushes
    from ffnprobe.tracing.contrast import Contrast, Prompts


@dataclass(frozen=True, eq=False, repr=False)
class Pushes(Result):
    """Every part's push toward one token at one position, in logits.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> pushes = fp.attribute(trace, " basketball")
    >>> pushes.top(3).name.tolist()
    ['L1N740', 'L6N21', 'L6N601']
    >>> bool(abs(pushes.by_part().push.sum() - pushes.logit) < 1e-3)
    True
    """

    in_terminal: ClassVar = ("rows",)

    trace: Trace
    answer: int
    versus: int | None
    position: int
    convention: str
    account: Account

    @property
    def caption(self) -> str:
        """How to read the table."""
        return f"pushes in logits, {self.convention}; all parts add up to the model's logit"

    @property
    def title(self) -> str:
        """Say which answer is accounted for, after what."""
        after = name_tokens(self)
        return f"{name_answer(self.provenance)} after {after}: {self.logit:+.2f} logits"

    @property
    def headline(self) -> str:
        """The title, and what of the logit comes through attention from another token."""
        from ffnprobe.tracing.attention import describe_elsewhere

        elsewhere = describe_elsewhere(self) if self.trace.patterns is not None else ""
        return f"{self.title}; {elsewhere}" if elsewhere else self.title

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how likely the answer is, and how well the parts add up."""
        above = "" if self.versus is None else f" above {self.provenance.versus}"
        numbers = (
            f"{self.provenance.answer}: logit {self.logit:.3f}{above}, "
            f"probability {math.exp(self.log_probability):.4g}, rank {self.rank}; "
            f"the parts add up to the model's logit within {abs(self.remainder):.1e}"
        )
        if self.trace.has_bos and self.position == 0:
            return "position 0 is BOS: no word of the prompt is read there", numbers
        return (numbers,)

    @property
    def pieces(self) -> tuple["Pushes", ...]:
        """This answer's one piece, so that answers of any length are read alike."""
        return (self,)

    @property
    def values(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's push, in logits."""
        return self.account.neurons

    @property
    def direction(self) -> Float[Tensor, " d_model"]:
        """The direction of the stream along which the answer is read."""
        return read_direction(self.trace.model, self.answer, self.versus, self.convention)

    @property
    def activations(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's activation at the position."""
        return self.trace.activations[:, self.position]

    @property
    def remainder(self) -> float:
        """What the parts leave unexplained of the model's logit: zero within tolerance."""
        return self.account.remainder

    @property
    def logit(self) -> float:
        """The answer's logit in the model; with versus, how far it is above the other's."""
        return self.account.measured

    @property
    def log_probability(self) -> float:
        """The natural logarithm of the answer's probability."""
        return float(self.trace.log_probabilities(self.position)[self.answer])

    @property
    def rank(self) -> int:
        """The answer's rank among all tokens, the likeliest being 1."""
        return int(rank_of(self.trace.logits[self.position], self.answer))

    @property
    def provenance(self) -> Provenance:
        """The model, prompt, tokens and conventions behind these numbers."""
        show = self.trace.model.vocab.show
        return self.trace.provenance_at(
            self.position, convention=self.convention, answer=show(self.answer),
            versus=None if self.versus is None else show(self.versus),
        )  # fmt: skip

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons that pushed hardest toward the answer.

        `share` is of the sizes of all neurons' pushes added up. Tokens are the five that open the
        question most and the five the neuron promoted here: its answer's, by the activation's sign.
        """
        return self._list(top, smallest=False)

    def against(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons that pushed hardest away from the answer."""
        return self._list(top, smallest=True)

    def _list(self, k: int | None, *, smallest: bool) -> pd.DataFrame:
        shares = self.values / self.values.double().abs().sum()
        columns = {"activation": self.activations, "push": self.values, "share": shares}
        listed = list_top(
            self.trace.model, k, by=self.values, columns=columns, signs=self.activations,
            smallest=smallest,
        )  # fmt: skip
        return self.provenance.note(listed)

    @property
    def table(self) -> pd.DataFrame:
        """The ten neurons that pushed hardest toward the answer."""
        return self.top(min(10, self.values.numel()))

    def by_layer(self) -> pd.DataFrame:
        """Table each layer's pushes: its heads, its neurons (all; toward; against), its biases."""
        account, values = self.account, self.values.double()
        columns = {
            "attention": account.heads.double().sum(-1),
            "neurons": values.sum(-1),
            "toward": values.clamp(min=0).sum(-1),
            "against": values.clamp(max=0).sum(-1),
            "biases": (account.attention_biases + account.mlp_biases).double(),
        }
        columns["push"] = columns["attention"] + columns["neurons"] + columns["biases"]
        table = pd.DataFrame({name: column.numpy() for name, column in columns.items()})
        table.insert(0, "layer", range(len(table)))
        return self.provenance.note(table)

    def by_part(self) -> pd.DataFrame:
        """Table every part once: the column `push` adds up to the model's logit."""
        return self.provenance.note(self.account.table("push", self.activations))

    def tables(self, top: Shown = None) -> dict[str, pd.DataFrame]:
        """Name the tables a file of these pushes holds: ten neurons, every layer, every part."""
        rows = self.table if top is None else self.top(top)
        return {"rows": rows, "layers": self.by_layer(), "parts": self.by_part()}


def name_answer(provenance: Provenance) -> str:
    """Name the answer, and the token it is compared with."""
    than = "" if provenance.versus is None else f" rather than {provenance.versus}"
    return f"{provenance.answer}{than}"


def name_tokens(pushes: Pushes) -> str:
    """Name the tokens up to the position of an account."""
    return " ".join(pushes.trace.tokens[: pushes.position + 1])


@dataclass(frozen=True, eq=False, repr=False)
class PushesByPiece(Result):
    """An answer of several tokens: the pushes toward each piece, at its own position.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.attribute(trace, " basketball and football")
    PushesByPiece(␣basketball ␣and ␣football: log-probability -13.1...)
    """

    in_terminal: ClassVar = ("rows",)

    trace: Trace
    answer: str
    pieces: tuple[Pushes, ...]

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "pushes in logits, piece by piece"

    @property
    def title(self) -> str:
        """Name the pieces and the log-probability of all of them."""
        shown = " ".join(piece.provenance.answer or "" for piece in self.pieces)
        return f"{shown}: log-probability {self.log_probability:.3f}"

    @property
    def values(self) -> Float[Tensor, "piece layer neuron"]:
        """Every neuron's push toward each piece, in logits."""
        return torch.stack([piece.values for piece in self.pieces])

    @property
    def log_probability(self) -> float:
        """The natural logarithm of the probability of all pieces, one after the other."""
        return sum(piece.log_probability for piece in self.pieces)

    @property
    def remainder(self) -> float:
        """The largest of the pieces' remainders."""
        return max((piece.remainder for piece in self.pieces), key=abs)

    @property
    def provenance(self) -> Provenance:
        """The model, prompt, tokens and conventions behind these numbers."""
        first = self.pieces[0]
        return self.trace.provenance_at(
            first.position, convention=first.convention, answer=self.answer
        )

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table, for each piece, the `top` neurons that pushed hardest toward it."""
        return order_columns(self._join([piece.top(top) for piece in self.pieces]))

    def against(self, top: int | None = 10) -> pd.DataFrame:
        """Table, for each piece, the `top` neurons that pushed hardest away from it."""
        return order_columns(self._join([piece.against(top) for piece in self.pieces]))

    @property
    def table(self) -> pd.DataFrame:
        """The ten neurons that pushed each piece hardest."""
        return self.top(min(10, self.pieces[0].values.numel()))

    def by_layer(self) -> pd.DataFrame:
        """Table each layer's pushes, piece by piece."""
        return self._join([piece.by_layer() for piece in self.pieces])

    def by_part(self) -> pd.DataFrame:
        """Table every part once for each piece: each piece's pushes add up to its logit."""
        return self._join([piece.by_part() for piece in self.pieces])

    def _join(self, frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
        for frame, piece in zip(frames, self.pieces, strict=True):
            frame.insert(0, "piece", self.trace.model.vocab.show(piece.answer))
            frame.insert(1, "position", piece.position)
        return self.provenance.note(pd.concat(frames, ignore_index=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how likely each piece is, and all of them together."""
        notes = [note for piece in self.pieces for note in piece.notes]
        return (*notes, f"together: log-probability {self.log_probability:.3f}")

    def tables(self, top: int | None = None) -> dict[str, pd.DataFrame]:
        """Name the tables a file of these pushes holds, each with a block per piece."""
        rows = self.table if top is None else self.top(top)
        return {"rows": rows, "layers": self.by_layer(), "parts": self.by_part()}


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a run: an answer, its rival, the convention, and after which position it is read.

    `attribute` and `paths` begin with it, and with a removal (`Counterfactual`) `ablate`, `estimate`,
    `circuit` and `explain`; what they share is made once, when first asked for.
    """

    trace: Trace
    answer: str | int
    versus: str | int | None
    convention: str
    position: int

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the answer; with a rival there is one."""
        if self.versus is None:
            return answer_ids(self.trace.model, self.answer)
        return (one_token(self.trace.model, self.answer, use="an answer with versus"),)

    @cached_property
    def rival(self) -> int | None:
        """The token that the answer is compared with."""
        if self.versus is None:
            return None
        return one_token(self.trace.model, self.versus, use="--versus")

    @cached_property
    def forced(self) -> Trace:
        """The run in which every token of the answer but the last stands behind the position."""
        behind = self.tokens[:-1]
        return extend(self.trace, self.position, behind) if behind else self.trace

    @cached_property
    def pushes(self) -> Pushes | PushesByPiece:
        """What every part pushed toward the answer."""
        run, rival, convention = self.forced, self.rival, self.convention
        if rival is not None and self.tokens == (rival,):
            raise OptionRefused(
                f'the answer and versus are both "{run.model.vocab.show(rival)}": nothing to compare.',
                remedy="another token for versus",
            )
        pieces = tuple(
            Pushes(
                run, token, rival, at, convention, account_logit(run, token, rival, at, convention)
            )
            for at, token in enumerate(self.tokens, start=self.position)
        )
        if len(pieces) == 1:
            return pieces[0]
        return PushesByPiece(self.trace, str(self.answer), pieces)

    @property
    def pieces(self) -> tuple[Pushes, ...]:
        """The pushes toward each token of the answer."""
        return self.pushes.pieces

    @cached_property
    def owners(self) -> "tuple[Owners, ...]":
        """Of each token of the answer: who pushed it once heads are given back to what they carried."""
        from ffnprobe.tracing.attention import find_owners

        return tuple(find_owners(piece) for piece in self.pieces)

    @cached_property
    def direct_pushes(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's direct push, where a token of the answer is predicted; 0 elsewhere."""
        total = torch.zeros_like(self.trace.activations)
        for piece in self.pieces:
            if piece.position < len(self.trace):
                total[:, piece.position] += piece.values
        return total

    @cached_property
    def attention_pushes(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's push through attention, however many heads carried it on."""
        total = torch.zeros_like(self.trace.activations)
        for owners in self.owners:
            through = owners.through[:, : len(self.trace)]
            total[:, : through.shape[1]] += through
        return total

    def name_heads(self, sites: "Sequence[Site]") -> list[tuple[str, float]]:
        """Name the head that carried most of each push from before the position, and how much.

        For an answer of several tokens it is the head that carried most to any piece.
        """
        strongest: list[tuple[str, float]] = [("", 0.0)] * len(sites)
        for owners in self.owners:
            for row, (head, carried) in enumerate(owners.name_heads(sites)):
                if sites[row][1] < self.position and abs(carried) > abs(strongest[row][1]):
                    strongest[row] = head, carried
        return strongest


@overload
def attribute(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    position: Position = -1,
    contrast: None = None,
    convention: Convention = "centred",
) -> Pushes | PushesByPiece: ...
@overload
def attribute(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    position: Position = -1,
    contrast: "Contrast | Prompts",
    convention: Convention = "centred",
) -> "ContrastPushes": ...
@verb
@torch.no_grad()
def attribute(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    position: Position = -1,
    contrast: Annotated["Contrast | Prompts | None", CONTRAST] = None,
    convention: Convention = "centred",
) -> "Pushes | PushesByPiece | ContrastPushes":
    """List the neurons that pushed an answer most, in logits (direct logit attribution).

    The answer (a text, never repaired, or a token id; by default the prediction) is what would be read
    after the position; every part of its logit is accounted for. One token gives `Pushes`, several give
    `PushesByPiece`; both have `.pieces`. With `contrast` (prompts about other subjects, or rows of facts)
    the account of one token at the last position is compared with its mean over them: `ContrastPushes`.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.attribute(trace, " basketball", versus=" football")
    Pushes(␣basketball rather than ␣football after ...: +14.32 logits)
    """
    model, index = trace.model, trace.at(position)
    answer = predicted(trace, index) if answer is None else answer
    if contrast is not None:
        from ffnprobe.tracing.comparison import contrast_pushes
        from ffnprobe.tracing.contrast import choose_contrast

        if index != len(trace) - 1:
            raise OptionRefused(
                "contrast prompts are compared at their last positions.", remedy="position=-1"
            )
        token = one_token(model, answer, use="an answer with contrast")
        rival = None if versus is None else one_token(model, versus, use="--versus")
        chosen = choose_contrast(trace, token, contrast)
        return contrast_pushes(chosen, token, versus=rival, convention=convention)
    return Question(trace, answer, versus, convention, index).pushes
