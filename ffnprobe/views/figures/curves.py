"""The curve of an explanation: what the answer becomes without the first neurons, and what others keep."""

import plotly.graph_objects as go

from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.views.figures.words import join_tokens
from ffnprobe.views.theme import BLACK, BLUE, VERMILLION, apply_theme, plain


def plot_curve(explanation: Explanation) -> go.Figure:
    """Draw the answer's probability without sets of neurons, beside neurons like them and other subjects."""
    curve = explanation.curve
    if curve is None or not len(curve.table):
        raise OptionRefused(
            "no neurons were removed together: the answer is not first, or effects were left out.",
            remedy="an answer that the model gives, with effects",
        )
    table = curve.table
    lines = {
        f"{explanation.provenance.answer} without the first neurons": (
            table.probability,
            VERMILLION,
        ),
        "without as many like them, worst draw": (table.worst, BLUE),
    }
    if curve.others:
        kept = 1 - table.changed / curve.others
        lines[f"share of {curve.others} other subjects' answers kept"] = (kept, BLACK)
    figure = go.Figure()
    for name, (values, colour) in lines.items():
        figure.add_scatter(
            x=[str(many) for many in table.removed], y=values.tolist(), name=plain(name),
            mode="lines+markers",
            line={"color": colour, "dash": "solid" if colour == VERMILLION else "dot"},
            hovertemplate=f"%{{x}} removed: %{{y:.4g}}<extra>{plain(name)}</extra>",
        )  # fmt: skip
    many = curve.table.removed.iloc[-1] if curve.least is None else curve.least
    title = (
        f"without {many} neurons it is still first"
        if curve.least is None
        else f"without {many} neuron{'s' if many > 1 else ''} it is no longer first"
    )
    known = explanation.provenance
    apply_theme(
        figure, f"{known.answer}: {title}",
        note=f"{known.model} after {join_tokens(explanation.trace.tokens)}",
        x="neurons removed together", y="probability, share",
    )  # fmt: skip
    figure.update_xaxes(type="category")  # sizes grow by factors
    return figure.update_yaxes(range=[-0.03, 1.03])
