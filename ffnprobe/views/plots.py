"""Draw a result: `plot` returns a plotly Figure and never shows it.

Each result has a figure of its own, the first named below; further ones are asked for by name.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> figure = fp.plot(fp.attribute(trace, " basketball"), "account")
>>> figure.data[0].type
'waterfall'
"""

from collections.abc import Callable
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ffnprobe.arguments import verb
from ffnprobe.circuits.circuit import Circuit
from ffnprobe.circuits.recovery import Recovery
from ffnprobe.corpora.contexts import Examples
from ffnprobe.corpora.labels import Labels
from ffnprobe.corpora.scans import Scan
from ffnprobe.editing.certificates import Certificate
from ffnprobe.editing.edits import Edited
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.facts.overlap import Overlap
from ffnprobe.facts.relations import Relations
from ffnprobe.facts.scores import Scores
from ffnprobe.facts.specificity import Specificity
from ffnprobe.interventions.ablation import Effects, LayerEffects
from ffnprobe.interventions.gradients import Estimates
from ffnprobe.interventions.group_ablation import GroupEffects
from ffnprobe.interventions.patching import LayerPatches, Patches
from ffnprobe.interventions.steering import Steering
from ffnprobe.reading.matches import Match
from ffnprobe.reading.readings import Reading, Readings
from ffnprobe.reading.searches import Search
from ffnprobe.reading.surveys import Survey
from ffnprobe.results import TableSet
from ffnprobe.tracing.comparison import Comparison
from ffnprobe.tracing.ffn_stages import Stages
from ffnprobe.tracing.logit_lens import Lens
from ffnprobe.tracing.paths import Paths
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.pushes_by_piece import PushesByPiece
from ffnprobe.tracing.score_drivers import Drivers
from ffnprobe.tracing.token_similarity import Similarity
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.figures import (
    circuits,
    corpora,
    editing,
    effects,
    explanations,
    facts,
    predictions,
    pushes,
    reading,
)

Figures = dict[str, Callable[..., go.Figure]]

SURVEY: Figures = {
    "kinds": reading.plot_kinds,
    "norms": reading.plot_norms,
    "cosines": reading.plot_cosines,
    "roles": reading.plot_roles,
}
FIGURES: dict[type, Figures] = {
    Trace: {
        "predictions": predictions.plot_predictions,
        "lens": predictions.plot_lens_tokens,
        "neuron": predictions.plot_text,
    },
    Lens: {"lens": predictions.plot_lens},
    Stages: {"stages": predictions.plot_stages},
    Similarity: {"similarity": predictions.plot_similarity},
    Drivers: {"drivers": predictions.plot_drivers},
    Pushes: {
        "layers": pushes.plot_layers,
        "account": pushes.plot_account,
        "neurons": pushes.plot_neurons,
    },
    Paths: {"paths": pushes.plot_paths},
    PushesByPiece: {"layers": pushes.plot_layers},
    Comparison: {
        "neurons": effects.plot_compared_pushes,
        "activations": effects.plot_activations,
        "layers": effects.plot_compared_layers,
    },
    Effects: {"neurons": effects.plot_effects, "pushes": effects.plot_against_pushes},
    LayerEffects: {"map": effects.plot_map},
    GroupEffects: {"groups": effects.plot_groups},
    Estimates: {"neurons": effects.plot_estimates},
    Patches: {"neurons": effects.plot_patches},
    LayerPatches: {"map": effects.plot_patch_map},
    Circuit: {"graph": circuits.plot_circuit, "recovery": circuits.plot_circuit_recovery},
    Recovery: {"recovery": circuits.plot_recovery},
    Steering: {"predictions": predictions.plot_steering},
    Reading: {"reading": reading.plot_reading},
    Readings: SURVEY,
    Survey: SURVEY,
    Search: {"search": reading.plot_search},
    Match: {"layers": reading.plot_layers, "correlations": reading.plot_correlations},
    Scores: {"known": facts.plot_known},
    Relations: {"neurons": facts.plot_carriers},
    Overlap: {"facts": facts.plot_overlap, "relations": facts.plot_relation_overlap},
    Specificity: {"effects": facts.plot_specificity},
    Scan: {"firing": corpora.plot_firing, "histogram": corpora.plot_histogram},
    Examples: {"examples": corpora.plot_examples},
    Edited: {"layers": editing.plot_change},
    Certificate: {
        "measures": editing.plot_measures,
        "changed": editing.plot_changed,
        "layers": lambda certificate: editing.plot_change(certificate.edited),
    },
    Labels: {"labels": corpora.plot_labels, "outputs": corpora.plot_outputs},
    Explanation: {
        "account": explanations.plot_parts,
        "curve": explanations.plot_curve,
        "predictions": explanations.plot_explanation_predictions,
        "paths": explanations.plot_explanation_paths,
        "map": explanations.plot_explanation_map,
        "evidence": explanations.plot_evidence,
        "layers": explanations.plot_explanation_layers,
    },
}
# Figures that need more than the result, and so are not drawn unasked.
ASKED = (predictions.plot_text, effects.plot_against_pushes, corpora.plot_histogram)


@verb
def plot(result: Any, figure: str | None = None, **options: Any) -> go.Figure:
    """Draw a result's first figure, or the one named; options go to the figure.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.plot(fp.attribute(trace, " basketball")).layout.title.text
    'The neurons of L6 push most, away from ␣basketball (-2.29)'
    """
    known = _find(result)
    if isinstance(result, Search | Survey) and not len(result):
        raise DataRefused("there is nothing to draw: the table is empty.")
    name = next(iter(known)) if figure is None else figure
    if name not in known:
        raise OptionRefused(
            f'{type(result).__name__} has no figure "{name}".', remedy=", ".join(known)
        )
    return known[name](result, **options)


def plot_all(result: Any) -> list[go.Figure]:
    """Draw all figures of a result that need nothing else."""
    try:
        known = _find(result)
    except DataRefused:
        return []
    figures = []
    for make in known.values():
        if make not in ASKED:
            try:
                figures.append(make(result))
            except OptionRefused:  # the result was asked for without what this figure shows
                continue
    return figures


def _find(result: Any) -> Figures:
    """Find the figures of a result, by its type."""
    if type(result) not in FIGURES:
        if isinstance(result, TableSet | pd.DataFrame):
            raise DataRefused(
                "there is no figure for a table by itself.", remedy="the result it was taken from"
            )
        known = ", ".join(kind.__name__ for kind in FIGURES)
        raise DataRefused(f"there is no figure for {type(result).__name__}.", remedy=known)
    return FIGURES[type(result)]
