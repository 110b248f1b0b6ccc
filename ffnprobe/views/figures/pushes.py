"""Direct logit attribution: pushes by layer, by part, by neuron; and the paths through attention."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.views.figures import charts, draws
from ffnprobe.views.theme import BLACK, BLUE, GREY, ORANGE, VERMILLION, apply_theme, plain

# The columns of paths, from left to right.
HEADS = ("at this token", "this neuron, its push", "was read most by this head", "for this answer")
Points = Sequence[tuple[float, float]]
THICKEST, THINNEST = 9.0, 1.5
STEPS = 24
ROW = 44
# A prompt of more tokens is shown around those that paths begin at.
TOKENS = 18


@draws("layers", "Pushes", "PushesByPiece")
def plot_layers(pushes: "fp.Pushes | fp.PushesByPiece") -> go.Figure:
    """Draw each layer's pushes: neurons toward the answer above zero, against it below."""
    pieces = pushes.pieces
    titles = [plain(f"toward {piece.provenance.answer}") for piece in pieces]
    figure = make_subplots(
        rows=len(pieces), shared_xaxes=True, vertical_spacing=0.25 / len(pieces),
        subplot_titles=titles if len(pieces) > 1 else None,
    )  # fmt: skip
    sides = {"toward": ("neurons toward", BLUE), "against": ("neurons against", VERMILLION)}
    sides["attention"] = ("attention", ORANGE)
    strongest = []
    for row, piece in enumerate(pieces, 1):
        drawn = charts.layer_bars(piece.by_layer(), "push", sides, showlegend=row == 1)
        figure.add_traces(drawn, rows=row, cols=1)
        sums = piece.values.double().sum(-1)
        layer = int(sums.abs().argmax())
        way = "toward" if sums[layer] >= 0 else "away from"
        strongest.append(
            f"the neurons of L{layer} push most, {way} {piece.provenance.answer} ({float(sums[layer]):+.2f})"
        )
    figure.update_traces(offsetgroup="neurons", selector={"type": "bar"})
    figure.update_traces(offsetgroup="attention", selector={"name": "attention"})
    figure.update_xaxes(type="category")
    title = "; ".join(strongest)
    return apply_theme(
        figure, title[0].upper() + title[1:], note=charts.say(pushes.provenance), y="push in logits",
        height=380 * len(pieces), barmode="relative", legend=charts.BELOW | {"y": -0.14},
    )  # fmt: skip


@draws("account", "Pushes")
def plot_account(pushes: "fp.Pushes") -> go.Figure:
    """Draw the account as a waterfall that ends at the model's logit."""
    inside = dict.fromkeys(("head", "attention bias"), "attention")
    inside |= dict.fromkeys(("neurons", "MLP bias"), "MLP")
    table = pushes.by_part()
    names = [
        f"L{layer} {inside[kind]}" if kind in inside else str(part)
        for part, kind, layer in zip(table.part, table.kind, table.layer, strict=True)
    ]
    steps = dict.fromkeys(names, 0.0)
    for name, push in zip(names, table.push, strict=True):
        steps[name] += push
    return draw_waterfall(steps, pushes.logit, pushes.provenance)


def draw_waterfall(steps: dict[str, float], logit: float, provenance: Provenance) -> go.Figure:
    names = [*steps, "the logit"]
    values = [*steps.values(), logit]
    figure = go.Figure(
        go.Waterfall(
            x=list(range(len(names))), y=values,
            measure=[*["relative"] * len(steps), "total"],
            text=[f"{round(value, 2) + 0.0:+.2f}" for value in values], textposition="outside", cliponaxis=False,
            increasing={"marker": {"color": BLUE}}, decreasing={"marker": {"color": VERMILLION}},
            totals={"marker": {"color": BLACK}}, connector={"line": {"color": GREY, "width": 1}},
            customdata=[plain(name) for name in names], showlegend=False,
            hovertemplate="%{customdata}: %{delta:+.4f}, up to there %{y:.4f}<extra></extra>",
        )
    )  # fmt: skip
    charts.label(figure.update_xaxes, names, tickangle=-40 if len(names) > 6 else 0)
    most = max(steps, key=lambda name: abs(steps[name]))
    than = f" above {provenance.versus}" if provenance.versus else ""
    title = (
        f"The parts add up to {provenance.answer}'s logit, {logit:.2f}{than}; "
        f"the largest part: {most} ({steps[most]:+.2f})"
    )
    note = charts.say(provenance)
    # Room for the first slanted name: plotly drops one that does not fit.
    return apply_theme(figure, title, note=note, y="logits", height=460, margin_l=120)


@draws("neurons", "Pushes")
def plot_neurons(pushes: "fp.Pushes", *, top: int = 10) -> go.Figure:
    table = charts.list_both_ends(pushes, top, among=pushes.values.numel())
    title = f"{table['name'].iloc[0]} pushes {pushes.provenance.answer} most, by {table.push[0]:+.3f} logits"
    return draw_neurons(table, "push", title, pushes.provenance, x="push in logits")


def draw_neurons(
    table: pd.DataFrame, column: str, title: str, provenance: Provenance, *, x: str
) -> go.Figure:
    """Draw a table of neurons as bars, named, with their answers' first tokens."""
    names, hover = charts.neuron_labels(table), charts.neuron_hovers(table)
    look = {"note": charts.say(provenance), "x": x}
    return charts.draw_bars(table[column].tolist(), title, names=names, hover=hover, **look)


@draws("paths", "Paths")
def plot_paths(paths: "fp.Paths", *, top: int = 10) -> go.Figure:
    table = paths.by_neuron(min(top, paths.neurons.numel()))
    return draw_paths(table, paths.trace.tokens, paths.provenance)


def draw_paths(table: pd.DataFrame, tokens: Sequence[str], provenance: Provenance) -> go.Figure:
    """Draw a table of neurons, each at its position, with its push and the head it went through."""
    table = table[table.through != ""].rename(columns={"push_through_attention": "pushed"})
    order = ["position", "through", "pushed"]
    table = table.sort_values(order, ascending=[True, True, False], kind="stable")
    if not len(table):
        raise OptionRefused("nothing went through attention.", remedy="a longer prompt")
    rows: list[Any] = [*table.itertuples()]
    positions = sorted(set(table.position))
    heads = sorted(set(table.through), key=lambda head: tuple(map(int, head[1:].split("H"))))
    answer = str(provenance.answer)
    columns: list[dict[Any, str]] = [
        {position: plain(tokens[position]) for position in positions},
        {(row.name, row.position): f"{row.name}  {row.pushed:+.3f}" for row in rows},
        {head: head for head in heads},
        {answer: plain(answer)},
    ]
    # What a column names is spread from the top (0) to the bottom (1).
    spots = [
        {name: (float(x), (order + 0.5) / len(names)) for order, name in enumerate(names)}
        for x, names in enumerate(columns)
    ]
    at_token, at_neuron, at_head, at_answer = spots
    figure = go.Figure()
    most = max(abs(row.pushed) for row in rows) or 1.0
    for row in rows:
        way = [at_token[row.position], at_neuron[row.name, row.position], at_head[row.through]]
        hover = (
            f"{row.name} at {row.token} (position {row.position}), activation "
            f"{row.activation:.3f}: {row.pushed:+.4f} logits through attention, "
            f"{row.carried:+.4f} of it by {row.through}"
        )
        _draw_curve(figure, way, row.pushed / most, hover)
    for head in heads:
        net = sum(row.pushed for row in rows if row.through == head)
        hover = f"the neurons shown before {head} push {net:+.4f} logits"
        _draw_curve(figure, [at_head[head], at_answer[answer]], net / most, hover)
    weights = ("bold", "normal", "normal", "bold")
    for names, places, weight in zip(columns, spots, weights, strict=True):
        for name, text in names.items():
            charts.write_boxed(figure, *places[name], text, weight=weight)
    for x, heading in enumerate(HEADS):
        figure.add_annotation(
            x=float(x), y=-0.03, text=heading, showarrow=False, font={"size": 12, "color": GREY}
        )
    _write_prompt(figure, tokens, positions)
    first = max(rows, key=lambda row: abs(row.pushed))
    up = "up" if first.pushed >= 0 else "down"
    title = (
        f"{first.name} at {first.token} pushes {charts.say_answer(provenance)} {up} most through attention "
        f"({first.pushed:+.3f}), by {first.through}"
    )
    note = f"blue pushes up, vermillion down; logits. {charts.say(provenance)}"
    return apply_theme(
        figure, title, note=note, height=90 + ROW * max(len(rows), len(heads), 4),
        xaxis={"visible": False, "range": [-0.35, 3.4]}, yaxis={"visible": False, "range": [1.0, -0.16]},
    )  # fmt: skip


def _draw_curve(figure: go.Figure, points: Points, strength: float, hover: str) -> None:
    """Join points by a line that leaves and arrives level, as thick as it is strong, in its sign's colour."""
    xs, ys = [points[0][0]], [points[0][1]]
    for (left, top), (right, bottom) in pairwise(points):
        for step in range(1, STEPS + 1):
            t = step / STEPS
            xs.append(left + (right - left) * t)
            ys.append(top + (bottom - top) * t * t * (3 - 2 * t))
    width = min(1.5 * THICKEST, max(THINNEST, THICKEST * abs(strength)))
    figure.add_scatter(
        x=xs, y=ys, mode="lines", showlegend=False, opacity=0.65, hoverinfo="text", text=plain(hover),
        line={"color": charts.sign_colour(strength), "width": width},
    )  # fmt: skip


def _write_prompt(figure: go.Figure, tokens: Sequence[str], positions: Sequence[int]) -> None:
    """Write the prompt above, with the tokens that paths begin at in blue."""
    first = max(0, min(positions[0] - 2 if positions else 0, len(tokens) - TOKENS))
    shown = [plain(token) for token in tokens]
    for position in positions:
        shown[position] = f'<span style="color:{BLUE}">{shown[position]}</span>'
    before, after = ["…"] if first else [], ["…"] if first + TOKENS < len(tokens) else []
    text = " ".join([*before, *shown[first : first + TOKENS], *after])
    figure.add_annotation(
        x=0.5, xref="paper", y=-0.12, text=text, showarrow=False, font={"size": 15, "color": BLACK}
    )
