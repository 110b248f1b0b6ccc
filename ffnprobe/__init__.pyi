"""Every public name and where it lives, once: type checkers read this file, and `__init__.py` does."""

from ffnprobe.batches import Batch as Batch, batch as batch
from ffnprobe.circuits.circuit import Circuit as Circuit, circuit as circuit
from ffnprobe.circuits.recovery import Recovery as Recovery, check_circuit as check_circuit
from ffnprobe.corpora.examples import Examples as Examples, examples as examples
from ffnprobe.labels.stored_labels import Labels as Labels
from ffnprobe.corpora.lens_fitting import fit_lens as fit_lens
from ffnprobe.corpora.matching import match as match
from ffnprobe.corpora.scans import scan as scan
from ffnprobe.corpora.scans import Scan as Scan
from ffnprobe.labels.surveying import survey as survey
from ffnprobe.editing.certificates import Certificate as Certificate
from ffnprobe.editing.certificates import certify as certify
from ffnprobe.editing.edits import Edited as Edited, edit as edit
from ffnprobe.editing.exporting import export as export
from ffnprobe.editing.key_moments import KeyMoments as KeyMoments
from ffnprobe.editing.key_moments import scan_keys as scan_keys
from ffnprobe.errors import FfnProbeError as FfnProbeError
from ffnprobe.evidence.explaining import explain as explain
from ffnprobe.evidence.explanation import Explanation as Explanation
from ffnprobe.facts.subjects import find_contrast_rows as find_contrast_rows
from ffnprobe.facts.relations import Overlap as Overlap
from ffnprobe.facts.relations import Relations as Relations
from ffnprobe.facts.rows import FactRow as FactRow
from ffnprobe.facts.scores import Scores as Scores
from ffnprobe.facts.scores import score as score
from ffnprobe.facts.specificity import Specificity as Specificity
from ffnprobe.interventions.ablation import Effects as Effects, GroupEffects as GroupEffects
from ffnprobe.interventions.ablation import LayerEffects as LayerEffects
from ffnprobe.interventions.ablation import ablate as ablate, ablate_layers as ablate_layers
from ffnprobe.interventions.estimates import Estimates as Estimates, estimate as estimate
from ffnprobe.interventions.list_checks import ListChecks as ListChecks
from ffnprobe.interventions.list_checks import check_lists as check_lists
from ffnprobe.interventions.patching import LayerPatches as LayerPatches, Patches as Patches
from ffnprobe.interventions.patching import patch as patch, patch_layers as patch_layers
from ffnprobe.interventions.steering import Steering as Steering, steer as steer
from ffnprobe.labels.labelling import label as label
from ffnprobe.models.loading import load as load
from ffnprobe.models.model import Model as Model
from ffnprobe.provenance import Provenance as Provenance
from ffnprobe.names import NeuronId as NeuronId
from ffnprobe.reading.jacobian import JacobianLens as JacobianLens, use_lens as use_lens
from ffnprobe.reading.measures import Thresholds as Thresholds
from ffnprobe.corpora.matching import Match as Match
from ffnprobe.reading.searches import search as search
from ffnprobe.reading.readings import Reading as Reading, Readings as Readings, read as read
from ffnprobe.reading.searches import Related as Related, related as related
from ffnprobe.reading.searches import Search as Search
from ffnprobe.reading.surveys import Survey as Survey
from ffnprobe.results import Result as Result, TableSet as TableSet
from ffnprobe.tracing.comparison import Comparison as Comparison, compare as compare
from ffnprobe.tracing.contrast import Contrast as Contrast, contrast_with as contrast_with
from ffnprobe.tracing.comparison import ContrastPushes as ContrastPushes
from ffnprobe.tracing.streams import Stages as Stages, stages as stages
from ffnprobe.tracing.streams import Lens as Lens, lens as lens
from ffnprobe.tracing.paths import Paths as Paths, paths as paths
from ffnprobe.tracing.attribution import Pushes as Pushes, attribute as attribute
from ffnprobe.tracing.attribution import PushesByPiece as PushesByPiece
from ffnprobe.tracing.runs import run as run
from ffnprobe.tracing.drivers import Drivers as Drivers, drivers as drivers
from ffnprobe.tracing.streams import Similarity as Similarity, similarity as similarity
from ffnprobe.tracing.trace import Trace as Trace
from ffnprobe.views.graph_files import save_graph as save_graph
from ffnprobe.views.saving import open_result as open_result
from ffnprobe.views.saving import save as save
from ffnprobe.views.figures import plot as plot
from ffnprobe.views.publishing import publish as publish
from ffnprobe.views.page import show as show
from ffnprobe import results as results

__all__: list[str]
__version__: str
