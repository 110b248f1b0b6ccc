"""A survey as a page: all neurons in three figures and one table."""

from dataclasses import replace

from ffnprobe.reading.surveys import Survey
from ffnprobe.results import hide_numbers
from ffnprobe.views.plots import plot_all
from ffnprobe.views.report.blocks import definitions, figure_html, section, table_block, words
from ffnprobe.views.report.reproduce import reproduce
from ffnprobe.views.report.terms import MARKS, NEURONS, SURVEY

# A browser sorts this many rows quickly, and the page stays small enough to send.
ROWS = 5_000


def survey_sections(survey: Survey) -> list[str]:
    """Write a survey's sections; of many neurons only the most selective, and say so."""
    shown, model, layers = survey, survey.provenance.model, survey.layers
    said = f"Every neuron of {_spell(layers)} of {model}, {len(survey):,} in all, read from the weights alone."
    if len(survey) > ROWS:
        shown = replace(survey, table=survey.top(ROWS).sort_index())
        said = (
            f"{_spell(layers).capitalize()} of {model} have {len(survey):,} neurons; this page shows the "
            f"{ROWS:,} whose answers are the most selective (largest kurtosis). All of them: save to .csv or "
            ".parquet, or survey a layer at a time."
        )
    about = (
        "A neuron asks a question about the text so far. The better the text matches it, the more of its "
        "answer it adds, which makes some next tokens likelier and others less likely."
    )
    table = hide_numbers(shown.table)
    return [
        words(said),
        words(about),
        section("All at once", *map(figure_html, plot_all(shown))),
        section(
            "One by one", words("Click a column head to sort."), table_block(table, name="neurons")
        ),
        section("What the words mean", definitions(MARKS | NEURONS | SURVEY)),
        *reproduce(survey),
    ]


def _spell(layers: list[int]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    is_run = layers == list(range(layers[0], layers[-1] + 1))
    return f"layers {layers[0]}–{layers[-1]}" if is_run else f"layers {', '.join(map(str, layers))}"
