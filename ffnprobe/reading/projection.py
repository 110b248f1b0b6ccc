"""From neurons' weights to tokens: their directions, projected onto tokens, the largest listed in order.

Four conventions circulate for an answer w, and ranks differ between them:

    centred   w · u_t − mean over tokens (u_t: gain folded, centred over d_model); ours, the default
    gain      (γ_f ⊙ w) · W_U[:, t]
    raw       w · W_U[:, t]
    normed    LN_f(w) · W_U[:, t], with the final LayerNorm's gain and shift, as if w were the stream

A question q is projected on the token embeddings (`through="embed"`: q · W_E[t]) or on the folded
unembedding (`through="unembed"`: q · u_t). True to the letter only at layer 0: later layers read
what earlier layers wrote, not the bare embedding.

Where the final norm is an RMSNorm nothing is centred over d_model and there is no shift.

The gain is folded into the direction, not into the unembedding: w · u_t = (γ_f ⊙ (w − mean w)) ·
W_U[:, t], one row to fold instead of one for each token. A direction so prepared is a *reader*.

Equal values are ordered by layer, neuron and token id, so that a list is the same on every run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor, linalg

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise
from ffnprobe.names import NeuronId, Site

CONVENTIONS = ("centred", "gain", "raw", "normed")
THROUGH = ("embed", "unembed")
ROWS_AT_ONCE = 256
TOKENS_IN_GROUP = 128
# A token in its shown form, its id, and its value.
TokenValue = tuple[str, int, float]


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of neurons of one layer, a row each, folded for these neurons alone."""

    layer: int
    neurons: tuple[int, ...]
    questions: Float[Tensor, "row d_model"]
    question_biases: Float[Tensor, " row"]
    # None where neurons have no gates.
    gates: Float[Tensor, "row d_model"] | None
    gate_biases: Float[Tensor, " row"] | None
    answers: Float[Tensor, "row d_model"]
    # Of every neuron of the layer: how long an answer usually is there.
    median_answer_norm: float


def pick_directions(model: Model, layer: int, neurons: Sequence[int]) -> Directions:
    """Fold the questions of a layer's neurons and pick their answers."""
    answers, gates, gate_biases = model.answers_of(layer), None, None
    questions, biases = pick_questions(model, layer, neurons)
    if model.config.is_gated:
        gates, gate_biases = pick_questions(model, layer, neurons, by="gate")
    median = float(linalg.vector_norm(answers, dim=-1).median())
    return Directions(
        layer, tuple(neurons), questions, biases, gates, gate_biases, answers[list(neurons)], median
    )


def pick_questions(
    model: Model, layer: int, neurons: Sequence[int] | None = None, *, by: str = "question"
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, " row"]]:
    """Fold the questions (or gates), and their biases, of some of a layer's neurons, or of all."""
    part = model.layout.gate if by == "gate" else model.layout.up
    if part is None:
        raise OptionRefused(
            f"the neurons of {model.name} have no gates.", remedy="by question (--by question)"
        )
    rows = slice(None) if neurons is None else list(neurons)
    return model.fold(layer, model.layout.mlp_norm, part, rows)


def pick_rows(model: Model, layer: int, *, by: str) -> Float[Tensor, "neuron d_model"]:
    """Return one row for each of a layer's neurons: its `answer`, its `question` or its `gate`."""
    return model.answers_of(layer) if by == "answer" else pick_questions(model, layer, by=by)[0]


def gather(
    rows: Float[Tensor, "layer neuron d_model"], neurons: Sequence[NeuronId]
) -> Float[Tensor, "row d_model"]:
    """Pick the rows of the neurons named."""
    return rows[[name.layer for name in neurons], [name.neuron for name in neurons]]


def pick_read(
    model: Model, neurons: Sequence[NeuronId], *, by: str
) -> Float[Tensor, "row d_model"]:
    """Pick each neuron's answer, question or gate, as tokens are read off it: through the model's lens, if it has one."""
    rows = torch.empty(len(neurons), model.config.d_model, device=model.device)
    for layer in dict.fromkeys(name.layer for name in neurons):
        places = [place for place, name in enumerate(neurons) if name.layer == layer]
        own = [neurons[place].neuron for place in places]
        if by == "answer":
            picked = model.answers_of(layer)[own]
        else:
            picked, _ = pick_questions(model, layer, own, by=by)
        rows[places] = model.carry(layer, picked, by=by)
    return rows


def answer_readers(
    model: Model, answers: Float[Tensor, "row d_model"], *, convention: str
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, "vocab d_model"]]:
    """Return the two matrices whose product is the projection (before centring over tokens)."""
    if convention not in CONVENTIONS:
        raise OptionRefused(
            f'"{convention}" is not a convention of projection.', remedy=", ".join(CONVENTIONS)
        )
    if convention == "raw":
        return answers, model.head
    if convention == "gain":
        return answers * model.final_gain, model.head
    if convention == "centred":
        return model.centre(answers) * model.final_gain, model.head
    normed = normalise(model, answers) * model.final_gain
    shift = model.final_shift
    return normed if shift is None else normed + shift, model.head


def question_readers(
    model: Model, questions: Float[Tensor, "row d_model"], *, through: str
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, "vocab d_model"]]:
    """Return the two matrices whose product is the projection of questions."""
    if through not in THROUGH:
        raise OptionRefused(
            f'a question is not projected through "{through}".', remedy=", ".join(THROUGH)
        )
    if through == "embed":
        return questions, model.embedding
    return model.centre(questions) * model.final_gain, model.head


def project_blocks(
    readers: Float[Tensor, "row d_model"], tokens: Float[Tensor, "vocab d_model"]
) -> Iterator[tuple[slice, Float[Tensor, "block vocab"]]]:
    """Yield the product a few rows at a time, in one buffer that every step overwrites."""
    columns = rearrange(tokens, "vocab d_model -> d_model vocab")
    size = max(1, min(ROWS_AT_ONCE, len(readers)))
    buffer = torch.empty(size, len(tokens), device=tokens.device)
    for start in range(0, len(readers), size):
        rows = slice(start, min(start + size, len(readers)))
        yield rows, torch.matmul(readers[rows], columns, out=buffer[: rows.stop - start])


def check_top(top: int | None, most: int, *, of: str) -> int:
    """Refuse a number of rows that no table can have; None is all of them."""
    if top is None:
        return most
    if not 1 <= top <= most:
        raise OptionRefused(f"top = {top}: there are {most} {of}.", remedy=f"1 to {most}")
    return top


def sort_neurons(
    values: Float[Tensor, "layer neuron"], k: int, *, smallest: bool = False
) -> list[NeuronId]:
    """Name the k neurons of largest (or smallest) value, ties by layer and neuron."""
    return [name for name, _ in sort_sites(values[:, None], k, smallest=smallest)]


def sort_sites(
    values: Float[Tensor, "layer pos neuron"], k: int, *, smallest: bool = False
) -> list[Site]:
    """Name the k neurons at positions of largest (or smallest) value, ties by layer, position, neuron."""
    k = min(k, values.numel())
    (cells,) = top_tokens(values.ravel()[None], k, smallest=smallest)[1].tolist()
    return [name_site(cell, values.shape) for cell in cells]


def name_site(cell: int, shape: Sequence[int]) -> Site:
    """Turn an index into the flattened `[layer pos neuron]` into a neuron and a position."""
    rest, neuron = divmod(cell, shape[-1])
    layer, position = divmod(rest, shape[-2])
    return NeuronId(layer, neuron), position


def top_tokens(
    values: Float[Tensor, "row vocab"], k: int, *, smallest: bool = False
) -> tuple[Float[Tensor, "row k"], Int[Tensor, "row k"]]:
    """Find each row's k largest (or smallest) values and their token ids, ties by token id.

    Tokens are taken in groups. The k groups with the best members hold the k best tokens, so only
    these few groups (and the last, incomplete one) are looked at closely, not the vocabulary.
    """
    whole = values.shape[-1] // TOKENS_IN_GROUP * TOKENS_IN_GROUP
    if whole <= k * TOKENS_IN_GROUP:
        columns = _best_columns(values, k, smallest=smallest)
        return torch.take_along_dim(values, columns, dim=-1), columns
    groups = rearrange(
        values[:, :whole], "row (group token) -> row group token", token=TOKENS_IN_GROUP
    )
    best = reduce(groups, "row group token -> row group", "min" if smallest else "max")
    # In the order of their ids, so that the column of a candidate still breaks ties by token id.
    chosen = torch.sort(_best_columns(best, k, smallest=smallest), dim=-1).values[:, :, None]
    inside = torch.arange(TOKENS_IN_GROUP, device=values.device)
    ids = rearrange(chosen * TOKENS_IN_GROUP + inside, "row group token -> row (group token)")
    rest = torch.arange(whole, values.shape[-1], device=values.device).expand(len(values), -1)
    ids = torch.cat([ids, rest], dim=-1)
    candidates = torch.take_along_dim(values, ids, dim=-1)
    columns = _best_columns(candidates, k, smallest=smallest)
    values, ids = (torch.take_along_dim(each, columns, dim=-1) for each in (candidates, ids))
    return values, ids


def _best_columns(
    values: Float[Tensor, "row column"], k: int, *, smallest: bool
) -> Int[Tensor, "row k"]:
    """Find the columns of each row's k best values, the best first, ties by column."""
    more = min(k + 1, values.shape[-1])
    best = torch.topk(values, more, largest=not smallest)
    # Which of several equal values topk takes is left to chance. So sort them, and where the next
    # value is equal too, sort the whole row.
    columns = torch.sort(best.indices[:, :k], dim=-1).values
    in_order = torch.take_along_dim(values, columns, dim=-1)
    columns = torch.take_along_dim(columns, _order(in_order, smallest=smallest), dim=-1)
    if more > k:
        is_tied = best.values[:, k - 1] == best.values[:, k]
        columns[is_tied] = _order(values[is_tied], smallest=smallest)[:, :k]
    return columns


def _order(values: Float[Tensor, "row column"], *, smallest: bool) -> Int[Tensor, "row column"]:
    return torch.sort(values, dim=-1, descending=not smallest, stable=True).indices


def list_own_tokens(
    model: Model,
    neurons: Sequence[NeuronId],
    k: int,
    *,
    by: str = "answer",
    signs: Sequence[float] | None = None,
    smallest: bool = False,
) -> list[list[str]]:
    """List the k tokens, as shown, that stand for each neuron: promoted by its answer, or opening it.

    Of a neuron with a negative sign, those of its answer negated.
    """
    rows = pick_read(model, neurons, by=by)
    if signs is not None:
        signed = torch.tensor([-1.0 if sign < 0 else 1.0 for sign in signs], device=rows.device)
        rows = rows * signed[:, None]
    if by == "answer":
        readers = answer_readers(model, rows, convention="centred")
    else:
        readers = question_readers(model, rows, through="embed")
    return only_tokens(list_tokens(model, *readers, k, smallest=smallest))


def list_sides(
    model: Model,
    sides: Mapping[str, Float[Tensor, "row d_model"]],
    k: int,
    *,
    convention: str = "centred",
    through: str = "embed",
) -> dict[str, list[list[TokenValue]]]:
    """List what opens each `gate` and `question` given, and what each `answer` promotes and suppresses."""
    lists: dict[str, list[list[TokenValue]]] = {}
    for by in ("gate", "question"):
        if by in sides:
            readers = question_readers(model, sides[by], through=through)
            lists[f"{by}_tokens"] = list_tokens(model, *readers, k)
    lists |= {"promotes": [], "suppresses": []}
    answers, is_centred = sides["answer"], convention == "centred"
    for _, values in project_blocks(*answer_readers(model, answers, convention=convention)):
        lists["promotes"] += _list_values(model, values, k, is_centred=is_centred)
        lists["suppresses"] += _list_values(model, values, k, smallest=True, is_centred=is_centred)
    return lists


def list_tokens(
    model: Model,
    readers: Float[Tensor, "row d_model"],
    tokens: Float[Tensor, "vocab d_model"],
    k: int,
    *,
    smallest: bool = False,
    is_centred: bool = False,
) -> list[list[TokenValue]]:
    """List the k tokens that each reader has the largest (or smallest) product with.

    If centred, values are less the mean of the reader's products with all tokens.
    """
    lists: list[list[TokenValue]] = []
    for _, values in project_blocks(readers, tokens):
        lists += _list_values(model, values, k, smallest=smallest, is_centred=is_centred)
    return lists


def _list_values(
    model: Model,
    values: Float[Tensor, "row vocab"],
    k: int,
    *,
    smallest: bool = False,
    is_centred: bool,
) -> list[list[TokenValue]]:
    """List each row's k tokens of largest (or smallest) value."""
    check_top(k, model.config.vocab, of="tokens")
    best, ids = top_tokens(values, k, smallest=smallest)
    if is_centred:
        best = best - reduce(values, "row vocab -> row 1", "mean")
    return [
        list(zip(model.vocab.show_all(row), row, row_values, strict=True))
        for row, row_values in zip(ids.tolist(), best.tolist(), strict=True)
    ]


def only_tokens(lists: Sequence[Sequence[TokenValue]]) -> list[list[str]]:
    """Leave out ids and values."""
    return [[token for token, _, _ in row] for row in lists]
