"""A scan: how neurons fire, how one neuron's activations spread, and the texts it fires on."""

import plotly.graph_objects as go

from ffnprobe.corpora.contexts import Examples, quote
from ffnprobe.corpora.histograms import EDGES
from ffnprobe.corpora.scans import Scan
from ffnprobe.names import NeuronId
from ffnprobe.views.figures.bars import bars, height_of, room
from ffnprobe.views.figures.grids import label
from ffnprobe.views.theme import BLUE, GREY, VERMILLION, apply_theme


def plot_firing(scan: Scan) -> go.Figure:
    """Draw how often neurons are above zero, layer by layer."""
    table = scan.table
    figure = go.Figure(
        go.Box(
            x=[f"L{layer}" for layer in table.layer], y=table.firing_rate.tolist(),
            marker={"color": BLUE, "size": 3, "opacity": 0.5}, boxpoints="outliers",
        )
    )  # fmt: skip
    dead = int(table.is_dead.sum())
    title = f"{dead:,} of {len(table):,} neurons were never above zero"
    note = f"{scan.provenance.model}; {scan.provenance.describe()}; boxes are quartiles"
    return apply_theme(figure, title, note=note, x="layer", y="share of tokens above zero")


def plot_histogram(scan: Scan, neuron: str | NeuronId) -> go.Figure:
    """Draw the histogram of one neuron's activations with its mean."""
    chosen = scan.find(neuron)
    at = (chosen.layer, chosen.neuron)
    counts = scan.statistics.histogram[at].tolist()
    filled = [number for number, count in enumerate(counts) if count]
    shown = range(filled[0], filled[-1] + 1)
    names = [f"{EDGES[number]:.3g} to {EDGES[number + 1]:.3g}" for number in shown]
    figure = go.Figure(
        go.Bar(
            x=names, y=[counts[number] for number in shown],
            marker={"color": [BLUE if EDGES[number] >= 0 else VERMILLION for number in shown]},
        )
    )  # fmt: skip
    mean, rate = float(scan.statistics.moments.mean[at]), float(scan.statistics.firing_rate[at])
    title = f"{chosen} is above zero on {rate:.2%} of tokens; its mean is {mean:.3f}"
    note = f"{scan.provenance.model}; {scan.provenance.describe()}; two bins an octave"
    return apply_theme(figure, title, note=note, x="activation", y="tokens")


def plot_examples(examples: Examples) -> go.Figure:
    """Draw the strongest, middle and weakest examples with their words, and the mean beside them."""
    middle = examples.sides()["middle"]
    listed = [*examples.strongest, *middle, *reversed(examples.weakest)]
    values = [example.activation for example in listed]
    figure = go.Figure(bars(values, hover=[f"{e.text}, {e.position}:" for e in listed]))
    label(figure.update_yaxes, [quote(example) for example in listed], autorange="reversed")
    figure.add_vline(x=examples.mean, line={"color": GREY, "dash": "dash"})
    note = f"{examples.provenance.model}; {examples.provenance.describe()}; dashed: the mean"
    apply_theme(
        figure, examples.title, note=note, x="activation", height=height_of(len(listed)), width=1180
    )
    return figure.update_xaxes(range=room(values))
