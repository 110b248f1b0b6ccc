"""What changes: effects of ablation and patching, two prompts compared, and explanations, which show all of it."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

import pandas as pd
import plotly.graph_objects as go
import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import sort_neurons
from ffnprobe.results import check_alike
from ffnprobe.views.figures import charts, draws
from ffnprobe.views.figures.predictions import plot_predictions
from ffnprobe.views.figures.pushes import draw_neurons, draw_paths, draw_waterfall, plot_layers
from ffnprobe.views.theme import BLACK, BLUE, GREY, ORANGE, VERMILLION, apply_theme, plain

DESCRIBED = 40
# With more cells than this, numbers do not fit into them.
NUMBERED = 160
# A group of neurons with a longer name is shown by its number.
WIDE = 30
LOSS = ("loses", "gains", "{:.2f} logits without")
SHARE = ("gains", "loses", "{:.0%} of the difference with")


@draws("neurons", "Effects")
def plot_effects(effects: "fp.Effects", *, top: int = 10) -> go.Figure:
    table = charts.list_both_ends(effects, top, among=int((~effects.values.isnan()).sum()))
    ahead = _say_ahead(effects.values.nan_to_num(-math.inf))
    title = f"Without {table['name'][0]} {effects.provenance.answer} loses {table.effect[0]:.3f} logits{ahead}"
    return draw_neurons(table, "effect", title, effects.provenance, x="effect in logits")


@draws("neurons", "Estimates")
def plot_estimates(estimates: "fp.Estimates", *, top: int = 10) -> go.Figure:
    table = estimates.top(min(top, estimates.trace.model.config.neurons))
    title = f"The gradient estimates that {estimates.provenance.answer} loses most without {table['name'][0]} ({table.estimate[0]:.3f} logits)"
    x = "estimated effect in logits"
    return draw_neurons(table, "estimate", title, estimates.provenance, x=x)


@draws("neurons", "Patches")
def plot_patches(patches: "fp.Patches", *, top: int = 10) -> go.Figure:
    table = patches.top(min(top, int((~patches.carried.isnan()).sum())))
    title = f"{table['name'][0]} carries {table.carried[0]:.1%} of the difference, all together {patches.together:.1%}"
    x = "share of the difference carried"
    return draw_neurons(table, "carried", title, patches.provenance, x=x)


@draws("groups", "GroupEffects")
def plot_groups(effects: "fp.GroupEffects") -> go.Figure:
    values = effects.table.effect.tolist()
    names = [f"group {n}" if len(name) > WIDE else name for n, name in enumerate(effects.groups)]
    hover = [f"{group}:" for group in effects.groups]
    most = max(range(len(values)), key=values.__getitem__)
    title = f"Without {names[most]} {effects.provenance.answer} loses {values[most]:.3f} logits"
    look = {"note": charts.say(effects.provenance), "x": "effect in logits"}
    return charts.draw_bars(values, title, names=names, hover=hover, **look)


@draws("pushes", "Effects", is_asked=True)
def plot_against_pushes(effects: "fp.Effects", *, pushes: "fp.Pushes | None" = None) -> go.Figure:
    """Draw every neuron's direct push against its total effect; the strongest are labelled with their tokens."""
    if pushes is None:
        remedy = 'fp.plot(effects, "pushes", pushes=fp.attribute(trace, answer))'
        raise OptionRefused('the figure "pushes" needs the pushes as well.', remedy=remedy)
    ours, theirs = effects.provenance, pushes.provenance
    check_alike(ours, theirs, naming="the effects and the pushes")
    if ours.position not in (None, theirs.position):
        raise OptionRefused(
            "the effects and the pushes differ in their position: "
            f"{ours.position} and {theirs.position}.",
            remedy="effects at the position whose pushes are drawn",
        )
    asked = ~effects.values.isnan()
    strength = effects.values.nan_to_num(0.0).abs() + pushes.values.abs() * asked
    strong = sorted(sort_neurons(strength, min(DESCRIBED, int(asked.sum()))))
    drawn = {"push": pushes.values, "effect": effects.values}
    table = list_neurons(pushes.trace.model, strong, drawn, signs=pushes.activations)
    rest = _list_rest(asked, strong, drawn)
    return _draw_evidence(table, rest if len(rest) else None, ours, charts.say(ours))


@draws("map", "LayerEffects")
def plot_map(effects: "fp.LayerEffects") -> go.Figure:
    return _draw_map(effects.values.tolist(), effects.tokens, effects.provenance, "effect", LOSS)


@draws("map", "LayerPatches")
def plot_patch_map(patches: "fp.LayerPatches") -> go.Figure:
    pairs = zip(patches.tokens_source, patches.tokens_target, strict=True)
    tokens = [here if here == there else f"{there} → {here}" for here, there in pairs]
    grid = patches.carried.tolist()
    return _draw_map(grid, tokens, patches.provenance, "share carried", SHARE)


@draws("neurons", "Comparison")
def plot_compared_pushes(comparison: "fp.Comparison", *, top: int = 12) -> go.Figure:
    table = comparison.top(min(top, comparison.values.numel()))
    figure = charts.draw_pairs(
        charts.neuron_labels(table),
        {"x": table.push_first.tolist(), "name": _say_prompt(comparison.first),
         "marker": {"color": BLUE, "symbol": "circle", "size": 12}},
        {"x": table.push_second.tolist(), "name": _say_prompt(comparison.second),
         "marker": {"color": ORANGE, "symbol": "diamond", "size": 11}},
        customdata=[plain(text) for text in charts.neuron_hovers(table)],
        hovertemplate="%{customdata} %{x:+.4f}<extra></extra>", line={"width": 2, "color": GREY},
    )  # fmt: skip
    first, provenance = table.iloc[0], comparison.provenance
    title = (
        f"{first['name']} differs most: it pushes {provenance.answer} by {first.push_first:+.3f} "
        f"logits on the one prompt, {first.push_second:+.3f} on the other"
    )
    height, note = charts.height_of(len(table)), charts.say(provenance)
    apply_theme(figure, title, note=note, x="push in logits", height=60 + height)
    return figure.update_layout(legend=charts.BELOW | {"y": -70 / height})


@draws("activations", "Comparison")
def plot_activations(comparison: "fp.Comparison") -> go.Figure:
    """Draw every neuron's activation on one prompt against that on the other."""
    first, second = comparison.first, comparison.second
    columns = {"activation_first": first.activations, "activation_second": second.activations}
    size = comparison.activations.numel()
    many = min(DESCRIBED, size)
    table = comparison.top(many, by="activation")
    strong = sort_neurons(comparison.activations.abs(), many)
    rest = _list_rest(torch.ones_like(comparison.activations).bool(), strong, columns)
    xs, ys = (table[column].tolist() for column in columns)
    figure = charts.draw_diagonal(
        table, rest, tuple(columns), same="the same on both",
        name="the most different", strengths=[abs(x - y) for x, y in zip(xs, ys, strict=True)],
        hover="%{x:.3f}, %{y:.3f}", marker_size=4, marker_opacity=0.4,
        type="scattergl" if size > charts.VECTORS else "scatter",
    )  # fmt: skip
    figure.update_traces(cliponaxis=False, selector={"mode": "markers+text"})
    title = f"{table['name'].iloc[0]} acts most differently: {xs[0]:.2f} on the one prompt, {ys[0]:.2f} on the other"
    x, y = (f"activation on {_say_prompt(pushes)}" for pushes in (first, second))
    note = charts.say(comparison.provenance)
    return apply_theme(figure, title, note=note, x=x, y=y, height=560, legend=charts.BELOW)


@draws("layers", "Comparison")
def plot_compared_layers(comparison: "fp.Comparison") -> go.Figure:
    """Draw each layer's difference of pushes: its neurons, its attention, and their sum."""
    table = comparison.by_layer()
    sides = {"neurons": ("neurons", BLUE), "attention": ("attention", ORANGE)}
    figure = go.Figure(charts.layer_bars(table, "difference", sides)).update_xaxes(type="category")
    most = int(table.neurons.abs().argmax())
    title = f"Of the difference of {comparison.difference:+.2f} logits the neurons of L{most} make the most, {table.neurons[most]:+.2f}"
    return apply_theme(
        figure, title, note=charts.say(comparison.provenance), y="difference of pushes in logits",
        height=420, legend=charts.BELOW,
    )  # fmt: skip


@draws("account", "Explanation")
def plot_parts(explanation: "fp.Explanation") -> go.Figure:
    """Draw the parts of the answer's logit as a waterfall, the listed neurons first."""
    table = explanation.parts[:-1]  # the last is their sum
    steps = dict(zip(table.part, table.push.tolist(), strict=True))
    return draw_waterfall(steps, explanation.logit, explanation.provenance)


@draws("curve", "Explanation")
def plot_curve(explanation: "fp.Explanation") -> go.Figure:
    """Draw the answer's probability without sets of neurons, beside neurons like them and other subjects."""
    curve = explanation.curve
    if curve is None or not len(curve.table):
        why = "no neurons were removed together: the answer is not first, or effects were left out."
        raise OptionRefused(why, remedy="an answer that the model gives, with effects")
    table, provenance = curve.table, explanation.provenance
    answer = f"{provenance.answer} without the first neurons"
    lines = {answer: table.probability, "without as many like them, worst draw": table.worst}
    if curve.others:
        shares = 1 - table.changed / curve.others
        lines[f"share of {curve.others} other subjects' answers kept"] = shares
    figure = go.Figure()
    for colour, (name, values) in zip((VERMILLION, BLUE, BLACK), lines.items(), strict=False):
        figure.add_scatter(
            x=[str(many) for many in table.removed], y=values.tolist(), name=plain(name),
            mode="lines+markers",
            line={"color": colour, "dash": "solid" if colour == VERMILLION else "dot"},
            hovertemplate=f"%{{x}} removed: %{{y:.4g}}<extra>{plain(name)}</extra>",
        )  # fmt: skip
    title = (
        f"without {table.removed.iloc[-1]} neurons it is still first"
        if curve.least is None
        else f"without {curve.least} neuron{'s' if curve.least > 1 else ''} it is no longer first"
    )
    return apply_theme(
        figure, f"{provenance.answer}: {title}",
        note=f"{provenance.model} after {charts.join_tokens(explanation.trace.tokens)}",
        x="neurons removed together", y="probability, share", yaxis_range=[-0.03, 1.03],
        xaxis_type="category",  # sizes grow by factors
    )  # fmt: skip


draws("predictions", "Explanation")(lambda e: plot_predictions(e.trace, top=5))
draws("paths", "Explanation")(lambda e: draw_paths(e.paths, e.trace.tokens, e.provenance))


@draws("map", "Explanation")
def plot_explanation_map(explanation: "fp.Explanation") -> go.Figure:
    if explanation.map is None:
        raise _refuse()
    grid = explanation.map.pivot(index="layer", columns="position", values="effect")
    tokens = [explanation.trace.tokens[position] for position in map(int, grid.columns)]
    rows, is_whole = grid.to_numpy().tolist(), None not in explanation.position_effects
    return _draw_map(rows, tokens, explanation.provenance, "effect", LOSS, is_whole=is_whole)


@draws("evidence", "Explanation")
def plot_evidence(explanation: "fp.Explanation") -> go.Figure:
    """Draw the listed neurons' push, direct and through attention, against their total effect."""
    table, provenance = explanation.neurons, explanation.provenance
    if "effect" not in table:
        raise _refuse()
    table = table.assign(push=table.push + table.push_through_attention)
    note = f"the neurons listed; {charts.say(provenance)}"
    return _draw_evidence(table, None, provenance, note)


draws("layers", "Explanation")(lambda e: plot_layers(e.pushes))


def _refuse() -> OptionRefused:
    why = "this explanation was made without effects."
    return OptionRefused(why, remedy="explain(…, effects=True)")


def _list_rest(among: Tensor, named: list[NeuronId], columns: Mapping[str, Tensor]) -> pd.DataFrame:
    """List all but the named, with numbers and no tokens: to read the tokens of all takes long."""
    rest = among.clone()
    for name in named:
        rest[name.layer, name.neuron] = False
    rows = {column: values[rest].tolist() for column, values in columns.items()}
    return pd.DataFrame({"name": [str(NeuronId(*at)) for at in rest.nonzero().tolist()], **rows})


def _draw_evidence(
    table: pd.DataFrame, rest: pd.DataFrame | None, provenance: Provenance, note: str
) -> go.Figure:
    """Draw pushes against effects, of the neurons in the table and of the rest, if any."""
    figure = charts.draw_diagonal(
        table, rest, ("push", "effect"), same="effect = push", name="the strongest", ends=[0.0],
        strengths=(table.push.abs() + table.effect.abs()).tolist(), marker_size=5, marker_opacity=0.5,
        hover="push %{x:.4f}, effect %{y:.4f}",
    )  # fmt: skip
    gaps = table.effect.abs() - table.push.abs()
    less, more = int((gaps < 0).sum()), int((gaps > 0).sum())
    many, than = (less, "smaller than") if less >= more else (more, "larger than")
    if not less + more:
        many, than = len(table), "as large as"
    title = (
        f"For {many} of {len(table)} neurons the effect on {provenance.answer} is {than} the push"
    )
    return apply_theme(figure, title, note=note, x="push in logits", y="total effect in logits")


def _draw_map(
    grid: charts.Values, tokens: Sequence[str], provenance: Provenance, bar: str,
    words: tuple[str, str, str], *, is_whole: bool = True,
) -> go.Figure:  # fmt: skip
    """Draw a number for each layer and position; `words` say the largest: above zero, below, how large."""
    layers = [f"L{layer}" for layer in range(len(grid))]
    digits = 2 if len(grid) * len(tokens) <= NUMBERED else None
    figure = charts.draw_grid(grid, rows=layers, columns=tokens, digits=digits, bar=bar)
    if len(tokens) > 6:
        figure.update_xaxes(tickangle=-40)
    cells = product(range(len(grid)), range(len(tokens)))
    layer, position = max(cells, key=lambda cell: abs(grid[cell[0]][cell[1]]))
    value, (up, down, size) = grid[layer][position], words
    ahead = _say_ahead(torch.tensor(grid).abs())
    if ahead and not is_whole:
        ahead = f"{ahead} measured"
    title = f"{provenance.answer} {up if value >= 0 else down} {size.format(abs(value))} the MLP of L{layer} at {tokens[position]}{ahead}"
    return apply_theme(figure, title, note=charts.say(provenance), height=140 + 34 * len(grid))


def _say_ahead(values: Tensor) -> str:
    """Say that the first is ahead of all others, if it is."""
    strongest = values.ravel().sort(descending=True).values[:2]
    return ", more than any other" if len(strongest) == 2 and strongest[0] > strongest[1] else ""


def _say_prompt(pushes: "fp.Pushes") -> str:
    """Name a prompt by its tokens up to the position, BOS left out."""
    start = 1 if pushes.trace.has_bos and pushes.position else 0
    return plain(charts.join_tokens(pushes.trace.tokens[start : pushes.position + 1]))
