"""Many texts: how neurons fire, the texts they fire on, and how strong their labels are."""

import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.corpora.contexts import quote
from ffnprobe.corpora.histograms import EDGES
from ffnprobe.names import NeuronId
from ffnprobe.views.figures import draws
from ffnprobe.views.figures.parts import bars, height_of, label, room
from ffnprobe.views.theme import BLUE, GREY, ORANGE, VERMILLION, apply_theme


@draws("labels", "Labels")
def plot_labels(labels: "fp.Labels") -> go.Figure:
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


@draws("outputs", "Labels")
def plot_outputs(labels: "fp.Labels") -> go.Figure:
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


@draws("firing", "Scan")
def plot_firing(scan: "fp.Scan") -> go.Figure:
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


@draws("histogram", "Scan", is_asked=True)
def plot_histogram(scan: "fp.Scan", neuron: str | NeuronId) -> go.Figure:
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


@draws("examples", "Examples")
def plot_examples(examples: "fp.Examples") -> go.Figure:
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
