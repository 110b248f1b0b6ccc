"""Figures of the lab: toy FFNs, activation functions and scores, embeddings, superposition."""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from analyses.lab.activations import CURVES, find_bump, find_curve, find_slope
from analyses.lab.superposition import Crowding, FactLoad, SparseModels
from analyses.lab.tallies import EDGES, Tally
from analyses.lab.toy import ToyStages
from ffnprobe.tracing.streams import Similarity
from ffnprobe.views.theme import BLACK, DIVERGING, GREY, SHADE, apply_theme, heat, line_of, plain

LABELS = {
    "relu": "ReLU", "gelu": "GELU (erf)", "gelu_new": "GELU (tanh)", "swish": "Swish",
    "swiglu": "SwiGLU",
}  # fmt: skip


def plot_toy_stages(stages: ToyStages, *, note: str = "") -> go.Figure:
    """Draw every stage of a toy FFN as a heatmap, all on one colour scale."""
    named = stages.named()
    figure = make_subplots(cols=len(named), subplot_titles=list(named), horizontal_spacing=0.06)
    limit = max(stage.abs().max().item() for stage in named.values())
    for column, (name, stage) in enumerate(named.items(), 1):
        rows, columns = (
            [f"row {i}" for i in range(stage.shape[0])],
            list(map(str, range(stage.shape[1]))),
        )
        bar = "value" if column == len(named) else None
        figure.add_trace(
            heat(stage.tolist(), rows=rows, columns=columns, limit=limit, digits=3, bar=bar),
            1,
            column,
        )
        neuron = "dimension" if name in ("input", "output") else "neuron"
        figure.update_xaxes(title_text=neuron, row=1, col=column)
    figure.update_yaxes(autorange="reversed")
    before, after = (int((stage < 0).sum()) for stage in (stages.scores, stages.activations))
    title = f"{before} of {stages.scores.numel()} scores are below zero; after the activation {after} are"
    return apply_theme(figure, title, note=note, height=280)


def plot_departure(table: pd.DataFrame, *, note: str = "") -> go.Figure:
    """Draw how far the output lies from the input as the weights leave the identity, both ways."""
    ways = list(table.groupby("way", sort=False))
    figure = make_subplots(
        cols=len(ways), shared_yaxes=True, x_title="how much of W − I is in the weights",
        subplot_titles=[str(way) for way, _ in ways], horizontal_spacing=0.05,
    )  # fmt: skip
    rows = [column for column in table.columns if column.startswith("row")]
    for column, (_, steps) in enumerate(ways, 1):
        for order, row in enumerate(rows):
            figure.add_trace(
                go.Scatter(
                    x=steps["step"], y=steps[row], name=row, mode="lines+markers",
                    line=line_of(order), showlegend=column == 1,
                ), 1, column,
            )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="distance of output from input", col=1)
    first, last = table[rows].iloc[0], table[rows].iloc[-1]
    moved = ", ".join(f"{row} from {first[row]:.2f} to {last[row]:.2f}" for row in rows)
    return apply_theme(
        figure, f"From identity to full weights the output leaves its input: {moved}", note=note
    )


def plot_curves() -> go.Figure:
    """Draw each activation function and its derivative, minima marked, Swish's bump shaded."""
    figure = make_subplots(cols=2, subplot_titles=["value", "derivative"], horizontal_spacing=0.09)
    points = torch.linspace(-5, 3, 801, dtype=torch.float64)
    for order, name in enumerate(CURVES):
        for column, values in enumerate((find_curve(name)(points), find_slope(name, points)), 1):
            figure.add_trace(
                go.Scatter(
                    x=points.tolist(), y=values.tolist(), name=LABELS[name], line=line_of(order), legendgroup=name,
                    showlegend=column == 1,
                ), 1, column,
            )  # fmt: skip
    for name in ("gelu_new", "swish"):
        bump = find_bump(name)
        assert bump is not None
        figure.add_trace(
            go.Scatter(
                x=[bump.at], y=[bump.depth], mode="markers", showlegend=False,
                marker={"size": 10, "color": BLACK, "symbol": "circle-open"},
            ), 1, 1,
        )  # fmt: skip
        below = name == "swish"
        figure.add_annotation(
            x=bump.at, y=bump.depth, text=f"{LABELS[name]}: {bump.depth:.6f} at {bump.at:.6f}",
            ax=-60 if below else -100, ay=42 if below else -60, row=1, col=1,
        )  # fmt: skip
    swish = find_bump("swish")
    assert swish is not None
    figure.add_vrect(x0=swish.low, x1=swish.high, fillcolor=SHADE, line_width=0, row=1, col=1)
    figure.update_xaxes(range=[-5, 3])
    figure.update_yaxes(range=[-0.7, 2.2], row=1, col=1)
    figure.update_layout(legend={"x": 0.02, "y": 0.98})
    title = "The smooth activations dip below zero before they rise, and their slope overshoots 1; ReLU does neither"
    note = "Shaded: Swish's bump, where it is at least half as deep as at its minimum."
    return apply_theme(figure, title, note=note, x="score")


def plot_gate_surface() -> go.Figure:
    """Draw SwiGLU over its two inputs."""
    gates, scores = (torch.linspace(low, high, 81) for low, high in ((-5, 3), (-3, 3)))
    values = find_curve("swiglu")(gates)[None, :] * scores[:, None]
    most = values.abs().max().item()
    figure = go.Figure(
        go.Surface(
            x=gates.tolist(), y=scores.tolist(), z=values.tolist(), colorscale=DIVERGING,
            cmin=-most, cmax=most, colorbar={"title": {"text": "activation"}, "len": 0.7},
            lighting={"ambient": 1.0, "diffuse": 0.0, "specular": 0.0},
            contours={axis: {"show": True, "color": GREY, "width": 1} for axis in ("x", "y")},
        )
    )  # fmt: skip
    axes = {"xaxis_title": "gate", "yaxis_title": "score", "zaxis_title": "activation"}
    view = {
        "aspectmode": "cube",
        "camera": {"eye": {"x": -1.1, "y": -1.5, "z": 0.6}, "center": {"z": -0.22}},
    }
    figure.update_layout(scene={**axes, **view})
    title = "SwiGLU: a closed gate shuts the score out, an open one passes it with its sign"
    note = "swish(gate) × score. Where the gate is below zero, in its bump, a score comes through weakly, with its sign flipped."
    return apply_theme(figure, title, note=note, height=560)


def plot_scores(tally: Tally, names: Sequence[str], *, note: str = "") -> go.Figure:
    """Draw the distribution of each layer's scores, with the bump of the activation shaded."""
    figure = go.Figure()
    middles = (EDGES[:-1] + EDGES[1:]) / 2
    for order, (name, density) in enumerate(zip(names, tally.density, strict=True)):
        shares = f"{tally.below_zero[order]:.0%} below 0"
        if tally.bump is not None:
            shares += f", {tally.in_bump[order]:.0%} in the bump"
        figure.add_scatter(
            x=middles.tolist(),
            y=density.tolist(),
            name=f"{name}: {shares}",
            line=line_of(order),
            mode="lines",
        )
    if tally.bump is not None:
        figure.add_vrect(x0=tally.bump.low, x1=tally.bump.high, fillcolor=SHADE, line_width=0)
    figure.add_vline(x=0, line_color=GREY)
    figure.update_xaxes(range=[-5, 4])
    figure.update_layout(legend={"x": 0.99, "y": 0.98, "xanchor": "right"})
    low, high = tally.below_zero.min(), tally.below_zero.max()
    title = f"Between {low:.0%} and {high:.0%} of a layer's scores are below zero"
    if tally.bump is not None:
        title += (
            f"; {tally.in_bump.min():.0%} to {tally.in_bump.max():.0%} fall in the bump (shaded)"
        )
    return apply_theme(figure, title, note=note, x="score", y="density")


def plot_tokens(table: pd.DataFrame, *, note: str = "") -> go.Figure:
    """Draw the cosines of tokens with one another."""
    tokens = list(dict.fromkeys([*table["token"], *table["other"]]))
    turned = table.rename(columns={"token": "other", "other": "token"})
    cosines = pd.concat([table, turned]).pivot(index="token", columns="other", values="cosine")
    cosines = cosines.reindex(index=tokens, columns=tokens).fillna(1.0)
    figure = go.Figure(
        heat(cosines.to_numpy().tolist(), rows=tokens, columns=tokens, limit=1.0, bar="cosine")
    )
    figure.update_yaxes(autorange="reversed")
    best = table.sort_values("cosine").iloc[-1]
    counts = table["kind"].value_counts()
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    title = f"{best.token} and {best.other} are the most alike ({best.cosine:.2f}); of all pairs {listed}"
    return apply_theme(figure, title, note=note, height=520)


def plot_word_similarity(similarity: Similarity, *, note: str = "") -> go.Figure:
    """Draw the cosines between a prompt's words at the first, middle and last stage."""
    count = len(similarity.stages)
    chosen = (0, count // 2, count - 1)
    titles = [similarity.stages[stage] for stage in chosen]
    figure = make_subplots(
        cols=3, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03
    )
    # BOS is unlike any word and says nothing about them.
    start = int(bool(similarity.provenance.bos))
    words = list(similarity.tokens[start:])
    means = []
    for column, stage in enumerate(chosen, 1):
        cosines = similarity.cosines[stage, start:, start:]
        first, second = torch.triu_indices(len(words), len(words), offset=1)
        means.append(cosines[first, second].mean().item())
        bar = "cosine" if column == 3 else None
        figure.add_trace(
            heat(cosines.tolist(), rows=words, columns=words, limit=1.0, bar=bar), 1, column
        )
    figure.update_yaxes(autorange="reversed")
    title = f"The mean cosine of two words goes from {means[0]:.2f} over {means[1]:.2f} to {means[2]:.2f}"
    return apply_theme(figure, title, note=note, height=430, width=1180)


def plot_temperatures(table: pd.DataFrame, *, note: str = "") -> go.Figure:
    """Draw the likeliest tokens' probabilities and the entropy over temperature."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    for order, (token, rows) in enumerate(table.groupby("token", sort=False)):
        figure.add_scatter(
            x=rows["temperature"],
            y=rows["probability"],
            name=plain(str(token)),
            line=line_of(order),
        )
    once = table.drop_duplicates("temperature")
    figure.add_scatter(
        x=once["temperature"], y=once["entropy"], name="entropy (right)", secondary_y=True,
        line={"color": GREY, "width": 4, "dash": "dot"}, opacity=0.7,
    )  # fmt: skip
    figure.update_yaxes(
        title_text="entropy in nats", secondary_y=True, showgrid=False, rangemode="tozero",
        tickmode="auto", zeroline=False,
    )  # fmt: skip
    figure.update_layout(legend={"x": 1.1, "y": 1})
    first = table["token"].iloc[0]
    own = table[table["token"] == first].set_index("temperature")["probability"]
    title = f"{first} has {own.iloc[0]:.0%} at temperature {own.index[0]} and {own.iloc[-1]:.0%} at {own.index[-1]}"
    apply_theme(figure, title, note=note, x="temperature")
    scale = {"type": "log", "range": [-8, 0.1], "dtick": 2, "exponentformat": "power"}
    return figure.update_yaxes(title_text="probability (log)", secondary_y=False, **scale)


def plot_crowding(measured: Mapping[str, Crowding], *, note: str = "") -> go.Figure:
    """Draw the distribution of cosines of a layer's directions, compared with random directions."""
    figure = go.Figure()
    edges = torch.linspace(-1, 1, 101, dtype=torch.float64)
    for order, (name, one) in enumerate(measured.items()):
        density = torch.histogram(one.cosines, edges, density=True).hist
        label = f"{name}: effective dimension {one.effective_dimension:.0f}"
        figure.add_scatter(
            x=((edges[:-1] + edges[1:]) / 2).tolist(),
            y=density.clamp(min=1e-5).tolist(),
            name=label,
            line=line_of(order),
        )
    figure.update_yaxes(type="log", range=[-4, 1.2], exponentformat="power", dtick=1)
    figure.update_layout(legend={"x": 0.99, "y": 0.98, "xanchor": "right"})
    largest = {name: one.cosines.max().item() for name, one in measured.items()}
    title = (
        f"Answers reach cosines of {largest['answers']:.2f} where random ones stop at "
        f"{largest['random']:.2f}: they share directions more than chance would"
        if largest["answers"] > largest["random"]
        else "Answers are not closer to one another than random directions"
    )
    return apply_theme(
        figure, title, note=note, x="cosine of two neurons' directions", y="density (log)"
    )


def plot_fact_load(load: FactLoad, *, note: str = "") -> go.Figure:
    """Draw in how many known facts each neuron takes part, busiest first."""
    figure = go.Figure()
    for layer, counts in enumerate(load.counts):
        order = counts.sort(descending=True).values
        order = order[order > 0]
        figure.add_scatter(
            x=list(range(1, len(order) + 1)),
            y=order.tolist(),
            name=f"L{layer}",
            mode="lines",
            line=line_of(layer),
        )
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    busiest, taking = int(load.counts.max()), int((load.counts > 0).sum())
    title = (
        f"{taking:,} neurons are among the {load.k} hardest pushers of some of {load.known:,} known "
        f"facts; one is in {busiest:,} of them"
    )
    return apply_theme(
        figure, title, note=note, x="neurons of a layer, busiest first (log)", y="facts (log)"
    )


def plot_sparse(models: SparseModels, *, note: str = "") -> go.Figure:
    """Draw WᵀW of the model at each density: the diagonal is what is kept, the rest interference."""
    table = models.table()
    titles = [
        f"on {density:.0%}: {kept} kept"
        for density, kept in zip(table["density"], table["signals_kept"], strict=True)
    ]
    figure = make_subplots(
        cols=len(titles), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.02
    )
    names = [str(signal) for signal in range(models.weights.shape[1])]
    for column, overlap in enumerate(models.overlaps, 1):
        bar = "overlap" if column == len(titles) else None
        figure.add_trace(
            heat(overlap.tolist(), rows=names, columns=names, limit=1.0, digits=None, bar=bar),
            1,
            column,
        )
    figure.update_yaxes(autorange="reversed", title_text="signal", col=1)
    first, last = table.iloc[0], table.iloc[-1]
    title = (
        f"In {first.dimensions:.0f} dimensions {first.signals_kept:.0f} signals are kept if always on, "
        f"{last.signals_kept:.0f} if on {last.density:.0%} of the time"
    )
    return apply_theme(figure, title, note=note, height=330, width=1180, x="signal")
