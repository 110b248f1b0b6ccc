"""How good evidence is: which few neurons carry the answer (a curve), and a grade for each neuron.

1. **Rank** the sites (a neuron at a position) by what their removal is estimated to cost the answer, less
   what it may cost others:

       (a − m) ∂o/∂a − |∂o/∂a| s        o: the answer's log-odds, log p / (1 − p)

   a is the activation, m its mean over the contrast prompts at the aligned position and s the spread there
   (root mean square around m): a neuron that does for other subjects what it does here, or now this, now
   that, is not about this one. Behind the subject s counts twice, since neurons there serve all subjects. After
   the first one, two, three, five and ten the gradient is taken again with these removed, since later layers
   repair, until the answer is no longer first.
2. **Remove** the first n together (set to m) for n = 1, 2, 3, 5, 10, 20, 50, 100, 200, and for every n between
   the two sizes where the answer falls.
3. The **verdict** is the least n at which the answer is no longer first. Beside it, up to the next size: as
   many neurons of the same layers and positions with the nearest activations, and the contrast prompts'
   own answers when the same neurons are set to the same values there.

Without contrast prompts m is what a removed neuron is usually set to, s is 0, and nothing is said of others.
With a rival o is the answer's lead over it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.interventions.question import Counterfactual, Gradients, measure_slopes
from ffnprobe.interventions.replay import LOGITS_AT_ONCE, Readout, read_answer
from ffnprobe.interventions.sweeps import Change, replay_changes, replay_prompts
from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import sort_sites
from ffnprobe.tracing.trace import find_sinks

if TYPE_CHECKING:
    import pandas as pd

# Of the curve.
SIZES = (1, 2, 3, 5, 10, 20, 50, 100, 200)
ROUNDS = (1, 2, 3, 5, 10, SIZES[-1])
BEHIND = 2  # times the spread, at positions behind the subject
DRAWS = 5
NAMED = 5  # neurons in a sentence
# Of the grades.
BEYOND = 0.99
CHANCE = 0.05
CONTROLS = 200
NEAREST = 20
SIZE = 0.02  # of what all neurons are worth
NEAR = 0.25  # of a bar
LETTERS = {3: "A", 2: "B", 1: "C", 0: ""}
# Beyond these ranks an answer gets no A; beyond the other, words say the model would not give it.
RANK_FOR_A = 100
RANK_SAID = 10


def list_largest(
    values: Float[Tensor, "layer pos neuron"], many: int, *, smallest: bool = False
) -> list[Site]:
    """List the sites of largest positive value, or of smallest negative."""
    signed = -values if smallest else values
    return [(n, at) for n, at in sort_sites(signed, many) if signed[n.layer, at, n.neuron] > 0]


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
            return ("It is not first, so no set of neurons is sought that carries it.",)
        if not len(self.table):
            return ("No neuron is found that carries it.",)
        if self.least is None:
            row = self.table.iloc[-1]
            return (
                f"No few neurons carry it: without {row.removed} it is still first "
                f"({percent(row.probability)}).",
            )
        row = self.table[self.table.removed == self.least].iloc[0]
        is_one, sites = self.least == 1, self.sites[: self.least]
        where = " ".join(sites.drop_duplicates("position").sort_values("position").token)
        has_several = sites.position.nunique() > 1
        names = sites.name + "@" + sites.position.astype(str) if has_several else sites.name
        more = f" and {len(sites) - NAMED} more" if len(sites) > NAMED else ""
        many, them = ("1 neuron", "it") if is_one else (f"{self.least} neurons", "them")
        carried = (
            f"{many} at {where} carr{'ies' if is_one else 'y'} it: {' '.join(names[:NAMED])}{more}. Without "
            f"{them} {percent(row.probability)} (rank {row['rank']:,}; first is now {row['first']})."
        )
        compared = " It was compared with nothing."
        if self.others:
            same = "it" if is_one else f"the same {self.least}"
            compared = (
                f" Without {same}, {row.changed} of {self.others} other subjects' answers change."
            )
        return carried, f"{many} like {them}: {percent(row.alike)}.{compared}"


def percent(share: float) -> str:
    """Write a probability so that 99.97 % is not all and 0.004 % not nothing.

    >>> percent(0.9997), percent(0.349), percent(0.00004), percent(1e-9)
    ('99.97 %', '34.9 %', '0.004 %', '1e-07 %')
    """
    if 0 < share < 1e-5:
        return f"{100 * share:.0e} %"
    digits = 2 if share > 0.999 else 3 if share < 0.0001 else 2 if share < 0.001 else 1
    return f"{100 * share:.{digits}f} %"


@torch.no_grad()
def draw_curve(question: Counterfactual, ranked: Sequence[Site], *, seed: int) -> Curve:
    """Remove the ranked sites in sets, and compare with other neurons and other subjects."""
    import pandas as pd

    is_first = max(piece.rank for piece in question.pieces) == 1
    trace, set_to = question.trace, [question.change(site).value for site in ranked]
    sites = list_neurons(trace.model, ranked, {"set_to": set_to}, tokens=trace.tokens)
    sizes = [size for size in SIZES if size <= len(ranked)] if is_first else []

    def read(many: Sequence[int]) -> dict[int, After]:
        groups = [[question.change(site) for site in ranked[:n]] for n in many]
        return dict(zip(many, read_after(question.readout, groups), strict=True))

    after = read(sizes[:6])  # most answers fall within 20
    if all(one.rank == 1 for one in after.values()):
        after |= read(sizes[6:])
    least = next((n for n in sizes if n in after and after[n].rank > 1), None)
    if least is not None:
        # Between two sizes the answer falls at one number; that is the verdict.
        after |= read(range(max((n for n in sizes if n < least), default=0) + 1, least))
        least = min(n for n, one in after.items() if one.rank > 1)
        # One size beyond the verdict shows whether it holds; what is beyond that nobody asks.
        beyond = [n for n in sizes if n > least][:1]
        after |= read([n for n in beyond if n not in after])
        sizes = sorted({*(n for n in sizes if n < least), least, *beyond})
    sets = [ranked[:n] for n in sizes]
    alike = _measure_alike(question, sets, seed)
    changed, others = _count_changed(question, sets)
    show = trace.model.vocab.show
    rows = [
        (n, after[n].probability, after[n].rank, show(after[n].first), mean, worst, count)
        for n, (mean, worst), count in zip(sizes, alike, changed, strict=True)
    ]
    columns = ["removed", "probability", "rank", "first", "alike", "worst", "changed"]
    table = pd.DataFrame(rows, columns=columns)
    return Curve(sites, table if others else table.drop(columns="changed"), others, least, is_first)


def rank_sites(question: Counterfactual, slopes: Gradients) -> list[Site]:
    """Rank sites by what their removal costs the answer, less what it may cost others.

    `slopes` are those of the clean prompt.
    """
    spread, start = measure_spread(question), int(find_allowed(question).int().argmax())
    chosen, tokens = list[Site](), torch.tensor(question.readout.tokens)[:, None]
    for many in ROUNDS:
        logits = slopes.logits.gather(-1, tokens.to(slopes.logits.device))[:, 0]
        is_first = bool((logits >= slopes.logits.amax(dim=-1)).all())
        costs = measure_costs(question, slopes, spread)
        for name, position in chosen:
            costs[name.layer, position, name.neuron] = 0
        chosen += list_largest(costs, (many if is_first else SIZES[-1]) - len(chosen))
        if not is_first or len(chosen) < many or many == ROUNDS[-1]:
            break
        changes = [question.change(site) for site in chosen]
        slopes = measure_slopes(question.readout, changes, start=start, of=("odds",))
    return chosen


def measure_costs(
    question: Counterfactual, slopes: Gradients, spread: Float[Tensor, "layer pos neuron"]
) -> Float[Tensor, "layer pos neuron"]:
    """Estimate what each site's removal costs the answer, in log-odds, less what it may cost others."""
    length, before = len(question.trace), question.trace.activations
    odds, activations = slopes.odds[:, :length], slopes.activations[:, :length]
    others = odds.abs() * spread
    if question.contrast is not None:
        others[:, question.contrast.alignment.middle.stop :] *= BEHIND
    costs = odds * (activations - before + question.gaps) - others
    costs[:, ~find_allowed(question)] = 0
    return costs


def measure_spread(question: Counterfactual) -> Float[Tensor, "layer pos neuron"]:
    """Return how far activations on contrast prompts are from their mean: root mean square, by position."""
    contrast, total = question.contrast, torch.zeros_like(question.trace.activations)
    if contrast is None:
        return total
    mean, counts = contrast.replacement, torch.zeros(len(contrast.trace))
    for other, matched in zip(contrast.others, contrast.alignment.counterparts, strict=True):
        here = [position for position, there in enumerate(matched) if there is not None]
        there = [position for position in matched if position is not None]
        total[:, here] += (other.activations[:, there] - mean[:, here]).square()
        counts[here] += 1
    return (total / counts.clamp(min=1)[:, None]).sqrt()


def find_allowed(question: Counterfactual) -> Tensor:
    """Mark the positions whose neurons may be in a set: with a counterpart that differs, and no sink."""
    allowed = torch.ones(len(question.trace), dtype=torch.bool)
    if question.contrast is None:
        allowed[list(find_sinks(question.trace.activations))] = len(allowed) == 1
        return allowed
    allowed[: question.contrast.alignment.front] = False
    allowed[list(question.contrast.alignment.unmatched)] = False
    return allowed


@dataclass(frozen=True)
class After:
    """How an answer stands: its probability, its rank (of several tokens the worst), and who is first."""

    probability: float
    rank: int
    first: int


def read_after(readout: Readout, groups: Sequence[Sequence[Change]]) -> list[After]:
    """Make each group's changes together, each group by itself, and read the answer."""
    return _read(readout, replay_changes(readout, groups))


def _read(readout: Readout, final: Float[Tensor, "group piece d_model"]) -> list[After]:
    after, tokens = list[After](), torch.tensor(readout.tokens)[:, None]
    for part in torch.split(final, max(1, LOGITS_AT_ONCE // readout.replay.model.config.vocab)):
        for row in readout.logits(part, start=readout.first):
            logits = row.gather(-1, tokens.to(row.device))
            ranks = 1 + (row > logits).sum(dim=-1)
            chance = (logits[:, 0] - row.logsumexp(-1)).double().sum().exp()
            after.append(After(float(chance), int(ranks.max()), int(row[0].argmax())))
    return after


def draw_like(
    question: Counterfactual, sites: Sequence[Site], generator: torch.Generator
) -> list[Site]:
    """Draw as many neurons like these: same positions, same layers, nearest activation sizes."""
    drawn: list[Site] = []
    for position in dict.fromkeys(there for _, there in sites):
        names = [name for name, there in sites if there == position]
        activations = question.trace.activations[:, position].abs()
        sizes = activations.clone()
        for name in names:
            sizes[name.layer, name.neuron] = float("inf")
        for name in names:
            # One at a time, so that each has one like itself; none twice.
            sizes[name.layer, name.neuron] = activations[name.layer, name.neuron]
            alike = draw_alike(sizes, [name], 1, generator=generator)
            for one in (name, *alike):
                sizes[one.layer, one.neuron] = float("inf")
            drawn += [(one, position) for one in alike]
    return drawn


def _measure_alike(
    question: Counterfactual, sets: Sequence[Sequence[Site]], seed: int
) -> list[tuple[float, float]]:
    """Return the mean and least probability without as many neurons like those of each set."""
    groups = []
    for number, sites in enumerate(sets):
        generator = torch.Generator().manual_seed(seed + number)
        groups += [draw_like(question, sites, generator) for _ in range(DRAWS)]
    changes = [[question.change(site) for site in group] for group in groups]
    chances = [after.probability for after in read_after(question.readout, changes)]
    drawn = [chances[n : n + DRAWS] for n in range(0, len(chances), DRAWS)]
    return [(sum(each) / DRAWS, min(each)) for each in drawn]


def _count_changed(
    question: Counterfactual, sets: Sequence[Sequence[Site]]
) -> tuple[list[int], int]:
    """Count the contrast prompts whose own answer is no longer first without each set, and the prompts."""
    contrast = question.contrast
    counts = [0] * len(sets)
    if contrast is None or not sets:
        return counts, 0
    changes = [
        [
            [question.change(one, there) for one in sites if (there := places[one[1]]) is not None]
            for sites in sets
        ]
        for places in contrast.alignment.counterparts
    ]
    readouts = [
        read_answer(other, token, log_probability=False)
        for other, token in zip(contrast.others, contrast.answers, strict=True)
    ]
    for readout, final in zip(readouts, replay_prompts(readouts, changes), strict=True):
        first = int(readout.replay.trace.logits[-1].argmax())
        for size, after in enumerate(_read(readout, final)):
            counts[size] += after.first != first
    return counts, len(contrast.others)


@dataclass(frozen=True)
class Bars:
    """Bars for a grade of evidence that a neuron carries an answer: how many of three tests it passes.

        weights   its answer, in the direction it acted here, stands out for the token: z ≥ q
        push      it pushed the token harder than neurons like it do by chance
        effect    removing it costs the token more than removing neurons like it does by chance

    A passes all three, and its effect is at least 2 % of what all neurons are worth here (`size`); B passes
    two (or three, for less), C one; a neuron that passes none has no grade. An answer the model ranks beyond
    100 gets no A. A question mark says that a push or an effect is within a quarter of its bar, and the letter
    hangs on it: another draw of neurons like these may change it.

    Neurons like it (the control) are 200 of the same position and layers, drawn among those with the nearest
    activation sizes. Their pushes are known, their effects are estimated. The bar is the higher of two: what
    99 in 100 of the control stay below, and

        median + q · 1.4826 · median absolute deviation        q = Φ⁻¹(1 − 0.05 / sites looked at)

    so that of all the sites looked at (neurons at positions), chance alone would lift about one in twenty
    prompts' best over it if their values were normal. z is a number of standard deviations, and q is its bar.
    A grade says how much speaks for the neuron, not that the fact is stored in it.
    """

    z: float
    push: float
    effect: float
    size: float

    def grade(self, z: float, push: float, effect: float, *, rank: int) -> str:
        """Count the tests passed; what was not measured (NaN) is not passed."""
        most = 3 if effect >= self.size and rank <= RANK_FOR_A else 2
        letters = []
        for scale in (1, 1 - NEAR, 1 + NEAR):
            passed = (z >= self.z) + (push > scale * self.push) + (effect > scale * self.effect)
            letters.append(LETTERS[min(passed, most)])
        return letters[0] + ("?" if letters[0] and len(set(letters)) > 1 else "")


def find_bar(values: Float[Tensor, " control"], *, looked_at: int) -> float:
    """Return what no value exceeds by chance, however many are looked at; never below zero."""
    if not len(values):
        return 0.0
    values = values.double()
    middle = float(values.quantile(0.5))
    spread = 1.4826 * float((values - middle).abs().quantile(0.5))
    return max(0.0, float(values.quantile(BEYOND)), middle + far(looked_at) * spread)


def far(looked_at: int) -> float:
    """Return how many standard deviations the best of so many exceeds once in twenty times."""
    return NormalDist().inv_cdf(1 - CHANCE / max(1, looked_at))


def draw_alike(
    sizes: Float[Tensor, "layer neuron"],
    chosen: Sequence[NeuronId],
    many: int,
    *,
    generator: torch.Generator,
) -> list[NeuronId]:
    """Draw neurons like those chosen: of the same layers, with the nearest activation sizes."""
    taken: dict[int, list[int]] = {}
    for one in chosen:
        taken.setdefault(one.layer, []).append(one.neuron)
    drawn, nearest = list[NeuronId](), dict[int, np.ndarray]()
    order = torch.randint(len(chosen), (many,), generator=generator).tolist() if chosen else []
    for pick in order:
        name = chosen[pick]
        if pick not in nearest:
            layer = sizes[name.layer].numpy()
            gaps = np.abs(layer - layer[name.neuron])
            gaps[taken[name.layer]] = np.inf
            most = min(NEAREST, int(np.isfinite(gaps).sum()))
            near = np.sort(np.argpartition(gaps, max(most, 1) - 1)[:most])
            nearest[pick] = near[np.argsort(gaps[near], kind="stable")]
        if len(alike := nearest[pick]):
            number = int(torch.randint(len(alike), (1,), generator=generator))
            drawn.append(NeuronId(name.layer, int(alike[number])))
    return drawn
