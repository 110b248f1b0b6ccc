"""Match two models: which neurons of one have a twin in the other, by weights and by what they read.

Answers are compared over the vocabulary, which two models of different streams share; questions too,
through the token embeddings. With a scan of the same texts by each model, the pairs found are compared by
their activations as well: how many of their strongest examples are the same tokens, and the correlation
over the tokens drawn at random. Both are measured after the pair was chosen, so neither is the best of many.

A twin is a claim about answers. That two neurons say the same does not tell that they say it at the same
occasions; the columns of questions and activations do.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from ffnprobe.arguments import TOP, Argument, Option, Progress, Seed, verb
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.twins import Twins, align_vocabularies, find_twins
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.reading.projection import check_top, list_own_tokens, pick_rows
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd

TOKENS = 5


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
        settings = self.provenance.settings
        return (
            "correlation of answers over the vocabulary; a twin is each other's best and above every "
            f"control of its layer; {self.other} has weights {str(settings['other_identity'])[:8]}; "
            f"seed {settings['seed']}"
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


@verb
def match(
    model: Model,
    other: Annotated[Model, Argument("The other model: a name, a folder or a file.", str)],
    *,
    top: Annotated[int, TOP.but("How many pairs to show.")] = 10,
    seed: Seed = 0,
    scans: Annotated[
        Sequence[Scan] | None,
        Option(
            "A scan by each of the two models, of the same texts: two.",
            list[str] | None, name="store", metavar="DIR", is_local=True,
        ),
    ] = None,
    progress: Progress | None = None,
) -> Match:  # fmt: skip
    """Find neurons with the same answers in two models of one vocabulary, with a random control.

    For each neuron, the one of another model whose answer is most like it (universal neurons). Both models
    must have one vocabulary. `pairs` has the `top` best with their tokens, `neurons` all of them. `seed` is
    that of the random control. `scans` are one of each model, of the same texts; they add how alike the
    activations of each pair are.

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> fp.match(model, model, top=3)
    Match(... neurons of pocket have a twin in pocket)
    """
    if model.identity.split("-")[-1] != other.identity.split("-")[-1]:
        raise DataRefused(
            f"{model.name} and {other.name} have different vocabularies "
            f"({model.config.vocab:,} and {other.config.vocab:,} tokens): answers are compared token by token.",
            remedy=f"two models with the tokenizer of {model.name}",
        )
    check_top(top, model.config.neurons, of="neurons")
    scanned = None if scans is None else _check_scans(model, other, scans)
    twins = find_twins(model, other, seed=seed, progress=progress)
    neurons = _table(model, other, twins)
    if scanned is not None:
        _add_activations(neurons, *scanned, twins.numbers)
    settings: dict[str, Setting] = {
        "other": other.name, "other_source": str(other.source), "other_identity": other.identity, "seed": seed
    }  # fmt: skip
    if scanned is not None:
        settings["scans"] = scanned[0].corpus
    provenance = model.provenance(convention="centred", settings=settings)
    order = neurons.sort_values(["is_twin", "correlation"], ascending=False, kind="stable")
    best = order.head(top).drop(columns=["twin_layer", "is_mutual"]).reset_index(drop=True)
    pairs = best.assign(
        promotes=_list_tokens(model, best.name), twin_promotes=_list_tokens(other, best.twin)
    )
    return Match(provenance.note(neurons), provenance.note(pairs), provenance)


def _check_scans(model: Model, other: Model, scans: Sequence[Scan]) -> tuple[Scan, Scan]:
    """Refuse scans that are not one of each model, of the same tokens."""
    if len(scans) != 2:
        raise OptionRefused(
            f"scans = {len(scans)} scans: match takes one of each model.",
            remedy="scans=(one, other)",
        )
    one, two = scans[0].check(model), scans[1].check(other)
    mine, theirs = (
        [scan.done.digest, *map(scan.manifest["settings"].get, ("context", "bos", "top"))]
        for scan in (one, two)
    )
    if mine != theirs:
        raise DataRefused(
            f"the scans are of different texts or settings: {one.corpus} and {two.corpus}.",
            remedy="scan the same texts with both models, with the same options",
        )
    return one, two


def _table(model: Model, other: Model, twins: Twins) -> "pd.DataFrame":
    """Table every neuron of the model with its best counterpart."""
    c = model.config
    names = [NeuronId(*divmod(number, c.d_mlp)) for number in range(c.neurons)]
    counterparts = [NeuronId(*divmod(n, other.config.d_mlp)) for n in twins.numbers.tolist()]
    controls = rearrange(twins.controls.abs(), "(layer neuron) -> layer neuron", layer=c.layers)
    limits = controls.amax(dim=1).repeat_interleave(c.d_mlp)
    columns: dict[str, Values] = {
        "twin": [str(name) for name in counterparts],
        "twin_layer": [name.layer for name in counterparts],
        "correlation": twins.correlations.tolist(),
        "control": twins.controls.tolist(),
        "is_mutual": twins.is_mutual.tolist(),
        "is_twin": (twins.is_mutual & (twins.correlations.abs() > limits)).tolist(),
    }
    columns |= _compare_questions(model, other, twins.numbers)
    return list_neurons(model, names, columns)


def _compare_questions(model: Model, other: Model, numbers: Tensor) -> dict[str, list[float]]:
    """Correlate over tokens the questions (and gates) of each pair, through the embeddings."""
    alignment = align_vocabularies(model, other, by="question")
    sides = {"question_correlation": "question"}
    if model.config.is_gated and other.config.is_gated:
        sides["gate_correlation"] = "gate"
    correlations: dict[str, list[float]] = {name: [] for name in sides}
    for column, by in sides.items():
        theirs = torch.cat([pick_rows(other, layer, by=by) for layer in range(other.config.layers)])
        for layer, twins in enumerate(torch.split(numbers, model.config.d_mlp)):
            mine = pick_rows(model, layer, by=by)
            values = alignment.correlate(mine, theirs[twins].to(mine.device))
            correlations[column] += values.tolist()
    return correlations


def _list_tokens(model: Model, names: Iterable[str]) -> list[str]:
    """Write the tokens that each neuron's answer promotes most."""
    neurons = [NeuronId.parse(name) for name in names]
    return list(map(" ".join, list_own_tokens(model, neurons, min(TOKENS, model.config.vocab))))


def _add_activations(neurons: "pd.DataFrame", one: Scan, other: Scan, numbers: Tensor) -> None:
    """Add how alike each pair is over the texts of two scans."""
    ours, theirs = (_strongest(scan) for scan in (one, other))
    pairs = [(a, theirs[number]) for a, number in zip(ours, numbers.tolist(), strict=True)]
    neurons["shared_examples"] = [
        len(a & b) / max(len(a), len(b)) if a or b else math.nan for a, b in pairs
    ]
    here, there = (
        scan.statistics.sample.activations.flatten(0, 1).double() for scan in (one, other)
    )
    drawn = one.statistics.sample.texts >= 0
    neurons["activation_correlation"] = _correlate_rows(
        here[:, drawn].numpy(), there[numbers][:, drawn].numpy()
    ).tolist()


def _strongest(scan: Scan) -> list[frozenset[tuple[int, int]]]:
    """Return each neuron's strongest examples as texts and positions."""
    peaks = scan.statistics.strongest
    texts, positions = (each.flatten(0, 1).tolist() for each in (peaks.texts, peaks.positions))
    return [
        frozenset((t, p) for t, p in zip(*row, strict=True) if t >= 0)
        for row in zip(texts, positions, strict=True)
    ]


def _correlate_rows(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Correlate row by row; not a number where one does not vary."""
    here, there = (rows - rows.mean(axis=1, keepdims=True) for rows in (here, there))
    lengths = np.linalg.norm(here, axis=1) * np.linalg.norm(there, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(lengths > 0, (here * there).sum(axis=1) / lengths, np.nan)
