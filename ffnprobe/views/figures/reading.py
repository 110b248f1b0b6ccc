"""What the weights say: readings, surveys, roles, searches, and twins in another model."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.errors import DataRefused
from ffnprobe.reading.cards import TITLES
from ffnprobe.reading.kinds import KINDS
from ffnprobe.reading.roles import ROLES
from ffnprobe.views.figures import draws
from ffnprobe.views.figures.parts import (
    SHOWN_TOKENS,
    VECTORS,
    add_grid,
    bars,
    height_of,
    label,
    new_grids,
    room,
)
from ffnprobe.views.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, apply_theme, plain

_KIND_COLOURS = {
    "entropy": PURPLE,
    "prediction": BLUE,
    "suppression": VERMILLION,
    "partition": GREEN,
    "unlabelled": GREY,
}
_SYMBOLS = ("star", "circle", "diamond", "square", "circle-open")
_TICKS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]
_COLOURS = {"strengthens": BLUE, "translates": GREY, "erases": VERMILLION}


@draws("reading", "Reading")
def plot_reading(reading: "fp.Reading", *, top: int = 10) -> go.Figure:
    """Draw the tokens that match question and gate, and those the answer promotes and suppresses."""
    top = min(top, reading.question.model.config.vocab)
    tables = {} if reading.gate is None else {"gate_tokens": reading.gate.top(top)}
    tables |= {
        "question_tokens": reading.question.top(top),
        "promotes": reading.answer.promotes(top),
        "suppresses": reading.answer.suppresses(top),
    }
    figure = make_subplots(
        cols=len(tables),
        subplot_titles=[TITLES[side] for side in tables],
        horizontal_spacing=0.36 / len(tables),
    )
    for column, table in enumerate(tables.values(), 1):
        values = table.value.tolist()
        figure.add_trace(bars(values, hover=[f"{t}:" for t in table.token]), 1, column)
        cell = {"row": 1, "col": column}
        label(figure.update_yaxes, list(table.token), autorange="reversed", **cell)
        # A third of the width is narrow: numbers need more of it, or they touch the tokens.
        figure.update_xaxes(range=room(values, 0.32), nticks=4, **cell)
    opens = tables[next(iter(tables))].token[0]
    title = (
        f"{reading.name} ({reading.kind}) answers {tables['promotes'].token[0]} where it finds "
        f"{opens}, by its weights"
    )
    note = (
        f"{reading.provenance.model}; answers {reading.provenance.convention}, in logits per unit of "
        "activation and of the final scale; above layer 0 question tokens are a hint only"
    )
    return apply_theme(
        figure, title, note=note, width=100 + 360 * len(tables), height=height_of(top)
    )


@draws("kinds", "Survey", "Readings")
def plot_kinds(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw every neuron's kurtosis against its skew over the vocabulary, coloured by kind."""
    neurons = _rows(survey)
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


@draws("norms", "Survey", "Readings")
def plot_norms(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw the norms of questions and answers, layer by layer."""
    neurons = _rows(survey)
    figure = go.Figure()
    for column, colour in (("question_norm", BLUE), ("answer_norm", ORANGE)):
        figure.add_trace(box_layers(neurons, column, colour, column.replace("_", " ")))
    medians = neurons.groupby("layer").answer_norm.median()
    title = f"The median answer is longest in L{medians.idxmax()} ({medians.max():.2f}) and shortest in L{medians.idxmin()} ({medians.min():.2f})"
    figure.update_layout(boxmode="group", legend={"orientation": "h", "y": -0.16})
    return apply_theme(
        figure, title, note=f"{survey.provenance.model}; boxes are quartiles", x="layer", y="norm"
    )


@draws("cosines", "Survey", "Readings")
def plot_cosines(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw cos(question, answer), layer by layer: above zero a neuron strengthens what it reads."""
    neurons = _rows(survey)
    figure = go.Figure(box_layers(neurons, "reads_writes", GREEN, "cosine"))
    figure.add_hline(y=0, line_color=GREY, line_width=1)
    mark_blank(figure, neurons.reads_writes)
    below = float((neurons.reads_writes < 0).mean())
    title = f"{below:.0%} of the neurons answer against what they ask for (cosine below zero)"
    figure.update_layout(showlegend=False)
    note = f"{survey.provenance.model}; boxes are quartiles"
    return apply_theme(figure, title, note=note, x="layer", y="cos(question, answer)")


@draws("search", "Search")
def plot_search(found: "fp.Search") -> go.Figure:
    """Draw the neurons found for tokens by z."""
    table = _rows(found)
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


def _rows(result: "fp.Survey | fp.Readings | fp.Search") -> pd.DataFrame:
    """Return a result's table, which may not be empty."""
    if not len(result):
        raise DataRefused("there is nothing to draw: the table is empty.")
    return result.table


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


@draws("roles", "Survey", "Readings")
def plot_roles(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw which share of each layer's neurons strengthens, translates or erases what it reads."""
    neurons = _rows(survey)
    layers = sorted(set(neurons.layer.tolist()))
    names = [f"L{layer}" for layer in layers]
    shares = {
        role: [float((neurons.role[neurons.layer == n] == role).mean()) for n in layers]
        for role in ROLES
    }
    figure = go.Figure()
    # What erases hangs below zero, so that a change from one to the other is seen as one.
    for role, sign in (("strengthens", 1), ("erases", -1)):
        figure.add_trace(
            go.Bar(
                x=names, y=[sign * share for share in shares[role]], name=role,
                marker={"color": _COLOURS[role]}, customdata=shares[role],
                hovertemplate=f"%{{x}}: %{{customdata:.1%}} {role}<extra></extra>",
            )
        )  # fmt: skip
    figure.add_hline(y=0, line_color=GREY, line_width=1)
    mark_blank(figure, neurons.reads_writes)
    most = {role: max(range(len(names)), key=shares[role].__getitem__) for role in ROLES}
    said = [
        f"{names[most[role]]} {role} most ({shares[role][most[role]]:.0%})"
        for role in ("strengthens", "erases")
        if shares[role][most[role]] > 0
    ]
    title = "; ".join(said) or "No neuron strengthens or erases what it reads"
    figure.update_layout(barmode="relative", legend={"orientation": "h", "y": -0.2})
    thresholds = survey.provenance.settings.get("thresholds")
    least = thresholds.get("role", 0.5) if isinstance(thresholds, dict) else 0.5
    note = f"{survey.provenance.model}; cos(question, answer) at least {least:g}, or at most −{least:g}; the rest translates"
    apply_theme(figure, title, note=note, x="layer", y="share of neurons", height=460)
    return figure.update_yaxes(tickformat=".0%")


@draws("layers", "Match")
def plot_layers(match: "fp.Match") -> go.Figure:
    """Draw in which layer of the other model the twins of each layer are."""
    neurons = match.neurons
    twins = neurons[neurons.is_twin]
    rows, columns = (int(neurons[name].max()) + 1 for name in ("layer", "twin_layer"))
    counts = [[0] * columns for _ in range(rows)]
    for layer, twin in zip(twins.layer, twins.twin_layer, strict=True):
        counts[layer][twin] += 1
    figure = new_grids()
    names = [f"L{layer}" for layer in range(rows)]
    add_grid(figure, counts, rows=names, columns=[f"L{n}" for n in range(columns)], signed=False,
             digits=0, bar="twins")  # fmt: skip
    label(figure.update_xaxes, [f"L{n}" for n in range(columns)])
    figure.update_traces(hovertemplate="L%{y} → L%{x}: %{z} twins<extra></extra>")
    same = int((twins.layer == twins.twin_layer).sum())
    title = f"{match.title}, {same:,} of them in the same layer"
    return apply_theme(
        figure, title, note=match.caption, x=f"layer of {match.other}", y="layer",
        height=max(320, 150 + 34 * rows),
    )  # fmt: skip


@draws("correlations", "Match")
def plot_correlations(match: "fp.Match") -> go.Figure:
    """Draw each layer's best correlations beside those with the random control."""
    neurons = match.neurons
    figure = go.Figure()
    figure.add_trace(box_layers(neurons, "correlation", BLUE, f"best neuron of {match.other}"))
    figure.add_trace(box_layers(neurons, "control", GREY, "best of as many random answers"))
    above = float((neurons.correlation.abs() > neurons.control.abs()).mean())
    title = f"{above:.0%} of the neurons are more like a neuron of {match.other} than like any random answer"
    figure.update_layout(boxmode="group", legend={"orientation": "h", "y": -0.16})
    note = f"{match.provenance.model}; boxes are quartiles; {match.caption}"
    return apply_theme(figure, title, note=note, x="layer", y="correlation over the vocabulary")
