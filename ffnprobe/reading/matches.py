"""What a match of two models has found: which neurons of one have a twin in the other."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ffnprobe.provenance import Provenance
from ffnprobe.reading.ordering import check_top
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Match(Result):
    """Every neuron of a model with the neuron of another that answers most like it.

    A neuron has a twin (`is_twin`) if each is the other's best and their correlation is larger than any
    that a neuron of its layer has with the control, as many random answers.

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> match = fp.match(model, model)
    >>> match.twins == model.config.neurons, match.by_layer().share.tolist()[:2]
    (True, [1.0, 1.0])
    """

    in_terminal: ClassVar = ("pairs", "layers")

    neurons: "pd.DataFrame"
    pairs: "pd.DataFrame"  # the best with their tokens
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.neurons)

    @property
    def other(self) -> str:
        """The name of the other model."""
        return str(self.provenance.settings["other"])

    @property
    def twins(self) -> int:
        """How many neurons have a twin."""
        return int(self.neurons.is_twin.sum())

    @property
    def title(self) -> str:
        """Say how many neurons of which model have a twin in which other."""
        return f"{self.twins:,} of {len(self):,} neurons of {self.provenance.model} have a twin in {self.other}"

    @property
    def caption(self) -> str:
        """How a twin is decided, and the settings."""
        known = self.provenance.settings
        return (
            "correlation of answers over the vocabulary; a twin is each other's best and above every "
            f"control of its layer; {self.other} has weights {str(known['other_identity'])[:8]}; "
            f"seed {known['seed']}"
        )

    @property
    def table(self) -> "pd.DataFrame":
        """The best pairs with their tokens, twins first."""
        return self.pairs

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables: the best pairs, every neuron, each layer."""
        return {"pairs": self.pairs, "neurons": self.neurons, "layers": self.by_layer()}

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` best pairs."""
        return self.pairs.head(check_top(top, len(self.pairs), of="pairs with tokens"))

    def by_layer(self) -> "pd.DataFrame":
        """Table each layer: its twins, their share, median correlation and control, largest control."""
        groups = self.neurons.groupby("layer")
        table = groups.agg(
            neurons=("neuron", "count"),
            twins=("is_twin", "sum"),
            share=("is_twin", "mean"),
            correlation=("correlation", "median"),
            control=("control", "median"),
            limit=("control", "max"),
        )
        return self.provenance.note(table.reset_index())
