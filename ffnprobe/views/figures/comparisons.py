"""Figures of two prompts: differences of pushes and activations, by neuron and by layer."""

import plotly.graph_objects as go
import torch

from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.tracing.comparison import Comparison
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.views.figures.bars import height_of, neuron_hovers, neuron_labels
from ffnprobe.views.figures.grids import label
from ffnprobe.views.figures.labels import keep_apart
from ffnprobe.views.figures.words import join_tokens, say
from ffnprobe.views.theme import BLACK, BLUE, GREY, ORANGE, apply_theme, plain

DESCRIBED = 40
# More points than this are drawn on a canvas, not as vectors.
VECTORS = 10_000
# Below the axis and its name.
_LEGEND = {"orientation": "h", "y": -0.16}


def plot_pushes(comparison: Comparison, *, top: int = 12) -> go.Figure:
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


def plot_activations(comparison: Comparison) -> go.Figure:
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


def plot_layers(comparison: Comparison) -> go.Figure:
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


def _name(pushes: Pushes) -> str:
    """Name a prompt by its tokens up to the position, BOS left out."""
    start = 1 if pushes.trace.has_bos and pushes.position else 0
    return plain(join_tokens(pushes.trace.tokens[start : pushes.position + 1]))
