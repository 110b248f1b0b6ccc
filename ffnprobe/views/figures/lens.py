"""Figures of the logit lens: an answer through the layers, and every position at every layer."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.tracing.logit_lens import Lens
from ffnprobe.tracing.logit_lens import lens as read_lens
from ffnprobe.tracing.streams import name_streams
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.figures.grids import add_grid, label, new_grids
from ffnprobe.views.figures.words import say
from ffnprobe.views.theme import BLUE, VERMILLION, apply_theme, plain

# More columns than this leave no room for a token in a cell.
POSITIONS = 12


def plot_lens(lens: Lens) -> go.Figure:
    """Draw the answer's logit and its rank after each attention and MLP."""
    table = lens.table
    stages = [
        "embedding" if row.part == "embedding" else f"L{row.layer} {row.part}"
        for row in table.itertuples()
    ]
    hover = [
        f"{stage}: likeliest {token} ({chance:.3f});"
        for stage, token, chance in zip(stages, table.token, table.token_probability, strict=True)
    ]
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08)
    for row, (column, colour) in enumerate((("logit", BLUE), ("rank", VERMILLION)), 1):
        figure.add_trace(
            go.Scatter(
                x=list(range(len(table))), y=table[column].tolist(), name=column, mode="lines+markers",
                line={"color": colour, "dash": "solid" if row == 1 else "dot"}, showlegend=False,
                customdata=[plain(text) for text in hover],
                hovertemplate=f"%{{customdata}} {column} %{{y:.4g}}<extra></extra>",
            ), row, 1,
        )  # fmt: skip
    label(figure.update_xaxes, stages, tickangle=-40)
    answer, ranks = lens.provenance.answer, table["rank"].tolist()
    first = len(ranks)
    while first and ranks[first - 1] == 1:
        first -= 1
    title = (
        f"{answer} is first from {stages[first]} on, with logit {table.logit.iloc[-1]:.2f} at the end"
        if first < len(ranks)
        else f"{answer} is never first: at the end it has rank {ranks[-1]}, logit {table.logit.iloc[-1]:.2f}"
    )
    apply_theme(figure, title, note=say(lens.provenance), height=480)
    figure.update_yaxes(title_text="logit", row=1, col=1)
    worst = max(ranks)
    ends = {"autorange": "reversed"} if worst == 1 else {"range": [len(str(worst)) - 0.2, -0.15]}
    return figure.update_yaxes(title_text="rank (log)", type="log", dtick=1, row=2, col=1, **ends)


def plot_lens_tokens(trace: Trace) -> go.Figure:
    """Draw the token predicted at each position after each layer, coloured by its probability."""
    first = max(0, len(trace) - POSITIONS)
    tables = [read_lens(trace, position=position).table for position in range(first, len(trace))]
    kept = [table[table.part != "attention"] for table in tables]
    rows = ["embedding", *(f"after L{layer}" for layer in range(trace.model.config.layers))]
    grid = [[float(t.token_probability.iloc[row]) for t in kept] for row in range(len(rows))]
    texts = [[plain(str(t.token.iloc[row])) for t in kept] for row in range(len(rows))]
    figure = new_grids()
    columns = list(trace.tokens[first:])
    add_grid(figure, grid, rows=rows, columns=columns, signed=False, bar="probability")
    # What a click on a cell chose: after which stage the stream is read, and where; a text, since
    # Dash hands on nothing else of a heatmap.
    stages = name_streams(trace.model)
    cells = [[f"{stage} {position}" for position in range(first, len(trace))] for stage in stages]
    figure.update_traces(text=texts, texttemplate="%{text}", zmin=0.0, zmax=1.0, customdata=cells,
                         hovertemplate="%{text}: %{z:.4g}<extra></extra>")  # fmt: skip
    final = texts[-1][-1]
    layers = [row for row in range(len(rows)) if texts[row][-1] == final]
    where = rows[layers[0]] if layers[0] else "in the embedding"
    title = f"At the last token {tables[-1].token.iloc[-1]} first comes up {where}"
    note = f"{trace.model.name}; each cell is the token the model would predict if it ended there"
    if first:
        note += f"; the last {POSITIONS} of {len(trace)} positions"
    width = max(960, 150 + 90 * len(columns))
    return apply_theme(figure, title, note=note, height=120 + 36 * len(rows), width=width)
