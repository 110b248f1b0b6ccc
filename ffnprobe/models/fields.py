"""The fields of a Hugging Face configuration, read with the words an error needs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ffnprobe.arguments import show
from ffnprobe.errors import ModelNotLoaded

ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu")
# Names of one function: all spellings stand in published configurations.
# No published model comes near: what is larger is a mistake, and would be allocated before it shows.
MOST_LAYERS, MOST_WIDE, MOST_TOKENS = 10_000, 2**20, 2**26
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}


class Fields:
    """A configuration's fields, read with the words an error needs."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def number(self, *names: str, default: int | None = None, most: int = MOST_WIDE) -> int:
        """Return the first of these fields that is set, a positive whole number up to a bound."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                if value > most:
                    raise ModelNotLoaded(
                        f"{self.where}: {name} is {show(value)}; ffnprobe reads at most {most:,}."
                    )
                return value
            if value is not None:
                raise ModelNotLoaded(
                    f"{self.where}: {name} is {show(value)}, not a positive whole number."
                )
        if default is None:
            raise ModelNotLoaded(f"{self.where} does not say {names[0]}.")
        return default

    def real(self, name: str, default: float) -> float:
        """Return a field as a positive float."""
        value = self.maybe(name)
        return default if value is None else value

    def maybe(self, name: str, default: float | None = None) -> float | None:
        """Return a field as a positive float, None where it is set to null."""
        value = self.values.get(name, default)
        if value is None:
            return None
        is_real = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_real or not 0 < value < math.inf:
            raise ModelNotLoaded(f"{self.where}: {name} is {show(value)}, not a positive number.")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a field as a truth."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ModelNotLoaded(f"{self.where}: {name} is {show(value)}, not true or false.")
        return value

    def kinds(self, name: str, allowed: Sequence[str], count: int) -> list[str] | None:
        """Return a field that names a kind for each layer, None where it is not set."""
        value = self.values.get(name)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != count
            or not all(k in allowed for k in value)
        ):
            raise ModelNotLoaded(f"{self.where}: {name} do not name {count} layers.")
        return value

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
