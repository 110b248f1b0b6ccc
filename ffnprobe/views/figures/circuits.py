"""A circuit as a picture: tokens below, layers upward, the answer on top. And what it recovers."""

import math
from collections import defaultdict
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.circuits.graph import ANSWER
from ffnprobe.errors import OptionRefused
from ffnprobe.reading.projection import list_own_tokens
from ffnprobe.views.figures import charts, draws
from ffnprobe.views.theme import BLACK, GREY, apply_theme, line_of, plain

SHOWN, EDGES = 24, 60
THICKEST, THINNEST = 8.0, 0.8
ROW, CELL = 46, 112
LETTERS = 9
IN_LINE = 4  # neurons of one layer at one token, side by side
# Where each node stands; this, the lowest line of each layer, the width and the height.
Spots = dict[str, tuple[float, float]]
Flows = Sequence[tuple[tuple[str, str], float]]
Layout = tuple[Spots, dict[int, float], float, float]


@draws("graph", "Circuit")
def plot_circuit(circuit: "fp.Circuit", *, top: int = SHOWN, edges: int = EDGES) -> go.Figure:
    """Draw the `top` neurons of largest influence, and the strongest `edges` between them."""
    shown = [f"{name}@{position}" for name, position in circuit.kept[:top]]
    if not shown:
        why = "no neuron has influence on this answer."
        raise OptionRefused(why, remedy="other contrast prompts")
    spots, lowest, across, up = lay_out(circuit, shown)
    flows = defaultdict[tuple[str, str], float](float)  # through question and gate together
    for row, column in circuit.flows.nonzero().tolist():
        ends = circuit.sources.nodes[column].name, circuit.targets[row].name
        if spots.keys() >= set(ends):
            flows[ends] += float(circuit.flows[row, column])
    strongest = sorted(flows.items(), key=lambda item: -abs(item[1]))[:edges]
    figure = go.Figure()
    _draw_edges(figure, spots, strongest)
    _draw_nodes(figure, circuit, spots, shown)
    for position, token in enumerate(circuit.trace.tokens):
        charts.write_boxed(figure, *spots[f"embedding@{position}"], plain(token))
    answer = plain(f"{circuit.provenance.answer}  {circuit.logit:+.2f}")
    charts.write_boxed(figure, *spots[ANSWER], answer)
    ticks = {"tickvals": [*lowest.values()], "ticktext": [f"L{layer}" for layer in lowest]}
    figure.update_yaxes(range=[-0.75, up + 0.9], zeroline=False, **ticks)
    figure.update_xaxes(visible=False, range=[-0.2, across + 0.2])
    first, worth = circuit.kept[0], float(circuit.worth[-len(circuit.kept)])
    title = (
        f"{first[0]} at {circuit.trace.tokens[first[1]]} is worth most to "
        f"{charts.say_answer(circuit.provenance)} ({worth:+.2f} logits)"
    )
    note = (
        f"the {len(shown)} strongest of {len(circuit.kept)} neurons and {len(strongest)} edges; "
        f"blue toward the answer, vermillion away from it. {charts.say(circuit.provenance)}"
    )
    width = int(max(960, 90 + CELL * across))
    return apply_theme(figure, title, note=note, height=int(ROW * (up + 2)), width=width)


def lay_out(circuit: "fp.Circuit", shown: list[str]) -> Layout:
    """Give every position a column as wide as its fullest line, and every layer shown lines enough."""
    cells = defaultdict[tuple[int, int], list[str]](list)
    nodes = [node for node in circuit.sources.nodes if node.name in shown]
    for node in sorted(nodes, key=lambda node: (node.layer, node.neuron)):
        cells[node.layer, node.position].append(node.name)
    rows, height = {}, 1.0
    for layer in sorted({layer for layer, _ in cells}):
        rows[layer] = height
        fullest = max(len(names) for (own, _), names in cells.items() if own == layer)
        height += math.ceil(fullest / IN_LINE)
    spots, left = {}, 0.0
    for position in range(len(circuit.trace)):
        column = {layer: names for (layer, at), names in cells.items() if at == position}
        width = min(IN_LINE, max([1, *map(len, column.values())]))
        middle = left + width / 2
        spots[f"embedding@{position}"] = (middle, 0.0)
        for layer, names in column.items():
            for number, name in enumerate(names):
                line, order = divmod(number, IN_LINE)
                in_line = min(IN_LINE, len(names) - line * IN_LINE)
                y = rows[layer] + line
                # Moved a little: edges of neighbours one above the other would hide each other.
                spots[name] = (middle + order + 0.5 - in_line / 2 + 0.16 * (-1) ** int(y), y)
        left += width
    answer = circuit.question.pushes.pieces[0].position
    spots[ANSWER] = (spots[f"embedding@{answer}"][0], height + 0.4)
    return spots, rows, left, height


def _draw_edges(figure: go.Figure, spots: Spots, flows: Flows) -> None:
    """Draw edges, the strongest on top; each says at its middle what it is worth."""
    lines = [(spots[source], spots[target]) for (source, target), _ in flows]
    steps = [step / 12 for step in range(13)]
    for ((x, y), (to_x, to_y)), (_, flow) in reversed([*zip(lines, flows, strict=True)]):
        strength = math.sqrt(abs(flow / flows[0][1]))  # the area, not the width, is what is seen
        figure.add_scatter(
            x=[x + (to_x - x) * t * t * (3 - 2 * t) for t in steps],
            y=[y + (to_y - y) * t for t in steps],
            mode="lines", showlegend=False, hoverinfo="skip", opacity=0.25 + 0.55 * strength,
            line={"color": charts.sign_colour(flow), "width": max(THINNEST, THICKEST * strength)},
        )  # fmt: skip
    # Said at the middle alone: lines would hide the nodes from the pointer.
    figure.add_scatter(
        x=[(start[0] + end[0]) / 2 for start, end in lines],
        y=[(start[1] + end[1]) / 2 for start, end in lines],
        mode="markers", marker={"size": 9, "opacity": 0}, showlegend=False, hoverinfo="text",
        hovertext=[plain(f"{s} → {t}: {flow:+.4f} logits of the answer") for (s, t), flow in flows],
    )  # fmt: skip


def _draw_nodes(figure: go.Figure, circuit: "fp.Circuit", spots: Spots, shown: list[str]) -> None:
    kept, trace = circuit.kept[: len(shown)], circuit.trace
    worth = circuit.worth[-len(circuit.kept) :][: len(kept)].tolist()
    acts = [float(trace.activations[name.layer, at, name.neuron]) for name, at in kept]
    tokens = list_own_tokens(trace.model, [name for name, _ in kept], 5, signs=acts)
    rows = [*zip(kept, worth, acts, tokens, strict=True)]
    figure.add_scatter(
        x=[spots[name][0] for name in shown], y=[spots[name][1] for name in shown],
        mode="markers+text", showlegend=False, textposition="top center", customdata=shown,
        text=[f"{name}<br>{plain(written[0][:LETTERS])}" for (name, _), _, _, written in rows],
        textfont={"size": 10, "color": BLACK},
        marker={"size": 11, "symbol": "circle", "line": {"color": BLACK, "width": 1},
                "color": [charts.sign_colour(value) for value in worth]},
        hovertext=[
            plain(f"{name} at {trace.tokens[position]}: influence {value:+.4f}, activation {act:.3f}; "
                  f"writes {' '.join(written)}")
            for (name, position), value, act, written in rows
        ],
        hoverinfo="text",
    )  # fmt: skip


@draws("recovery", "Circuit", "Recovery")
def plot_recovery(result: "fp.Circuit | fp.Recovery") -> go.Figure:
    """Draw, over the size, what is left with only the circuit and what is gone without it."""
    recovery = result.recovery if isinstance(result, fp.Circuit) else result
    if recovery is None:
        raise OptionRefused("this circuit was not tested.", remedy="test=True (--test)")
    shares = {"recovered": "left with only these neurons", "gone": "gone without these neurons"}
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=list(shares.values()))
    for order, (ranking, rows) in enumerate(recovery.rows.groupby("ranking", sort=False)):
        for column, share in enumerate(shares, start=1):
            figure.add_scatter(
                x=rows["size"].tolist(), y=rows[share].tolist(), mode="lines+markers", row=1, col=column,
                name=str(ranking), line=line_of(order), showlegend=column == 1, legendgroup=str(ranking),
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
    apply_theme(figure, title, note=f"1 is the whole model. {charts.say(recovery.provenance)}")
    return figure.update_yaxes(title_text="share of the answer's difference", col=1)
