"""Neurons without a prompt: by their weights (readings, surveys, searches, twins), and over many texts."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.corpora.examples import quote
from ffnprobe.corpora.statistics import EDGES
from ffnprobe.errors import DataRefused
from ffnprobe.names import NeuronId
from ffnprobe.reading.measures import KINDS
from ffnprobe.reading.readings import TITLES
from ffnprobe.views.figures import charts, draws
from ffnprobe.views.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, apply_theme, plain

_KIND_COLOURS = (PURPLE, BLUE, VERMILLION, GREEN, GREY)
_SYMBOLS = ("star", "circle", "diamond", "square", "circle-open")
Columns = Mapping[str, tuple[str, str]]
_TICKS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]
_BELOW = charts.BELOW | {"y": -0.2}


@draws("reading", "Reading")
def plot_reading(reading: "fp.Reading", *, top: int = 10) -> go.Figure:
    top = min(top, reading.question.model.config.vocab)
    tables = {} if reading.gate is None else {"gate_tokens": reading.gate.top(top)}
    tables["question_tokens"] = reading.question.top(top)
    tables["promotes"] = reading.answer.promotes(top)
    tables["suppresses"] = reading.answer.suppresses(top)
    figure = make_subplots(
        cols=len(tables), subplot_titles=[TITLES[side] for side in tables],
        horizontal_spacing=0.36 / len(tables),
    )  # fmt: skip
    for column, table in enumerate(tables.values(), 1):
        # A third of the width is narrow: numbers need more of it, or they touch the tokens.
        names, hover = list(table.token), [f"{token}:" for token in table.token]
        values = table.value.tolist()
        charts.add_bars(figure, values, names=names, hover=hover, room=0.32, row=1, col=column)
    figure.update_xaxes(nticks=4)
    opens = next(iter(tables.values())).token[0]
    title = (
        f"{reading.name} ({reading.kind}) answers {tables['promotes'].token[0]} where it finds "
        f"{opens}, by its weights"
    )
    note = (
        f"{reading.provenance.model}; answers {reading.provenance.convention}, in logits per unit of "
        "activation and of the final scale; above layer 0 question tokens are a hint only"
    )
    width, height = 100 + 360 * len(tables), charts.height_of(top)
    return apply_theme(figure, title, note=note, width=width, height=height)


@draws("kinds", "Survey", "Readings")
def plot_kinds(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw every neuron's kurtosis against its skew over the vocabulary, coloured by kind."""
    neurons, figure = _rows(survey), go.Figure()
    scatter = go.Scattergl if len(neurons) > charts.VECTORS else go.Scatter
    # The unlabelled are many: drawn first, they do not hide the others.
    for kind, colour, symbol in reversed([*zip(KINDS, _KIND_COLOURS, _SYMBOLS, strict=True)]):
        rows = neurons[neurons.kind == kind]
        if rows.empty:
            continue
        tokens = charts.first_tokens(rows.promotes)
        drawn = scatter(
            x=rows.vocab_skew.tolist(), y=rows.vocab_kurtosis.tolist(), mode="markers",
            name=f"{kind} ({len(rows):,})", customdata=rows.name.tolist(),
            text=[plain(f"{n}: {t}") for n, t in zip(rows.name, tokens, strict=True)],
            marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.7},
            hovertemplate="%{text}; skew %{x:.2f}, kurtosis %{y:.2f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(drawn)
    figure.add_vline(x=0, line_color=GREY, line_width=1)
    _mark_blank(figure, neurons.vocab_kurtosis)
    kinds = neurons.kind[neurons.kind != "unlabelled"]
    most = f", most of them {kinds.value_counts().index[0]}" if len(kinds) else ""
    title = f"{len(kinds):,} of {len(neurons):,} neurons have a kind by their weights{most}"
    note = f"{survey.provenance.model}; moments over the vocabulary of cos(answer, token); a normal spread has kurtosis 3"
    return apply_theme(
        figure, title, note=note, x="skew", y="kurtosis (log)", height=480,
        yaxis={"type": "log", "tickvals": _TICKS},
    )  # fmt: skip


@draws("norms", "Survey", "Readings")
def plot_norms(survey: "fp.Survey | fp.Readings") -> go.Figure:
    neurons = _rows(survey)
    columns = {"question_norm": ("question norm", BLUE), "answer_norm": ("answer norm", ORANGE)}
    medians = neurons.groupby("layer").answer_norm.median()
    title = (
        f"The median answer is longest in L{medians.idxmax()} ({medians.max():.2f}) "
        f"and shortest in L{medians.idxmin()} ({medians.min():.2f})"
    )
    note = f"{survey.provenance.model}; boxes are quartiles"
    return _draw_boxes(neurons, columns, title, note=note, y="norm")


@draws("cosines", "Survey", "Readings")
def plot_cosines(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw cos(question, answer), layer by layer: above zero a neuron strengthens what it reads."""
    neurons = _rows(survey)
    below = float((neurons.reads_writes < 0).mean())
    title = f"{below:.0%} of the neurons answer against what they ask for (cosine below zero)"
    look = {"note": f"{survey.provenance.model}; boxes are quartiles", "showlegend": False}
    columns = {"reads_writes": ("cosine", GREEN)}
    figure = _draw_boxes(neurons, columns, title, y="cos(question, answer)", **look)
    _mark_blank(figure, neurons.reads_writes)
    return figure.add_hline(y=0, line_color=GREY, line_width=1)


@draws("roles", "Survey", "Readings")
def plot_roles(survey: "fp.Survey | fp.Readings") -> go.Figure:
    """Draw which share of each layer's neurons strengthens, translates or erases what it reads."""
    neurons, figure, strongest = _rows(survey), go.Figure(), []
    # What erases hangs below zero, so that a change from one to the other is seen as one.
    for role, sign, colour in (("strengthens", 1, BLUE), ("erases", -1, VERMILLION)):
        shares = (neurons.role == role).groupby(neurons.layer).mean()
        figure.add_bar(
            x=[f"L{layer}" for layer in shares.index], y=(sign * shares).tolist(), name=role,
            marker={"color": colour}, customdata=shares.tolist(),
            hovertemplate=f"%{{x}}: %{{customdata:.1%}} {role}<extra></extra>",
        )  # fmt: skip
        if shares.max() > 0:
            strongest.append(f"L{shares.idxmax()} {role} most ({shares.max():.0%})")
    figure.add_hline(y=0, line_color=GREY, line_width=1)
    _mark_blank(figure, neurons.reads_writes)
    title = "; ".join(strongest) or "No neuron strengthens or erases what it reads"
    thresholds = survey.provenance.settings.get("thresholds")
    least = thresholds.get("role", 0.5) if isinstance(thresholds, dict) else 0.5
    note = f"{survey.provenance.model}; cos(question, answer) at least {least:g}, or at most −{least:g}; the rest translates"
    return apply_theme(
        figure, title, note=note, x="layer", y="share of neurons", height=460,
        barmode="relative", legend=_BELOW, yaxis_tickformat=".0%",
    )  # fmt: skip


@draws("search", "Search")
def plot_search(search: "fp.Search") -> go.Figure:
    table = _rows(search)
    names, best = charts.neuron_labels(table, search.own_tokens), table.iloc[0]
    return charts.draw_bars(
        table.z.tolist(), f"{best['name']} stands out most for {' '.join(search.tokens)}: z = {best.z:.1f}",
        names=names, hover=[f"{name}: z" for name in names], x="z over the vocabulary",
        note=f"{search.provenance.model}; {search.caption}",
    )  # fmt: skip


@draws("layers", "Match")
def plot_layers(match: "fp.Match") -> go.Figure:
    """Draw in which layer of the other model the twins of each layer are."""
    twins = match.neurons[match.neurons.is_twin]
    rows, columns = (int(match.neurons[name].max()) + 1 for name in ("layer", "twin_layer"))
    counts = [[0] * columns for _ in range(rows)]
    for layer, twin in zip(twins.layer, twins.twin_layer, strict=True):
        counts[layer][twin] += 1
    names, others = ([f"L{layer}" for layer in range(many)] for many in (rows, columns))
    figure = charts.draw_grid(
        counts, rows=names, columns=others, signed=False, digits=0, bar="twins"
    )
    figure.update_traces(hovertemplate="L%{y} → L%{x}: %{z} twins<extra></extra>")
    same = int((twins.layer == twins.twin_layer).sum())
    return apply_theme(
        figure, f"{match.title}, {same:,} of them in the same layer", note=match.caption,
        height=max(320, 150 + 34 * rows), x=f"layer of {match.other}", y="layer",
    )  # fmt: skip


@draws("correlations", "Match")
def plot_correlations(match: "fp.Match") -> go.Figure:
    """Draw each layer's best correlations beside those with the random control."""
    neurons = match.neurons
    columns = {"correlation": (f"best neuron of {match.other}", BLUE)}
    columns["control"] = ("best of as many random answers", GREY)
    above = float((neurons.correlation.abs() > neurons.control.abs()).mean())
    title = f"{above:.0%} of the neurons are more like a neuron of {match.other} than like any random answer"
    note = f"{match.provenance.model}; boxes are quartiles; {match.caption}"
    return _draw_boxes(neurons, columns, title, note=note, y="correlation over the vocabulary")


@draws("labels", "Labels")
def plot_labels(labels: "fp.Labels") -> go.Figure:
    """Draw the F1 of labels layer by layer, with the look-up and the shuffled control."""
    layers = labels.by_layer()
    box = _box_layers(labels.table, "f1", BLUE, name="labels", marker_opacity=0.4, boxpoints=False)
    figure = go.Figure(box)
    _add_line(figure, layers, "lookup_f1", ORANGE, "diamond", "look-up of the token (median)")
    _add_line(figure, layers, "shuffled_f1", VERMILLION, "x", "shuffled (median)")
    figure.update_traces(line_width=1.5, selector={"type": "scatter"})
    best = layers.loc[layers.f1.to_numpy().argmax()]
    title = (
        f"{labels.explained:.0%} of the neurons are explained; "
        f"labels are strongest in L{best.layer:.0f} (median F1 {best.f1:.2f})"
    )
    note = f"{labels.provenance.model}; boxes are quartiles on texts the rules were not found on; explained: F1 at least {labels.least:g}"
    return apply_theme(figure, title, note=note, x="layer", y="F1", height=460, legend=_BELOW)


@draws("outputs", "Labels")
def plot_outputs(labels: "fp.Labels") -> go.Figure:
    """Draw how many of ten promoted tokens gain by layer, by the neuron and by another."""
    layers, figure = labels.by_layer(), go.Figure()
    _add_line(figure, layers, "output_gain", BLUE, "circle", "the neuron itself")
    _add_line(figure, layers, "output_gain_random", GREY, "x", "another neuron of its layer")
    own, other = (float(labels.table[c].mean()) for c in ("output_gain", "output_gain_random"))
    title = f"Turned on, a neuron makes {own:.1f} of its ten tokens likelier; another neuron {other:.1f}"
    note = f"{labels.provenance.model}; set to its 99.9 % activation at random positions"
    return apply_theme(
        figure, title, note=note, x="layer", y="promoted tokens that gain", height=420,
        legend=_BELOW, yaxis_range=[0, 10.3],
    )  # fmt: skip


@draws("firing", "Scan")
def plot_firing(scan: "fp.Scan") -> go.Figure:
    table = scan.table
    figure = go.Figure(_box_layers(table, "firing_rate", BLUE))
    title = f"{int(table.is_dead.sum()):,} of {len(table):,} neurons were never above zero"
    note = f"{charts.say_model(scan.provenance)}; boxes are quartiles"
    return apply_theme(figure, title, note=note, x="layer", y="share of tokens above zero")


@draws("histogram", "Scan", is_asked=True)
def plot_histogram(scan: "fp.Scan", neuron: str | NeuronId) -> go.Figure:
    chosen = scan.find(neuron)
    at = (chosen.layer, chosen.neuron)
    counts = scan.statistics.histogram[at]
    filled = counts.nonzero()
    shown = range(int(filled[0]), int(filled[-1]) + 1)
    names = [f"{EDGES[number]:.3g} to {EDGES[number + 1]:.3g}" for number in shown]
    colours = [charts.sign_colour(EDGES[number]) for number in shown]
    tokens = counts[shown.start : shown.stop].tolist()
    figure = go.Figure(go.Bar(x=names, y=tokens, marker={"color": colours}))
    mean, rate = float(scan.statistics.moments.mean[at]), float(scan.statistics.firing_rate[at])
    title = f"{chosen} is above zero on {rate:.2%} of tokens; its mean is {mean:.3f}"
    note = f"{charts.say_model(scan.provenance)}; two bins an octave"
    return apply_theme(figure, title, note=note, x="activation", y="tokens")


@draws("examples", "Examples")
def plot_examples(examples: "fp.Examples") -> go.Figure:
    """Draw the strongest, middle and weakest examples with their words, and the mean beside them."""
    middle = examples.sides()["middle"]
    listed = [*examples.strongest, *middle, *reversed(examples.weakest)]
    figure = charts.draw_bars(
        [example.activation for example in listed], examples.title, x="activation", width=1180,
        names=[quote(example) for example in listed], hover=[f"{e.text}, {e.position}:" for e in listed],
        note=f"{charts.say_model(examples.provenance)}; dashed: the mean",
    )  # fmt: skip
    return figure.add_vline(x=examples.mean, line={"color": GREY, "dash": "dash"})


def _rows(result: "fp.Survey | fp.Readings | fp.Search") -> pd.DataFrame:
    """Return a result's table, which may not be empty."""
    if not len(result):
        raise DataRefused("there is nothing to draw: the table is empty.")
    return result.table


def _mark_blank(figure: go.Figure, values: pd.Series) -> None:
    """Write into an empty figure that no neuron has a value."""
    if values.isna().all():
        figure.add_annotation(
            text="undefined: these neurons' weights are zero", showarrow=False,
            x=0.5, y=0.5, xref="paper", yref="paper",
        )  # fmt: skip


def _draw_boxes(neurons: pd.DataFrame, columns: Columns, title: str, **look: Any) -> go.Figure:
    """Draw quartiles by layer of columns, each with its name and colour."""
    boxes = [
        _box_layers(neurons, column, colour, name=name, line_color=colour)
        for column, (name, colour) in columns.items()
    ]
    if len(boxes) > 1:
        look |= {"boxmode": "group", "legend": charts.BELOW}
    return apply_theme(go.Figure(boxes), title, x="layer", **look)


def _box_layers(table: pd.DataFrame, column: str, colour: str, **look: Any) -> go.Box:
    """Draw a column's quartiles, a box for each layer."""
    return go.Box(
        x=[f"L{layer}" for layer in table.layer], y=table[column].tolist(), boxpoints="outliers",
        marker={"color": colour, "size": 3, "opacity": 0.5},
    ).update(look)  # fmt: skip


def _add_line(
    figure: go.Figure, layers: pd.DataFrame, column: str, colour: str, symbol: str, name: str
) -> None:
    figure.add_scatter(
        x=[f"L{layer}" for layer in layers.layer], y=layers[column].tolist(), mode="lines+markers",
        name=name, line={"color": colour}, marker={"symbol": symbol, "size": 7},
    )  # fmt: skip
