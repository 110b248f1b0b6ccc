"""A survey as a page: all neurons in three figures and one table."""

import pandas as pd

from ffnprobe.models.provenance import Provenance
from ffnprobe.views.plots import plot_all
from ffnprobe.views.report.blocks import definitions, figure_html, section, table_block, words
from ffnprobe.views.report.reproduce import reproduce_survey
from ffnprobe.views.report.terms import MARKS, NEURONS, SURVEY

# A browser sorts this many rows quickly, and the page stays small enough to send.
ROWS = 5_000


def is_survey(table: pd.DataFrame) -> bool:
    """Say whether a table is a survey."""
    return {"vocab_kurtosis", "null_space"} <= set(table.columns)


def survey_sections(neurons: pd.DataFrame, provenance: Provenance) -> list[str]:
    """Write a survey's sections; if there are too many neurons, only the most selective."""
    shown = neurons
    layers = sorted(set(neurons.layer))
    said = f"Every neuron of {_spell(layers)} of {provenance.model}, {len(neurons):,} in all, read from the weights alone."
    if len(neurons) > ROWS:
        kept = neurons.vocab_kurtosis.nlargest(ROWS).index
        shown = neurons.loc[sorted(kept)]
        shown.attrs.update(neurons.attrs)
        said = (
            f"{_spell(layers).capitalize()} of {provenance.model} have {len(neurons):,} neurons; this page shows the "
            f"{ROWS:,} whose answers are the most selective (largest kurtosis). All of them: save to .csv or "
            ".parquet, or survey a layer at a time."
        )
    about = (
        "A neuron asks a question about the text so far. The better the text matches it, the more of its "
        "answer it adds, which makes some next tokens likelier and others less likely."
    )
    table = shown.drop(columns=["layer", "neuron"])
    return [
        words(said),
        words(about),
        section("All at once", *map(figure_html, plot_all(shown))),
        section(
            "One by one", words("Click a column head to sort."), table_block(table, name="neurons")
        ),
        section("What the words mean", definitions(MARKS | NEURONS | SURVEY)),
        reproduce_survey(provenance, layers),
    ]


def _spell(layers: list[int]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    is_run = layers == list(range(layers[0], layers[-1] + 1))
    return f"layers {layers[0]}–{layers[-1]}" if is_run else f"layers {', '.join(map(str, layers))}"
