"""The second moment of a layer's keys, C = E[kᵀ k]: which keys a corpus uses, so that edits spare them.

A key is what the neurons of a layer do at one token: their activations. C is over all tokens of a
corpus but BOS, `[neuron neuron]`, in float64. With it come the keys' means and the first tokens of a
few texts: the prefixes an edit is tried behind.

>>> import ffnprobe as fp
>>> moments = fp.scan_keys(fp.load("pocket"), {"one": "Tiger Woods plays golf"}, layers="2")
>>> moments.layers, moments.of(2).shape[0] == fp.load("pocket").config.d_mlp
((2,), True)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jaxtyping import Float, Float64
from torch import Tensor

from ffnprobe.corpora.passages import Done
from ffnprobe.editing.solves import find_free_space
from ffnprobe.errors import DataRefused
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class KeyMoments(Result):
    """The second moments of the keys of some layers, with the corpus they are over.

    >>> import ffnprobe as fp
    >>> moments = fp.scan_keys(fp.load("pocket"), {"one": "Tiger Woods plays golf"}, layers="2-3")
    >>> list(moments.table.columns)
    ['layer', 'tokens', 'mean_square', 'directions']
    """

    sums: Mapping[int, Float64[Tensor, "neuron neuron2"]]
    totals: Float64[Tensor, "layer neuron"]
    done: Done
    prefixes: tuple[tuple[int, ...], ...]
    provenance: Provenance
    is_finished: bool = True
    _found: dict[tuple[int, float], Tensor] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers measured, in order."""
        return tuple(self.sums)

    @property
    def title(self) -> str:
        """Name the model and the corpus."""
        part = "" if self.is_finished else ", not finished"
        return f"keys of {self.provenance.model}: {self.done.texts:,} texts, {self.done.tokens:,} tokens{part}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "directions: how many the keys use, (Σλ)² / Σλ² over the eigenvalues λ of their second moment"

    @property
    def table(self) -> "pd.DataFrame":
        """Each layer: the tokens, the mean square of a key's numbers, and how many directions it uses."""
        import pandas as pd

        rows = []
        for layer in self.layers:
            moment = self.of(layer)
            total = float(moment.trace())
            directions = total**2 / max(float((moment * moment).sum()), 1e-300)
            rows.append((layer, self.done.tokens, total / len(moment), directions))
        columns = ["layer", "tokens", "mean_square", "directions"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these moments holds."""
        return {"keys": self.table}

    def of(self, layer: int) -> Float64[Tensor, "neuron neuron2"]:
        """Return a layer's second moment, or say which layers were measured."""
        if layer not in self.sums:
            raise DataRefused(
                f"the keys of layer {layer} were not measured; {self._name_layers()} were.",
                remedy=f'scan_keys(model, texts, layers="{layer}")',
            )
        return self.sums[layer] / self.done.tokens

    def free(self, layer: int, share: float) -> Float64[Tensor, "neuron neuron2"]:
        """Return the projection onto what a layer's keys hardly use, found once."""
        if (layer, share) not in self._found:
            self._found[layer, share] = find_free_space(self.of(layer), share)
        return self._found[layer, share]

    def means(self, model: Model) -> Float[Tensor, "layer neuron"] | None:
        """Return every layer's mean activations, if all layers were measured."""
        if len(self.layers) < model.config.layers:
            return None
        return (self.totals / self.done.tokens).float()

    def check(self, model: Model) -> "KeyMoments":
        """Return these moments if they are of this model, or refuse to mix them."""
        if other := tell_apart(self.provenance.identity or "", model.identity):
            raise DataRefused(
                f"the keys were measured on a model with another {other} "
                f"({self.provenance.model} {self.provenance.fingerprint[:8]}, not {model.name} "
                f"{model.fingerprint[:8]}).",
                remedy=f"scan_keys({model.name}, texts)",
            )
        return self

    def check_solvable(self, layer: int) -> None:
        """Say why a layer's second moment cannot be inverted, if that is plain to see."""
        moment = self.of(layer)
        neurons, tokens = len(moment), self.done.tokens
        dead = int((moment.diagonal() == 0).sum())
        if tokens < neurons:
            raise DataRefused(
                f"the second moment of the keys of layer {layer} is singular: {tokens:,} tokens do "
                f"not span {neurons:,} neurons.",
                remedy=f"scan_keys over more text, {10 * neurons:,} tokens or more",
            )
        if dead:
            raise DataRefused(
                f"the second moment of the keys of layer {layer} is singular: {dead:,} of its neurons "
                "never opened.",
                remedy='more text, or method="alphaedit", which needs no inverse',
            )

    def _name_layers(self) -> str:
        return ", ".join(map(str, self.layers))
