"""Many texts: how neurons fire, the texts they fire on, and how strong their labels are."""

import pandas as pd
import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.corpora.examples import quote
from ffnprobe.corpora.statistics import EDGES
from ffnprobe.names import NeuronId
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.theme import BLUE, GREY, ORANGE, VERMILLION, apply_theme


@draws("labels", "Labels")
def plot_labels(labels: "fp.Labels") -> go.Figure:
    """Draw the F1 of labels layer by layer, with the look-up and the shuffled control."""
    layers = labels.by_layer()
    boxes = parts.box_layers(
        labels.table, "f1", BLUE, name="labels", marker_opacity=0.4, boxpoints=False
    )
    figure = go.Figure(boxes)
    _add_line(figure, layers, "lookup_f1", ORANGE, "diamond", "look-up of the token (median)")
    _add_line(figure, layers, "shuffled_f1", VERMILLION, "x", "shuffled (median)")
    figure.update_traces(line_width=1.5, selector={"type": "scatter"})
    best = int(layers.f1.to_numpy().argmax())
    title = f"{labels.explained:.0%} of the neurons are explained; labels are strongest in L{layers.layer[best]} (median F1 {layers.f1[best]:.2f})"
    note = f"{labels.provenance.model}; boxes are quartiles on texts the rules were not found on; explained: F1 at least {labels.least:g}"
    return apply_theme(
        figure, title, note=note, x="layer", y="F1", height=460, legend=parts.BELOW | {"y": -0.2}
    )


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
        legend=parts.BELOW | {"y": -0.2}, yaxis_range=[0, 10.3],
    )  # fmt: skip


def _add_line(
    figure: go.Figure, layers: pd.DataFrame, column: str, colour: str, symbol: str, name: str
) -> None:
    figure.add_scatter(
        x=[f"L{layer}" for layer in layers.layer], y=layers[column].tolist(), mode="lines+markers",
        name=name, line={"color": colour}, marker={"symbol": symbol, "size": 7},
    )  # fmt: skip


@draws("firing", "Scan")
def plot_firing(scan: "fp.Scan") -> go.Figure:
    """Draw how often neurons are above zero, layer by layer."""
    table = scan.table
    figure = go.Figure(parts.box_layers(table, "firing_rate", BLUE))
    title = f"{int(table.is_dead.sum()):,} of {len(table):,} neurons were never above zero"
    note = f"{parts.say_model(scan.provenance)}; boxes are quartiles"
    return apply_theme(figure, title, note=note, x="layer", y="share of tokens above zero")


@draws("histogram", "Scan", is_asked=True)
def plot_histogram(scan: "fp.Scan", neuron: str | NeuronId) -> go.Figure:
    """Draw the histogram of one neuron's activations with its mean."""
    chosen = scan.find(neuron)
    at = (chosen.layer, chosen.neuron)
    counts = scan.statistics.histogram[at].tolist()
    filled = [number for number, count in enumerate(counts) if count]
    shown = range(filled[0], filled[-1] + 1)
    names = [f"{EDGES[number]:.3g} to {EDGES[number + 1]:.3g}" for number in shown]
    colours = [parts.sign_colour(EDGES[number]) for number in shown]
    tokens = [counts[number] for number in shown]
    figure = go.Figure(go.Bar(x=names, y=tokens, marker={"color": colours}))
    mean, rate = float(scan.statistics.moments.mean[at]), float(scan.statistics.firing_rate[at])
    title = f"{chosen} is above zero on {rate:.2%} of tokens; its mean is {mean:.3f}"
    note = f"{parts.say_model(scan.provenance)}; two bins an octave"
    return apply_theme(figure, title, note=note, x="activation", y="tokens")


@draws("examples", "Examples")
def plot_examples(examples: "fp.Examples") -> go.Figure:
    """Draw the strongest, middle and weakest examples with their words, and the mean beside them."""
    middle = examples.sides()["middle"]
    listed = [*examples.strongest, *middle, *reversed(examples.weakest)]
    figure = parts.draw_bars(
        [example.activation for example in listed], examples.title, x="activation", width=1180,
        names=[quote(example) for example in listed], hover=[f"{e.text}, {e.position}:" for e in listed],
        note=f"{parts.say_model(examples.provenance)}; dashed: the mean",
    )  # fmt: skip
    return figure.add_vline(x=examples.mean, line={"color": GREY, "dash": "dash"})
