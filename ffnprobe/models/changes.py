"""A model with some of its answers changed: a new `Model` that shares every other tensor.

    W_down' = W_down + change        one layer's rows, `[neuron d_model]`

Only the tensors of the layers that change are copied, and in fp32, whatever the file holds: a small
change would be lost in half precision. The model handed in keeps its weights and its fingerprint;
the new one has its own.

>>> import ffnprobe as fp, torch
>>> model = fp.load("pocket")
>>> changed = change_rows(model, {2: torch.zeros_like(model.answers_of(2)) + 0.01})
>>> changed.fingerprint == model.fingerprint, model.is_unchanged()
(False, True)
>>> shared = [name for name in model.weights if changed.weights[name] is model.weights[name]]
>>> len(model.weights) - len(shared)
1
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.checkpoint import fingerprint
from ffnprobe.models.folding import read_layer
from ffnprobe.models.model import Model
from ffnprobe.models.sources import EDITED, Source

# Made of other weights than W_down: what is folded already is folded for both.
_SHARED = (
    "_questions", "_gates", "attention", "answer_biases", "embedding", "position_embedding", "head",
    "final_gain", "final_shift", "_folded_head", "mean_unembedding", "mean_logit", "rotary",
)  # fmt: skip


def change_rows(model: Model, changes: Mapping[int, Float[Tensor, "neuron d_model"]]) -> Model:
    """Return a model whose layers named have so much added to W_down."""
    weights = dict(model.weights)
    for layer, change in changes.items():
        name = f"{model.layout.of(layer, model.layout.down)}.weight"
        if not model.layout.is_transposed:
            change = rearrange(change, "neuron d_model -> d_model neuron")
        weights[name] = (model.raw(name) + change.to(model.device, torch.float32)).contiguous()
    name, source = model.name, model.source
    if source.kind != EDITED:  # else it was made from what the first edit was made from
        name += " edited"
        source = Source(EDITED, f"from {source}, weights {model.fingerprint[:8]}")
    new = fingerprint(weights)
    changed = replace(model, name=name, source=source, weights=weights, fingerprint=new)
    known = vars(model)
    vars(changed).update({name: known[name] for name in _SHARED if name in known})
    if "blocks" in known:
        vars(changed)["blocks"] = tuple(
            read_layer(changed, layer) if layer in changes else block
            for layer, block in enumerate(model.blocks)
        )
    return changed
