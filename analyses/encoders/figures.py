"""The six figures of the encoder comparison; each says on which sentences it was made."""

import statistics
from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from analyses.encoders.comparison import EncoderComparison, Outcome
from analyses.encoders.encoder import VARIANTS
from analyses.lab.activations import find_bump, find_curve
from analyses.lab.tallies import EDGES
from ffnprobe.views.theme import BLACK, GREY, SHADE, apply_theme, line_of

LABELS = {
    "relu": "ReLU", "gelu": "GELU", "swish": "Swish", "swiglu": "SwiGLU",
    "swiglu_equal": "SwiGLU, equal parameters",
}  # fmt: skip
POINTS = 100
_MIDDLES = ((EDGES[:-1] + EDGES[1:]) / 2).tolist()


def plot_comparison(comparison: EncoderComparison) -> list[go.Figure]:
    """Draw all six figures."""
    return [
        plot_activations(comparison),
        plot_losses(comparison),
        plot_accuracies(comparison),
        plot_gradients(comparison),
        plot_preactivations(comparison),
        plot_bump(comparison),
    ]


def _note(comparison: EncoderComparison, more: str = "") -> str:
    c = comparison
    return (
        f"{more}Trained on {c.pieces.corpus.name} ({len(c.pieces.train[0]):,} sentences, "
        f"{c.pieces.tokenizer}), {c.settings.epochs} epochs, mean of {c.seeds} seeds."
    )


def _variants(comparison: EncoderComparison) -> list[str]:
    return list(dict.fromkeys(outcome.variant for outcome in comparison.outcomes))


def _mean_density(outcomes: Sequence[Outcome], *, leaving: bool) -> Tensor:
    tallies = [outcome.leaving if leaving else outcome.entering for outcome in outcomes]
    return torch.stack([tally.density[0] for tally in tallies]).mean(0)


def _ends(comparison: EncoderComparison, measure: str) -> tuple[str, float, str, float]:
    """Return the FFN with the least of a measure and the one with the most, by label, with values."""
    means = {variant: comparison.mean(variant, measure) for variant in _variants(comparison)}
    least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    return LABELS[least], means[least], LABELS[most], means[most]


def plot_activations(comparison: EncoderComparison) -> go.Figure:
    """Draw how the activations after the nonlinearity are spread."""
    figure = go.Figure()
    for order, variant in enumerate(_variants(comparison)):
        share = comparison.mean(variant, "small_negative")
        figure.add_scatter(
            x=_MIDDLES, y=_mean_density(comparison.of(variant), leaving=True).clamp(min=1e-5).tolist(),
            name=f"{LABELS[variant]}: {share:.0%} in −0.3…−0.01", line={**line_of(order), "shape": "hvh"},
        )  # fmt: skip
    figure.update_xaxes(range=[-2, 3])
    figure.update_layout(legend={"x": 0.99, "y": 0.98, "xanchor": "right"})
    _, _, most, share = _ends(comparison, "small_negative")
    title = (
        f"{most} keeps most small negatives ({share:.0%} of its activations), "
        f"SwiGLU {comparison.mean('swiglu', 'small_negative'):.0%}, ReLU none"
    )
    apply_theme(figure, title, note=_note(comparison), x="activation", y="density (log)")
    return figure.update_yaxes(type="log", range=[-3, 1.3], dtick=1)


def plot_losses(comparison: EncoderComparison) -> go.Figure:
    """Draw the training loss."""
    best, low, worst, high = _ends(comparison, "train_loss")
    title = (
        f"In the last epoch {best} has the lowest training loss ({low:.3f}), "
        f"{worst} the highest ({high:.3f})"
    )
    return _plot_steps(comparison, "losses", title, y="training loss, in nats")


def plot_gradients(comparison: EncoderComparison) -> go.Figure:
    """Draw the gradient norm over training."""
    steadiest, low, wildest, high = _ends(comparison, "unsteadiness")
    title = (
        f"Within an epoch the gradient norm varies by {low:.1%} of its mean with {steadiest}, "
        f"by {high:.1%} with {wildest}"
    )
    return _plot_steps(comparison, "gradients", title, y="gradient norm")


def _plot_steps(comparison: EncoderComparison, what: str, title: str, *, y: str) -> go.Figure:
    """Draw something recorded at every step, averaged over seeds and over neighbouring steps."""
    figure = go.Figure()
    for order, variant in enumerate(_variants(comparison)):
        series = [getattr(outcome.history, what) for outcome in comparison.of(variant)]
        mean = torch.tensor(series, dtype=torch.float64).mean(0)
        width = max(1, len(mean) // POINTS)
        parts = torch.split(mean, width)
        figure.add_scatter(
            x=[width * (part + 0.5) for part in range(len(parts))],
            y=[part.mean().item() for part in parts],
            name=LABELS[variant], line=line_of(order),
        )  # fmt: skip
    return apply_theme(figure, title, note=_note(comparison), x="step", y=y)


def plot_accuracies(comparison: EncoderComparison) -> go.Figure:
    """Draw the accuracy on dev after each epoch; bars span the seeds."""
    figure = go.Figure()
    for order, variant in enumerate(_variants(comparison)):
        by_epoch = list(
            zip(*(outcome.history.accuracies for outcome in comparison.of(variant)), strict=True)
        )
        means = [statistics.mean(values) for values in by_epoch]
        # Slightly apart, so that no bar hides another.
        epochs = [epoch + 1 + 0.1 * (order - 2) for epoch in range(len(by_epoch))]
        figure.add_scatter(
            x=epochs, y=means, name=LABELS[variant], line=line_of(order), mode="lines+markers",
            error_y={
                "array": [max(v) - m for v, m in zip(by_epoch, means, strict=True)],
                "arrayminus": [m - min(v) for v, m in zip(by_epoch, means, strict=True)],
                "thickness": 1, "width": 2,
            },
        )  # fmt: skip
    worst, low, best, high = _ends(comparison, "accuracy")
    title = (
        f"After the last epoch accuracies lie between {low:.1%} ({worst}) and {high:.1%} ({best})"
    )
    note = _note(comparison, "Bars span the seeds. ")
    return apply_theme(figure, title, note=note, x="epoch", y="accuracy on dev").update_yaxes(
        tickformat=".0%"
    )


def plot_preactivations(comparison: EncoderComparison) -> go.Figure:
    """Draw how what enters the nonlinearity is spread, with the share below zero."""
    figure = go.Figure()
    for order, variant in enumerate(_variants(comparison)):
        share = comparison.mean(variant, "below_zero")
        figure.add_scatter(
            x=_MIDDLES, y=_mean_density(comparison.of(variant), leaving=False).tolist(),
            name=f"{LABELS[variant]}: {share:.0%} below 0", line=line_of(order),
        )  # fmt: skip
    figure.add_vline(x=0, line_color=GREY)
    figure.update_xaxes(range=[-4, 4])
    figure.update_layout(legend={"x": 0.99, "y": 0.98, "xanchor": "right"})
    _, low, _, high = _ends(comparison, "below_zero")
    title = f"Between {low:.0%} and {high:.0%} of the pre-activations are below zero"
    note = _note(comparison, "For SwiGLU: what enters the gate. ")
    return apply_theme(figure, title, note=note, x="pre-activation", y="density")


def plot_bump(comparison: EncoderComparison) -> go.Figure:
    """Draw Swish with its bump, and on it the pre-activations of Swish and of SwiGLU's gate."""
    bump = find_bump("swish")
    assert bump is not None
    points = torch.linspace(-5, 3, 401, dtype=torch.float64)
    figure = go.Figure()
    figure.add_scatter(
        x=points.tolist(),
        y=find_curve("swish")(points).tolist(),
        name="Swish",
        line={"color": BLACK, "width": 3},
    )
    # Each FFN keeps the line it has in the other figures; what is not trained has the next one.
    runs = [
        (LABELS[variant], order, [outcome.entering for outcome in comparison.of(variant)])
        for order, variant in enumerate(LABELS)
        if find_bump(VARIANTS[variant]) == bump
    ]
    start = [outcome.entering_at_start for outcome in comparison.of("swish")]
    for label, order, tallies in [*runs, ("Swish, before training", len(LABELS), start)]:
        share = statistics.mean(tally.in_bump.item() for tally in tallies)
        figure.add_scatter(
            x=_MIDDLES, y=torch.stack([tally.density[0] for tally in tallies]).mean(0).tolist(),
            name=f"density, {label}: {share:.0%} in the bump", line=line_of(order),
        )  # fmt: skip
    figure.add_vrect(x0=bump.low, x1=bump.high, fillcolor=SHADE, line_width=0)
    figure.update_xaxes(range=[-5, 3])
    figure.update_yaxes(range=[-0.4, 1.2])
    figure.update_layout(legend={"x": 0.01, "y": 0.99})
    before, after, normal = (
        comparison.mean("swish", name)
        for name in ("in_bump_at_start", "in_bump", "in_bump_if_normal")
    )
    title = (
        f"{after:.0%} of Swish's pre-activations fall in its bump, {before:.0%} before training; "
        f"a normal spread would put {normal:.0%} there"
    )
    return apply_theme(
        figure, title, note=_note(comparison), x="pre-activation", y="Swish; density"
    )
