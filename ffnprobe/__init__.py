"""ffnprobe: which question each FFN neuron of a GPT-2 asks, which answer it gives, what it pushed.

>>> import ffnprobe as fp
>>> model = fp.load("pocket")

Every public name is imported when first used, so that `import ffnprobe` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffnprobe.version import VERSION as __version__

if TYPE_CHECKING:
    from ffnprobe.corpora.contexts import Examples, examples
    from ffnprobe.corpora.scanning import scan
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.errors import FfnProbeError
    from ffnprobe.evidence.explanation import Explanation
    from ffnprobe.evidence.stories import explain
    from ffnprobe.facts.rows import FactRow
    from ffnprobe.facts.scores import Scores
    from ffnprobe.facts.scoring import score
    from ffnprobe.interventions.ablation import Effects, ablate
    from ffnprobe.interventions.steering import Steering, steer
    from ffnprobe.models.loading import load
    from ffnprobe.models.model import Model
    from ffnprobe.names import NeuronId
    from ffnprobe.reading.kinds import Thresholds
    from ffnprobe.reading.rankings import search
    from ffnprobe.reading.readings import Reading, Readings, read
    from ffnprobe.reading.surveys import survey
    from ffnprobe.tracing.paths import Paths, paths
    from ffnprobe.tracing.pieces import PushesByPiece
    from ffnprobe.tracing.pushes import Pushes, attribute
    from ffnprobe.tracing.trace import Trace, run
    from ffnprobe.views.plots import plot
    from ffnprobe.views.saving import save

_HOMES = {
    "Effects": "ffnprobe.interventions.ablation",
    "Examples": "ffnprobe.corpora.contexts",
    "Explanation": "ffnprobe.evidence.explanation",
    "FactRow": "ffnprobe.facts.rows",
    "FfnProbeError": "ffnprobe.errors",
    "Model": "ffnprobe.models.model",
    "NeuronId": "ffnprobe.names",
    "Paths": "ffnprobe.tracing.paths",
    "Pushes": "ffnprobe.tracing.pushes",
    "PushesByPiece": "ffnprobe.tracing.pieces",
    "Reading": "ffnprobe.reading.readings",
    "Readings": "ffnprobe.reading.readings",
    "Scan": "ffnprobe.corpora.scans",
    "Scores": "ffnprobe.facts.scores",
    "Steering": "ffnprobe.interventions.steering",
    "Thresholds": "ffnprobe.reading.kinds",
    "Trace": "ffnprobe.tracing.trace",
    "ablate": "ffnprobe.interventions.ablation",
    "attribute": "ffnprobe.tracing.pushes",
    "examples": "ffnprobe.corpora.contexts",
    "explain": "ffnprobe.evidence.stories",
    "load": "ffnprobe.models.loading",
    "paths": "ffnprobe.tracing.paths",
    "plot": "ffnprobe.views.plots",
    "read": "ffnprobe.reading.readings",
    "run": "ffnprobe.tracing.trace",
    "save": "ffnprobe.views.saving",
    "scan": "ffnprobe.corpora.scanning",
    "score": "ffnprobe.facts.scoring",
    "search": "ffnprobe.reading.rankings",
    "steer": "ffnprobe.interventions.steering",
    "survey": "ffnprobe.reading.surveys",
}

__all__ = [
    "Effects",
    "Examples",
    "Explanation",
    "FactRow",
    "FfnProbeError",
    "Model",
    "NeuronId",
    "Paths",
    "Pushes",
    "PushesByPiece",
    "Reading",
    "Readings",
    "Scan",
    "Scores",
    "Steering",
    "Thresholds",
    "Trace",
    "__version__",
    "ablate",
    "attribute",
    "examples",
    "explain",
    "load",
    "paths",
    "plot",
    "read",
    "run",
    "save",
    "scan",
    "score",
    "search",
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
