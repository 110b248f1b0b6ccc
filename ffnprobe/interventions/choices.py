"""What a user may choose to change: which positions, which neurons, and what stands in for them."""

from collections.abc import Iterable, Sequence

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Means, Model
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Setting
from ffnprobe.tracing.trace import Trace

Positions = int | Sequence[int] | str
Replace = str | Float[Tensor, "layer neuron"] | Means
Neurons = Iterable[str | NeuronId]


def choose_positions(trace: Trace, position: Positions) -> list[int]:
    """Return plain positions in order: of one, of several, or `all` (BOS included)."""
    if isinstance(position, str):
        if position != "all":
            raise OptionRefused(
                f'"{position}" is not a position.',
                remedy='a number (-1 is the last), several, or "all"',
            )
        return list(range(len(trace)))
    several = list(position) if isinstance(position, Iterable) else [position]
    if not several:
        raise OptionRefused("there is no position to change.", remedy="-1 is the last")
    return sorted({trace.at(int(one)) for one in several})


def split_positions(
    names: Neurons | None, position: Positions
) -> tuple[Sequence[str] | None, Positions]:
    """Take the position that names carry (`L3N12@2`) from them; all of them must carry the same."""
    if names is None:
        return None, position
    pairs = [split_position(str(name)) for name in names]
    found = {at for _, at in pairs}
    if found <= {None}:
        return [name for name, _ in pairs], position
    if len(found) > 1:
        raise OptionRefused(
            "the neurons named are at several positions, and each is removed by itself at one.",
            remedy="one position at a time, or together",
        )
    if position not in (-1, *found):
        raise OptionRefused(
            "the names carry another position than the one asked for.", remedy="one of the two"
        )
    return [name for name, _ in pairs], int(str(found.pop()))


def choose_neurons(model: Model, neurons: Neurons | None) -> Bool[Tensor, "layer neuron"]:
    """Mark the neurons named (`L3N12`, `L3`, `L3N5-L3N9`), or every neuron."""
    c = model.config
    if neurons is None:
        return torch.ones(c.layers, c.d_mlp, dtype=torch.bool)
    names = model.find_neurons(neurons)
    if not names:
        raise OptionRefused("no neuron is named.", remedy="L3N12, or leave it out for all")
    marked = torch.zeros(c.layers, c.d_mlp, dtype=torch.bool)
    marked[[name.layer for name in names], [name.neuron for name in names]] = True
    return marked


def choose_replacement(model: Model, replace: Replace) -> Float[Tensor, "layer 1 neuron"]:
    """Return what replaces the activations: zeros, means (the model's, a scan's), a tensor."""
    c = model.config
    if isinstance(replace, Means):
        if other := tell_apart(replace.identity, model.identity):
            is_other = other.startswith("weights")
            words = "other weights" if is_other else f"a model with another {other}"
            raise OptionRefused(
                f"the means are of {words} ({replace.identity[:8]}, not {model.identity[:8]}).",
                remedy=f"scan the texts with {model.name}",
            )
        replace = replace.activations
    if isinstance(replace, str):
        if replace == "zero":
            return torch.zeros(c.layers, 1, c.d_mlp)
        if replace != "mean":
            raise OptionRefused(
                f'"{replace}" cannot replace an activation.', remedy="zero, mean, or a tensor"
            )
        means = model.means
        if means is None:
            raise OptionRefused(
                f"{model.name} has no activation means: they are measured over a corpus.",
                remedy="ffnprobe scan, then --store (in Python replace=scan.means); or zero",
            )
        replace = means
    if tuple(replace.shape) != (c.layers, c.d_mlp):
        raise OptionRefused(
            f"the replacement is {list(replace.shape)}; {model.name} has "
            f"{c.layers} layers × {c.d_mlp} neurons.",
        )
    if not replace.isfinite().all():
        raise OptionRefused("the replacement holds activations that are not numbers (NaN or inf).")
    return rearrange(replace.detach().cpu(), "layer neuron -> layer 1 neuron")


def usual_replacement(model: Model, replace: Replace | None) -> Replace:
    """Return what was asked for; by default the model's means where they are known, else zero."""
    if replace is not None:
        return replace
    return "zero" if model.means is None else "mean"


def name_replacement(replace: Replace) -> dict[str, Setting]:
    """Say what replaced the activations, as settings of a provenance."""
    if isinstance(replace, Means):
        return {"replace": "mean", "over": replace.corpus}
    return {"replace": replace if isinstance(replace, str) else "a given tensor"}
