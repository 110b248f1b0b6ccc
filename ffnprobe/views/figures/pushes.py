"""Direct logit attribution: pushes by layer, by part, by neuron; and the paths through attention."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.views.figures import draws
from ffnprobe.views.figures.parts import (
    bars,
    height_of,
    label,
    neuron_hovers,
    neuron_labels,
    room,
    say,
)
from ffnprobe.views.theme import BLACK, BLUE, GREY, ORANGE, VERMILLION, apply_theme, plain

COLUMNS = {"token": 0.0, "neuron": 1.0, "head": 2.0, "answer": 3.0}
HEADINGS = {
    "token": "at this token",
    "neuron": "this neuron, its push",
    "head": "was read most by this head",
    "answer": "for this answer",
}
THICKEST, THINNEST = 9.0, 1.5
STEPS = 24
ROW = 44
# A prompt of more tokens is shown around those that paths begin at.
TOKENS = 18


@draws("layers", "Pushes", "PushesByPiece")
def plot_layers(pushes: "fp.Pushes | fp.PushesByPiece") -> go.Figure:
    """Draw each layer's pushes: neurons toward the answer above zero, against it below."""
    pieces = pushes.pieces
    shown = [str(piece.provenance.answer) for piece in pieces]
    several = len(pieces) > 1
    titles = [plain(f"toward {token}") for token in shown] if several else None
    figure = make_subplots(
        rows=len(pieces),
        shared_xaxes=True,
        subplot_titles=titles,
        vertical_spacing=0.25 / len(pieces),
    )
    for row, piece in enumerate(pieces, 1):
        table = piece.by_layer()
        layers = [f"L{layer}" for layer in table.layer]
        for column, name, colour in (
            ("toward", "neurons toward", BLUE),
            ("against", "neurons against", VERMILLION),
            ("attention", "attention", ORANGE),
        ):
            figure.add_trace(
                go.Bar(x=layers, y=table[column].tolist(), name=name, marker_color=colour,
                       offsetgroup="attention" if column == "attention" else "neurons",
                       showlegend=row == 1),
                row, 1,
            )  # fmt: skip
        figure.add_trace(
            go.Scatter(x=layers, y=table.push.tolist(), name="the layer's sum", mode="markers",
                       marker={"color": BLACK, "symbol": "diamond", "size": 10}, showlegend=row == 1),
            row, 1,
        )  # fmt: skip
    figure.update_layout(barmode="relative", legend={"orientation": "h", "y": -0.14})
    figure.update_xaxes(type="category")
    title = "; ".join(map(_strongest_layer, pieces))
    note = say(pushes.provenance)
    return apply_theme(
        figure,
        title[0].upper() + title[1:],
        note=note,
        y="push in logits",
        height=380 * len(pieces),
    )


def _strongest_layer(pushes: "fp.Pushes") -> str:
    sums = pushes.values.double().sum(-1)
    layer = int(sums.abs().argmax())
    way = "toward" if sums[layer] >= 0 else "away from"
    return f"the neurons of L{layer} push most, {way} {pushes.provenance.answer} ({float(sums[layer]):+.2f})"


@draws("account", "Pushes")
def plot_account(pushes: "fp.Pushes") -> go.Figure:
    """Draw the account as a waterfall that ends at the model's logit."""
    inside = {
        "head": "attention",
        "attention bias": "attention",
        "neurons": "MLP",
        "MLP bias": "MLP",
    }
    table = pushes.by_part()
    steps: dict[str, float] = {}
    for part, kind, layer, push in zip(
        table.part, table.kind, table.layer, table.push.tolist(), strict=True
    ):
        name = f"L{layer} {inside[kind]}" if kind in inside else str(part)
        steps[name] = steps.get(name, 0.0) + push
    return draw_waterfall(steps, pushes.logit, pushes.provenance)


def draw_waterfall(steps: dict[str, float], logit: float, provenance: Provenance) -> go.Figure:
    """Draw steps that add up to the logit."""
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
    label(figure.update_xaxes, names)
    figure.update_xaxes(tickangle=-40 if len(names) > 6 else 0)
    most = max(steps, key=lambda name: abs(steps[name]))
    than = f" above {provenance.versus}" if provenance.versus else ""
    title = (
        f"The parts add up to {provenance.answer}'s logit, {logit:.2f}{than}; "
        f"the largest part: {most} ({steps[most]:+.2f})"
    )
    apply_theme(figure, title, note=say(provenance), y="logits", height=460)
    # Room for the first slanted name: plotly drops one that does not fit.
    return figure.update_layout(margin_l=120)


@draws("neurons", "Pushes")
def plot_neurons(pushes: "fp.Pushes", *, top: int = 10) -> go.Figure:
    """Draw the neurons that pushed hardest toward the answer and away from it."""
    half = min(top, pushes.values.numel() // 2 or 1)
    table = pushes.top(half)
    if 2 * half <= pushes.values.numel():
        table = pd.concat([table, pushes.against(half)[::-1]], ignore_index=True)
    title = f"{table['name'].iloc[0]} pushes {pushes.provenance.answer} most, by {table.push[0]:+.3f} logits"
    return draw_neurons(table, "push", title, note=say(pushes.provenance), x="push in logits")


def draw_neurons(table: pd.DataFrame, column: str, title: str, *, note: str, x: str) -> go.Figure:
    """Draw a table of neurons as bars, named, with their answers' first tokens."""
    values = table[column].tolist()
    figure = go.Figure(bars(values, hover=neuron_hovers(table)))
    label(figure.update_yaxes, neuron_labels(table), autorange="reversed")
    apply_theme(figure, title, note=note, x=x, height=height_of(len(table)))
    return figure.update_xaxes(range=room(values))


@draws("paths", "Paths")
def plot_paths(paths: "fp.Paths", *, top: int = 10) -> go.Figure:
    """Draw the `top` neurons that push hardest through attention, with the head that carried most."""
    table = paths.by_neuron(min(top, paths.neurons.numel()))
    return draw_paths(table, paths.trace.tokens, paths.provenance)


def draw_paths(table: pd.DataFrame, tokens: Sequence[str], provenance: Provenance) -> go.Figure:
    """Draw a table of neurons, each at its position, with its push and the head it went through."""
    table = table[table.through != ""].sort_values(
        ["position", "through", "push_through_attention"],
        ascending=[True, True, False],
        kind="stable",
    )
    if not len(table):
        raise OptionRefused("nothing went through attention.", remedy="a longer prompt")
    sources = [
        f"{name} at {position}" for name, position in zip(table.name, table.position, strict=True)
    ]
    heads = sorted(set(table.through), key=lambda head: tuple(map(int, head[1:].split("H"))))
    positions = sorted(set(table.position))
    answer = str(provenance.answer)
    spots = {
        "token": _spread(positions), "neuron": _spread(sources), "head": _spread(heads),
        "answer": _spread([answer]),
    }  # fmt: skip
    figure = go.Figure()
    pushes, carriers = table.push_through_attention.tolist(), table.through.tolist()
    most = max(map(abs, pushes)) or 1.0
    rows: list[dict[Any, Any]] = table.to_dict("records")
    for row, source in zip(rows, sources, strict=True):
        ends = [("token", row["position"]), ("neuron", source), ("head", row["through"])]
        said = (
            f"{row['name']} at {row['token']} (position {row['position']}), activation "
            f"{row['activation']:.3f}: {row['push_through_attention']:+.4f} logits through attention, "
            f"{row['carried']:+.4f} of it by {row['through']}"
        )
        _draw(
            figure,
            [(COLUMNS[kind], spots[kind][one]) for kind, one in ends],
            row["push_through_attention"] / most,
            said,
        )
    for head in heads:
        net = sum(push for push, through in zip(pushes, carriers, strict=True) if through == head)
        ends = [("head", head), ("answer", answer)]
        said = f"the neurons shown before {head} push {net:+.4f} logits"
        _draw(figure, [(COLUMNS[kind], spots[kind][one]) for kind, one in ends], net / most, said)
    labels = {
        "token": {position: plain(tokens[position]) for position in positions},
        "neuron": {
            source: f"{name}  {push:+.3f}"
            for source, name, push in zip(sources, table.name, pushes, strict=True)
        },
        "head": {head: head for head in heads},
        "answer": {answer: plain(answer)},
    }
    for kind, column in labels.items():
        weight = "bold" if kind in ("token", "answer") else "normal"
        _label(figure, COLUMNS[kind], spots[kind], column, weight=weight)
    for kind, x in COLUMNS.items():
        figure.add_annotation(
            x=x, y=-0.03, text=HEADINGS[kind], showarrow=False, font={"size": 12, "color": GREY}
        )
    _write_prompt(figure, tokens, positions)
    figure.update_xaxes(visible=False, range=[-0.35, 3.4])
    figure.update_yaxes(visible=False, range=[1.0, -0.16])
    first = max(rows, key=lambda row: abs(row["push_through_attention"]))
    way = "up" if first["push_through_attention"] >= 0 else "down"
    than = f" rather than {provenance.versus}" if provenance.versus else ""
    title = (
        f"{first['name']} at {first['token']} pushes {answer}{than} {way} most through attention "
        f"({first['push_through_attention']:+.3f}), by {first['through']}"
    )
    note = f"blue pushes up, vermillion down; logits. {say(provenance)}"
    return apply_theme(figure, title, note=note, height=90 + ROW * max(len(rows), len(heads), 4))


def _spread(names: Sequence[object]) -> dict[object, float]:
    """Give names heights from the top (0) to the bottom (1)."""
    return {name: (order + 0.5) / len(names) for order, name in enumerate(names)}


def _draw(
    figure: go.Figure, points: Sequence[tuple[float, float]], strength: float, said: str
) -> None:
    """Draw one line, as thick as it is strong, in the colour of its sign."""
    xs, ys = _curve(points)
    width = min(1.5 * THICKEST, max(THINNEST, THICKEST * abs(strength)))
    figure.add_scatter(
        x=xs, y=ys, mode="lines", showlegend=False, opacity=0.65, hoverinfo="text", text=plain(said),
        line={"color": BLUE if strength >= 0 else VERMILLION, "width": width},
    )  # fmt: skip


def _curve(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Join points by curves that leave and arrive level."""
    xs, ys = [points[0][0]], [points[0][1]]
    for (left, top), (right, bottom) in pairwise(points):
        for step in range(1, STEPS + 1):
            t = step / STEPS
            xs.append(left + (right - left) * t)
            ys.append(top + (bottom - top) * t * t * (3 - 2 * t))
    return xs, ys


def _label(
    figure: go.Figure,
    x: float,
    spots: Mapping[object, float],
    texts: Mapping[object, str],
    *,
    weight: str,
) -> None:
    """Write a column's names on white, so that lines do not cross them."""
    for name, text in texts.items():
        figure.add_annotation(
            x=x, y=spots[name], text=text, showarrow=False, bgcolor="white", bordercolor=GREY,
            borderwidth=1, borderpad=3, font={"size": 13, "color": BLACK, "weight": weight},
        )  # fmt: skip


def _write_prompt(figure: go.Figure, tokens: Sequence[str], positions: Sequence[int]) -> None:
    """Write the prompt above, with the tokens that paths begin at in blue."""
    first = max(0, min(positions[0] - 2 if positions else 0, len(tokens) - TOKENS))
    shown = [
        f'<span style="color:{BLUE}">{plain(token)}</span>'
        if position in positions
        else plain(token)
        for position, token in enumerate(tokens)
        if first <= position < first + TOKENS
    ]
    text = " ".join(
        [*(["…"] if first else []), *shown, *(["…"] if first + TOKENS < len(tokens) else [])]
    )
    figure.add_annotation(
        x=0.5, xref="paper", y=-0.12, text=text, showarrow=False, font={"size": 15, "color": BLACK}
    )
