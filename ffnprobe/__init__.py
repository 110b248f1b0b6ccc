"""ffnprobe: which question each FFN neuron of a GPT-2 asks, which answer it gives, what it pushed.

>>> import ffnprobe as fp
>>> model = fp.load("pocket")

Every public name is imported when first used, so that `import ffnprobe` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffnprobe.version import VERSION as __version__

if TYPE_CHECKING:
    from ffnprobe.errors import FfnProbeError
    from ffnprobe.models.loading import load
    from ffnprobe.models.model import Model
    from ffnprobe.names import NeuronId
    from ffnprobe.tracing.trace import Trace, run

_HOMES = {
    "FfnProbeError": "ffnprobe.errors",
    "Model": "ffnprobe.models.model",
    "NeuronId": "ffnprobe.names",
    "Trace": "ffnprobe.tracing.trace",
    "load": "ffnprobe.models.loading",
    "run": "ffnprobe.tracing.trace",
}

__all__ = ["FfnProbeError", "Model", "NeuronId", "Trace", "__version__", "load", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ffnprobe' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
