"""What changes: effects of ablation and patching, by neuron and as maps, and the differences of two prompts."""

import math
from collections.abc import Iterable, Mapping, Sequence
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
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.figures.pushes import draw_neurons, list_both_ends
from ffnprobe.views.theme import BLUE, GREY, ORANGE, apply_theme, plain

DESCRIBED = 40
# With more cells than this, numbers do not fit into them.
NUMBERED = 160
# A group of neurons with a longer name is shown by its number.
WIDE = 30
LOSS = ("loses", "gains", "{:.2f} logits without")
SHARE = ("gains", "loses", "{:.0%} of the difference with")


@draws("neurons", "Effects")
def plot_effects(effects: "fp.Effects", *, top: int = 10) -> go.Figure:
    """Draw the neurons with the largest effects, positive and negative."""
    asked = int((~effects.values.isnan()).sum())
    table = list_both_ends(effects, top, among=asked)
    title = f"Without {table['name'][0]} {effects.provenance.answer} loses {table.effect[0]:.3f} logits{_ahead(effects.values.nan_to_num(-math.inf))}"
    return draw_neurons(
        table, "effect", title, note=parts.say(effects.provenance), x="effect in logits"
    )


@draws("neurons", "Estimates")
def plot_estimates(estimates: "fp.Estimates", *, top: int = 10) -> go.Figure:
    """Draw the neurons with the largest estimated effects."""
    table = estimates.top(min(top, estimates.trace.model.config.neurons))
    title = f"The gradient estimates that {estimates.provenance.answer} loses most without {table['name'][0]} ({table.estimate[0]:.3f} logits)"
    return draw_neurons(table, "estimate", title, note=parts.say(estimates.provenance), x="estimated effect in logits")  # fmt: skip


@draws("neurons", "Patches")
def plot_patches(patches: "fp.Patches", *, top: int = 10) -> go.Figure:
    """Draw the neurons that carry most of the difference between two prompts."""
    asked = int((~patches.carried.isnan()).sum())
    table = patches.top(min(top, asked))
    title = f"{table['name'][0]} carries {table.carried[0]:.1%} of the difference, all together {patches.together:.1%}"
    return draw_neurons(table, "carried", title, note=parts.say(patches.provenance), x="share of the difference carried")  # fmt: skip


@draws("groups", "GroupEffects")
def plot_groups(effects: "fp.GroupEffects") -> go.Figure:
    """Draw what the answer loses without each group."""
    values = effects.table.effect.tolist()
    names = [f"group {n}" if len(name) > WIDE else name for n, name in enumerate(effects.groups)]
    hover = [f"{group}:" for group in effects.groups]
    most = max(range(len(values)), key=values.__getitem__)
    title = f"Without {names[most]} {effects.provenance.answer} loses {values[most]:.3f} logits"
    return parts.draw_bars(
        values,
        title,
        names=names,
        hover=hover,
        note=parts.say(effects.provenance),
        x="effect in logits",
    )


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
    asked = ~effects.values.isnan()
    strength = effects.values.nan_to_num(0.0).abs() + pushes.values.abs() * asked
    strong = sorted(sort_neurons(strength, min(DESCRIBED, int(asked.sum()))))
    drawn = {"push": pushes.values, "effect": effects.values}
    table = list_neurons(pushes.trace.model, strong, drawn, signs=pushes.activations)
    rest = _list_rest(asked, strong, drawn)
    return draw_evidence(table, rest if len(rest) else None, parts.say(ours), str(ours.answer))


def _list_rest(
    among: Tensor, named: Iterable[NeuronId], columns: Mapping[str, Tensor]
) -> pd.DataFrame:
    """List all but the named, with numbers and no tokens: to read the tokens of all takes long."""
    rest = among.clone()
    for name in named:
        rest[name.layer, name.neuron] = False
    rows = {column: values[rest].tolist() for column, values in columns.items()}
    return pd.DataFrame({"name": [str(NeuronId(*at)) for at in rest.nonzero().tolist()], **rows})


def draw_evidence(
    table: pd.DataFrame, rest: pd.DataFrame | None, note: str, answer: str
) -> go.Figure:
    """Draw pushes against effects, of the neurons in the table and of the rest, if any."""
    figure = parts.draw_diagonal(
        table, rest, ("push", "effect"), same="effect = push", name="the strongest", ends=[0.0],
        strengths=(table.push.abs() + table.effect.abs()).tolist(), marker_size=5, marker_opacity=0.5,
        hover="push %{x:.4f}, effect %{y:.4f}",
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
    return draw_map(effects.values.tolist(), effects.tokens, effects.provenance, "effect", LOSS)  # fmt: skip


@draws("map", "LayerPatches")
def plot_patch_map(patches: "fp.LayerPatches") -> go.Figure:
    """Draw what each MLP layer carries from one prompt to the other, at each position."""
    pairs = zip(patches.tokens_source, patches.tokens_target, strict=True)
    tokens = [here if here == there else f"{there} → {here}" for here, there in pairs]
    grid = patches.carried.tolist()
    return draw_map(grid, tokens, patches.provenance, "share carried", SHARE)


def draw_map(
    grid: parts.Values, tokens: Sequence[str], provenance: Provenance, bar: str,
    words: tuple[str, str, str], *, is_whole: bool = True,
) -> go.Figure:  # fmt: skip
    """Draw a number for each layer and position; `words` say the largest: above zero, below, how large."""
    layers = [f"L{layer}" for layer in range(len(grid))]
    digits = 2 if len(grid) * len(tokens) <= NUMBERED else None
    figure = parts.draw_grid(grid, rows=layers, columns=tokens, digits=digits, bar=bar)
    if len(tokens) > 6:
        figure.update_xaxes(tickangle=-40)
    cells = product(range(len(grid)), range(len(tokens)))
    layer, position = max(cells, key=lambda cell: abs(grid[cell[0]][cell[1]]))
    value, (up, down, said) = grid[layer][position], words
    ahead = _ahead(torch.tensor(grid).abs())
    if ahead and not is_whole:
        ahead = f"{ahead} measured"
    title = f"{provenance.answer} {up if value >= 0 else down} {said.format(abs(value))} the MLP of L{layer} at {tokens[position]}{ahead}"
    return apply_theme(figure, title, note=parts.say(provenance), height=140 + 34 * len(grid))


@draws("neurons", "Comparison")
def plot_compared_pushes(comparison: "fp.Comparison", *, top: int = 12) -> go.Figure:
    """Draw the neurons whose pushes differ most, one mark per prompt."""
    table = comparison.top(min(top, comparison.values.numel()))
    figure = parts.draw_pairs(
        parts.neuron_labels(table),
        {"x": table.push_first.tolist(), "name": _name(comparison.first),
         "marker": {"color": BLUE, "symbol": "circle", "size": 12}},
        {"x": table.push_second.tolist(), "name": _name(comparison.second),
         "marker": {"color": ORANGE, "symbol": "diamond", "size": 11}},
        customdata=[plain(text) for text in parts.neuron_hovers(table)],
        hovertemplate="%{customdata} %{x:+.4f}<extra></extra>", line={"width": 2, "color": GREY},
    )  # fmt: skip
    known, most = comparison.provenance, table.iloc[0]
    title = f"{most['name']} differs most: it pushes {known.answer} by {most.push_first:+.3f} logits on the one prompt, {most.push_second:+.3f} on the other"
    height = parts.height_of(len(table))
    return apply_theme(
        figure, title, note=parts.say(known), x="push in logits", height=60 + height,
        legend=parts.BELOW | {"y": -70 / height},
    )  # fmt: skip


@draws("activations", "Comparison")
def plot_activations(comparison: "fp.Comparison") -> go.Figure:
    """Draw every neuron's activation on one prompt against that on the other."""
    columns = {
        "activation_first": comparison.first.activations,
        "activation_second": comparison.second.activations,
    }
    size = comparison.activations.numel()
    many = min(DESCRIBED, size)
    table = comparison.top(many, by="activation")
    strong = sort_neurons(comparison.activations.abs(), many)
    everything = torch.ones_like(comparison.activations, dtype=torch.bool)
    rest = _list_rest(everything, strong, columns)
    xs, ys = (table[column].tolist() for column in columns)
    figure = parts.draw_diagonal(
        table, rest, ("activation_first", "activation_second"), same="the same on both",
        name="the most different", strengths=[abs(x - y) for x, y in zip(xs, ys, strict=True)],
        hover="%{x:.3f}, %{y:.3f}", marker_size=4, marker_opacity=0.4,
        type="scattergl" if size > parts.VECTORS else "scatter",
    )  # fmt: skip
    figure.update_traces(cliponaxis=False, selector={"mode": "markers+text"})
    title = f"{table['name'].iloc[0]} acts most differently: {xs[0]:.2f} on the one prompt, {ys[0]:.2f} on the other"
    x, y = (f"activation on {_name(pushes)}" for pushes in (comparison.first, comparison.second))
    return apply_theme(
        figure,
        title,
        note=parts.say(comparison.provenance),
        x=x,
        y=y,
        height=560,
        legend=parts.BELOW,
    )


@draws("layers", "Comparison")
def plot_compared_layers(comparison: "fp.Comparison") -> go.Figure:
    """Draw each layer's difference of pushes: its neurons, its attention, and their sum."""
    table = comparison.by_layer()
    sides = {"neurons": ("neurons", BLUE), "attention": ("attention", ORANGE)}
    figure = go.Figure(parts.layer_bars(table, "difference", sides)).update_xaxes(type="category")
    most = int(table.neurons.abs().argmax())
    title = f"Of the difference of {comparison.difference:+.2f} logits the neurons of L{most} make the most, {table.neurons[most]:+.2f}"
    return apply_theme(
        figure, title, note=parts.say(comparison.provenance), y="difference of pushes in logits",
        height=420, legend=parts.BELOW,
    )  # fmt: skip


def _name(pushes: "fp.Pushes") -> str:
    """Name a prompt by its tokens up to the position, BOS left out."""
    start = 1 if pushes.trace.has_bos and pushes.position else 0
    return plain(parts.join_tokens(pushes.trace.tokens[start : pushes.position + 1]))
