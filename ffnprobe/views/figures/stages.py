"""Every token through one MLP, as heatmaps side by side, the attention pattern first."""

import plotly.graph_objects as go
from einops import reduce
from torch import Tensor

from ffnprobe.tracing.ffn_stages import Stages
from ffnprobe.views.figures.grids import add_grid, new_grids
from ffnprobe.views.theme import apply_theme

# A few numbers of the stream are far larger than the rest; the colour scale covers this share of them.
WITHIN = 0.99
NUMBERS_AT_MOST = 1_000_000


def plot_stages(stages: Stages) -> go.Figure:
    """Draw attention's pattern, the input, scores, activations, output and the stream after."""
    panels = {"input": stages.input}
    if stages.gate_scores is not None:
        panels["gate scores"] = stages.gate_scores
    panels |= {
        "scores": stages.scores, "activations": stages.activations, "output": stages.output,
        "stream after": stages.after,
    }  # fmt: skip
    limits = {name: _limit(values) for name, values in panels.items()}
    titles = [f"{name} (±{limits[name]:.2g})" for name in panels]
    offset = 1
    if stages.pattern is not None:
        titles.insert(0, "attention (0–1)")
        offset = 2
    figure = new_grids(
        len(titles), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.015
    )
    tokens = list(stages.tokens)
    if stages.pattern is not None:
        mean = reduce(stages.pattern, "head query key -> query key", "mean")
        add_grid(figure, mean.tolist(), rows=tokens, columns=tokens, signed=False)
        figure.update_traces(zmin=0.0, zmax=1.0)
        figure.update_xaxes(tickangle=-60, title_text="read from", row=1, col=1)
    for column, (name, values) in enumerate(panels.items(), offset):
        across = "neuron" if name in ("gate scores", "scores", "activations") else "dimension"
        add_grid(
            figure, values.tolist(), rows=tokens, column=column, limit=limits[name], across=across
        )
        figure.update_xaxes(title_text=across, nticks=4, row=1, col=column)
    above = int((stages.activations > 0).sum())
    share = above / stages.activations.numel()
    title = f"In the FFN of L{stages.layer} {share:.0%} of the activations are above zero"
    note = (
        f"{stages.model.name}; a row is a token, alone on its way; colours end where {WITHIN:.0%} of a "
        "stage's numbers lie within, blue above zero, vermillion below; attention is the heads' mean"
    )
    return apply_theme(figure, title, note=note, width=1280, height=150 + 30 * len(tokens))


def _limit(values: Tensor) -> float:
    sizes = values.abs().double().ravel()
    kept = sizes[:NUMBERS_AT_MOST]
    return float(kept.quantile(WITHIN)) or float(sizes.max()) or 1.0
