"""What changes: effects of ablation and patching, by neuron and as maps, and the differences of two prompts."""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import plotly.graph_objects as go
import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.results import check_alike
from ffnprobe.tracing.neuron_tables import list_neurons
from ffnprobe.views.figures import draws
from ffnprobe.views.figures.parts import (
    VECTORS,
    Values,
    add_grid,
    bars,
    height_of,
    join_tokens,
    keep_apart,
    label,
    neuron_hovers,
    neuron_labels,
    new_grids,
    room,
    say,
)
from ffnprobe.views.figures.pushes import draw_neurons
from ffnprobe.views.theme import BLACK, BLUE, GREY, ORANGE, apply_theme, plain

DESCRIBED = 40
# With more cells than this, numbers do not fit into them.
NUMBERED = 160
# A group of neurons with a longer name is shown by its number.
WIDE = 30
# Below the axis and its name.
_LEGEND = {"orientation": "h", "y": -0.16}


@draws("neurons", "Effects")
def plot_effects(effects: "fp.Effects", *, top: int = 10) -> go.Figure:
    """Draw the neurons with the largest effects, positive and negative."""
    asked = int((~effects.values.isnan()).sum())
    half = min(top, asked // 2 or 1)
    table = effects.top(half)
    if 2 * half <= asked:
        table = pd.concat([table, effects.against(half)[::-1]], ignore_index=True)
    title = f"Without {table['name'][0]} {effects.provenance.answer} loses {table.effect[0]:.3f} logits{_ahead(effects.values.nan_to_num(-math.inf))}"
    return draw_neurons(table, "effect", title, note=say(effects.provenance), x="effect in logits")


@draws("neurons", "Estimates")
def plot_estimates(estimates: "fp.Estimates", *, top: int = 10) -> go.Figure:
    """Draw the neurons with the largest estimated effects."""
    table = estimates.top(min(top, estimates.trace.model.config.neurons))
    title = f"The gradient estimates that {estimates.provenance.answer} loses most without {table['name'][0]} ({table.estimate[0]:.3f} logits)"
    return draw_neurons(table, "estimate", title, note=say(estimates.provenance), x="estimated effect in logits")  # fmt: skip


@draws("neurons", "Patches")
def plot_patches(patches: "fp.Patches", *, top: int = 10) -> go.Figure:
    """Draw the neurons that carry most of the difference between two prompts."""
    asked = int((~patches.carried.isnan()).sum())
    table = patches.top(min(top, asked))
    title = f"{table['name'][0]} carries {table.carried[0]:.1%} of the difference, all together {patches.together:.1%}"
    return draw_neurons(table, "carried", title, note=say(patches.provenance), x="share of the difference carried")  # fmt: skip


@draws("groups", "GroupEffects")
def plot_groups(effects: "fp.GroupEffects") -> go.Figure:
    """Draw what the answer loses without each group."""
    values = effects.table.effect.tolist()
    figure = go.Figure(bars(values, hover=[f"{group}:" for group in effects.groups]))
    names = [f"group {n}" if len(name) > WIDE else name for n, name in enumerate(effects.groups)]
    label(figure.update_yaxes, names, autorange="reversed")
    most = max(range(len(values)), key=values.__getitem__)
    title = f"Without {names[most]} {effects.provenance.answer} loses {values[most]:.3f} logits"
    apply_theme(figure, title, note=say(effects.provenance), x="effect in logits", height=height_of(len(values)))  # fmt: skip
    return figure.update_xaxes(range=room(values))


@draws("pushes", "Effects", is_asked=True)
def plot_against_pushes(effects: "fp.Effects", *, pushes: "fp.Pushes | None" = None) -> go.Figure:
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
    return draw_evidence(table, rest, say(ours), str(ours.answer))


def draw_evidence(table: pd.DataFrame, rest: pd.DataFrame, note: str, answer: str) -> go.Figure:
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


@draws("map", "LayerEffects")
def plot_map(effects: "fp.LayerEffects") -> go.Figure:
    """Draw what the answer loses without an MLP layer, at each position."""
    return draw_map(effects.values.tolist(), effects.tokens, effects.provenance, "effect", say_loss)  # fmt: skip


@draws("map", "LayerPatches")
def plot_patch_map(patches: "fp.LayerPatches") -> go.Figure:
    """Draw what each MLP layer carries from one prompt to the other, at each position."""
    pairs = zip(patches.tokens_source, patches.tokens_target, strict=True)
    tokens = [here if here == there else f"{there} → {here}" for here, there in pairs]
    grid = patches.carried.tolist()
    return draw_map(grid, tokens, patches.provenance, "share carried", _say_share)


def say_loss(effect: float) -> str:
    return f"{'loses' if effect >= 0 else 'gains'} {abs(effect):.2f} logits without"


def _say_share(share: float) -> str:
    return f"{'gains' if share >= 0 else 'loses'} {abs(share):.0%} of the difference with"


def draw_map(
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


@draws("neurons", "Comparison")
def plot_compared_pushes(comparison: "fp.Comparison", *, top: int = 12) -> go.Figure:
    """Draw the neurons whose pushes differ most, one mark per prompt."""
    table = comparison.top(min(top, comparison.values.numel()))
    figure = go.Figure()
    hovers = [plain(text) for text in neuron_hovers(table)]
    heights = list(range(len(table)))
    for pushes, column, colour, symbol, size in (
        (comparison.first, "push_first", BLUE, "circle", 12),
        (comparison.second, "push_second", ORANGE, "diamond", 11),
    ):
        figure.add_scatter(
            x=table[column].tolist(), y=heights, mode="markers", name=_name(pushes),
            marker={"color": colour, "symbol": symbol, "size": size}, customdata=hovers,
            hovertemplate="%{customdata} %{x:+.4f}<extra></extra>",
        )  # fmt: skip
    for height, row in zip(heights, table.itertuples(), strict=True):
        ends = {"x0": row.push_first, "x1": row.push_second}
        figure.add_shape(
            type="line", y0=height, y1=height, line_width=2, line_color=GREY, layer="below", **ends
        )
    label(figure.update_yaxes, neuron_labels(table), autorange="reversed")
    known, first = comparison.provenance, table.iloc[0]
    title = f"{first['name']} differs most: it pushes {known.answer} by {first.push_first:+.3f} logits on the one prompt, {first.push_second:+.3f} on the other"
    figure.update_layout(legend=_LEGEND | {"y": -70 / height_of(len(table))})
    height = 60 + height_of(len(table))
    return apply_theme(figure, title, note=say(known), x="push in logits", height=height)


@draws("activations", "Comparison")
def plot_activations(comparison: "fp.Comparison") -> go.Figure:
    """Draw every neuron's activation on one prompt against that on the other."""
    there, here = comparison.first.activations, comparison.second.activations
    many = min(DESCRIBED, there.numel())
    table = comparison.top(many, by="activation")
    strong = torch.zeros_like(there, dtype=torch.bool)
    for name in sort_neurons(comparison.activations.abs(), many):
        strong[name.layer, name.neuron] = True
    low, high = (float(f(torch.stack([there, here]))) for f in (torch.min, torch.max))
    figure = go.Figure()
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", name="the same on both",
                       line={"color": GREY, "dash": "dash", "width": 1}, hoverinfo="skip")  # fmt: skip
    scatter = go.Scattergl if there.numel() > VECTORS else go.Scatter
    rest = (~strong).nonzero().tolist()
    figure.add_trace(
        scatter(
            x=there[~strong].tolist(), y=here[~strong].tolist(), mode="markers", name="other neurons",
            text=[str(NeuronId(*index)) for index in rest],
            marker={"color": GREY, "size": 4, "opacity": 0.4},
            hovertemplate="%{text}: %{x:.3f}, %{y:.3f}<extra></extra>",
        )
    )  # fmt: skip
    xs, ys = table.activation_first.tolist(), table.activation_second.tolist()
    gaps = [abs(x - y) for x, y in zip(xs, ys, strict=True)]
    named = keep_apart(xs, ys, span=high - low or 1.0, strengths=gaps)
    figure.add_scatter(
        x=xs, y=ys, mode="markers+text", name="the most different", marker={"color": BLUE, "size": 9},
        text=[name if row in named else "" for row, name in enumerate(table["name"])],
        textposition="top center", cliponaxis=False,
        customdata=[plain(text) for text in neuron_hovers(table)],
        hovertemplate="%{customdata} %{x:.3f}, %{y:.3f}<extra></extra>",
    )  # fmt: skip
    title = f"{table['name'].iloc[0]} acts most differently: {xs[0]:.2f} on the one prompt, {ys[0]:.2f} on the other"
    figure.update_layout(legend=_LEGEND)
    x, y = (f"activation on {_name(pushes)}" for pushes in (comparison.first, comparison.second))
    return apply_theme(figure, title, note=say(comparison.provenance), x=x, y=y, height=560)


@draws("layers", "Comparison")
def plot_compared_layers(comparison: "fp.Comparison") -> go.Figure:
    """Draw each layer's difference of pushes: its neurons, its attention, and their sum."""
    table = comparison.by_layer()
    layers = [f"L{layer}" for layer in table.layer]
    figure = go.Figure()
    for column, colour in (("neurons", BLUE), ("attention", ORANGE)):
        figure.add_bar(x=layers, y=table[column].tolist(), name=column, marker_color=colour)
    figure.add_scatter(x=layers, y=table.difference.tolist(), name="the layer's sum", mode="markers",
                       marker={"color": BLACK, "symbol": "diamond", "size": 10})  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_layout(legend=_LEGEND)
    most = int(table.neurons.abs().argmax())
    title = f"Of the difference of {comparison.difference:+.2f} logits the neurons of L{most} make the most, {table.neurons[most]:+.2f}"
    note = say(comparison.provenance)
    return apply_theme(figure, title, note=note, y="difference of pushes in logits", height=420)


def _name(pushes: "fp.Pushes") -> str:
    """Name a prompt by its tokens up to the position, BOS left out."""
    start = 1 if pushes.trace.has_bos and pushes.position else 0
    return plain(join_tokens(pushes.trace.tokens[start : pushes.position + 1]))
