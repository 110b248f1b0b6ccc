"""Labels of neurons, with the evidence for each: what `label` returns and a store keeps.

Labels lie with a scan, as a part of its store, or in the package with the embedded model; they say which scan
and which settings they are of. While labelling is not finished, another part says how far it is; it is
removed at the end. Texts of a column lie in one tensor of bytes.

>>> from ffnprobe.labels.stored_labels import Label
>>> Label("L3N12", "numbers", 0.71, "numbers", 9.0, 5.5).describe()
'numbers (F1 0.71, gains 9 of 10)'
"""

import lzma
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models import pocket
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result
from ffnprobe.store import Part, Store, encode_part, read_part

if TYPE_CHECKING:
    import pandas as pd

UNEXPLAINED, DEAD = "unexplained", "dead"
LABELS, PARTIAL = "labels", "labels-partial"
PACKED = pocket.FOLDER / "labels.safetensors.xz"
# What is measured between two writes may be lost; a write takes seconds where there are many neurons.
SECONDS = 30.0


class Label(NamedTuple):
    """One neuron's label and its scores, as they are shown beside it."""

    name: str
    label: str
    f1: float
    opens: str
    output_gain: float
    output_gain_random: float

    def describe(self) -> str:
        """Write the label with its score, and the output test where it was made."""
        scores = [f"F1 {self.f1:.2f}"]
        if not math.isnan(self.output_gain):
            scores.append(f"gains {self.output_gain:.2g} of 10")
        return f"{self.label} ({', '.join(scores)})"


@dataclass(frozen=True, eq=False, repr=False)
class Labels(Result):
    """Neurons with a label each: `table` has one row a neuron, `by_layer()` one a layer.

    >>> import ffnprobe as fp
    >>> texts = {str(n): f"Tiger Woods plays golf and won {n} times" for n in range(24)}
    >>> model = fp.load("pocket")
    >>> labels = fp.label(model, fp.scan(model, texts), neurons="L0N0-L0N9")
    >>> len(labels), labels.top(1).columns[3]
    (10, 'label')
    """

    columns: Mapping[str, np.ndarray | list[str]]
    provenance: Provenance
    scan: Scan | None = None

    def __len__(self) -> int:
        return len(self.columns["layer"])

    @property
    def title(self) -> str:
        """Say how many neurons have a label, of which model."""
        return (
            f"{len(self):,} neurons of {self.provenance.model}: {self.explained:.1%} explained "
            f"(F1 at least {self.least:g})"
        )

    @property
    def least(self) -> float:
        """The F1 below which a neuron is unexplained."""
        return float(str(self.provenance.settings["least"]))

    @property
    def explained(self) -> float:
        """The share of neurons that are explained."""
        return float(np.mean(self._is_explained)) if len(self) else 0.0

    @property
    def _is_explained(self) -> np.ndarray:
        return np.array([text not in (UNEXPLAINED, DEAD) for text in self.columns["label"]])

    @property
    def caption(self) -> str:
        """How rules were found and scored."""
        return (
            "rules found on one half of the texts and scored on the other; strong: the "
            f"strongest {float(str(self.provenance.settings['share'])):.0%} of activations; look-up: the mean of the current token; "
            "shuffled: the same search on activations moved to other tokens"
        )  # fmt: skip

    @cached_property
    def table(self) -> "pd.DataFrame":
        """Every neuron: label, what opens it, what it says, and the scores of each."""
        import pandas as pd

        return self.provenance.note(pd.DataFrame(dict(self.columns)))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables: every neuron, and each layer."""
        return {"neurons": self.table, "layers": self.by_layer()}

    def top(self, top: int | None = 10, *, by: str = "f1") -> "pd.DataFrame":
        """Table the `top` neurons of largest value in a column, the best explained by default."""
        top = check_top(top, len(self), of="neurons labelled")
        numbers = self.table.select_dtypes("number").columns
        if by not in numbers:
            raise OptionRefused(f'labels have no numbers "{by}".', remedy=", ".join(numbers))
        return self.table.sort_values(by, ascending=False, kind="stable").head(top)

    def by_layer(self) -> "pd.DataFrame":
        """Table each layer: neurons, the share explained, the median F1, both controls, the outputs."""
        table = self.table.assign(is_explained=self._is_explained)
        layers = table.groupby("layer").agg(
            neurons=("neuron", "count"),
            explained=("is_explained", "mean"),
            f1=("f1", "median"),
            lookup_f1=("lookup_f1", "median"),
            shuffled_f1=("shuffled_f1", "median"),
            correlation=("correlation", "median"),
            output_gain=("output_gain", "mean"),
            output_gain_random=("output_gain_random", "mean"),
        )
        return self.provenance.note(layers.reset_index())

    @property
    def summary(self) -> str:
        """What was found over all layers, in words."""
        names = ("f1", "lookup_f1", "shuffled_f1", "output_gain", "output_gain_random")
        c = {name: np.asarray(self.columns[name], dtype=float) for name in names}
        controls = c["shuffled_f1"][~np.isnan(c["shuffled_f1"])]
        shuffled = f"{np.median(controls):.3f}" if len(controls) else "not among these neurons"
        return (
            f"{self.explained:.1%} of {len(self):,} neurons explained; median F1 {np.median(c['f1']):.3f}, "
            f"look-up {np.median(c['lookup_f1']):.3f}, shuffled {shuffled}; "
            f"of ten promoted tokens {np.mean(c['output_gain']):.1f} gain, under another neuron "
            f"{np.mean(c['output_gain_random']):.1f}"
        )

    def of(self, name: str) -> Label | None:
        """Return one neuron's label, None if it has none here."""
        row = self._rows.get(name)
        if row is None:
            return None
        columns = [self.columns[field] for field in Label._fields]
        values: list[Any] = [c[row] if isinstance(c, list) else float(c[row]) for c in columns]
        return Label(*values)

    def lookup(self, names: Sequence[str]) -> list[tuple[str, float]]:
        """Look up the labels and F1 of several neurons; no text for one without."""
        labels = [self.of(str(name)) for name in names]
        return [("", math.nan) if one is None else (one.label, one.f1) for one in labels]

    def join(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Add columns `label` and `label_f1` to a table of neurons, by name."""
        labels = self.lookup(table["name"].tolist())
        return table.assign(label=[text for text, _ in labels], label_f1=[f1 for _, f1 in labels])

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {str(name): row for row, name in enumerate(self.columns["name"])}

    def pick(self, names: Sequence[str]) -> "Labels":
        """Keep only some neurons."""
        rows = [self._rows[name] for name in names]
        columns: dict[str, Any] = {
            name: [column[row] for row in rows] if isinstance(column, list) else column[rows]
            for name, column in self.columns.items()
        }
        return Labels(columns, self.provenance, self.scan)


def join_labels(table: "pd.DataFrame", labels: Labels | None) -> "pd.DataFrame":
    """Add each neuron's label with its score as last columns; without labels, nothing."""
    return table if labels is None else labels.join(table)


class Partial:
    """How far labelling is, in a store or nowhere."""

    def __init__(self, store: Store | None, task: Mapping[str, Any]) -> None:
        self.store, self.task = store, dict(task)
        self._written = time.monotonic()

    def resume(self) -> tuple[str, int, dict[str, Tensor]]:
        """Return the stage, how much of it is done, and what is known; a beginning where nothing is."""
        part = None if self.store is None else self.store.read(PARTIAL)
        if part is not None:
            stage, done = part.said.pop("stage"), part.said.pop("done")
            if part.said == self.task:
                return stage, done, part.tensors
        return "first", 0, {}

    def save(self, stage: str, done: int, tensors: Mapping[str, Tensor]) -> None:
        """Write how far it is, unless that was done a moment ago."""
        if self.store is None or time.monotonic() - self._written < SECONDS:
            return
        self.store.write(PARTIAL, self.task | {"stage": stage, "done": done}, tensors)
        self._written = time.monotonic()


def write_labels(store: Store, labels: Labels, scan: Scan) -> None:
    """Keep the labels of a scan in its store, and forget how far labelling was."""
    store.write(LABELS, *_describe(labels, scan.done.digest))
    store.remove(PARTIAL)


def open_labels(scan: Scan) -> Labels | None:
    """Open the labels in the store of a scan, None if there are none or they are of another scan."""
    part = None if scan.folder is None else Store(scan.folder, scan.manifest).read(LABELS)
    if part is None or part.said["digest"] != scan.done.digest:
        return None
    return replace(_read_labels(part), scan=scan)


def find_labels(model: Model, scan: Scan | None) -> Labels | None:
    """Find the labels that go with a scan, or without one those in the package."""
    return embedded_labels(model) if scan is None else open_labels(scan)


def embedded_labels(model: Model) -> Labels | None:
    """Return the labels in the package if they are of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        labels = _unpack(PACKED)
    except DataRefused:
        return None
    return labels if labels.provenance.identity == model.identity else None


def pack(labels: Labels, target: Path) -> None:
    """Compress labels into a file; the same labels give the same bytes."""
    data = encode_part(*_describe(labels, digest=""))
    target.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


@cache
def _unpack(packed: Path) -> Labels:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / LABELS
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        return _read_labels(read_part(path))


def _describe(labels: Labels, digest: str) -> Part:
    """Write labels as a part: the scan's digest, the provenance, and the columns."""
    texts = [name for name, column in labels.columns.items() if isinstance(column, list)]
    origin = {
        "digest": digest, "provenance": labels.provenance.as_dict(),
        "order": list(labels.columns), "texts": texts,
    }  # fmt: skip
    return Part(origin, {name: _as_tensor(column) for name, column in labels.columns.items()})


def _read_labels(part: Part) -> Labels:
    columns: dict[str, np.ndarray | list[str]] = {}
    for name in part.said["order"]:
        values = part.tensors[name].numpy()
        is_text = name in part.said["texts"]
        columns[name] = values.tobytes().decode().split("\n") if is_text else values
    return Labels(columns, Provenance.from_dict(part.said["provenance"]))


def _as_tensor(column: np.ndarray | list[str]) -> Tensor:
    if isinstance(column, list):
        column = np.frombuffer("\n".join(column).encode(), dtype=np.uint8).copy()
    return torch.from_numpy(column)
