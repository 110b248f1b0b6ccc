"""What a scan has found: every neuron's numbers over a corpus, and the corpus's own description.

>>> import ffnprobe as fp
>>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
>>> list(scan.by_layer().columns)
['layer', 'neurons', 'dead', 'position_only', 'firing_rate']
"""

import os
import tarfile
import tempfile
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ffnprobe.arguments import verb
from ffnprobe.corpora.kept import Kept, none_kept
from ffnprobe.corpora.passages import Done
from ffnprobe.corpora.states import SCAN, read_state
from ffnprobe.corpora.statistics import Statistics
from ffnprobe.errors import DataRefused
from ffnprobe.files import quote
from ffnprobe.models import pocket
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Means, Model
from ffnprobe.models.sources import Source
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.results import Result
from ffnprobe.store import open_store

if TYPE_CHECKING:
    import pandas as pd

# A neuron with more of its variance explained by position than this is position-only.
POSITION_ONLY = 0.9
# A scan of its own texts lies in the package with pocket; `analyses/pocket/pack_scan.py` packs it.
PACKED = pocket.FOLDER / "scan.tar.xz"


@dataclass(frozen=True, eq=False, repr=False)
class Scan(Result):
    """What a corpus showed of every neuron, with the description of the corpus.

    >>> import ffnprobe as fp
    >>> import tempfile
    >>> store = tempfile.mkdtemp() + "/scan"
    >>> done = fp.scan(fp.load("pocket"), {"one": "Tiger Woods plays golf"}, store=store)
    >>> fp.Scan.open(store).is_finished
    True
    """

    in_terminal: ClassVar = ("layers",)
    manifest: dict[str, Any]
    statistics: Statistics
    done: Done
    tokens: tuple[str, ...]
    is_finished: bool = True
    kept: Kept = field(default_factory=none_kept)
    folder: Path | None = None

    @classmethod
    @verb
    def open(cls, folder: str | os.PathLike[str]) -> "Scan":
        """Open a store; one that is not finished tells what it knows so far."""
        again = f"ffnprobe scan … --store {quote(folder)}"
        store = open_store(Path(folder), SCAN, remedy=again)
        found = read_state(store)
        if found is None:
            raise DataRefused(
                f"the scan in {folder} has finished no block yet.",
                remedy="the same scan again: it resumes",
            )
        state, tokens = found
        return cls(
            store.manifest, state.statistics, state.done, tokens, state.is_finished, state.kept,
            store.folder,
        )  # fmt: skip

    @property
    def title(self) -> str:
        """Name the model and the corpus."""
        return f"{self.manifest['model']['name']}: {self.corpus}"

    @property
    def corpus(self) -> str:
        """Describe the corpus in a line."""
        known = self.done
        part = "" if self.is_finished else ", not finished"
        return f"{known.texts:,} texts, {known.tokens:,} tokens ({known.digest[:8]}{part})"

    @property
    def provenance(self) -> Provenance:
        """The model, the corpus and the settings behind every number."""
        model, settings = self.manifest["model"], self.manifest["settings"]
        done = self.done
        known: dict[str, Setting] = {
            "texts": done.texts, "tokens": done.tokens, "digest": done.digest[:8],
            "context": settings["context"],
        }  # fmt: skip
        if not self.is_finished:
            known["finished"] = False
        return Provenance(
            model["name"], Source.from_dict(model["source"]), model["fingerprint"], model["identity"],
            bos=settings["bos"], run_by=model["run_by"], settings=known,
        )  # fmt: skip

    @cached_property
    def means(self) -> Means:
        """Every neuron's mean activation, to replace a neuron's own with."""
        means = self.statistics.moments.mean.float()
        return Means(means, self.manifest["model"]["identity"], self.corpus)

    def check(self, model: Model) -> "Scan":
        """Return this scan if it is of this model, or refuse to mix them."""
        known = self.manifest["model"]
        remedy = f"scan the texts with {model.name}"
        if known["fingerprint"] != model.fingerprint:
            raise DataRefused(
                f"the scan is of other weights: {known['name']} ({known['fingerprint'][:8]}), "
                f"not {model.name} ({model.fingerprint[:8]}).",
                remedy=remedy,
            )
        if other := tell_apart(known["identity"], model.identity):
            raise DataRefused(
                f"the scan is of {known['name']} with another {other}.", remedy=remedy
            )
        return self

    def find(self, name: str | NeuronId) -> NeuronId:
        """Return a neuron's name if the scan has it, or say what it has."""
        known = self.manifest["model"]
        found = name if isinstance(name, NeuronId) else NeuronId.parse(name)
        return found.check(layers=known["layers"], neurons=known["neurons"], model=known["name"])

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables: every neuron, and each layer."""
        return {"neurons": self.table, "layers": self.by_layer()}

    @property
    def table(self) -> "pd.DataFrame":
        """Every neuron: mean and shape of its activations, firing rate, dead, position-only."""
        facts, moments = self.statistics, self.statistics.moments
        layers, neurons = facts.above.shape
        names = [NeuronId(layer, neuron) for layer in range(layers) for neuron in range(neurons)]
        columns = {
            "mean_activation": moments.mean,
            "activation_variance": moments.variance,
            "activation_skew": moments.skew,
            "activation_kurtosis": moments.kurtosis,
            "firing_rate": facts.firing_rate,
            "position_share": facts.position_share,
            "is_dead": facts.above == 0,
            "is_position_only": facts.position_share > POSITION_ONLY,
        }
        return self.provenance.note(list_neurons(None, names, columns))

    def by_layer(self) -> "pd.DataFrame":
        """Table each layer: how many neurons, dead and position-only ones, the mean firing rate."""
        neurons = self.table
        layers = (
            neurons.groupby("layer")
            .agg(
                neurons=("neuron", "count"),
                dead=("is_dead", "sum"),
                position_only=("is_position_only", "sum"),
                firing_rate=("firing_rate", "mean"),
            )
            .reset_index()
        )
        return self.provenance.note(layers)


def embedded_scan(model: Model) -> Scan | None:
    """Return the scan in the package if it is of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        return _unpack(PACKED).check(model)
    except DataRefused:
        return None


@cache
def _unpack(packed: Path) -> Scan:
    # Its tensors are mapped from the file; where files in use cannot be removed, it stays.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with tarfile.open(packed) as members:
            members.extractall(folder, filter="data")
        return Scan.open(folder)
