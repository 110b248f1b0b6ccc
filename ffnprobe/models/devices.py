"""Which device a model's arithmetic runs on."""

import torch

from ffnprobe.errors import ModelNotLoaded


def choose_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `mps` into a device this machine has."""
    here = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if here[kind])
    if not here.get(name, False):
        present = ", ".join(kind for kind, is_here in here.items() if is_here)
        raise ModelNotLoaded(f'device "{name}" is not on this machine.', remedy=f"auto, {present}")
    return torch.device(name)
