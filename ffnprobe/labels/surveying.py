"""Survey every neuron of a model, here or on a Ray cluster: the same table from both.

On a cluster each layer is a task. Each worker has as many threads as this process, since the way a
sum is divided decides how it is rounded.

With a scan, each neuron has its moments, its label, and a role that only a corpus shows: the first that fits.

    dead         never above zero
    positional   its position explains its activation, or its label is a position
    token        its label is a token, or a class of tokens
    n-gram       its label looks at tokens before the current one
    frequency    its answer goes with how frequent tokens are

A token, an n-gram or a position counts where the store has labels and the neuron is explained. The
frequency of a token is log(1 + its count in the passages that the scan kept); the correlation is over
all tokens of the vocabulary, with w_n · u_t.
"""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import TOP, Address, Engine, Layers, Progress, Workers, verb
from ffnprobe.corpora.clusters import start_pool
from ffnprobe.corpora.passages import Kept
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.labels.stored_labels import DEAD, UNEXPLAINED, Labels, find_labels, join_labels
from ffnprobe.models.model import Model
from ffnprobe.reading.measures import Thresholds
from ffnprobe.reading.spectrum import token_directions
from ffnprobe.reading.surveys import Survey, survey_layers

if TYPE_CHECKING:
    import pandas as pd

CORPUS_ROLES = ("dead", "positional", "token", "n-gram", "frequency")
_CONTEXTUAL = ("starts of sentences", "repeated tokens")


@verb
def survey(
    model: Model,
    *,
    layers: Layers = None,
    top: Annotated[int, TOP.but("How many tokens in each list.")] = 5,
    thresholds: Thresholds | None = None,
    engine: Engine = "local",
    workers: Workers = None,
    address: Address = None,
    scan: Scan | None = None,
    progress: Progress | None = None,
) -> Survey:
    """List every neuron: its tokens, norms, moments and kind; with a scan, its firing rate.

    Their weights are projected onto the vocabulary. Columns of `table`: name, layer, neuron, kind,
    question_tokens, promotes, suppresses (text, a space between tokens), question_norm, question_bias,
    answer_norm, reads_writes, role, the moments vocab_mean, vocab_variance, vocab_skew and vocab_kurtosis,
    null_space; where neurons have gates also gate_tokens, gate_norm, gate_bias, gate_cosine and gate_writes.
    `progress` is called with how many neurons are done, and of how many. With a `scan`, each neuron's mean
    activation, its moments, its firing rate and its role in the corpus are added, and its label if the store
    has labels. With `engine="ray"` the layers are divided over the `workers` of the cluster at `address`, or
    of one started here.

    >>> import ffnprobe as fp
    >>> neurons = fp.survey(fp.load("pocket"), layers="6")
    >>> len(neurons.of_kind("entropy"))
    5
    """
    import pandas as pd

    if engine == "local" and (workers, address) != (None, None):
        raise OptionRefused(
            "workers and an address belong to a Ray cluster.", remedy="engine=ray (--engine ray)"
        )
    if engine == "ray" and model.lens is not None:
        raise OptionRefused("a lens is in this process alone.", remedy="engine=local, or no lens")
    if workers is not None and workers < 1:
        raise OptionRefused(f"workers = {workers}: it must be at least 1.")
    chosen = model.find_layers(layers)
    limits = Thresholds() if thresholds is None else thresholds
    if engine == "ray":
        tables: list[pd.DataFrame] = []
        work, threads = partial(survey_layers, k=top, thresholds=limits), torch.get_num_threads()
        with start_pool(model, workers=workers, address=address, threads=threads) as pool:
            handles = [pool.submit(order, work, [layer]) for order, layer in enumerate(chosen)]
            for handle in handles:
                tables.append(pool.result(handle))
                if progress is not None:
                    progress(len(tables) * model.config.d_mlp, len(chosen) * model.config.d_mlp)
        frame = pd.concat(tables, ignore_index=True)
    else:
        frame = survey_layers(model, chosen, k=top, thresholds=limits, progress=progress)
    provenance = model.provenance(
        convention="centred",
        settings={"layers": chosen, "questions_through": "embed", "thresholds": asdict(limits)},
    )
    surveyed = Survey(provenance.note(frame), provenance)
    return surveyed if scan is None else join_survey(surveyed, scan.check(model), model, limits)


def correlate_frequency(model: Model, kept: Kept, layer: int) -> Float[Tensor, " neuron"]:
    """Correlate each answer of a layer, as it reaches the tokens, with their log frequency."""
    counts = torch.bincount(kept.ids.long(), minlength=model.config.vocab)
    frequency = torch.log1p(counts.double())
    off = (frequency - frequency.mean()).to(model.unembedding)
    toward = einsum(off, model.unembedding, "vocab, vocab d_model -> d_model") / len(off)
    answers = model.answers_of(layer)
    covariance = einsum(answers, toward, "neuron d_model, d_model -> neuron")
    spreads = token_directions(model).unembedding.spreads(answers)
    spreads = spreads * float(frequency.std(correction=0))
    return torch.where(spreads > 0, covariance / spreads, 0.0).clamp(-1, 1)


def name_corpus_roles(
    table: "pd.DataFrame", labels: Labels | None, thresholds: Thresholds
) -> list[str]:
    """Name the role of each neuron of a survey joined with a scan; nothing where none fits."""
    looks_at: dict[str, str] = {}  # what the rule of each explained neuron looks at
    if labels is not None:
        names, texts, rules, opens = (
            np.array(labels.columns[name], dtype=object)
            for name in ("name", "label", "rule_kind", "opens")
        )
        is_token = (rules == "token") | ((rules == "class") & ~np.isin(opens, _CONTEXTUAL))
        cases = (np.isin(texts, (DEAD, UNEXPLAINED)), rules == "position", is_token)
        kinds = np.select(cases, ("", "positional", "token"), default="n-gram")
        looks_at = dict(zip(names, kinds, strict=True))
    kinds = np.array([looks_at.get(name, "") for name in table.name], dtype=object)
    frequency = table.get("frequency", np.zeros(len(table)))
    tests = (
        table.is_dead,
        (table.position_share > thresholds.position) | (kinds == "positional"),
        kinds == "token",
        kinds == "n-gram",
        np.abs(frequency) >= thresholds.frequency,
    )
    roles = np.select([np.asarray(test) for test in tests], CORPUS_ROLES, default="")
    return [str(role) for role in roles]


def join_survey(survey: Survey, scan: Scan, model: Model, thresholds: Thresholds) -> Survey:
    """Add each neuron's moments, firing rate, dead and position-only, its role, and its label."""
    fired = scan.table.drop(columns=["layer", "neuron"])
    table = survey.table.merge(fired, on="name", how="left")
    if len(scan.kept):
        frequencies = [
            correlate_frequency(model, scan.kept, layer).cpu() for layer in survey.layers
        ]
        table["frequency"] = torch.cat(frequencies).double().numpy()
    labels = find_labels(model, scan)
    table["corpus_role"] = name_corpus_roles(table, labels, thresholds)
    provenance = survey.provenance.including(scan=dict(scan.provenance.settings))
    return Survey(provenance.note(join_labels(table, labels)), provenance)
