"""ffnprobe: which question each FFN neuron of a GPT-2 asks, which answer it gives, what it pushed.

>>> import ffnprobe as fp
>>> model = fp.load("pocket")

Every public name is imported when first used, so that `import ffnprobe` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffnprobe.version import VERSION as __version__

if TYPE_CHECKING:
    from ffnprobe.batches import Batch, batch
    from ffnprobe.circuits.checking import check_circuit
    from ffnprobe.circuits.circuit import Circuit, circuit
    from ffnprobe.circuits.recovery import Recovery
    from ffnprobe.corpora.contexts import Examples, examples
    from ffnprobe.corpora.labels import Labels
    from ffnprobe.corpora.matching import match
    from ffnprobe.corpora.scanning import scan
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.corpora.surveying import survey
    from ffnprobe.editing.certificates import Certificate
    from ffnprobe.editing.certifying import certify
    from ffnprobe.editing.edits import Edited, edit
    from ffnprobe.editing.exporting import export
    from ffnprobe.editing.key_moments import KeyMoments
    from ffnprobe.editing.key_scans import scan_keys
    from ffnprobe.errors import FfnProbeError
    from ffnprobe.evidence.explaining import explain
    from ffnprobe.evidence.explanation import Explanation
    from ffnprobe.facts.contrasts import find_contrast_rows
    from ffnprobe.facts.overlap import Overlap
    from ffnprobe.facts.relations import Relations
    from ffnprobe.facts.rows import FactRow
    from ffnprobe.facts.scores import Scores
    from ffnprobe.facts.scoring import score
    from ffnprobe.facts.specificity import Specificity
    from ffnprobe.interventions.ablation import (
        Effects,
        LayerEffects,
        ablate,
        ablate_layers,
    )
    from ffnprobe.interventions.gradients import Estimates, estimate
    from ffnprobe.interventions.group_ablation import GroupEffects
    from ffnprobe.interventions.patching import LayerPatches, Patches, patch, patch_layers
    from ffnprobe.interventions.steering import Steering, steer
    from ffnprobe.labels.labelling import label
    from ffnprobe.models.loading import load
    from ffnprobe.models.model import Model
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.names import NeuronId
    from ffnprobe.reading.kinds import Thresholds
    from ffnprobe.reading.matches import Match
    from ffnprobe.reading.rankings import search
    from ffnprobe.reading.readings import Reading, Readings, read
    from ffnprobe.reading.related import Related
    from ffnprobe.reading.searches import Search
    from ffnprobe.reading.surveys import Survey
    from ffnprobe.results import Result, TableSet
    from ffnprobe.tracing.comparison import Comparison, compare
    from ffnprobe.tracing.contrast import Contrast, contrast_with
    from ffnprobe.tracing.contrast_pushes import ContrastPushes
    from ffnprobe.tracing.ffn_stages import Stages, stages
    from ffnprobe.tracing.logit_lens import Lens, lens
    from ffnprobe.tracing.paths import Paths, paths
    from ffnprobe.tracing.pushes import Pushes, attribute
    from ffnprobe.tracing.pushes_by_piece import PushesByPiece
    from ffnprobe.tracing.running import run
    from ffnprobe.tracing.score_drivers import Drivers, drivers
    from ffnprobe.tracing.token_similarity import Similarity, similarity
    from ffnprobe.tracing.trace import Trace
    from ffnprobe.views.files.graphs import save_graph
    from ffnprobe.views.files.reader import open_result
    from ffnprobe.views.files.saving import save
    from ffnprobe.views.plots import plot
    from ffnprobe.views.site.publishing import publish
    from ffnprobe.views.widget.showing import show

_HOMES = {
    "Batch": "ffnprobe.batches",
    "Circuit": "ffnprobe.circuits.circuit",
    "Certificate": "ffnprobe.editing.certificates",
    "Comparison": "ffnprobe.tracing.comparison",
    "Contrast": "ffnprobe.tracing.contrast",
    "ContrastPushes": "ffnprobe.tracing.contrast_pushes",
    "Drivers": "ffnprobe.tracing.score_drivers",
    "Edited": "ffnprobe.editing.edits",
    "Effects": "ffnprobe.interventions.ablation",
    "Estimates": "ffnprobe.interventions.gradients",
    "Examples": "ffnprobe.corpora.contexts",
    "Explanation": "ffnprobe.evidence.explanation",
    "FactRow": "ffnprobe.facts.rows",
    "FfnProbeError": "ffnprobe.errors",
    "GroupEffects": "ffnprobe.interventions.group_ablation",
    "KeyMoments": "ffnprobe.editing.key_moments",
    "Labels": "ffnprobe.corpora.labels",
    "LayerEffects": "ffnprobe.interventions.ablation",
    "LayerPatches": "ffnprobe.interventions.patching",
    "Lens": "ffnprobe.tracing.logit_lens",
    "Match": "ffnprobe.reading.matches",
    "Model": "ffnprobe.models.model",
    "NeuronId": "ffnprobe.names",
    "Overlap": "ffnprobe.facts.overlap",
    "Patches": "ffnprobe.interventions.patching",
    "Paths": "ffnprobe.tracing.paths",
    "Provenance": "ffnprobe.models.provenance",
    "Pushes": "ffnprobe.tracing.pushes",
    "PushesByPiece": "ffnprobe.tracing.pushes_by_piece",
    "Reading": "ffnprobe.reading.readings",
    "Readings": "ffnprobe.reading.readings",
    "Recovery": "ffnprobe.circuits.recovery",
    "Related": "ffnprobe.reading.related",
    "Relations": "ffnprobe.facts.relations",
    "Result": "ffnprobe.results",
    "Scan": "ffnprobe.corpora.scans",
    "Scores": "ffnprobe.facts.scores",
    "Search": "ffnprobe.reading.searches",
    "Similarity": "ffnprobe.tracing.token_similarity",
    "Specificity": "ffnprobe.facts.specificity",
    "Stages": "ffnprobe.tracing.ffn_stages",
    "Steering": "ffnprobe.interventions.steering",
    "Survey": "ffnprobe.reading.surveys",
    "TableSet": "ffnprobe.results",
    "Thresholds": "ffnprobe.reading.kinds",
    "Trace": "ffnprobe.tracing.trace",
    "ablate": "ffnprobe.interventions.ablation",
    "ablate_layers": "ffnprobe.interventions.ablation",
    "attribute": "ffnprobe.tracing.pushes",
    "batch": "ffnprobe.batches",
    "check_circuit": "ffnprobe.circuits.checking",
    "circuit": "ffnprobe.circuits.circuit",
    "certify": "ffnprobe.editing.certifying",
    "compare": "ffnprobe.tracing.comparison",
    "contrast_with": "ffnprobe.tracing.contrast",
    "drivers": "ffnprobe.tracing.score_drivers",
    "edit": "ffnprobe.editing.edits",
    "estimate": "ffnprobe.interventions.gradients",
    "examples": "ffnprobe.corpora.contexts",
    "explain": "ffnprobe.evidence.explaining",
    "export": "ffnprobe.editing.exporting",
    "find_contrast_rows": "ffnprobe.facts.contrasts",
    "label": "ffnprobe.labels.labelling",
    "lens": "ffnprobe.tracing.logit_lens",
    "load": "ffnprobe.models.loading",
    "match": "ffnprobe.corpora.matching",
    "open_result": "ffnprobe.views.files.reader",
    "patch": "ffnprobe.interventions.patching",
    "patch_layers": "ffnprobe.interventions.patching",
    "paths": "ffnprobe.tracing.paths",
    "plot": "ffnprobe.views.plots",
    "publish": "ffnprobe.views.site.publishing",
    "read": "ffnprobe.reading.readings",
    "run": "ffnprobe.tracing.running",
    "save": "ffnprobe.views.files.saving",
    "save_graph": "ffnprobe.views.files.graphs",
    "scan": "ffnprobe.corpora.scanning",
    "scan_keys": "ffnprobe.editing.key_scans",
    "score": "ffnprobe.facts.scoring",
    "search": "ffnprobe.reading.rankings",
    "show": "ffnprobe.views.widget.showing",
    "similarity": "ffnprobe.tracing.token_similarity",
    "stages": "ffnprobe.tracing.ffn_stages",
    "steer": "ffnprobe.interventions.steering",
    "survey": "ffnprobe.corpora.surveying",
}

__all__ = [
    "Batch",
    "Certificate",
    "Circuit",
    "Comparison",
    "Contrast",
    "ContrastPushes",
    "Drivers",
    "Edited",
    "Effects",
    "Estimates",
    "Examples",
    "Explanation",
    "FactRow",
    "FfnProbeError",
    "GroupEffects",
    "KeyMoments",
    "Labels",
    "LayerEffects",
    "LayerPatches",
    "Lens",
    "Match",
    "Model",
    "NeuronId",
    "Overlap",
    "Patches",
    "Paths",
    "Provenance",
    "Pushes",
    "PushesByPiece",
    "Reading",
    "Readings",
    "Recovery",
    "Related",
    "Relations",
    "Result",
    "Scan",
    "Scores",
    "Search",
    "Similarity",
    "Specificity",
    "Stages",
    "Steering",
    "Survey",
    "TableSet",
    "Thresholds",
    "Trace",
    "__version__",
    "ablate",
    "ablate_layers",
    "attribute",
    "batch",
    "certify",
    "check_circuit",
    "circuit",
    "compare",
    "contrast_with",
    "drivers",
    "edit",
    "estimate",
    "examples",
    "explain",
    "export",
    "find_contrast_rows",
    "label",
    "lens",
    "load",
    "match",
    "open_result",
    "patch",
    "patch_layers",
    "paths",
    "plot",
    "publish",
    "read",
    "run",
    "save",
    "save_graph",
    "scan",
    "scan_keys",
    "score",
    "search",
    "show",
    "similarity",
    "stages",
    "steer",
    "survey",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ffnprobe' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
