"""A circuit as a picture: tokens below, layers upward, the answer on top. And what it recovers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.circuits.graph import ANSWER
from ffnprobe.errors import OptionRefused
from ffnprobe.reading.projection import answer_tokens
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.theme import BLACK, GREY, apply_theme, line_of, plain

SHOWN, EDGES = 24, 60
THICKEST, THINNEST = 8.0, 0.8
ROW, CELL = 46, 112
LETTERS = 9
IN_LINE = 4  # neurons of one layer at one token, side by side


@dataclass(frozen=True)
class GraphLayout:
    """Where every node shown stands."""

    spots: dict[str, tuple[float, float]]
    columns: dict[int, float]  # the middle of each position's column
    rows: dict[int, float]  # the lowest line of each layer
    width: float
    height: float


@draws("graph", "Circuit")
def plot_circuit(circuit: "fp.Circuit", *, top: int = SHOWN, edges: int = EDGES) -> go.Figure:
    """Draw the `top` neurons of largest influence, and the strongest `edges` between them."""
    shown = [f"{name}@{position}" for name, position in circuit.kept[:top]]
    if not shown:
        raise OptionRefused(
            "no neuron has influence on this answer.", remedy="other contrast prompts"
        )
    layout = lay_out(circuit, shown)
    flows = gather_flows(circuit, set(layout.spots))
    strongest = sorted(flows.items(), key=lambda item: -abs(item[1]))[:edges]
    figure = go.Figure()
    most = max(abs(flow) for _, flow in strongest) if strongest else 1.0
    for (source, target), flow in reversed(strongest):
        _draw_edge(figure, layout, source, target, flow, most)
    _say_edges(figure, layout, strongest)
    _draw_nodes(figure, circuit, layout, shown)
    _draw_ends(figure, circuit, layout)
    ticks = {"tickvals": [*layout.rows.values()], "ticktext": [f"L{n}" for n in layout.rows]}
    figure.update_yaxes(range=[-0.75, layout.height + 0.9], zeroline=False, **ticks)
    figure.update_xaxes(visible=False, range=[-0.2, layout.width + 0.2])
    known = circuit.provenance
    first, worth = circuit.kept[0], float(circuit.worth[-len(circuit.kept)])
    title = (
        f"{first[0]} at {circuit.trace.tokens[first[1]]} is worth most to {parts.say_answer(known)} "
        f"({worth:+.2f} logits)"
    )
    many = f"the {len(shown)} strongest of {len(circuit.kept)} neurons and {len(strongest)} edges"
    note = f"{many}; blue toward the answer, vermillion away from it. {parts.say(known)}"
    width = int(max(960, 90 + CELL * layout.width))
    return apply_theme(figure, title, note=note, height=int(ROW * (layout.height + 2)), width=width)


def lay_out(circuit: "fp.Circuit", shown: list[str]) -> GraphLayout:
    """Give every position a column as wide as its fullest line, and every layer shown lines enough."""
    nodes = {node.name: node for node in circuit.sources.nodes}
    kept = sorted((nodes[name] for name in shown), key=lambda node: (node.layer, node.neuron))
    crowd = Counter((node.layer, node.position) for node in kept)
    rows, height = {}, 1.0
    for layer in sorted({node.layer for node in kept}):
        rows[layer] = height
        fullest = max(many for (own, _), many in crowd.items() if own == layer)
        height += math.ceil(fullest / IN_LINE)
    columns, spots, left = {}, {}, 0.0
    for position in range(len(circuit.trace)):
        many = max([1, *(many for (_, at), many in crowd.items() if at == position)])
        wide = min(many, IN_LINE)
        columns[position] = left + wide / 2
        left += wide
    placed: Counter[tuple[int, int]] = Counter()
    for node in kept:
        cell = (node.layer, node.position)
        line, order = divmod(placed[cell], IN_LINE)
        in_line = min(IN_LINE, crowd[cell] - line * IN_LINE)
        y = rows[node.layer] + line
        # Neighbours one above the other are moved apart a little: their edges would hide each other.
        x = columns[node.position] + order + 0.5 - in_line / 2 + 0.16 * (-1) ** int(y)
        spots[node.name] = (x, y)
        placed[cell] += 1
    for position, x in columns.items():
        spots[f"embedding@{position}"] = (x, 0.0)
    spots[ANSWER] = (columns[circuit.question.pushes.pieces[0].position], height + 0.4)
    return GraphLayout(spots, columns, rows, left, height)


def gather_flows(circuit: "fp.Circuit", among: set[str]) -> dict[tuple[str, str], float]:
    """Add up, for each pair of nodes shown, what the edge is worth through question and gate."""
    found: dict[tuple[str, str], float] = {}
    for row, column in circuit.flows.nonzero().tolist():
        ends = circuit.sources.nodes[column].name, circuit.targets[row].name
        if among.issuperset(ends):
            found[ends] = found.get(ends, 0.0) + float(circuit.flows[row, column])
    return found


def _draw_edge(
    figure: go.Figure, layout: GraphLayout, source: str, target: str, flow: float, most: float
) -> None:
    (x, y), (to_x, to_y) = layout.spots[source], layout.spots[target]
    steps = [step / 12 for step in range(13)]
    strength = math.sqrt(abs(flow) / most)  # the area, not the width, is what is seen
    figure.add_scatter(
        x=[x + (to_x - x) * t * t * (3 - 2 * t) for t in steps], y=[y + (to_y - y) * t for t in steps],
        mode="lines", showlegend=False, hoverinfo="skip", opacity=0.25 + 0.55 * strength,
        line={"color": parts.sign_colour(flow), "width": max(THINNEST, THICKEST * strength)},
    )  # fmt: skip


def _say_edges(
    figure: go.Figure, layout: GraphLayout, flows: Sequence[tuple[tuple[str, str], float]]
) -> None:
    """Say what an edge is worth at its middle: lines would hide the nodes from the pointer."""
    spots = [(layout.spots[source], layout.spots[target]) for (source, target), _ in flows]
    figure.add_scatter(
        x=[(one[0] + other[0]) / 2 for one, other in spots],
        y=[(one[1] + other[1]) / 2 for one, other in spots],
        mode="markers", marker={"size": 9, "opacity": 0}, showlegend=False, hoverinfo="text",
        hovertext=[plain(f"{s} → {t}: {flow:+.4f} logits of the answer") for (s, t), flow in flows],
    )  # fmt: skip


def _draw_nodes(
    figure: go.Figure, circuit: "fp.Circuit", layout: GraphLayout, shown: list[str]
) -> None:
    first = len(circuit.sources.nodes) - len(circuit.kept)
    worth = circuit.worth[first:].tolist()
    kept = circuit.kept[: len(shown)]
    acts = [float(circuit.trace.activations[n.layer, position, n.neuron]) for n, position in kept]
    tokens = answer_tokens(circuit.trace.model, [name for name, _ in kept], 5, signs=acts)
    figure.add_scatter(
        x=[layout.spots[name][0] for name in shown], y=[layout.spots[name][1] for name in shown],
        mode="markers+text", showlegend=False, textposition="top center", customdata=shown,
        text=[f"{name}<br>{plain(row[0][:LETTERS])}" for (name, _), row in zip(kept, tokens, strict=True)],
        textfont={"size": 10, "color": BLACK},
        marker={"size": 11, "symbol": "circle", "line": {"color": BLACK, "width": 1},
                "color": [parts.sign_colour(value) for value in worth[: len(shown)]]},
        hovertext=[
            plain(f"{name} at {circuit.trace.tokens[position]}: influence {value:+.4f}, activation {act:.3f}; "
                  f"writes {' '.join(row)}")
            for (name, position), value, act, row in zip(kept, worth, acts, tokens, strict=False)
        ],
        hoverinfo="text",
    )  # fmt: skip


def _draw_ends(figure: go.Figure, circuit: "fp.Circuit", layout: GraphLayout) -> None:
    """Write the tokens below and the answer on top."""
    tokens = circuit.trace.tokens
    ends = [(f"embedding@{position}", tokens[position]) for position in layout.columns]
    ends.append((ANSWER, f"{circuit.provenance.answer}  {circuit.logit:+.2f}"))
    for name, text in ends:
        parts.write_boxed(figure, *layout.spots[name], plain(text))


@draws("recovery", "Circuit")
def plot_circuit_recovery(circuit: "fp.Circuit") -> go.Figure:
    """Draw what a tested circuit recovers."""
    if circuit.recovery is None:
        raise OptionRefused("this circuit was not tested.", remedy="test=True (--test)")
    return plot_recovery(circuit.recovery)


@draws("recovery", "Recovery")
def plot_recovery(recovery: "fp.Recovery") -> go.Figure:
    """Draw, over the size, what is left with only the circuit and what is gone without it."""
    shares = {"recovered": "left with only these neurons", "gone": "gone without these neurons"}
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=list(shares.values()))
    for order, (ranking, own) in enumerate(recovery.rows.groupby("ranking", sort=False)):
        for column, share in enumerate(shares, start=1):
            figure.add_scatter(
                x=own["size"].tolist(), y=own[share].tolist(), mode="lines+markers", name=str(ranking), row=1, col=column,
                line=line_of(order), showlegend=column == 1, legendgroup=str(ranking),
                hovertemplate=f"{ranking}, %{{x}} neurons: %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
    sizes = sorted({*recovery.rows["size"].tolist()})
    figure.update_xaxes(type="log", tickvals=sizes, title_text="neurons at positions")
    figure.add_hline(y=1.0, line={"color": GREY, "width": 1, "dash": "dot"})
    first = recovery.summary.iloc[0]
    recovered, gone = (
        "at no size" if math.isnan(size) else f"{word} {size:.0f} neurons"
        for word, size in (("with", first.recovered_size), ("without", first.gone_size))
    )
    title = f"By {first.ranking}, 80 % is recovered {recovered}, and gone {gone}"
    apply_theme(figure, title, note=f"1 is the whole model. {parts.say(recovery.provenance)}")
    return figure.update_yaxes(title_text="share of the answer's difference", col=1)
