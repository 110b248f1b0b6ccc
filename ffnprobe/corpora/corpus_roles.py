"""Roles of neurons that only a corpus shows: the first that fits.

    dead         never above zero
    positional   its position explains its activation, or its label is a position
    token        its label is a token, or a class of tokens
    n-gram       its label looks at tokens before the current one
    frequency    its answer goes with how frequent tokens are

A token, an n-gram or a position counts where the store has labels and the neuron is explained. The
frequency of a token is log(1 + its count in the passages that the scan kept); the correlation is over
all tokens of the vocabulary, with w_n · u_t.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.corpora.kept import Kept
from ffnprobe.corpora.labels import DEAD, UNEXPLAINED, Labels
from ffnprobe.models.model import Model
from ffnprobe.reading.directions import pick_answers
from ffnprobe.reading.kinds import Thresholds
from ffnprobe.reading.spectrum import token_directions

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
