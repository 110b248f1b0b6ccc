"""Check lists of tokens: a list is a claim about the model, and the model is asked whether it is true.

    promotes         the neuron is set to its highest activation at the end of a passage, and the layers behind
                     it run again: how many of its tokens become likelier?
    question, gate   each token of the list is put at the end of a passage, or some tokens before it, in the place
                     of what stood there: how many raise the neuron's score at the end?

Beside it the same count for the list of another neuron of the layer: what any tokens would do, about half of
them. A neuron's highest activation is over the passages, which are ends of the texts given; of one that does not
open in them nothing is said of what it promotes.

Limits: a list may hold in other texts and not in these; setting a neuron is not what happens by itself.

>>> import ffnprobe as fp
>>> fp.check_lists(fp.load("pocket"), "L3N361").table.columns.tolist()
['name', 'layer', 'neuron', 'list', 'holds', 'other', 'of', 'tokens']
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ffnprobe.arguments import NAMES, Option, verb
from ffnprobe.errors import NameNotUnderstood, OptionRefused
from ffnprobe.interventions.replay import LOGITS_AT_ONCE, Replay
from ffnprobe.models.forward import embed
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise, step, unembed
from ffnprobe.names import FORMS, NeuronId, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.reading.jacobian import own_texts
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import (
    answer_readers,
    check_top,
    pick_read,
    project_blocks,
    question_readers,
    top_tokens,
)
from ffnprobe.results import Result
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

# Tokens of a passage before its end, and how far from the end a word is put.
CONTEXT, DISTANCES = 32, (0, 4)
# Activations are looked up in all passages, lists are asked about in so many.
ASKED, LEAST, WORDS_AT_ONCE = 8, 16, 256


@dataclass(frozen=True, eq=False, repr=False)
class ListChecks(Result):
    """How far neurons' lists of tokens hold: a row for each list of each neuron.

    >>> import ffnprobe as fp
    >>> checked = fp.check_lists(fp.load("pocket"), ["L3N361", "L1N505"])
    >>> checked
    ListChecks(2 neurons of pocket: do their lists hold?)
    """

    table: "pd.DataFrame"
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say how many neurons of which model."""
        many = self.table.name.nunique()
        return (
            f"{many:,} neuron{'s' * (many != 1)} of {self.provenance.model}: do their lists hold?"
        )

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "holds: how many tokens of the list do what it says (become likelier, raise the score), on average over "
            "passages; other: the same of another neuron's list, about half by chance"
        )

    def describe(self) -> str:
        """Say in a line how far the first neuron's lists hold."""
        own = self.table[self.table.name == self.table.name[0]]
        return "; ".join(
            f"{row.list.replace('_', ' ')} hold {row.holds:.1f} of {row.of}"
            + (f" (another neuron's {row.other:.1f})" if row.other == row.other else "")
            if row.holds == row.holds
            else f"{row.list.replace('_', ' ')}: not known, it does not open in {self.provenance.settings['passages']} passages"
            for row in own.itertuples()
        )

    def by_layer(self) -> "pd.DataFrame":
        """Average over each layer's neurons."""
        means = self.table.groupby(["list", "layer"])[["holds", "other"]].mean().reset_index()
        return self.provenance.note(means)

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables: every list, and each layer."""
        return {"lists": self.table, "layers": self.by_layer()}


@verb
@torch.no_grad()
def check_lists(
    model: Model,
    neurons: Annotated[str | Sequence[str], NAMES],
    *,
    top: Annotated[int, Option("How many tokens in each list.", flag="-k", least=1)] = 10,
    texts: Annotated[
        str | Sequence[str] | None,
        Option("Passages to ask in, their ends.", list[str] | None, name="text", default="prose of our own", longest=100),
    ] = None,
) -> ListChecks:  # fmt: skip
    """Check whether neurons' lists of tokens hold: promoted tokens become likelier, a question's tokens open it.

    Lists are those that `read` shows, through the model's lens if it has one.

    >>> import ffnprobe as fp
    >>> checked = fp.check_lists(fp.load("pocket"), "L1N505", texts=["Michael Jordan plays the sport of"])
    >>> checked.table.list.tolist()
    ['question_tokens', 'promotes']
    """
    named = [neurons] if isinstance(neurons, str | NeuronId) else neurons
    chosen = model.find_neurons(split_position(str(text))[0] for text in named)
    if not chosen:
        raise NameNotUnderstood("no neuron is named.", remedy=FORMS)
    top = check_top(top, model.config.vocab, of="tokens")
    given = own_texts(model) if texts is None else [texts] if isinstance(texts, str) else texts
    prompts = [ids for text in given for ids in _cut(model, text)]
    if not prompts:
        raise OptionRefused("no text has two tokens.", remedy="longer texts")
    traces = [run(model, ids, patterns=False) for ids in prompts]
    replays = [Replay(trace) for trace in traces[:: -(-len(traces) // ASKED)]]
    sides = ("gate", "question") if model.config.is_gated else ("question",)
    names, lists, columns = list[NeuronId](), list[str](), list[tuple[float, float, str]]()
    for layer, group in groupby(sorted(chosen), key=lambda name: name.layer):
        own = list(group)
        # One by itself is compared with the next of its layer.
        pair = [*own, NeuronId(layer, (own[0].neuron + 1) % model.config.d_mlp)]
        asked = own if len(own) > 1 else pair
        numbers = [name.neuron for name in asked]
        highs = _find_highest(traces, layer, numbers)
        for side in (*sides, "answer"):
            ids = _list_ids(model, asked, top, by=side)
            if side == "answer":
                rows = torch.tensor(numbers)
                counts = [count_risen(replay, layer, rows, ids, highs) for replay in replays]
            else:
                counts = [
                    _count_opening(replay, layer, numbers, ids, side, back)
                    for replay in replays
                    for back in DISTANCES
                ]
            means = torch.stack(counts).mean(dim=0)
            if side == "answer":
                means[0, highs <= 0] = torch.nan
                means[1, highs.roll(1) <= 0] = torch.nan
            holds, other = means[:, : len(own)].tolist()
            names += own
            lists += ["promotes" if side == "answer" else f"{side}_tokens"] * len(own)
            shown = [" ".join(model.vocab.show_all(row)) for row in ids[: len(own)].tolist()]
            columns += zip(holds, other, shown, strict=True)
    holds, other, shown = map(list, zip(*columns, strict=True))
    table = list_neurons(None, names, {"list": lists, "holds": holds, "other": other, "of": top, "tokens": shown})  # fmt: skip
    provenance = model.provenance(run_by=model.run_by, settings={"passages": len(prompts)})
    return ListChecks(provenance.note(table), provenance)


def _cut(model: Model, text: str) -> list[list[int]]:
    """Return the ends of a text that are asked in: its last tokens, and those of its first half."""
    ids = list(model.vocab.ids(text))
    halves = [ids, ids[: len(ids) // 2]] if len(ids) >= LEAST else [ids]
    most = min(CONTEXT, model.config.positions - 1)
    return [part[-most:] for part in halves if len(part) >= 2]


def _list_ids(
    model: Model, neurons: Sequence[NeuronId], top: int, *, by: str
) -> Int[Tensor, "row token"]:
    rows = pick_read(model, neurons, by=by)
    if by == "answer":
        readers = answer_readers(model, rows, convention="centred")
    else:
        readers = question_readers(model, rows, through="embed")
    return torch.cat([top_tokens(dots, top)[1].cpu() for _, dots in project_blocks(*readers)])


def _find_highest(
    traces: Sequence[Trace], layer: int, neurons: Sequence[int]
) -> Float[Tensor, " row"]:
    """Return each neuron's highest activation over the passages, BOS aside."""
    parts = [each.activations[layer, int(each.has_bos) :, list(neurons)] for each in traces]  # fmt: skip
    return torch.cat(parts).amax(dim=0)


def count_risen(
    replay: Replay,
    layer: int,
    neurons: Int[Tensor, " row"],
    ids: Int[Tensor, "row token"],
    highs: Float[Tensor, " row"],
) -> Float[Tensor, "2 row"]:
    """Set neurons of a layer at the last position, one at a time; count which tokens become likelier.

    The first row counts each neuron's own tokens, the second those under the neuron before it.
    """
    last = len(replay.trace) - 1
    gaps = highs - replay.trace.activations[layer, last, neurons]
    shifts = einsum(
        replay.held(gaps), replay.held(replay.model.rows[layer][neurons]),
        "variant, variant d_model -> variant d_model",
    )  # fmt: skip
    shifts = torch.cat([torch.zeros_like(shifts[:1]), shifts])[:, None]
    streams = replay.entering(layer + 1, start=last) + replay.moved(layer, [last], shifts)
    final = replay.finish(streams, layer=layer + 1, start=last)
    # Under each neuron its own tokens, then those of the next one (of the last, the first's).
    read = torch.cat([ids, ids.roll(-1, dims=0)], dim=1)
    risen = torch.split(_find_risen(replay, final[:, 0], read), ids.shape[1], dim=1)
    by_own, by_other = (each.sum(dim=1).float() for each in risen)
    return torch.stack([by_own, by_other.roll(1)])


def _find_risen(
    replay: Replay, final: Float[Tensor, "variant d_model"], read: Int[Tensor, "row token"]
) -> Bool[Tensor, "row token"]:
    """Find the tokens read whose probability is higher than in the first variant, the clean one."""
    model = replay.model
    seen = normalise(model, final)
    size = max(2, LOGITS_AT_ONCE // model.config.vocab)
    risen = []
    for start in range(1, len(seen), size):
        part = seen[start : start + size]
        # The clean row goes along in every product, so that it is rounded as the others are.
        logs = torch.log_softmax(unembed(model, torch.cat([seen[:1], part])), dim=-1)
        tokens = read[start - 1 : start - 1 + len(part)].to(logs.device)
        risen.append((logs[1:].gather(1, tokens) > logs[0][tokens]).cpu())
    return torch.cat(risen)


def _count_opening(
    replay: Replay, layer: int, neurons: Sequence[int], ids: Tensor, side: str, back: int
) -> Float[Tensor, "2 row"]:
    """Count each neuron's tokens, and the next one's, that raise its score at the end where they are put."""
    model, length = replay.model, len(replay.trace)
    start = max(int(replay.trace.has_bos), length - 1 - back)
    words, places = torch.unique(ids, return_inverse=True)
    at = torch.arange(start, length, device=model.device)[None]
    name = "gate_scores" if side == "gate" else "scores"
    seen: list[Tensor] = []
    hook = {name: lambda scores: seen.append(scores[:, -1, list(neurons)].cpu())}
    # What stood there goes along as the first variant of each part.
    stood = torch.tensor([replay.trace.ids[start]])
    for part in torch.split(words, WORDS_AT_ONCE):
        embedded = embed(model, torch.cat([stood, part])[:, None])[:, 0]
        streams = replay.entering(0, start=start).expand(len(part) + 1, -1, -1).clone()
        streams[:, 0] += embedded - embedded[:1]
        for number in range(layer + 1):
            hooks, past = [hook] if number == layer else None, [replay.past(number, start)]
            (streams,) = step(model, number, [streams], [at], past=past, hooks=hooks)
    is_raised = torch.cat([part[1:] > part[:1] for part in seen])  # [word neuron]
    order = torch.arange(len(neurons))[:, None]
    own_raised, next_raised = (
        is_raised[which, order].sum(dim=1).float() for which in (places, places.roll(-1, dims=0))
    )
    return torch.stack([own_raised, next_raised])
