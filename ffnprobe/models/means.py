"""Activation means: what each neuron does on average, over a stated corpus.

A model's folder may hold `means.safetensors` with one tensor, `activations` `[layer neuron]`, and,
in its metadata, the `fingerprint` of the weights they were measured on, or the whole `identity` of
the model. Pocket ships its own, over all positions of its facts' sentences but BOS.

>>> import ffnprobe as fp
>>> fp.load("pocket").means.shape
torch.Size([7, 768])
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.identity import tell_apart

if TYPE_CHECKING:
    from ffnprobe.models.model import Model

FILE = "means.safetensors"


@dataclass(frozen=True, eq=False)
class Means:
    """Means over a corpus of one's own: the model they are of, and the corpus in words."""

    activations: Float[Tensor, "layer neuron"]
    identity: str
    corpus: str


def read_means(model: "Model") -> Float[Tensor, "layer neuron"] | None:
    """Read the means that came with a model, checked against its shape and weights; None without."""
    path = model.source.folder() / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            means: Tensor = file.get_tensor("activations").float()
            known = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ModelNotLoaded(f"{path} cannot be read: {error}.") from None
    wanted = (model.config.layers, model.config.d_mlp)
    if tuple(means.shape) != wanted or not means.isfinite().all():
        raise ModelNotLoaded(f"{path} does not hold {wanted[0]} × {wanted[1]} finite numbers.")
    weights = known.get("fingerprint", model.fingerprint)
    if weights != model.fingerprint:
        raise ModelNotLoaded(
            f"{path} was measured on other weights ({weights[:8]}, not {model.fingerprint[:8]})."
        )
    if other := tell_apart(known.get("identity", model.identity), model.identity):
        raise ModelNotLoaded(f"{path} was measured on a model with another {other}.")
    return means
