"""Join a scan's numbers with other tables of neurons.

Roles of neurons that only a corpus shows: the first that fits.

    dead         never above zero
    positional   its position explains its activation, or its label is a position
    token        its label is a token, or a class of tokens
    n-gram       its label looks at tokens before the current one
    frequency    its answer goes with how frequent tokens are

A token, an n-gram or a position counts where the store has labels and the neuron is explained. The
frequency of a token is log(1 + its count in the passages that the scan kept); the correlation is over
all tokens of the vocabulary, with w_n · u_t.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.corpora.contexts import examples, quote
from ffnprobe.corpora.kept import Kept
from ffnprobe.corpora.labels import DEAD, UNEXPLAINED, Labels
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.stored_labels import find_labels
from ffnprobe.models.model import Model
from ffnprobe.reading.directions import pick_answers
from ffnprobe.reading.kinds import Thresholds
from ffnprobe.reading.neuron_tables import order_columns
from ffnprobe.reading.spectrum import token_directions
from ffnprobe.reading.surveys import Survey

if TYPE_CHECKING:
    import pandas as pd


CORPUS_ROLES = ("dead", "positional", "token", "n-gram", "frequency")
_CONTEXTUAL = ("starts of sentences", "repeated tokens")


def correlate_frequency(model: Model, kept: Kept, layer: int) -> Float[Tensor, " neuron"]:
    """Correlate each answer of a layer, as it reaches the tokens, with their log frequency."""
    counts = torch.bincount(kept.ids.long(), minlength=model.config.vocab)
    wanted = torch.log1p(counts.double())
    off = (wanted - wanted.mean()).to(model.unembedding)
    toward = einsum(off, model.unembedding, "vocab, vocab d_model -> d_model") / len(off)
    answers = pick_answers(model, layer)
    covariance = einsum(answers, toward, "neuron d_model, d_model -> neuron")
    spreads = token_directions(model).unembedding.spreads(answers) * float(wanted.std(correction=0))
    return torch.where(spreads > 0, covariance / spreads, 0.0).clamp(-1, 1)


def name_corpus_roles(
    table: "pd.DataFrame", labels: Labels | None, thresholds: Thresholds
) -> list[str]:
    """Name the role of each neuron of a survey joined with a scan; nothing where none fits."""
    kinds = np.full(len(table), "", dtype=object)
    if labels is not None:
        kinds = table.name.map(_kinds(labels)).fillna("").to_numpy()
    frequency = table.get("frequency", np.zeros(len(table)))
    tests = (
        table.is_dead,
        (table.position_share > thresholds.position) | (kinds == "positional"),
        kinds == "token",
        kinds == "n-gram",
        np.abs(frequency) >= thresholds.frequency,
    )
    names = np.select([np.asarray(test) for test in tests], CORPUS_ROLES, default="")
    return [str(name) for name in names]


def _kinds(labels: Labels) -> dict[str, str]:
    """Say of each explained neuron what its rule looks at."""
    c = labels.columns
    rows = zip(c["name"], c["label"], c["rule_kind"], c["opens"], strict=True)
    return {
        str(name): _looks_at(str(kind), str(opens))
        for name, label, kind, opens in rows
        if label not in (DEAD, UNEXPLAINED)
    }


def _looks_at(kind: str, opens: str) -> str:
    if kind == "position":
        return "positional"
    if kind == "token" or (kind == "class" and opens not in _CONTEXTUAL):
        return "token"
    return "n-gram"


def join_survey(survey: Survey, scan: Scan, model: Model, thresholds: Thresholds) -> Survey:
    """Add each neuron's moments, firing rate, dead and position-only, its role, and its label."""
    fired = scan.table.drop(columns=["layer", "neuron"])
    table = survey.table.merge(fired, on="name", how="left")
    if len(scan.kept):
        found = [correlate_frequency(model, scan.kept, layer).cpu() for layer in survey.layers]
        table["frequency"] = torch.cat(found).double().numpy()
    labels = find_labels(model, scan)
    table["corpus_role"] = name_corpus_roles(table, labels, thresholds)
    provenance = survey.provenance.including(scan=dict(scan.provenance.settings))
    return Survey(provenance.note(join_labels(table, labels)), provenance)


def join_labels(table: "pd.DataFrame", labels: Labels | None) -> "pd.DataFrame":
    """Add each neuron's label with its score as a last column; without labels, nothing."""
    if labels is None:
        return table
    return labels.join(table)


def join_examples(neurons: "pd.DataFrame", scan: Scan) -> "pd.DataFrame":
    """Add the corpus's mean of each neuron, and its strongest example."""
    found = [examples(scan, name, 1) for name in neurons.name]
    quoted = [quote(each.strongest[0]) if each.strongest else "" for each in found]
    means = [each.mean for each in found]
    return order_columns(neurons.assign(mean_activation=means, strongest_example=quoted))


def table_examples(scan: Scan, names: Sequence[str], *, top: int) -> "pd.DataFrame":
    """Table several neurons' examples, at most `top` on each side, one row each."""
    import pandas as pd

    tables = [examples(scan, name).rows(top) for name in names]
    return scan.provenance.note(pd.concat(tables, ignore_index=True))
