"""Survey every neuron: one tidy row each.

>>> import ffnprobe as fp
>>> neurons = fp.survey(fp.load("pocket"), layers="0", k=3)
>>> list(neurons.columns[:7])
['name', 'layer', 'neuron', 'kind', 'question_tokens', 'promotes', 'suppresses']

Two matrix products with the vocabulary cannot be avoided, one for the questions (through the
token embeddings) and one for the answers (`centred`). They are made a few hundred neurons at a
time and used up at once, so that the products, 7.4 GB a side for GPT-2 small, never exist whole.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.reading.directions import pick_directions
from ffnprobe.reading.kinds import Thresholds
from ffnprobe.reading.measures import (
    Measures,
    measure_neurons,
    project_measured,
    table_measures,
)
from ffnprobe.reading.moments import Moments
from ffnprobe.reading.ordering import check_k, top_tokens
from ffnprobe.reading.projection import project_blocks, question_readers

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]


def survey(
    model: Model,
    *,
    layers: str | Sequence[int] | None = None,
    k: int = 5,
    thresholds: Thresholds | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Table every neuron of the layers named (all, if none is), k tokens in each list.

    Columns: name, layer, neuron, kind, question_tokens, promotes, suppresses (text, a space
    between tokens), question_norm, question_bias, answer_norm, cosine, the moments vocab_mean,
    vocab_variance, vocab_skew and vocab_kurtosis, null_space; where neurons have gates also
    gate_tokens, gate_norm, gate_bias and gate_cosine. `progress` is called with how many
    neurons are done, and of how many. `attrs["provenance"]` says where the numbers come from.

    >>> import ffnprobe as fp
    >>> neurons = fp.survey(fp.load("pocket"), layers="4")
    >>> neurons.kind.value_counts()["prediction"].item()
    9
    """
    chosen = model.find_layers(layers)
    check_k(k, model.config.vocab, of="tokens")
    limits = Thresholds() if thresholds is None else thresholds
    measured: list[Measures] = []
    lists: dict[str, list[list[int]]] = {}
    with torch.no_grad():
        for layer in chosen:
            found, ids = _survey_layer(model, layer, k, limits)
            measured += found
            if progress is not None:
                progress(len(measured), len(chosen) * model.config.d_mlp)
            for column, rows in ids.items():
                lists.setdefault(column, []).extend(rows)
    shown = model.vocab.shown
    texts = {name: [[shown[i] for i in row] for row in rows] for name, rows in lists.items()}
    frame = table_measures(measured, texts)
    settings = f"survey of layers {','.join(map(str, chosen))}; questions through embed; {limits}"
    return model.provenance(convention="centred", settings=settings).note(frame)


def pick_kind(neurons: "pd.DataFrame", kind: str) -> list[str]:
    """Name the neurons of a survey that are of one kind, or say which kinds it has."""
    names: list[str] = neurons.name[neurons.kind == kind].tolist()
    if not names:
        kinds = ", ".join(sorted(set(neurons.kind)))
        raise OptionRefused(f'no neuron surveyed is of the kind "{kind}".', remedy=kinds)
    return names


def _survey_layer(
    model: Model, layer: int, k: int, thresholds: Thresholds
) -> tuple[list[Measures], dict[str, list[list[int]]]]:
    """Measure one layer's neurons and find the ids of the tokens that stand for them."""
    directions = pick_directions(model, layer, range(model.config.d_mlp))
    moments: list[Moments] = []
    promoted: list[Tensor] = []
    suppressed: list[Tensor] = []
    for dots, measured in project_measured(model, directions.answers):
        moments += measured
        promoted.append(top_tokens(dots, k)[1])
        suppressed.append(top_tokens(dots, k, smallest=True)[1])
    ids = {} if directions.gates is None else {"gate_tokens": _asked(model, directions.gates, k)}
    ids["question_tokens"] = _asked(model, directions.questions, k)
    ids |= {"promotes": promoted, "suppresses": suppressed}
    return (
        measure_neurons(model, directions, moments, thresholds),
        {name: torch.cat(blocks).tolist() for name, blocks in ids.items()},
    )


def _asked(model: Model, questions: Tensor, k: int) -> list[Tensor]:
    """Find the ids of the tokens that open each question (or gate) most."""
    readers = question_readers(model, questions, through="embed")
    return [top_tokens(dots, k)[1] for _, dots in project_blocks(*readers)]
