"""An explanation: the parts of its logit, its curve, predictions, paths, map and evidence."""

import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.figures.effects import LOSS, draw_evidence, draw_map
from ffnprobe.views.figures.predictions import plot_predictions
from ffnprobe.views.figures.pushes import draw_paths, draw_waterfall, plot_layers
from ffnprobe.views.theme import BLACK, BLUE, VERMILLION, apply_theme, plain


@draws("account", "Explanation")
def plot_parts(explanation: "fp.Explanation") -> go.Figure:
    """Draw the parts of the answer's logit as a waterfall, the listed neurons first."""
    table = explanation.parts
    steps = dict(zip(table.part[:-1], table.push[:-1].tolist(), strict=True))
    return draw_waterfall(steps, explanation.logit, explanation.provenance)


@draws("curve", "Explanation")
def plot_curve(explanation: "fp.Explanation") -> go.Figure:
    """Draw the answer's probability without sets of neurons, beside neurons like them and other subjects."""
    curve = explanation.curve
    if curve is None or not len(curve.table):
        raise OptionRefused(
            "no neurons were removed together: the answer is not first, or effects were left out.",
            remedy="an answer that the model gives, with effects",
        )
    table = curve.table
    answer = f"{explanation.provenance.answer} without the first neurons"
    lines = {answer: table.probability, "without as many like them, worst draw": table.worst}
    if curve.others:
        kept = 1 - table.changed / curve.others
        lines[f"share of {curve.others} other subjects' answers kept"] = kept
    figure = go.Figure()
    for colour, (name, values) in zip((VERMILLION, BLUE, BLACK), lines.items(), strict=False):
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
    return apply_theme(
        figure, f"{known.answer}: {title}",
        note=f"{known.model} after {parts.join_tokens(explanation.trace.tokens)}",
        x="neurons removed together", y="probability, share", yaxis_range=[-0.03, 1.03],
        xaxis_type="category",  # sizes grow by factors
    )  # fmt: skip


draws("predictions", "Explanation")(lambda e: plot_predictions(e.trace, top=5))
draws("paths", "Explanation")(lambda e: draw_paths(e.paths, e.trace.tokens, e.provenance))


@draws("map", "Explanation")
def plot_explanation_map(explanation: "fp.Explanation") -> go.Figure:
    """Draw an explanation's map."""
    if explanation.map is None:
        raise _refuse()
    grid = explanation.map.pivot(index="layer", columns="position", values="effect")
    tokens = [explanation.trace.tokens[position] for position in map(int, grid.columns)]
    is_whole = None not in explanation.position_effects
    rows, known = grid.to_numpy().tolist(), explanation.provenance
    return draw_map(rows, tokens, known, "effect", LOSS, is_whole=is_whole)


@draws("evidence", "Explanation")
def plot_evidence(explanation: "fp.Explanation") -> go.Figure:
    """Draw the listed neurons' push, direct and through attention, against their total effect."""
    own = explanation.neurons
    if "effect" not in own:
        raise _refuse()
    drawn = own.assign(push=own.push + own.push_through_attention)
    note = f"the neurons listed; {parts.say(explanation.provenance)}"
    return draw_evidence(drawn, None, note, str(explanation.provenance.answer))


draws("layers", "Explanation")(lambda e: plot_layers(e.pushes))


def _refuse() -> OptionRefused:
    return OptionRefused(
        "this explanation was made without effects.", remedy="explain(…, effects=True)"
    )
