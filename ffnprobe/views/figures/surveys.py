"""Figures of a survey (kinds, norms, cosines of question and answer) and of a search."""

import pandas as pd
import plotly.graph_objects as go

from ffnprobe.reading.kinds import KINDS
from ffnprobe.reading.readings import Readings
from ffnprobe.reading.searches import Search
from ffnprobe.reading.surveys import Survey
from ffnprobe.views.figures.bars import bars, height_of, room
from ffnprobe.views.figures.grids import label
from ffnprobe.views.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, apply_theme, plain

_KIND_COLOURS = {
    "entropy": PURPLE,
    "prediction": BLUE,
    "suppression": VERMILLION,
    "partition": GREEN,
    "unlabelled": GREY,
}
_SYMBOLS = ("star", "circle", "diamond", "square", "circle-open")
# A browser draws up to this many points as vectors; more are drawn on a canvas.
VECTORS = 10_000
SHOWN_TOKENS = 3
_TICKS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]


def plot_kinds(survey: Survey | Readings) -> go.Figure:
    """Draw every neuron's kurtosis against its skew over the vocabulary, coloured by kind."""
    neurons = survey.table
    figure = go.Figure()
    scatter = go.Scattergl if len(neurons) > VECTORS else go.Scatter
    # The unlabelled are many: drawn first, they do not hide the others.
    for kind, symbol in reversed(list(zip(KINDS, _SYMBOLS, strict=True))):
        rows = neurons[neurons.kind == kind]
        if rows.empty:
            continue
        tokens = rows.promotes.str.split(" ").str[:SHOWN_TOKENS].str.join(" ")
        figure.add_trace(
            scatter(
                x=rows.vocab_skew.tolist(),
                y=rows.vocab_kurtosis.tolist(),
                mode="markers",
                name=f"{kind} ({len(rows):,})",
                text=[plain(f"{n}: {t}") for n, t in zip(rows.name, tokens, strict=True)],
                customdata=rows.name.tolist(),
                marker={"color": _KIND_COLOURS[kind], "symbol": symbol, "size": 6, "opacity": 0.7},
                hovertemplate="%{text}; skew %{x:.2f}, kurtosis %{y:.2f}<extra></extra>",
            )
        )
    figure.add_vline(x=0, line_color=GREY, line_width=1)
    mark_blank(figure, neurons.vocab_kurtosis)
    labelled = int((neurons.kind != "unlabelled").sum())
    common = neurons.kind[neurons.kind != "unlabelled"].value_counts()
    most = f", most of them {common.index[0]}" if labelled else ""
    title = f"{labelled:,} of {len(neurons):,} neurons have a kind by their weights{most}"
    note = f"{survey.provenance.model}; moments over the vocabulary of cos(answer, token); a normal spread has kurtosis 3"
    apply_theme(figure, title, note=note, x="skew", y="kurtosis (log)", height=480)
    return figure.update_yaxes(type="log", tickvals=_TICKS)


def plot_norms(survey: Survey | Readings) -> go.Figure:
    """Draw the norms of questions and answers, layer by layer."""
    neurons = survey.table
    figure = go.Figure()
    for column, colour in (("question_norm", BLUE), ("answer_norm", ORANGE)):
        figure.add_trace(box_layers(neurons, column, colour, column.replace("_", " ")))
    medians = neurons.groupby("layer").answer_norm.median()
    title = f"The median answer is longest in L{medians.idxmax()} ({medians.max():.2f}) and shortest in L{medians.idxmin()} ({medians.min():.2f})"
    figure.update_layout(boxmode="group", legend={"orientation": "h", "y": -0.16})
    return apply_theme(
        figure, title, note=f"{survey.provenance.model}; boxes are quartiles", x="layer", y="norm"
    )


def plot_cosines(survey: Survey | Readings) -> go.Figure:
    """Draw cos(question, answer), layer by layer: above zero a neuron strengthens what it reads."""
    neurons = survey.table
    figure = go.Figure(box_layers(neurons, "reads_writes", GREEN, "cosine"))
    figure.add_hline(y=0, line_color=GREY, line_width=1)
    mark_blank(figure, neurons.reads_writes)
    below = float((neurons.reads_writes < 0).mean())
    title = f"{below:.0%} of the neurons answer against what they ask for (cosine below zero)"
    figure.update_layout(showlegend=False)
    note = f"{survey.provenance.model}; boxes are quartiles"
    return apply_theme(figure, title, note=note, x="layer", y="cos(question, answer)")


def plot_search(found: Search) -> go.Figure:
    """Draw the neurons found for tokens by z."""
    table = found.table
    values = table.z.tolist()
    tokens = table[found.own_tokens].str.split(" ").str[:SHOWN_TOKENS].str.join(" ")
    names = [f"{name}  {text}" for name, text in zip(table.name, tokens, strict=True)]
    figure = go.Figure(bars(values, hover=[f"{name}: z" for name in names]))
    label(figure.update_yaxes, names, autorange="reversed")
    title = (
        f"{table.name.iloc[0]} stands out most for {' '.join(found.tokens)}: z = {values[0]:.1f}"
    )
    note = f"{found.provenance.model}; {found.caption}"
    apply_theme(figure, title, note=note, x="z over the vocabulary", height=height_of(len(table)))
    return figure.update_xaxes(range=room(values))


def mark_blank(figure: go.Figure, values: pd.Series) -> None:
    """Write into an empty figure that no neuron has a value."""
    if values.isna().all():
        figure.add_annotation(
            text="undefined: these neurons' weights are zero", showarrow=False,
            x=0.5, y=0.5, xref="paper", yref="paper",
        )  # fmt: skip


def box_layers(neurons: pd.DataFrame, column: str, colour: str, name: str) -> go.Box:
    """Draw a column's quartiles, a box for each layer."""
    layers = [f"L{layer}" for layer in neurons.layer]
    return go.Box(
        x=layers,
        y=neurons[column].tolist(),
        name=name,
        marker_color=colour,
        line_color=colour,
        boxpoints="outliers",
        marker={"size": 3, "opacity": 0.5},
    )
