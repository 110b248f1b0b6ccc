"""Figures of ablation: effects by neuron, effects against pushes, and maps of layers and positions."""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import plotly.graph_objects as go
import torch
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.interventions.ablation import Effects, LayerEffects
from ffnprobe.interventions.gradients import Estimates
from ffnprobe.interventions.group_ablation import GroupEffects
from ffnprobe.interventions.patching import LayerPatches, Patches
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.results import check_alike
from ffnprobe.tracing.neuron_tables import list_neurons
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.views.figures.bars import bars, height_of, neuron_hovers, room
from ffnprobe.views.figures.grids import Values, add_grid, label, new_grids
from ffnprobe.views.figures.labels import keep_apart
from ffnprobe.views.figures.pushes import draw_neurons
from ffnprobe.views.figures.words import say
from ffnprobe.views.theme import BLUE, GREY, apply_theme, plain

DESCRIBED = 40
# With more cells than this, numbers do not fit into them.
NUMBERED = 160

# A group of neurons with a longer name is shown by its number.
WIDE = 30


def plot_effects(effects: Effects, *, top: int = 10) -> go.Figure:
    """Draw the neurons with the largest effects, positive and negative."""
    asked = int((~effects.values.isnan()).sum())
    half = min(top, asked // 2 or 1)
    table = effects.top(half)
    if 2 * half <= asked:
        table = pd.concat([table, effects.against(half)[::-1]], ignore_index=True)
    title = f"Without {table['name'][0]} {effects.provenance.answer} loses {table.effect[0]:.3f} logits{_ahead(effects.values.nan_to_num(-math.inf))}"
    return draw_neurons(table, "effect", title, note=say(effects.provenance), x="effect in logits")


def plot_estimates(estimates: Estimates, *, top: int = 10) -> go.Figure:
    """Draw the neurons with the largest estimated effects."""
    table = estimates.top(min(top, estimates.trace.model.config.neurons))
    title = f"The gradient estimates that {estimates.provenance.answer} loses most without {table['name'][0]} ({table.estimate[0]:.3f} logits)"
    return draw_neurons(table, "estimate", title, note=say(estimates.provenance), x="estimated effect in logits")  # fmt: skip


def plot_patches(patches: Patches, *, top: int = 10) -> go.Figure:
    """Draw the neurons that carry most of the difference between two prompts."""
    asked = int((~patches.carried.isnan()).sum())
    table = patches.top(min(top, asked))
    title = f"{table['name'][0]} carries {table.carried[0]:.1%} of the difference, all together {patches.together:.1%}"
    return draw_neurons(table, "carried", title, note=say(patches.provenance), x="share of the difference carried")  # fmt: skip


def plot_groups(effects: GroupEffects) -> go.Figure:
    """Draw what the answer loses without each group."""
    values = effects.table.effect.tolist()
    figure = go.Figure(bars(values, hover=[f"{group}:" for group in effects.groups]))
    names = [f"group {n}" if len(name) > WIDE else name for n, name in enumerate(effects.groups)]
    label(figure.update_yaxes, names, autorange="reversed")
    most = max(range(len(values)), key=values.__getitem__)
    title = f"Without {names[most]} {effects.provenance.answer} loses {values[most]:.3f} logits"
    apply_theme(figure, title, note=say(effects.provenance), x="effect in logits", height=height_of(len(values)))  # fmt: skip
    return figure.update_xaxes(range=room(values))


def plot_against_pushes(effects: Effects, *, pushes: Pushes | None = None) -> go.Figure:
    """Draw every neuron's direct push against its total effect; the strongest are labelled with their tokens."""
    if pushes is None:
        raise OptionRefused(
            'the figure "pushes" needs the pushes as well.',
            remedy='fp.plot(effects, "pushes", pushes=fp.attribute(trace, answer))',
        )
    ours, theirs = effects.provenance, pushes.provenance
    check_alike(ours, theirs, naming="the effects and the pushes")
    if ours.position not in (None, theirs.position):
        raise OptionRefused(
            "the effects and the pushes differ in their position: "
            f"{ours.position} and {theirs.position}.",
            remedy="effects at the position whose pushes are drawn",
        )
    asked = [NeuronId(*pair) for pair in (~effects.values.isnan()).nonzero().tolist()]
    strength = effects.values.nan_to_num(0.0).abs() + pushes.values.abs() * ~effects.values.isnan()
    strong = set(sort_neurons(strength, min(DESCRIBED, len(asked))))
    names = sorted(strong)
    table = list_neurons(
        pushes.trace.model, names, {"push": pushes.values, "effect": effects.values},
        signs=pushes.activations,
    )  # fmt: skip
    others = [name for name in asked if name not in strong]
    rest = pd.DataFrame(
        {
            "name": [str(name) for name in others],
            "push": [float(pushes.values[n.layer, n.neuron]) for n in others],
            "effect": [float(effects.values[n.layer, n.neuron]) for n in others],
        }
    )
    return _scatter(table, rest, say(ours), str(ours.answer))


def plot_evidence(explanation: Explanation) -> go.Figure:
    """Draw the listed neurons' push, direct and through attention, against their total effect."""
    if "effect" not in explanation.neurons:
        raise OptionRefused(
            "this explanation was made without effects.", remedy="explain(…, effects=True)"
        )
    own = explanation.neurons
    drawn = own.assign(push=own.push + own.push_through_attention)
    note = f"the neurons listed; {say(explanation.provenance)}"
    return _scatter(drawn, drawn[:0], note, str(explanation.provenance.answer))


def _scatter(table: pd.DataFrame, rest: pd.DataFrame, note: str, answer: str) -> go.Figure:
    figure = go.Figure()
    ends = [*table.push, *table.effect, *rest.push, *rest.effect, 0.0]
    low, high = min(ends), max(ends)
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", name="effect = push",
                       line={"color": GREY, "dash": "dash", "width": 1}, hoverinfo="skip")  # fmt: skip
    if len(rest):
        figure.add_scatter(
            x=rest.push.tolist(), y=rest.effect.tolist(), text=rest.name.tolist(), mode="markers",
            name="other neurons", marker={"color": GREY, "size": 5, "opacity": 0.5},
            hovertemplate="%{text}: push %{x:.4f}, effect %{y:.4f}<extra></extra>",
        )  # fmt: skip
    strengths = (table.push.abs() + table.effect.abs()).tolist()
    named = keep_apart(
        table.push.tolist(), table.effect.tolist(), span=high - low or 1.0, strengths=strengths
    )
    figure.add_scatter(
        x=table.push.tolist(), y=table.effect.tolist(), mode="markers+text", name="the strongest",
        text=[name if row in named else "" for row, name in enumerate(table.name)],
        textposition="top center", marker={"color": BLUE, "size": 9},
        customdata=[plain(text) for text in neuron_hovers(table)],
        hovertemplate="%{customdata} push %{x:.4f}, effect %{y:.4f}<extra></extra>",
    )  # fmt: skip
    gaps = table.effect.abs() - table.push.abs()
    less, more = int((gaps < 0).sum()), int((gaps > 0).sum())
    many, than = (less, "smaller than") if less >= more else (more, "larger than")
    if not less + more:
        many, than = len(table), "as large as"
    title = f"For {many} of {len(table)} neurons the effect on {answer} is {than} the push"
    return apply_theme(figure, title, note=note, x="push in logits", y="total effect in logits")


def _ahead(values: Tensor) -> str:
    """Say that the first is ahead of all others, if it is."""
    strongest = values.ravel().sort(descending=True).values[:2]
    return ", more than any other" if len(strongest) == 2 and strongest[0] > strongest[1] else ""


def plot_map(effects: LayerEffects) -> go.Figure:
    """Draw what the answer loses without an MLP layer, at each position."""
    return _map(effects.values.tolist(), effects.tokens, effects.provenance, "effect", _lose)  # fmt: skip


def plot_explanation_map(explanation: Explanation) -> go.Figure:
    """Draw an explanation's map."""
    if explanation.map is None:
        raise OptionRefused(
            "this explanation was made without effects.", remedy="explain(…, effects=True)"
        )
    grid = explanation.map.pivot(index="layer", columns="position", values="effect")
    tokens = [explanation.trace.tokens[position] for position in map(int, grid.columns)]
    is_whole = None not in explanation.position_effects
    return _map(
        grid.to_numpy().tolist(), tokens, explanation.provenance, "effect", _lose, is_whole=is_whole
    )


def plot_patch_map(patches: LayerPatches) -> go.Figure:
    """Draw what each MLP layer carries from one prompt to the other, at each position."""
    pairs = zip(patches.tokens_source, patches.tokens_target, strict=True)
    tokens = [here if here == there else f"{there} → {here}" for here, there in pairs]
    grid = patches.carried.tolist()
    return _map(grid, tokens, patches.provenance, "share carried", _carry)


def _lose(effect: float) -> str:
    return f"{'loses' if effect >= 0 else 'gains'} {abs(effect):.2f} logits without"


def _carry(share: float) -> str:
    return f"{'gains' if share >= 0 else 'loses'} {abs(share):.0%} of the difference with"


def _map(
    grid: Values,
    tokens: Sequence[str],
    provenance: Provenance,
    bar: str,
    words: Callable[[float], str],
    *,
    is_whole: bool = True,
) -> go.Figure:
    figure = new_grids()
    layers = [f"L{layer}" for layer in range(len(grid))]
    digits = 2 if len(grid) * len(tokens) <= NUMBERED else None
    add_grid(figure, grid, rows=layers, columns=tokens, digits=digits, bar=bar)
    if len(tokens) > 6:
        figure.update_xaxes(tickangle=-40)
    cells = [
        (abs(v), layer, position)
        for layer, row in enumerate(grid)
        for position, v in enumerate(row)
    ]
    _, layer, position = max(cells, key=lambda cell: (cell[0], -cell[1], -cell[2]))
    ahead = _ahead(torch.tensor(grid).abs())
    if ahead and not is_whole:
        ahead = f"{ahead} measured"
    title = f"{provenance.answer} {words(grid[layer][position])} the MLP of L{layer} at {tokens[position]}{ahead}"
    return apply_theme(figure, title, note=say(provenance), height=140 + 34 * len(grid))
