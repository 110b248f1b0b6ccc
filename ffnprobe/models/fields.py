"""The fields of a Hugging Face configuration, read with the words an error needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ffnprobe.arguments import show
from ffnprobe.errors import ModelNotLoaded

# By layer, how far back attention sees; None: all the way.
Windows = tuple[int | None, ...]
# No published model comes near: what is larger is a mistake, and would be allocated before it shows.
MOST_LAYERS, MOST_WIDE, MOST_TOKENS = 10_000, 2**20, 2**26
ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu")
# Names of one function: all spellings stand in published configurations.
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}


@dataclass(frozen=True)
class Fields:
    """A configuration's fields, and where they stand."""

    values: Mapping[str, Any]
    where: str

    def _refused(self, name: str, why: str) -> ModelNotLoaded:
        return ModelNotLoaded(f"{self.where}: {name} is {show(self.values[name])}{why}")

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.number("n_layer", "num_hidden_layers", "num_layers", most=MOST_LAYERS)

    @property
    def d_model(self) -> int:
        """The width of the residual stream."""
        return self.number("n_embd", "hidden_size")

    @property
    def heads(self) -> int:
        """How many heads ask."""
        return self.number("n_head", "num_attention_heads", "num_heads")

    def number(self, *names: str, default: int | None = None, most: int = MOST_WIDE) -> int:
        """Return what one of these names of a field says, a positive whole number up to a bound."""
        said = {name: self.values[name] for name in names if self.values.get(name) is not None}
        for name, value in said.items():
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise self._refused(name, ", not a positive whole number.")
            if value > most:
                raise self._refused(name, f"; ffnprobe reads at most {most:,}.")
        if len({*said.values()}) > 1:
            listed = " and ".join(f"{name} is {value}" for name, value in said.items())
            raise ModelNotLoaded(
                f"{self.where}: {listed}, which name one thing.",
                remedy="the right one of them alone",
            )
        found: int | None = next(iter(said.values()), default)
        if found is None:
            raise ModelNotLoaded(f"{self.where} does not say {names[0]}.")
        return found

    def real(self, name: str, default: float) -> float:
        """Return a field as a positive float."""
        return self.maybe(name) or default

    def maybe(self, name: str, default: float | None = None) -> float | None:
        """Return a field as a positive float, None where it is set to null."""
        value = self.values.get(name, default)
        if value is None:
            return None
        is_real = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_real or not 0 < value < math.inf:
            raise self._refused(name, ", not a positive number.")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a field as a truth."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._refused(name, ", not true or false.")
        return value

    def windows(self, name: str, kinds: object, known: Mapping[str, int | None]) -> Windows:
        """Return each layer's window, by the kind that a field names it."""
        named = kinds if isinstance(kinds, list) else []
        if len(named) != self.layers or not all(kind in list(known) for kind in named):
            raise ModelNotLoaded(f"{self.where}: {name} do not name {self.layers} layers.")
        return tuple(known[kind] for kind in named)

    def need(self, name: str, wanted: Any) -> None:
        """Refuse a field set to what is not proven right."""
        value = self.values.get(name, wanted)
        if value != wanted:
            raise ModelNotLoaded(
                f"{self.where}: {name} is {value!r}, which ffnprobe is not proven to get right.",
                remedy=f"a model with {name} {wanted!r}",
            )

    def activation(self, name: str, default: str) -> str:
        """Return the activation function's name in our words."""
        named = str(self.values.get(name) or default)
        known = _SYNONYMS.get(named, named)
        if known not in ACTIVATIONS:
            raise ModelNotLoaded(
                f'{self.where}: activation function "{named}" is not one ffnprobe gets right.',
                remedy=f"a model with {', '.join(ACTIVATIONS)}",
            )
        return known
