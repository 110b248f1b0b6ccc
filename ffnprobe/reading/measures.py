"""The numbers of a neuron that its weights alone decide, and the table of them.

    question_norm, answer_norm   |q_n|, |w_n|
    question_bias                c_n, the score where x̂ is zero
    reads_writes                 cos(q_n, w_n): near −1 a neuron erases what it asks for
    role                         strengthens, translates or erases: a reading of that number
    vocab_mean … vocab_kurtosis  moments over tokens of cos(w_n, u_t)
    null_space                   share of the answer's norm the unembedding barely reads
    kind                         a label for these numbers
    gate_norm, gate_bias         |g_n| and the gate's score where x̂ is zero, where neurons have gates
    gate_cosine                  cos(g_n, q_n): near 1 a gate asks what the question asks
    gate_writes                  cos(g_n, w_n): near 1 the answer is what the gate asks for

Moments are those of the population, as scipy's `moment`, `skew` and `kurtosis(fisher=False)`: a
normal distribution has kurtosis 3. A token or an answer without length counts as cosine 0; where all
cosines are equal skew and kurtosis are not defined (not a number).

The kind is the first that fits. The defaults of `Thresholds` follow published observations on GPT-2,
and other models may need others.

    entropy       a long answer of a late layer that lies in the unembedding's null space: it works
                  through the final scale, and its token lists mean nothing
    prediction    kurtosis above the threshold, skew positive: promotes a few tokens strongly
    suppression   kurtosis above the threshold, skew negative: suppresses a few tokens strongly
    partition     much variance, low kurtosis: pushes one large set of tokens against another
    unlabelled    none of these

The role is what a neuron does to what it reads. A gated neuron whose question and answer are both
negated is the same neuron, and its role is the same.

    strengthens   cos(question, answer) at least the threshold: it writes more of what it asks for
    erases        at most minus the threshold: it takes away what it asks for
    translates    in between: it writes something else

Token columns of a table are text, tokens in their shown form with a space between: no shown token
holds a space, so `.str.split(" ")` gives the list back from every file format.

>>> numbers = dict(null_space=0.1, relative_norm=1.0, depth=0.5, d_model=768)
>>> moments = Moments(mean=0.0, variance=0.001, skew=2.0, kurtosis=11.0)
>>> [name_kind(moments, thresholds=Thresholds(kurtosis=k), **numbers) for k in (10, 12)]
['prediction', 'unlabelled']
>>> [name_role(cosine) for cosine in (0.7, -0.7, 0.1)]
['strengthens', 'erases', 'translates']
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.projection import Directions, answer_readers, project_blocks
from ffnprobe.reading.spectrum import token_directions

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("entropy", "prediction", "suppression", "partition", "unlabelled")
ROLES = ("strengthens", "translates", "erases")
# Rows stay in a core's cache while moments are measured: 8 × 50,257 floats are 1.6 MB.
ROWS_IN_CACHE = 8


@dataclass(frozen=True)
class Thresholds:
    """Where one kind of neuron ends and another begins.

    kurtosis            prediction and suppression lie above it (a normal distribution has 3)
    null_space          entropy: the least share of the answer's norm in the null space; where the
                        null space is large (a vocabulary smaller than d_model) the share must also
                        be four standard deviations above that of a random direction
    relative_norm       entropy: the least norm, in medians of the answers of the layer
    late                entropy: the least depth (0 the first layer, 1 the last)
    variance            partition: the least variance, in units of 1/d_model, which is what
                        a random direction has
    partition_kurtosis  partition: the greatest kurtosis
    role                the least |cos(question, answer)| of a neuron that strengthens or erases
    frequency           the least |correlation| of an answer with the frequency of tokens
    position            positional: how much of the variance its position explains, above this

    >>> import ffnprobe as fp
    >>> fp.read(fp.load("pocket"), "L3N361", thresholds=fp.Thresholds(kurtosis=4))
    Reading(L3N361, prediction)
    """

    kurtosis: float = 10.0
    null_space: float = 0.35
    relative_norm: float = 1.25
    late: float = 0.75
    variance: float = 3.0
    partition_kurtosis: float = 4.0
    role: float = 0.5
    frequency: float = 0.5
    position: float = 0.9


@dataclass(frozen=True)
class Moments:
    """Mean, variance, skew and kurtosis of an answer's cosines with all tokens."""

    mean: float
    variance: float
    skew: float
    kurtosis: float


def name_kind(
    moments: Moments,
    *,
    null_space: float,
    relative_norm: float,
    depth: float,
    d_model: int,
    null_part: float = 1 / 64,  # of all directions, those of the null space
    thresholds: Thresholds | None = None,
) -> str:
    """Name the kind of a neuron; numbers that are not defined fit no kind."""
    t = Thresholds() if thresholds is None else thresholds
    # The share that a random direction stays under: four standard deviations up.
    deviation = math.sqrt(2 * null_part * (1 - null_part) / d_model)
    chance = math.sqrt(min(1.0, null_part + 4 * deviation))
    is_long_and_late = relative_norm >= t.relative_norm and depth >= t.late
    if is_long_and_late and null_space >= max(t.null_space, chance):
        return "entropy"
    if moments.kurtosis > t.kurtosis:
        return "prediction" if moments.skew > 0 else "suppression"
    if moments.variance * d_model >= t.variance and moments.kurtosis <= t.partition_kurtosis:
        return "partition"
    return "unlabelled"


def name_role(reads_writes: float, thresholds: Thresholds | None = None) -> str:
    """Name the role of a neuron; a neuron without a question or an answer has none."""
    least = (Thresholds() if thresholds is None else thresholds).role
    if math.isnan(reads_writes):
        return ""
    if abs(reads_writes) < least:
        return "translates"
    return "strengthens" if reads_writes > 0 else "erases"


@dataclass(frozen=True)
class GateMeasures:
    """The numbers of a neuron's gate."""

    norm: float
    bias: float
    cosine: float
    writes: float


@dataclass(frozen=True)
class Measures:
    """The numbers of one neuron."""

    name: str
    layer: int
    neuron: int
    kind: str
    question_norm: float
    question_bias: float
    answer_norm: float
    reads_writes: float
    role: str
    moments: Moments
    null_space: float
    gate_measures: GateMeasures | None


def project_measured(
    model: Model, answers: Float[Tensor, "row d_model"]
) -> Iterator[tuple[Float[Tensor, "block vocab"], list[Moments]]]:
    """Yield the products of unit answers with the tokens u_t a block at a time, and their moments."""
    directions = token_directions(model)
    norms = linalg.vector_norm(answers, dim=-1, keepdim=True)
    units = answers / torch.where(norms > 0, norms, 1.0)
    readers, tokens = answer_readers(model, units, convention="centred")
    means = readers @ directions.mean_unit_row
    per_token = 1 / torch.where(
        directions.unembedding_norms > 0, directions.unembedding_norms, torch.inf
    )
    for rows, dots in project_blocks(readers, tokens):
        yield dots, _measure_moments(dots, means[rows], per_token)


def _measure_moments(
    dots: Float[Tensor, "row vocab"],
    means: Float[Tensor, " row"],
    per_token: Float[Tensor, " vocab"],
) -> list[Moments]:
    """Measure moments from each row's products with the tokens and its mean cosine.

    Rows are of answers of length 1, so that a product over the token's norm is the cosine.
    """
    moments: list[Moments] = []
    for start in range(0, len(dots), ROWS_IN_CACHE):
        rows = slice(start, start + ROWS_IN_CACHE)
        away = torch.addcmul(-means[rows, None], dots[rows], per_token)
        squares, count = away.square(), away.shape[-1]
        # Not einsum: on CPU it multiplies rows by rows ten times slower than these do.
        variance = reduce(squares, "row vocab -> row", "mean").double()
        third = linalg.vecdot(squares, away).double() / count
        fourth = linalg.vector_norm(squares, dim=-1).double().square() / count
        columns = [means[rows], variance, third / variance**1.5, fourth / variance.square()]
        moments += [Moments(*row) for row in torch.stack(columns, dim=1).tolist()]
    return moments


def measure_neurons(
    model: Model, directions: Directions, moments: Sequence[Moments], thresholds: Thresholds
) -> list[Measures]:
    """Measure neurons of one layer whose moments are known."""
    question_norms = linalg.vector_norm(directions.questions, dim=-1)
    answer_norms = linalg.vector_norm(directions.answers, dim=-1)
    dots = einsum(directions.questions, directions.answers, "row d_model, row d_model -> row")
    spectrum = token_directions(model).unembedding
    cosines = dots / (question_norms * answer_norms)
    columns = [question_norms, directions.question_biases, answer_norms, cosines]
    rows = torch.stack([*columns, spectrum.null_shares(directions.answers)], dim=1).tolist()
    layer, d_model = directions.layer, model.config.d_model
    depth = layer / max(1, model.config.layers - 1)
    # Zero where most answers of a layer are nothing: then a norm is taken as it is.
    usual_norm = directions.median_answer_norm or 1.0
    gates = _measure_gates(directions, question_norms, answer_norms)
    measured = []
    for neuron, own, row, gate in zip(directions.neurons, moments, rows, gates, strict=True):
        question_norm, question_bias, answer_norm, reads_writes, null_space = row
        kind = name_kind(
            own, null_space=null_space, relative_norm=answer_norm / usual_norm, depth=depth,
            d_model=d_model, null_part=spectrum.weakest / d_model, thresholds=thresholds,
        )  # fmt: skip
        role = name_role(reads_writes, thresholds)
        measured.append(
            Measures(
                str(NeuronId(layer, neuron)), layer, neuron, kind, question_norm, question_bias,
                answer_norm, reads_writes, role, own, null_space, gate,
            )
        )  # fmt: skip
    return measured


def _measure_gates(
    directions: Directions,
    question_norms: Float[Tensor, " row"],
    answer_norms: Float[Tensor, " row"],
) -> Sequence[GateMeasures | None]:
    if directions.gates is None or directions.gate_biases is None:
        return [None] * len(directions.neurons)
    norms, pattern = linalg.vector_norm(directions.gates, dim=-1), "row d_model, row d_model -> row"
    reads = einsum(directions.gates, directions.questions, pattern) / (norms * question_norms)
    writes = einsum(directions.gates, directions.answers, pattern) / (norms * answer_norms)
    rows = torch.stack([norms, directions.gate_biases, reads, writes], dim=1).tolist()
    return [GateMeasures(*row) for row in rows]


def table_measures(
    measured: Sequence[Measures], lists: Mapping[str, Sequence[Sequence[str]]]
) -> "pd.DataFrame":
    """Table neurons, one row each, with the lists of tokens that stand for them."""
    import pandas as pd

    def column(name: str) -> list[object]:
        return list(map(attrgetter(name), measured))

    gates = ("norm", "bias", "cosine", "writes") if any(m.gate_measures for m in measured) else ()
    return pd.DataFrame(
        {name: column(name) for name in ("name", "layer", "neuron", "kind")}
        | {side: [" ".join(tokens) for tokens in rows] for side, rows in lists.items()}
        | {n: column(n) for n in ("question_norm", "question_bias", "answer_norm", "reads_writes", "role")}
        | {f"vocab_{n}": column(f"moments.{n}") for n in ("mean", "variance", "skew", "kurtosis")}
        | {"null_space": column("null_space")}
        | {f"gate_{name}": column(f"gate_measures.{name}") for name in gates}
    )  # fmt: skip
