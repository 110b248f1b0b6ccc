"""One prompt: predictions, plain, steered and by the logit lens; the stages of an MLP; what opened a neuron."""

import math
from typing import Any

import plotly.graph_objects as go
from einops import reduce
from plotly.subplots import make_subplots
from torch import Tensor

import ffnprobe as fp
from ffnprobe.names import NeuronId
from ffnprobe.tracing.streams import lens as read_lens
from ffnprobe.tracing.trace import name_streams
from ffnprobe.views.figures import charts, draws
from ffnprobe.views.theme import BLUE, ORANGE, VERMILLION, apply_theme, plain

TOKENS_A_LINE = 8
# More columns than this leave no room for a token in a cell.
POSITIONS = 12
# A few numbers of the stream are far larger than the rest; the colour scale covers this share of them.
WITHIN = 0.99
NUMBERS_AT_MOST = 1_000_000


@draws("predictions", "Trace")
def plot_predictions(
    trace: "fp.Trace", *, top: int = 10, position: int = -1, temperature: float = 1.0
) -> go.Figure:
    many, at = min(top, len(trace.model.vocab)), trace.at(position)
    table = trace.predictions(many, position=position, temperature=temperature)
    title = f"{table.token[0]} comes next with probability {table.probability[0]:.3f}"
    note = f"{trace.model.name} after {charts.join_tokens(trace.tokens[: at + 1])}"
    note += "" if temperature == 1.0 else f"; temperature {temperature:g}"
    return charts.draw_bars(
        table.probability.tolist(), title, names=list(table.token), note=note, x="probability",
        hover=[f"{token}: logit {logit:.3f}," for token, logit in zip(table.token, table.logit, strict=True)],
    )  # fmt: skip


@draws("predictions", "Steering")
def plot_steering(steering: "fp.Steering", *, top: int = 10) -> go.Figure:
    """Draw the next tokens' probabilities before and after neurons were changed."""
    table = steering.predictions(min(top, len(steering.before)))
    tokens = list(table.token)
    before, after = table.probability_before.tolist(), table.probability_after.tolist()
    sides = [
        {"x": x, "name": name, "marker_color": colour, "marker_size": size, "marker_symbol": symbol,
         "hovertemplate": f"%{{text}} {name}: %{{x:.4g}}<extra></extra>"}
        for x, colour, name, symbol, size in (
            (before, BLUE, "before", "circle-open", 16), (after, ORANGE, "after", "diamond", 9),
        )
    ]  # fmt: skip
    both = {"text": [plain(token) for token in tokens], "marker_line_width": 2}
    figure = charts.draw_pairs(tokens, *sides, line={"width": 1}, **both)
    first, then = before.index(max(before)), after.index(max(after))
    title = (
        f"{tokens[first]} stays first: {before[first]:.3f} becomes {after[then]:.3f}"
        if first == then
        else f"{tokens[first]} was first, now {tokens[then]} is ({after[then]:.3f})"
    )
    note = f"{steering.provenance.describe()}; after {charts.join_tokens(steering.trace.tokens)}"
    height, ends = charts.height_of(len(table)), [-0.03, 1.03]
    return apply_theme(figure, title, note=note, x="probability", height=height, xaxis_range=ends)


@draws("lens", "Lens")
def plot_lens(lens: "fp.Lens") -> go.Figure:
    """Draw the answer's logit and its rank after each attention and MLP."""
    table = lens.table
    stages = [
        "embedding" if row.part == "embedding" else f"L{row.layer} {row.part}"
        for row in table.itertuples()
    ]
    hover = [
        plain(f"{stage}: likeliest {token} ({chance:.3f});")
        for stage, token, chance in zip(stages, table.token, table.token_probability, strict=True)
    ]
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08)
    for row, (column, colour) in enumerate((("logit", BLUE), ("rank", VERMILLION)), 1):
        figure.add_scatter(
            x=list(range(len(table))), y=table[column].tolist(), name=column, mode="lines+markers",
            line={"color": colour, "dash": "solid" if row == 1 else "dot"}, showlegend=False,
            customdata=hover, row=row, col=1,
            hovertemplate=f"%{{customdata}} {column} %{{y:.4g}}<extra></extra>",
        )  # fmt: skip
    charts.label(figure.update_xaxes, stages, tickangle=-40)
    answer, ranks = lens.provenance.answer, table["rank"].tolist()
    first = len(ranks)
    while first and ranks[first - 1] == 1:
        first -= 1
    title = (
        f"{answer} is first from {stages[first]} on, with logit {table.logit.iloc[-1]:.2f} at the end"
        if first < len(ranks)
        else f"{answer} is never first: at the end it has rank {ranks[-1]}, logit {table.logit.iloc[-1]:.2f}"
    )
    apply_theme(figure, title, note=charts.say(lens.provenance), height=480)
    figure.update_yaxes(title_text="logit", row=1, col=1)
    worst = max(ranks)
    ends = {"autorange": "reversed"} if worst == 1 else {"range": [len(str(worst)) - 0.2, -0.15]}
    return figure.update_yaxes(title_text="rank (log)", type="log", dtick=1, row=2, col=1, **ends)


@draws("lens", "Trace")
def plot_lens_tokens(trace: "fp.Trace") -> go.Figure:
    """Draw the token predicted at each position after each layer, coloured by its probability."""
    first = max(0, len(trace) - POSITIONS)
    tables = [read_lens(trace, position=position).table for position in range(first, len(trace))]
    tables = [table[table.part != "attention"] for table in tables]
    rows = ["embedding", *(f"after L{layer}" for layer in range(trace.model.config.layers))]
    grid = [list(row) for row in zip(*(t.token_probability for t in tables), strict=True)]
    tokens = zip(*(t.token for t in tables), strict=True)
    texts = [[plain(token) for token in row] for row in tokens]
    columns = list(trace.tokens[first:])
    figure = charts.draw_grid(grid, rows=rows, columns=columns, signed=False, bar="probability")
    # What a click on a cell chose: after which stage the stream is read, and where; a text, since
    # Dash hands on nothing else of a heatmap.
    stages = name_streams(trace.model)
    cells = [[f"{stage} {position}" for position in range(first, len(trace))] for stage in stages]
    figure.update_traces(text=texts, texttemplate="%{text}", zmin=0.0, zmax=1.0, customdata=cells,
                         hovertemplate="%{text}: %{z:.4g}<extra></extra>")  # fmt: skip
    final = [line[-1] for line in texts]
    first_row = final.index(final[-1])
    where = rows[first_row] if first_row else "in the embedding"
    title = f"At the last token {tables[-1].token.iloc[-1]} first comes up {where}"
    note = f"{trace.model.name}; each cell is the token the model would predict if it ended there"
    if first:
        note += f"; the last {POSITIONS} of {len(trace)} positions"
    width = max(960, 150 + 90 * len(columns))
    return apply_theme(figure, title, note=note, height=120 + 36 * len(rows), width=width)


@draws("neuron", "Trace", is_asked=True)
def plot_text(trace: "fp.Trace", neuron: str | NeuronId) -> go.Figure:
    """Draw a neuron's activation at every token, as text on colour."""
    name = trace.model.find_neuron(neuron)
    values = trace.activations[name.layer, :, name.neuron].tolist()
    width = min(TOKENS_A_LINE, len(values))
    lines = math.ceil(len(values) / width)
    blank = lines * width - len(values)
    words = [*map(plain, trace.tokens), *[""] * blank]
    cells: list[list[Any]] = [values + [math.nan] * blank, words]
    grid, texts = ([row[n * width : (n + 1) * width] for n in range(lines)] for row in cells)
    most = max(map(abs, values)) or 1.0
    rows = [str(line * width) for line in range(lines)]
    figure = charts.draw_grid(grid, rows=rows, limit=most, across="column")
    figure.update_traces(text=texts, texttemplate="%{text}", hoverongaps=False,
                         hovertemplate="%{text}: %{z:.4g}<extra></extra>")  # fmt: skip
    figure.update_xaxes(showticklabels=False, ticks="")
    peak = max(range(len(values)), key=values.__getitem__)
    title = f"{name} is most active at {trace.tokens[peak]} ({values[peak]:.3f})"
    note = f"{trace.model.name}; a cell is a token, its colour the activation there, from {-most:.3g} to {most:.3g}"
    return apply_theme(figure, title, note=note, y="position", height=110 + 46 * lines)


@draws("stages", "Stages")
def plot_stages(stages: "fp.Stages") -> go.Figure:
    """Draw attention's pattern, the input, scores, activations, output and the stream after."""
    gate = {} if stages.gate_scores is None else {"gate scores": stages.gate_scores}
    panels = {"input": stages.input, **gate, "scores": stages.scores}
    panels |= {"activations": stages.activations, "output": stages.output}
    panels["stream after"] = stages.after
    limits = {name: _limit(values) for name, values in panels.items()}
    titles = [f"{name} (±{limits[name]:.2g})" for name in panels]
    if stages.pattern is not None:
        titles.insert(0, "attention (0–1)")
    figure = make_subplots(
        cols=len(titles), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.015
    )
    tokens = list(stages.tokens)
    if stages.pattern is not None:
        mean = reduce(stages.pattern, "head query key -> query key", "mean")
        charts.draw_grid(mean.tolist(), rows=tokens, columns=tokens, signed=False, into=figure)
        figure.update_traces(zmin=0.0, zmax=1.0)
        figure.update_xaxes(tickangle=-60, title_text="read from", row=1, col=1)
    for column, (name, values) in enumerate(panels.items(), 1 + len(titles) - len(panels)):
        across = "neuron" if name in ("gate scores", "scores", "activations") else "dimension"
        look: dict[str, Any] = {"limit": limits[name], "across": across}
        charts.draw_grid(values.tolist(), rows=tokens, column=column, into=figure, **look)
        figure.update_xaxes(title_text=across, nticks=4, row=1, col=column)
    share = int((stages.activations > 0).sum()) / stages.activations.numel()
    title = f"In the FFN of L{stages.layer} {share:.0%} of the activations are above zero"
    note = (
        f"{stages.model.name}; a row is a token, alone on its way; colours end where {WITHIN:.0%} of a "
        "stage's numbers lie within, blue above zero, vermillion below; attention is the heads' mean"
    )
    return apply_theme(figure, title, note=note, width=1280, height=150 + 30 * len(tokens))


def _limit(values: Tensor) -> float:
    sizes = values.abs().double().ravel()
    return float(sizes[:NUMBERS_AT_MOST].quantile(WITHIN)) or float(sizes.max()) or 1.0


@draws("drivers", "Drivers")
def plot_drivers(drivers: "fp.Drivers", *, top: int = 15) -> go.Figure:
    gate = {} if drivers.gate is None else {"gate": drivers.gate}
    sides = gate | {"question": drivers}
    figure = make_subplots(
        cols=len(sides), horizontal_spacing=0.22,
        subplot_titles=[f"{side}: score {one.score:+.3f}" for side, one in sides.items()],
    )  # fmt: skip
    heights = []
    for column, one in enumerate(sides.values(), 1):  # the question's is the last
        table = one.by_part().sort_values("drive", key=abs, ascending=False, kind="stable")
        names, values = list(table.part[:top]), table.drive[:top].tolist()
        if len(table) > top:
            names.append(f"{len(table) - top} others")
            values.append(float(table.drive[top:].sum()))
        hover = [f"{name}:" for name in names]
        charts.add_bars(figure, values, names=names, hover=hover, row=1, col=column)
        heights.append(charts.height_of(len(values)))
    title = (
        f"{names[0]} drives {drivers.neuron} most at {drivers.trace.tokens[drivers.position]}: "
        f"{values[0]:+.3f} of a score of {drivers.score:+.3f}"
    )
    return apply_theme(
        figure, title, note=charts.say(drivers.provenance), x="score", width=320 + 480 * len(sides),
        height=30 + max(heights),
    )  # fmt: skip


@draws("similarity", "Similarity")
def plot_similarity(similarity: "fp.Similarity") -> go.Figure:
    """Draw the cosines of a prompt's tokens with one another at the first, middle and last stage."""
    count = len(similarity.stages)
    chosen = sorted({0, count // 2, count - 1})
    tokens = list(similarity.tokens)
    figure = make_subplots(
        cols=len(chosen), subplot_titles=[similarity.stages[stage] for stage in chosen],
        shared_yaxes=True, horizontal_spacing=0.03,
    )  # fmt: skip
    means = []
    digits = 2 if len(tokens) <= 10 else None
    for column, stage in enumerate(chosen, 1):
        cosines = similarity.cosines[stage]
        pairs = len(tokens) * (len(tokens) - 1)
        means.append(float(cosines.sum() - cosines.trace()) / pairs if pairs else 1.0)
        charts.draw_grid(
            cosines.tolist(), rows=tokens, columns=tokens, column=column, limit=1.0, digits=digits,
            bar="cosine" if column == len(chosen) else None, into=figure,
        )  # fmt: skip
    figure.update_xaxes(tickangle=-40)
    title = (
        "The cosines are undefined: the tokens' vectors are zero"
        if similarity.cosines.isnan().all()
        else f"The mean cosine of two tokens goes from {means[0]:.2f} to {means[-1]:.2f}"
    )
    note = charts.say(similarity.provenance)
    return apply_theme(figure, title, note=note, height=150 + 36 * len(tokens), width=1280)
