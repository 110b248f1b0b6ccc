"""What changes if: neurons removed, set or carried over, and the model run again without guessing."""

from ffnprobe.interventions.ablation import ablate, ablate_layers, ablate_together
from ffnprobe.interventions.gradients import estimate
from ffnprobe.interventions.patching import patch, patch_layers
from ffnprobe.interventions.steering import steer

__all__ = [
    "ablate",
    "ablate_layers",
    "ablate_together",
    "estimate",
    "patch",
    "patch_layers",
    "steer",
]
