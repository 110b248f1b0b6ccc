"""One published result: its name, what it is of, and what a search finds it by."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import xxhash

from ffnprobe.provenance import Provenance
from ffnprobe.results import TableSet

LONGEST_NAME = 60
# Of a survey not every neuron is listed in the index.
NEURONS = 200


@dataclass(frozen=True)
class Entry:
    """What the index says of a result."""

    name: str
    title: str
    kind: str
    asked: str
    rows: int
    neurons: tuple[str, ...]

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> "Entry":
        """Read what `as_dict` wrote."""
        return cls(**known | {"neurons": tuple(known["neurons"])})

    def as_dict(self) -> dict[str, Any]:
        """List what is known as plain data."""
        return vars(self) | {"neurons": list(self.neurons)}


def describe(held: TableSet, data: bytes) -> Entry:
    """Describe the tables of a result; its name is made from their JSON."""
    # The same result has the same name, whoever publishes it.
    digest = xxhash.xxh3_64_hexdigest(data)
    words = re.sub(r"[^a-z0-9]+", "-", held.title.lower()).strip("-")[:LONGEST_NAME].strip("-")
    return Entry(
        name=f"{words or 'result'}-{digest[:8]}",
        title=held.title,
        kind=held.kind,
        asked=name_asked(held.provenance),
        rows=len(held.table),
        neurons=tuple(_list_neurons(held.named.values())),
    )


def name_asked(known: Provenance) -> str:
    """Say what was asked: the prompt and the answer, or the tokens, or nothing."""
    if known.prompt is None:
        return " ".join(known.tokens or ())
    return known.prompt if known.answer is None else f"{known.prompt} → {known.answer}"


def _list_neurons(tables: Iterable[pd.DataFrame]) -> list[str]:
    """List the neurons that tables name, each once, in order."""
    named = [name for table in tables if "name" in table for name in table["name"].tolist()]
    return list(dict.fromkeys(str(name) for name in named))[:NEURONS]
