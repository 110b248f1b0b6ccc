"""What an edit is asked for: a prompt, the subject in it, and the answer it shall have.

A request is written several times: alone, after a few prefixes (so that the edit does not depend on
what stands in front of the subject), and as "SUBJECT is a", whose predictions shall stay.

These contexts run as one batch, each from its subject's last token on (`Tails`). A change there leaves
earlier positions as they were: their keys and values are kept from the clean run. Tails of different
lengths are padded behind, where causal attention never looks. Gradients go through, so that a layer's
output can be optimised at the cost of a few tokens' pass. (`ffnprobe.interventions.replay` does the same
for variants of one prompt.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.facts.formats import EMBEDDED, read_facts
from ffnprobe.facts.rows import FactRow
from ffnprobe.models.forward import Hooks, watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import Past, add_up, finish_write, keep_past, normalise, step, unembed
from ffnprobe.tracing.runs import prompt_ids
from ffnprobe.tracing.trace import answer_ids

SEPARATOR = ". "
Rows = Float[Tensor, "prompt pos d_model"]


@dataclass(frozen=True)
class Request:
    """One fact to write: `answer` shall follow `prompt`, which holds `subject`."""

    prompt: str
    subject: str
    answer: str
    pieces: tuple[int, ...]


@dataclass(frozen=True)
class Context:
    """A request as it is run: `start` is the subject's last token, `reads` where pieces are predicted.

    `owner` is the request's number in a batch; the context whose predictions shall stay has no pieces.
    """

    owner: int
    ids: tuple[int, ...]
    start: int
    reads: tuple[int, ...]
    pieces: tuple[int, ...]


def find_subject(row: FactRow) -> str:
    """Return a row's subject as its prompt writes it; one of pocket's prompts says its own."""
    if row.subject:
        first = row.subject[:1].upper() + row.subject[1:]
        return first if row.subject not in row.prompt and first in row.prompt else row.subject
    for one in read_facts(EMBEDDED, templates="all").rows:
        if one.prompt == row.prompt:
            return find_subject(one)
    remedy = 'subject="…" (--subject "…"); in a table, a column "subject"'
    raise OptionRefused(f'which words of "{row.prompt}" are its subject?', remedy=remedy)


def make_request(model: Model, prompt: str, subject: str, answer: str) -> Request:
    """Check what is asked for: the subject stands in the prompt, the answer has tokens."""
    if not subject.strip():
        raise OptionRefused("the subject is empty.", remedy='subject="Michael Jordan"')
    if subject not in prompt:
        raise OptionRefused(
            f'the subject "{subject}" is not in the prompt "{prompt}".',
            remedy="its words as the prompt has them, upper and lower case alike",
        )
    return Request(prompt, subject, answer, answer_ids(model, answer))


def write_contexts(
    model: Model, request: Request, prefixes: Sequence[Sequence[int]]
) -> list[Context]:
    """Write a request alone and after each prefix, then the prompt whose predictions shall stay."""
    subject, pieces = request.subject, request.pieces
    after = len(request.prompt) - request.prompt.rindex(subject) - len(subject)
    alone = prompt_ids(model, request.prompt, bos=None)
    bos = alone[:1] if model.vocab.puts_bos(None) else ()
    follows = model.vocab.pieces(f"{SEPARATOR}{request.prompt}")
    contexts = []
    for ids in (alone, *((*bos, *prefix, *follows) for prefix in prefixes)):
        if len(ids) + len(pieces) - 1 <= model.config.positions:  # else a prefix leaves no room
            reads = tuple(range(len(ids) - 1, len(ids) - 1 + len(pieces)))
            start = _find_end(model, ids[len(bos) :], after) + len(bos)
            contexts.append(Context(0, (*ids, *pieces[:-1]), start, reads, pieces))
    essence = " is a"
    ids = prompt_ids(model, f"{subject}{essence}", bos=None)
    start = _find_end(model, ids[len(bos) :], len(essence)) + len(bos)
    return [*contexts, Context(0, ids, start, (len(ids) - 1,), ())]


def _find_end(model: Model, ids: Sequence[int], after: int) -> int:
    """Return the position of the last token of a subject that so many characters follow."""
    whole = len(model.vocab.text(ids))
    for number in range(1, len(ids)):
        if whole - len(model.vocab.text(ids[:number])) <= after:
            return number - 1
    return len(ids) - 1


@dataclass(frozen=True, eq=False)
class Tails:
    """Prompts from their subjects' last tokens on, ready to run on from a layer's MLP."""

    model: Model
    layer: int
    contexts: tuple[Context, ...]
    keys: Float[Tensor, "prompt neuron"]  # activations at the subject's last token
    totals: Float[Tensor, "prompt d_model"]  # what they add up to there, with b_out
    before: Float[Tensor, "prompt d_model"]  # the stream there before the MLP adds to it
    after: Rows  # the stream that leaves the layer, from there on
    kept: tuple[Past, ...]  # keys and values of each later layer, before there

    def log_probabilities(
        self, shifts: Float[Tensor, "prompt d_model"]
    ) -> Float[Tensor, "read vocab"]:
        """Shift what the layer's answers add up to, run on, and read every context's `reads`."""
        rows = self.after.clone()
        if self.model.config.has_post_norms:
            rows[:, 0] = self.before + finish_write(self.model, self.layer, self.totals + shifts)
        else:
            rows[:, 0] = self.after[:, 0] + shifts
        starts = torch.tensor([one.start for one in self.contexts], device=rows.device)[:, None]
        at = starts + torch.arange(rows.shape[1], device=rows.device)
        for number, kept in enumerate(self.kept, start=self.layer + 1):
            (rows,) = step(self.model, number, [rows], [at], past=[kept])
        owners = [order for order, one in enumerate(self.contexts) for _ in one.reads]
        offsets = [read - one.start for one in self.contexts for read in one.reads]
        logits = unembed(self.model, normalise(self.model, rows[owners, offsets]))
        return torch.log_softmax(logits, dim=-1)


@torch.no_grad()
def open_tails(model: Model, layer: int, contexts: Sequence[Context]) -> Tails:
    """Run the prompts once and keep what their tails need."""
    longest = max(len(one.ids) for one in contexts)
    wide = max(len(one.ids) - one.start for one in contexts)
    first = max(one.start for one in contexts)
    padded = torch.tensor([[*one.ids, *[0] * (longest - len(one.ids))] for one in contexts])
    rows = torch.arange(len(contexts))
    starts = torch.tensor([one.start for one in contexts])
    at_start: dict[str, Tensor] = {}
    kept: list[Past] = []
    # What is kept past a prompt's own start is padding: far ahead of every query.
    at = torch.arange(first)[None]
    seen_at = torch.where(at < starts[:, None], at, 2 * model.config.positions)

    def keep_start(name: str, tensor: Tensor) -> None:
        at_start[name] = tensor[rows, starts].clone()

    def keep_stream(number: int, stream: Tensor) -> None:
        if number == layer + 1:
            positions = (starts[:, None] + torch.arange(wide)).clamp(max=longest - 1)
            at_start["after"] = stream[rows[:, None], positions].clone()
        if number < last:
            past = keep_past(model, number, stream[:, :first], at.to(stream.device))
            kept.append(past._replace(at=seen_at.to(stream.device)))

    last = model.config.layers
    hooks: Hooks = {
        ("activations", layer): partial(keep_start, "keys"),
        ("before_mlp", layer): partial(keep_start, "before"),
        **{("before_attention", n): partial(keep_stream, n) for n in range(layer + 1, last)},
        ("final", 0): partial(keep_stream, last),
    }
    watch(model, padded, hooks)
    return Tails(
        model, layer, tuple(contexts), totals=add_up(model, layer, at_start["keys"]),
        kept=tuple(kept), **at_start,
    )  # fmt: skip
