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
from ffnprobe.views.figures import draws, parts
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
    figure = make_subplots(
        rows=len(pieces), shared_xaxes=True, vertical_spacing=0.25 / len(pieces),
        subplot_titles=[plain(f"toward {token}") for token in shown] if len(pieces) > 1 else None,
    )  # fmt: skip
    sides = {
        "toward": ("neurons toward", BLUE),
        "against": ("neurons against", VERMILLION),
        "attention": ("attention", ORANGE),
    }
    for row, piece in enumerate(pieces, 1):
        drawn = parts.layer_bars(piece.by_layer(), "push", sides, showlegend=row == 1)
        figure.add_traces(drawn, rows=row, cols=1)
    figure.update_traces(offsetgroup="neurons", selector={"type": "bar"})
    figure.update_traces(offsetgroup="attention", selector={"name": "attention"})
    figure.update_xaxes(type="category")
    title = "; ".join(map(_strongest_layer, pieces))
    return apply_theme(
        figure, title[0].upper() + title[1:], note=parts.say(pushes.provenance), y="push in logits",
        height=380 * len(pieces), barmode="relative", legend=parts.BELOW | {"y": -0.14},
    )  # fmt: skip


def _strongest_layer(pushes: "fp.Pushes") -> str:
    sums = pushes.values.double().sum(-1)
    layer = int(sums.abs().argmax())
    way = "toward" if sums[layer] >= 0 else "away from"
    return f"the neurons of L{layer} push most, {way} {pushes.provenance.answer} ({float(sums[layer]):+.2f})"


@draws("account", "Pushes")
def plot_account(pushes: "fp.Pushes") -> go.Figure:
    """Draw the account as a waterfall that ends at the model's logit."""
    attention, mlp = ("head", "attention bias"), ("neurons", "MLP bias")
    inside = dict.fromkeys(attention, "attention") | dict.fromkeys(mlp, "MLP")
    table = pushes.by_part()
    steps: dict[str, float] = {}
    for part, kind, layer, push in zip(
        table.part, table.kind, table.layer, table.push, strict=True
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
    parts.label(figure.update_xaxes, names, tickangle=-40 if len(names) > 6 else 0)
    most = max(steps, key=lambda name: abs(steps[name]))
    than = f" above {provenance.versus}" if provenance.versus else ""
    title = (
        f"The parts add up to {provenance.answer}'s logit, {logit:.2f}{than}; "
        f"the largest part: {most} ({steps[most]:+.2f})"
    )
    # Room for the first slanted name: plotly drops one that does not fit.
    return apply_theme(
        figure, title, note=parts.say(provenance), y="logits", height=460, margin_l=120
    )


@draws("neurons", "Pushes")
def plot_neurons(pushes: "fp.Pushes", *, top: int = 10) -> go.Figure:
    """Draw the neurons that pushed hardest toward the answer and away from it."""
    table = list_both_ends(pushes, top, among=pushes.values.numel())
    title = f"{table['name'].iloc[0]} pushes {pushes.provenance.answer} most, by {table.push[0]:+.3f} logits"
    return draw_neurons(table, "push", title, note=parts.say(pushes.provenance), x="push in logits")


def list_both_ends(found: "fp.Pushes | fp.Effects", top: int, *, among: int) -> pd.DataFrame:
    """List the first and the last neurons; of too few `among` which to choose, the first alone."""
    half = min(top, among // 2 or 1)
    table = found.top(half)
    if 2 * half <= among:
        table = pd.concat([table, found.against(half)[::-1]], ignore_index=True)
    return table


def draw_neurons(table: pd.DataFrame, column: str, title: str, *, note: str, x: str) -> go.Figure:
    """Draw a table of neurons as bars, named, with their answers' first tokens."""
    names, hover = parts.neuron_labels(table), parts.neuron_hovers(table)
    return parts.draw_bars(table[column].tolist(), title, names=names, hover=hover, note=note, x=x)


@draws("paths", "Paths")
def plot_paths(paths: "fp.Paths", *, top: int = 10) -> go.Figure:
    """Draw the `top` neurons that push hardest through attention, with the head that carried most."""
    table = paths.by_neuron(min(top, paths.neurons.numel()))
    return draw_paths(table, paths.trace.tokens, paths.provenance)


def draw_paths(table: pd.DataFrame, tokens: Sequence[str], provenance: Provenance) -> go.Figure:
    """Draw a table of neurons, each at its position, with its push and the head it went through."""
    order = ["position", "through", "push_through_attention"]
    table = table[table.through != ""]
    table = table.sort_values(order, ascending=[True, True, False], kind="stable")
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
        _draw(figure, spots, ends, row["push_through_attention"] / most, said)
    for head in heads:
        net = sum(push for push, through in zip(pushes, carriers, strict=True) if through == head)
        ends = [("head", head), ("answer", answer)]
        said = f"the neurons shown before {head} push {net:+.4f} logits"
        _draw(figure, spots, ends, net / most, said)
    said_pushes = [f"{name}  {push:+.3f}" for name, push in zip(table.name, pushes, strict=True)]
    labels: dict[str, dict[Any, str]] = {
        "token": {position: plain(tokens[position]) for position in positions},
        "neuron": dict(zip(sources, said_pushes, strict=True)),
        "head": {head: head for head in heads},
        "answer": {answer: plain(answer)},
    }
    for kind, column in labels.items():
        weight = "bold" if kind in ("token", "answer") else "normal"
        for one, text in column.items():
            parts.write_boxed(figure, COLUMNS[kind], spots[kind][one], text, weight=weight)
    for kind, x in COLUMNS.items():
        figure.add_annotation(
            x=x, y=-0.03, text=HEADINGS[kind], showarrow=False, font={"size": 12, "color": GREY}
        )
    _write_prompt(figure, tokens, positions)
    first = max(rows, key=lambda row: abs(row["push_through_attention"]))
    way = "up" if first["push_through_attention"] >= 0 else "down"
    title = (
        f"{first['name']} at {first['token']} pushes {parts.say_answer(provenance)} {way} most through attention "
        f"({first['push_through_attention']:+.3f}), by {first['through']}"
    )
    note = f"blue pushes up, vermillion down; logits. {parts.say(provenance)}"
    return apply_theme(
        figure, title, note=note, height=90 + ROW * max(len(rows), len(heads), 4),
        xaxis={"visible": False, "range": [-0.35, 3.4]}, yaxis={"visible": False, "range": [1.0, -0.16]},
    )  # fmt: skip


def _spread(names: Sequence[object]) -> dict[object, float]:
    """Give names heights from the top (0) to the bottom (1)."""
    return {name: (order + 0.5) / len(names) for order, name in enumerate(names)}


def _draw(
    figure: go.Figure,
    spots: Mapping[str, Mapping[object, float]],
    ends: Sequence[tuple[str, object]],
    strength: float,
    said: str,
) -> None:
    """Draw one line, as thick as it is strong, in the colour of its sign."""
    xs, ys = _curve([(COLUMNS[kind], spots[kind][one]) for kind, one in ends])
    width = min(1.5 * THICKEST, max(THINNEST, THICKEST * abs(strength)))
    figure.add_scatter(
        x=xs, y=ys, mode="lines", showlegend=False, opacity=0.65, hoverinfo="text", text=plain(said),
        line={"color": parts.sign_colour(strength), "width": width},
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
