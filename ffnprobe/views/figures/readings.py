"""A neuron from the weights alone: the tokens of its question and of its answer."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.reading.cards import TITLES
from ffnprobe.reading.readings import Reading
from ffnprobe.views.figures.bars import bars, height_of, room
from ffnprobe.views.figures.grids import label
from ffnprobe.views.theme import apply_theme


def plot_reading(reading: Reading, *, top: int = 10) -> go.Figure:
    """Draw the tokens that match question and gate, and those the answer promotes and suppresses."""
    top = min(top, reading.question.model.config.vocab)
    tables = {} if reading.gate is None else {"gate_tokens": reading.gate.top(top)}
    tables |= {
        "question_tokens": reading.question.top(top),
        "promotes": reading.answer.promotes(top),
        "suppresses": reading.answer.suppresses(top),
    }
    figure = make_subplots(
        cols=len(tables),
        subplot_titles=[TITLES[side] for side in tables],
        horizontal_spacing=0.36 / len(tables),
    )
    for column, table in enumerate(tables.values(), 1):
        values = table.value.tolist()
        figure.add_trace(bars(values, hover=[f"{t}:" for t in table.token]), 1, column)
        cell = {"row": 1, "col": column}
        label(figure.update_yaxes, list(table.token), autorange="reversed", **cell)
        # A third of the width is narrow: numbers need more of it, or they touch the tokens.
        figure.update_xaxes(range=room(values, 0.32), nticks=4, **cell)
    opens = tables[next(iter(tables))].token[0]
    title = (
        f"{reading.name} ({reading.kind}) answers {tables['promotes'].token[0]} where it finds "
        f"{opens}, by its weights"
    )
    note = (
        f"{reading.provenance.model}; answers {reading.provenance.convention}, in logits per unit of "
        "activation and of the final scale; above layer 0 question tokens are a hint only"
    )
    return apply_theme(
        figure, title, note=note, width=100 + 360 * len(tables), height=height_of(top)
    )
