"""Which few neurons carry the answer: sets removed together, as many neurons like them, other subjects.

1. **Rank** the sites (a neuron at a position) by what their removal is estimated to cost the answer, less
   what it may cost others:

       (a − m) ∂o/∂a − |∂o/∂a| s        o: the answer's log-odds, log p / (1 − p)

   a is the activation, m its mean over the contrast prompts at the aligned position and s the spread there
   (root mean square around m): a neuron that does for other subjects what it does here, or now this, now
   that, is not about this one. After the first two, five and ten the gradient is taken again with these
   removed, since later layers repair, until the answer is no longer first.
2. **Remove** the first n together (set to m) for n = 1, 2, 3, 5, 10, 20, 50, 100, 200.
3. The **verdict** is the least n at which the answer is no longer first. Beside it, up to the next size: as
   many neurons of the same layers and positions with the nearest activations, and the contrast prompts'
   own answers when the same neurons are set to the same values there.

Without contrast prompts m is what a removed neuron is usually set to, s is 0, and nothing is said of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.evidence.query import Query
from ffnprobe.evidence.together import draw_sources
from ffnprobe.interventions.batches import count_at_once
from ffnprobe.interventions.readout import Readout, read_answer
from ffnprobe.interventions.sweeps import Change, set_activations
from ffnprobe.models.arithmetic import cap
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import top_tokens
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.path_tables import Source
from ffnprobe.tracing.sinks import find_sinks

if TYPE_CHECKING:
    import pandas as pd

SIZES = (1, 2, 3, 5, 10, 20, 50, 100, 200)
ROUNDS = (2, 5, 10, SIZES[-1])
DRAWS = 5
NAMED = 5  # neurons in a sentence


@dataclass(frozen=True, eq=False)
class Curve:
    """What the answer becomes without the first n sites, and what the verdict is.

    sites    the ranked sites: name, layer, neuron, position, token, and what each is set to
    table    a row for each n: the answer's probability and rank, the token that is first, the mean and the
             least probability without n neurons like them, and how many contrast answers change
    others   of so many contrast prompts; 0 without contrast
    least    the verdict: the least n at which the answer is no longer first, or None
    is_first whether the answer is first to begin with
    """

    sites: "pd.DataFrame"
    table: "pd.DataFrame"
    others: int
    least: int | None
    is_first: bool = True

    @property
    def verdict(self) -> tuple[str, ...]:
        """Say in sentences which neurons carry the answer, and what happens without them."""
        if not self.is_first:
            return ("The answer is not first, so no set of neurons is sought that carries it.",)
        if not len(self.table):
            return ("No neuron is found that carries it.",)
        if self.least is None:
            row = self.table.iloc[-1]
            return (
                f"No few neurons carry it: without {row.removed} it is still first "
                f"({_percent(row.probability)}).",
            )
        row = self.table[self.table.removed == self.least].iloc[0]
        own = self.sites[: self.least]
        where = " ".join(own.drop_duplicates("position").sort_values("position").token)
        names = " ".join(own.name[:NAMED])
        more = "" if len(own) <= NAMED else f" and {len(own) - NAMED} more"
        many, them = _count(self.least)
        said = [
            f"{many} at {where} carr{'ies' if self.least == 1 else 'y'} it: {names}{more}. "
            f"Without {them} {row['first']} is first; it has {_percent(row.probability)} "
            f"(rank {row['rank']:,}).",
            f"{many} like {them}: {_percent(row.alike)}, at worst {_percent(row.worst)}.",
        ]
        if self.others:
            said[1] += (
                f" For {self.others} other subjects: {row.changed} of {self.others} answers change."
            )
        else:
            said[1] += " Nothing was found to compare it with."
        return tuple(said)


def _count(many: int) -> tuple[str, str]:
    return ("1 neuron", "it") if many == 1 else (f"{many} neurons", "them")


def _percent(share: float) -> str:
    """Write a probability so that 99.97 % is not all and 0.004 % not nothing."""
    digits = 2 if share > 0.999 or share < 0.001 else 1
    return f"{share:.{digits}%}".replace("%", " %")


@torch.no_grad()
def draw_curve(query: Query) -> Curve:
    """Rank the sites, remove them in sets, and compare with other neurons and other subjects."""
    import pandas as pd

    readout, trace = query.readout, query.trace
    before = _read(readout, [])[0]
    is_first = before.rank == 1
    ranked = rank_sites(query) if is_first else []
    sites = pd.DataFrame(
        [
            (str(n), n.layer, n.neuron, p, trace.tokens[p], query.change((n, p)).value)
            for n, p in ranked
        ],
        columns=["name", "layer", "neuron", "position", "token", "set_to"],
    )
    sizes = [size for size in SIZES if size <= len(ranked)]
    found = _read(readout, [[query.change(one) for one in ranked[:n]] for n in sizes])[1:]
    least = next((n for n, after in zip(sizes, found, strict=True) if after.rank > 1), None)
    # One size beyond the verdict shows whether it holds; what is beyond that nobody asks.
    shown = sizes if least is None else sizes[: sizes.index(least) + 2]
    alike = _measure_alike(query, [ranked[:n] for n in shown])
    changed, others = _count_changed(query, [ranked[:n] for n in shown])
    show = trace.model.vocab.show
    rows = [
        (n, after.probability, after.rank, show(after.first), mean, worst, count)
        for n, after, (mean, worst), count in zip(shown, found, alike, changed, strict=False)
    ]
    columns = ["removed", "probability", "rank", "first", "alike", "worst", "changed"]
    table = pd.DataFrame(rows, columns=columns)
    return Curve(sites, table if others else table.drop(columns="changed"), others, least, is_first)


def rank_sites(query: Query) -> list[Source]:
    """Rank sites by what their removal costs the answer, less what it may cost others."""
    given = query.replacement.expand_as(query.trace.activations)
    spread, allowed = torch.zeros_like(given), _find_allowed(query)
    if query.contrast is not None:
        spread = measure_spread(query.contrast)
    chosen: list[Source] = []
    for many in ROUNDS:
        slopes, seen, is_first = _slope_odds(query, chosen)
        cost = slopes * (seen - given) - slopes.abs() * spread
        cost[:, ~allowed] = 0
        for name, position in chosen:
            cost[name.layer, position, name.neuron] = 0
        chosen += _list_largest(cost, (many if is_first else SIZES[-1]) - len(chosen))
        if not is_first:
            break
    return chosen


def measure_spread(contrast: Contrast) -> Float[Tensor, "layer pos neuron"]:
    """Return how far activations on contrast prompts are from their mean: root mean square, by position."""
    own, mean = contrast.trace.activations, contrast.replacement
    total, counts = torch.zeros_like(own), torch.zeros(len(contrast.trace))
    for other, matched in zip(contrast.others, contrast.alignment.counterparts, strict=True):
        here = [position for position, there in enumerate(matched) if there is not None]
        there = [position for position in matched if position is not None]
        total[:, here] += (other.activations[:, there] - mean[:, here]).square()
        counts[here] += 1
    return (total / counts.clamp(min=1)[:, None]).sqrt()


def _find_allowed(query: Query) -> Tensor:
    """Mark the positions whose neurons may be in a set."""
    trace = query.trace
    allowed = torch.ones(len(trace), dtype=torch.bool)
    if query.contrast is None:
        allowed[list(find_sinks(trace.activations))] = False
        return allowed
    allowed[: query.contrast.alignment.front] = False
    allowed[list(query.contrast.alignment.unmatched)] = False
    return allowed


def _list_largest(cost: Float[Tensor, "layer pos neuron"], many: int) -> list[Source]:
    """List the sites of largest positive cost."""
    _, length, neurons = cost.shape
    values, order = top_tokens(cost.ravel()[None], min(many, cost.numel()))
    found = []
    for value, cell in zip(values[0].tolist(), order[0].tolist(), strict=True):
        rest, neuron = divmod(cell, neurons)
        layer, position = divmod(rest, length)
        if value > 0:
            found.append((NeuronId(layer, neuron), position))
    return found


def _slope_odds(
    query: Query, removed: Sequence[Source]
) -> tuple[Float[Tensor, "layer pos neuron"], Float[Tensor, "layer pos neuron"], bool]:
    """Return the slope of the answer's log-odds along every activation, and the activations themselves.

    Both with some sites removed, and whether the answer is still first. Of several tokens the log-odds
    are added up.
    """
    readout, replay = query.readout, query.readout.replay
    own = replay.trace.activations
    nudges = replay.held(torch.zeros_like(own)).requires_grad_()
    seen = torch.empty_like(own)
    edit = set_activations([[query.change(one) for one in removed]], len(replay.trace))

    def nudge(layer: int, activations: Tensor) -> Tensor:
        # The edit's first variant is the clean one; here there is one variant, with its changes.
        changed = edit(layer, torch.cat([activations, activations]))[1:] if removed else activations
        seen[layer] = changed[0].detach().cpu()
        return changed + nudges[layer]

    with torch.enable_grad():
        stream = replay.entering(0, start=0)[None]
        final = replay.finish(stream, layer=0, start=0, edit=nudge)
        logits = _logits(readout, final, start=0)[0]
        answers = logits.gather(-1, _tokens(readout, logits))
        rest = logits.scatter(-1, _tokens(readout, logits), float("-inf")).logsumexp(-1)
        (slopes,) = torch.autograd.grad((answers[:, 0] - rest).sum(), nudges)
    length = len(query.trace)
    is_first = bool((answers[:, 0] >= logits.amax(dim=-1)).all())
    return slopes.cpu()[:, :length], seen[:, :length], is_first


@dataclass(frozen=True)
class After:
    """How an answer stands: its probability, its rank (of several tokens the worst), and who is first."""

    probability: float
    rank: int
    first: int


def _read(readout: Readout, groups: Sequence[Sequence[Change]]) -> list[After]:
    """Make each group's changes together and read the answer; the clean prompt comes first."""
    replay, found = readout.replay, list[After]()
    every = [change for group in groups for change in group]
    layer = min((c.layer for c in every), default=replay.model.config.layers)
    start = min((c.position for c in every), default=readout.first)
    clean, size = replay.entering(layer, start=start), count_at_once(replay, start)
    for begin in range(0, max(1, len(groups)), size):
        batch = groups[begin : begin + size]
        final = replay.finish(
            clean.repeat(1 + len(batch), 1, 1), layer=layer, start=start,
            edit=set_activations(batch, len(replay.trace)),
        )  # fmt: skip
        logits = _logits(readout, final, start=start)[0 if begin == 0 else 1 :]
        for row in logits:
            own = row.gather(-1, _tokens(readout, row))
            ranks = 1 + (row > own).sum(dim=-1)
            chance = (own[:, 0] - row.logsumexp(-1)).double().sum().exp()
            found.append(After(float(chance), int(ranks.max()), int(row[0].argmax())))
    return found


def _logits(readout: Readout, final: Tensor, *, start: int) -> Float[Tensor, "variant piece vocab"]:
    """Return the logits that the answer's tokens are read from."""
    replay, model = readout.replay, readout.replay.model
    read = slice(readout.first - start, readout.first - start + len(readout.tokens))
    weights = replay.held(model.unembedding), replay.held(model.unembedding_bias)
    return cap(model, torch.nn.functional.linear(replay.normalise(final[:, read]), *weights))


def _tokens(readout: Readout, like: Tensor) -> Tensor:
    return torch.tensor(readout.tokens, device=like.device)[:, None]


def _measure_alike(query: Query, sets: Sequence[Sequence[Source]]) -> list[tuple[float, float]]:
    """Return the mean and least probability without as many neurons like those of each set."""
    groups = []
    for number, sources in enumerate(sets):
        generator = torch.Generator().manual_seed(query.seed + number)
        groups += [draw_sources(query, sources, generator) for _ in range(DRAWS)]
    changes = [[query.change(one) for one in group] for group in groups]
    chances = [after.probability for after in _read(query.readout, changes)[1:]] if groups else []
    drawn = [chances[n : n + DRAWS] for n in range(0, len(chances), DRAWS)]
    return [(sum(each) / DRAWS, min(each)) for each in drawn]


def _count_changed(query: Query, sets: Sequence[Sequence[Source]]) -> tuple[list[int], int]:
    """Count the contrast prompts whose own answer is no longer first without each set, and the prompts."""
    contrast = query.contrast
    counts = [0] * len(sets)
    if contrast is None or not sets:
        return counts, 0
    for number, other in enumerate(contrast.others):
        counterparts = contrast.alignment.counterparts[number]
        changes = [
            [
                query.change(one, there)
                for one in sources
                if (there := counterparts[one[1]]) is not None
            ]
            for sources in sets
        ]
        readout = read_answer(other, contrast.answers[number])
        clean, *after = _read(readout, changes)
        for size, found in enumerate(after):
            counts[size] += found.first != clean.first
    return counts, len(contrast.others)
