"""What the weights say: readings, surveys, roles, searches, and twins in another model."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.errors import DataRefused
from ffnprobe.reading.measures import KINDS, ROLES
from ffnprobe.reading.readings import TITLES
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, apply_theme, plain

_KIND_COLOURS = (PURPLE, BLUE, VERMILLION, GREEN, GREY)
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
    titles = [TITLES[side] for side in tables]
    figure = make_subplots(
        cols=len(tables), subplot_titles=titles, horizontal_spacing=0.36 / len(tables)
    )
    for column, table in enumerate(tables.values(), 1):
        values = table.value.tolist()
        hover = [f"{token}:" for token in table.token]
        # A third of the width is narrow: numbers need more of it, or they touch the tokens.
        parts.add_bars(
            figure, values, names=list(table.token), hover=hover, room=0.32, row=1, col=column
        )
    figure.update_xaxes(nticks=4)
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
        figure, title, note=note, width=100 + 360 * len(tables), height=parts.height_of(top)
    )


@draws("kinds", "Survey", "Readings")
def plot_kinds(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw every neuron's kurtosis against its skew over the vocabulary, coloured by kind."""
    neurons = _rows(survey)
    figure = go.Figure()
    scatter = go.Scattergl if len(neurons) > parts.VECTORS else go.Scatter
    # The unlabelled are many: drawn first, they do not hide the others.
    for kind, colour, symbol in reversed([*zip(KINDS, _KIND_COLOURS, _SYMBOLS, strict=True)]):
        rows = neurons[neurons.kind == kind]
        if rows.empty:
            continue
        tokens = parts.first_tokens(rows.promotes)
        drawn = scatter(
            x=rows.vocab_skew.tolist(), y=rows.vocab_kurtosis.tolist(), mode="markers",
            name=f"{kind} ({len(rows):,})", customdata=rows.name.tolist(),
            text=[plain(f"{n}: {t}") for n, t in zip(rows.name, tokens, strict=True)],
            marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.7},
            hovertemplate="%{text}; skew %{x:.2f}, kurtosis %{y:.2f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(drawn)
    figure.add_vline(x=0, line_color=GREY, line_width=1)
    mark_blank(figure, neurons.vocab_kurtosis)
    labelled = int((neurons.kind != "unlabelled").sum())
    common = neurons.kind[neurons.kind != "unlabelled"].value_counts()
    most = f", most of them {common.index[0]}" if labelled else ""
    title = f"{labelled:,} of {len(neurons):,} neurons have a kind by their weights{most}"
    note = f"{survey.provenance.model}; moments over the vocabulary of cos(answer, token); a normal spread has kurtosis 3"
    return apply_theme(
        figure, title, note=note, x="skew", y="kurtosis (log)", height=480,
        yaxis={"type": "log", "tickvals": _TICKS},
    )  # fmt: skip


@draws("norms", "Survey", "Readings")
def plot_norms(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw the norms of questions and answers, layer by layer."""
    neurons = _rows(survey)
    columns = {"question_norm": ("question norm", BLUE), "answer_norm": ("answer norm", ORANGE)}
    medians = neurons.groupby("layer").answer_norm.median()
    title = f"The median answer is longest in L{medians.idxmax()} ({medians.max():.2f}) and shortest in L{medians.idxmin()} ({medians.min():.2f})"
    note = f"{survey.provenance.model}; boxes are quartiles"
    return _draw_boxes(neurons, columns, title, note=note, y="norm")


@draws("cosines", "Survey", "Readings")
def plot_cosines(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw cos(question, answer), layer by layer: above zero a neuron strengthens what it reads."""
    neurons = _rows(survey)
    below = float((neurons.reads_writes < 0).mean())
    title = f"{below:.0%} of the neurons answer against what they ask for (cosine below zero)"
    columns = {"reads_writes": ("cosine", GREEN)}
    look = {"note": f"{survey.provenance.model}; boxes are quartiles", "showlegend": False}
    figure = _draw_boxes(neurons, columns, title, y="cos(question, answer)", **look)
    mark_blank(figure, neurons.reads_writes)
    return figure.add_hline(y=0, line_color=GREY, line_width=1)


@draws("search", "Search")
def plot_search(found: "fp.Search") -> go.Figure:
    """Draw the neurons found for tokens by z."""
    table = _rows(found)
    values = table.z.tolist()
    names = parts.neuron_labels(table, found.own_tokens)
    title = (
        f"{table.name.iloc[0]} stands out most for {' '.join(found.tokens)}: z = {values[0]:.1f}"
    )
    note = f"{found.provenance.model}; {found.caption}"
    return parts.draw_bars(
        values, title, names=names, hover=[f"{name}: z" for name in names], note=note,
        x="z over the vocabulary",
    )  # fmt: skip


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


def _draw_boxes(
    neurons: pd.DataFrame, columns: Mapping[str, tuple[str, str]], title: str, **look: Any
) -> go.Figure:
    """Draw quartiles by layer of columns, each with its name and colour."""
    boxes = [
        parts.box_layers(neurons, column, colour, name=name, line_color=colour)
        for column, (name, colour) in columns.items()
    ]
    if len(boxes) > 1:
        look |= {"boxmode": "group", "legend": parts.BELOW}
    return apply_theme(go.Figure(boxes), title, x="layer", **look)


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
        figure.add_bar(
            x=names, y=[sign * share for share in shares[role]], name=role,
            marker={"color": _COLOURS[role]}, customdata=shares[role],
            hovertemplate=f"%{{x}}: %{{customdata:.1%}} {role}<extra></extra>",
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
    thresholds = survey.provenance.settings.get("thresholds")
    least = thresholds.get("role", 0.5) if isinstance(thresholds, dict) else 0.5
    note = f"{survey.provenance.model}; cos(question, answer) at least {least:g}, or at most −{least:g}; the rest translates"
    return apply_theme(
        figure, title, note=note, x="layer", y="share of neurons", height=460,
        barmode="relative", legend=parts.BELOW | {"y": -0.2}, yaxis_tickformat=".0%",
    )  # fmt: skip


@draws("layers", "Match")
def plot_layers(match: "fp.Match") -> go.Figure:
    """Draw in which layer of the other model the twins of each layer are."""
    neurons = match.neurons
    twins = neurons[neurons.is_twin]
    rows, columns = (int(neurons[name].max()) + 1 for name in ("layer", "twin_layer"))
    counts = [[0] * columns for _ in range(rows)]
    for layer, twin in zip(twins.layer, twins.twin_layer, strict=True):
        counts[layer][twin] += 1
    names, others = ([f"L{layer}" for layer in range(many)] for many in (rows, columns))
    figure = parts.draw_grid(
        counts, rows=names, columns=others, signed=False, digits=0, bar="twins"
    )
    figure.update_traces(hovertemplate="L%{y} → L%{x}: %{z} twins<extra></extra>")
    same = int((twins.layer == twins.twin_layer).sum())
    title = f"{match.title}, {same:,} of them in the same layer"
    return apply_theme(
        figure, title, note=match.caption, height=max(320, 150 + 34 * rows),
        x=f"layer of {match.other}", y="layer",
    )  # fmt: skip


@draws("correlations", "Match")
def plot_correlations(match: "fp.Match") -> go.Figure:
    """Draw each layer's best correlations beside those with the random control."""
    neurons = match.neurons
    columns = {
        "correlation": (f"best neuron of {match.other}", BLUE),
        "control": ("best of as many random answers", GREY),
    }
    above = float((neurons.correlation.abs() > neurons.control.abs()).mean())
    title = f"{above:.0%} of the neurons are more like a neuron of {match.other} than like any random answer"
    note = f"{match.provenance.model}; boxes are quartiles; {match.caption}"
    return _draw_boxes(neurons, columns, title, note=note, y="correlation over the vocabulary")
