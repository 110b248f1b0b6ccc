"""Roles of neurons by layer, and how strong labels are by layer."""

import plotly.graph_objects as go

from ffnprobe.corpora.labels import Labels
from ffnprobe.reading.readings import Readings
from ffnprobe.reading.roles import ROLES
from ffnprobe.reading.surveys import Survey
from ffnprobe.views.figures.surveys import mark_blank
from ffnprobe.views.theme import BLUE, GREY, ORANGE, VERMILLION, apply_theme

_COLOURS = {"strengthens": BLUE, "translates": GREY, "erases": VERMILLION}


def plot_roles(survey: Survey | Readings) -> go.Figure:
    """Draw which share of each layer's neurons strengthens, translates or erases what it reads."""
    neurons = survey.table
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


def plot_labels(labels: Labels) -> go.Figure:
    """Draw the F1 of labels layer by layer, with the look-up and the shuffled control."""
    table, layers = labels.table, labels.by_layer()
    names = [f"L{layer}" for layer in layers.layer]
    figure = go.Figure(
        go.Box(
            x=[f"L{layer}" for layer in table.layer], y=table.f1.tolist(), name="labels",
            marker={"color": BLUE, "size": 3, "opacity": 0.4}, boxpoints=False,
        )
    )  # fmt: skip
    for column, colour, symbol, name in (
        ("lookup_f1", ORANGE, "diamond", "look-up of the token (median)"),
        ("shuffled_f1", VERMILLION, "x", "shuffled (median)"),
    ):
        figure.add_trace(
            go.Scatter(
                x=names, y=layers[column].tolist(), mode="lines+markers", name=name,
                line={"color": colour, "width": 1.5}, marker={"symbol": symbol, "size": 7},
            )
        )  # fmt: skip
    best = int(layers.f1.to_numpy().argmax())
    title = f"{labels.explained:.0%} of the neurons are explained; labels are strongest in {names[best]} (median F1 {layers.f1[best]:.2f})"
    note = f"{labels.provenance.model}; boxes are quartiles on texts the rules were not found on; explained: F1 at least {labels.least:g}"
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    return apply_theme(figure, title, note=note, x="layer", y="F1", height=460)


def plot_outputs(labels: Labels) -> go.Figure:
    """Draw how many of ten promoted tokens gain by layer, by the neuron and by another."""
    layers = labels.by_layer()
    names = [f"L{layer}" for layer in layers.layer]
    figure = go.Figure()
    for column, colour, symbol, name in (
        ("output_gain", BLUE, "circle", "the neuron itself"),
        ("output_gain_random", GREY, "x", "another neuron of its layer"),
    ):
        figure.add_trace(
            go.Scatter(
                x=names, y=layers[column].tolist(), mode="lines+markers", name=name,
                line={"color": colour}, marker={"symbol": symbol, "size": 7},
            )
        )  # fmt: skip
    own, other = (float(labels.table[c].mean()) for c in ("output_gain", "output_gain_random"))
    title = f"Turned on, a neuron makes {own:.1f} of its ten tokens likelier; another neuron {other:.1f}"
    note = f"{labels.provenance.model}; set to its 99.9 % activation at random positions"
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    apply_theme(figure, title, note=note, x="layer", y="promoted tokens that gain", height=420)
    return figure.update_yaxes(range=[0, 10.3])
