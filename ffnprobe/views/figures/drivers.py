"""Figures of drivers (what opened a neuron) and of the similarity of a prompt's tokens."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.tracing.score_drivers import Drivers
from ffnprobe.tracing.token_similarity import Similarity
from ffnprobe.views.figures.bars import bars, height_of, room
from ffnprobe.views.figures.grids import add_grid, label, new_grids
from ffnprobe.views.figures.words import say
from ffnprobe.views.theme import apply_theme


def plot_drivers(drivers: Drivers, *, top: int = 15) -> go.Figure:
    """Draw the parts of the stream that gave a neuron its score (and its gate's), the strongest first."""
    sides = (
        {"question": drivers}
        if drivers.gate is None
        else {"gate": drivers.gate, "question": drivers}
    )
    figure = make_subplots(
        cols=len(sides), horizontal_spacing=0.22,
        subplot_titles=[f"{side}: score {one.score:+.3f}" for side, one in sides.items()],
    )  # fmt: skip
    longest = 0
    for column, one in enumerate(sides.values(), 1):
        names, values = _strongest(one, top)
        cell = {"row": 1, "col": column}
        figure.add_trace(bars(values, hover=[f"{name}:" for name in names]), **cell)
        label(figure.update_yaxes, names, autorange="reversed", **cell)
        figure.update_xaxes(range=room(values), title_text="score", **cell)
        longest = max(longest, len(values))
    names, values = _strongest(drivers, top)
    token = drivers.trace.tokens[drivers.position]
    title = f"{names[0]} drives {drivers.neuron} most at {token}: {values[0]:+.3f} of a score of {drivers.score:+.3f}"
    width, height = 320 + 480 * len(sides), 30 + height_of(longest)
    return apply_theme(figure, title, note=say(drivers.provenance), width=width, height=height)


def _strongest(drivers: Drivers, k: int) -> tuple[list[str], list[float]]:
    """Return the names and drives of the strongest parts, the others summed up."""
    table = drivers.by_part().sort_values("drive", key=abs, ascending=False, kind="stable")
    names, values = list(table.part[:k]), table.drive[:k].tolist()
    if len(table) > k:
        names.append(f"{len(table) - k} others")
        values.append(float(table.drive[k:].sum()))
    return names, values


def plot_similarity(similarity: Similarity) -> go.Figure:
    """Draw the cosines of a prompt's tokens with one another at the first, middle and last stage."""
    count = len(similarity.stages)
    chosen = sorted({0, count // 2, count - 1})
    tokens = list(similarity.tokens)
    figure = new_grids(
        len(chosen), subplot_titles=[similarity.stages[stage] for stage in chosen],
        shared_yaxes=True, horizontal_spacing=0.03,
    )  # fmt: skip
    means = []
    digits = 2 if len(tokens) <= 10 else None
    for column, stage in enumerate(chosen, 1):
        cosines = similarity.cosines[stage]
        pairs = len(tokens) * (len(tokens) - 1)
        means.append(float(cosines.sum() - cosines.trace()) / pairs if pairs else 1.0)
        bar = "cosine" if column == len(chosen) else None
        add_grid(figure, cosines.tolist(), rows=tokens, columns=tokens, column=column, limit=1.0,
                 digits=digits, bar=bar)  # fmt: skip
    figure.update_xaxes(tickangle=-40)
    title = (
        "The cosines are undefined: the tokens' vectors are zero"
        if similarity.cosines.isnan().all()
        else f"The mean cosine of two tokens goes from {means[0]:.2f} to {means[-1]:.2f}"
    )
    note = say(similarity.provenance)
    return apply_theme(figure, title, note=note, height=150 + 36 * len(tokens), width=1280)
