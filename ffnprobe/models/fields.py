"""The fields of a Hugging Face configuration, read with the words an error needs."""

from collections.abc import Mapping
from typing import Any

from ffnprobe.errors import ModelNotLoaded

ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu")
# Names of one function: all spellings stand in published configurations.
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}


class Fields:
    """A configuration's fields, read with the words an error needs."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def number(self, *names: str, default: int | None = None) -> int:
        """Return the first of these fields that is set, a positive whole number."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
            if value is not None:
                raise ModelNotLoaded(
                    f"{self.where}: {name} is {value!r}, not a positive whole number."
                )
        if default is None:
            raise ModelNotLoaded(f"{self.where} does not say {names[0]}.")
        return default

    def real(self, name: str, default: float) -> float:
        """Return a field as a float."""
        value = self.values.get(name)
        return default if value is None else float(value)

    def maybe(self, name: str) -> float | None:
        """Return a field as a float, None where it is not set."""
        value = self.values.get(name)
        return None if value is None else float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a field as a truth."""
        return bool(self.values.get(name, default))

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
        named = self.values.get(name) or default
        known = _SYNONYMS.get(named, named)
        if known not in ACTIVATIONS:
            raise ModelNotLoaded(
                f'{self.where}: activation function "{named}" is not one ffnprobe gets right.',
                remedy=f"a model with {', '.join(ACTIVATIONS)}",
            )
        return known
