"""Names of neurons: `L3N12` is neuron 12 of layer 3, both counted from 0.

A name may also stand for several: `L3` for a whole layer, `L3-L5` for layers, `L3N5-L3N9` (or
`L3N5-9`) for a run of neurons within a layer. On a prompt `L3N12@2` is the neuron at position 2.

>>> print(NeuronId.parse("L3N12"))
L3N12
>>> [str(name) for name in expand("L1N2-L1N4", layers=2, neurons=8)]
['L1N2', 'L1N3', 'L1N4']
"""

import re
from dataclasses import dataclass

from ffnprobe.errors import NameNotUnderstood

FORMS = 'a neuron is "L3N12", a layer "L3", a range "L3N5-L3N9" or "L3-L5"'
# No model has a trillion of anything; longer numbers are not names.
_NEURON = re.compile(r"L(\d{1,12})N(\d{1,12})", re.ASCII)
_LAYER = re.compile(r"L(\d{1,12})", re.ASCII)
_LAYERS = re.compile(r"L?(\d{1,12})(?:-L?(\d{1,12}))?", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)


@dataclass(frozen=True, order=True)
class NeuronId:
    """One neuron: its layer and its number within the layer.

    >>> import ffnprobe as fp
    >>> fp.NeuronId.parse("L3N12").neuron
    12
    """

    layer: int
    neuron: int

    def __str__(self) -> str:
        return f"L{self.layer}N{self.neuron}"

    @classmethod
    def parse(cls, text: str) -> "NeuronId":
        """Read `L3N12`, or say what a name looks like."""
        match = _NEURON.fullmatch(text.strip())
        if match is None:
            raise NameNotUnderstood(f'"{text}" is not the name of a neuron.', remedy=FORMS)
        return cls(int(match[1]), int(match[2]))

    def check(self, *, layers: int, neurons: int, model: str = "this model") -> "NeuronId":
        """Return this name if the model has such a neuron, or say what it has."""
        check_layer(self.layer, layers=layers, named=str(self), model=model)
        if self.neuron >= neurons:
            raise NameNotUnderstood(
                f"{self}: {model} has neurons L{self.layer}N0–L{self.layer}N{neurons - 1}."
            )
        return self


Site = tuple[NeuronId, int]  # a neuron, at a position of a prompt


def split_position(text: str) -> tuple[str, int | None]:
    """Split a name from the position it carries, if it does.

    >>> split_position("L3N12@2"), split_position("L3N12")
    (('L3N12', 2), ('L3N12', None))
    """
    name, at, position = text.partition("@")
    if at and not _NUMBER.fullmatch(position):
        remedy = "L3N12@2 is L3N12 at position 2"
        raise NameNotUnderstood(f'"{text}" has no position behind the @.', remedy=remedy)
    return name, int(position) if at else None


def check_layer(layer: int, *, layers: int, named: str, model: str = "this model") -> int:
    """Return the layer's number if the model has it, or say which layers it has."""
    if not 0 <= layer < layers:
        raise NameNotUnderstood(f"{named}: {model} has layers L0–L{layers - 1}.")
    return layer


def expand(text: str, *, layers: int, neurons: int, model: str = "this model") -> list[NeuronId]:
    """List the neurons that a name, a layer or a range stands for."""
    first, _, last = (part.strip() for part in text.partition("-"))
    if "-" in text and not last:
        raise NameNotUnderstood(f'"{text}" is a range without an end.', remedy=FORMS)
    if _NEURON.fullmatch(first):
        start = NeuronId.parse(first).check(layers=layers, neurons=neurons, model=model)
        if not last:
            return [start]
        stop = NeuronId(start.layer, int(last)) if _NUMBER.fullmatch(last) else NeuronId.parse(last)
        stop.check(layers=layers, neurons=neurons, model=model)
        if stop.layer != start.layer:
            remedy = f"L{start.layer}-L{stop.layer}"
            raise NameNotUnderstood(f'"{text}" runs over two layers.', remedy=remedy)
        if stop < start:
            raise NameNotUnderstood(f'"{text}" is empty: it ends before it begins.')
        return [NeuronId(start.layer, n) for n in range(start.neuron, stop.neuron + 1)]
    if not _LAYER.fullmatch(first):
        raise NameNotUnderstood(f'"{text}" is not the name of a neuron.', remedy=FORMS)
    chosen = expand_layers(text, layers=layers, model=model)
    return [NeuronId(layer, neuron) for layer in chosen for neuron in range(neurons)]


def expand_layers(text: str, *, layers: int, model: str = "this model") -> list[int]:
    """List the layers in `3`, `L3`, `3-5` or `L3-L5`, or several of these with commas between.

    >>> expand_layers("0,L2-L3", layers=6)
    [0, 2, 3]
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = _LAYERS.fullmatch(part.strip())
        if match is None:
            remedy = '"3", "3-5" or "0,3-5"'
            raise NameNotUnderstood(f'"{part}" is not a layer or a range of layers.', remedy=remedy)
        start = int(match[1])
        stop = int(match[2]) if match[2] else start
        if stop < start:
            raise NameNotUnderstood(f'"{part}" is empty: it ends before it begins.')
        for layer in (start, stop):
            check_layer(layer, layers=layers, named=f"L{layer}", model=model)
        chosen.update(range(start, stop + 1))
    return sorted(chosen)
