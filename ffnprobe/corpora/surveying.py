"""Survey every neuron of a model, here or on a Ray cluster: the same table from both.

>>> import ffnprobe as fp
>>> neurons = fp.survey(fp.load("pocket"), layers="0", top=3)
>>> list(neurons.table.columns[:7])
['name', 'layer', 'neuron', 'kind', 'question_tokens', 'promotes', 'suppresses']

On a cluster each layer is a task. Each worker has as many threads as this process, since the way a
sum is divided decides how it is rounded.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import torch

from ffnprobe.arguments import verb
from ffnprobe.corpora.clusters import start_pool
from ffnprobe.corpora.joins import join_survey
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.options import TOP, Address, Engine, Layers, Progress, Workers
from ffnprobe.reading.kinds import Thresholds
from ffnprobe.reading.surveys import Survey, survey_layers

if TYPE_CHECKING:
    import pandas as pd


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

    Their weights are projected onto the vocabulary. Columns of `table`: name, layer, neuron, kind, question_tokens, promotes, suppresses (text, a
    space between tokens), question_norm, question_bias, answer_norm, reads_writes, role, the moments vocab_mean,
    vocab_variance, vocab_skew and vocab_kurtosis, null_space; where neurons have gates also
    gate_tokens, gate_norm, gate_bias, gate_cosine and gate_writes. `progress` is called with how many neurons are
    done, and of how many. With a `scan`, each neuron's mean activation, its moments, its firing
    rate and its role in the corpus are added, and its label if the store has labels. With `engine="ray"` the layers are divided over the `workers` of the
    cluster at `address`, or of one started here.

    >>> import ffnprobe as fp
    >>> neurons = fp.survey(fp.load("pocket"), layers="6")
    >>> len(neurons.of_kind("entropy"))
    5
    """
    if engine == "local" and (workers, address) != (None, None):
        raise OptionRefused(
            "workers and an address belong to a Ray cluster.", remedy="engine=ray (--engine ray)"
        )
    if workers is not None and workers < 1:
        raise OptionRefused(f"workers = {workers}: it must be at least 1.")
    chosen = model.find_layers(layers)
    limits = Thresholds() if thresholds is None else thresholds
    if engine == "ray":
        frame = _survey_on_ray(model, chosen, top, limits, workers, address, progress)
    else:
        frame = survey_layers(model, chosen, k=top, thresholds=limits, progress=progress)
    provenance = model.provenance(
        convention="centred",
        settings={"layers": chosen, "questions_through": "embed", "thresholds": asdict(limits)},
    )
    found = Survey(provenance.note(frame), provenance)
    return found if scan is None else join_survey(found, scan.check(model), model, limits)


def _survey_on_ray(
    model: Model,
    layers: Sequence[int],
    k: int,
    thresholds: Thresholds,
    workers: int | None,
    address: str | None,
    progress: Progress | None,
) -> "pd.DataFrame":
    """Survey each layer on a worker, and join the tables."""
    import pandas as pd

    tables: list[pd.DataFrame] = []
    threads = torch.get_num_threads()
    with start_pool(model, workers=workers, address=address, threads=threads) as pool:
        under_way = deque(
            pool.submit(order, _survey_one, layer, k, thresholds)
            for order, layer in enumerate(layers)
        )
        while under_way:
            tables.append(pool.result(under_way.popleft()))
            if progress is not None:
                progress(len(tables) * model.config.d_mlp, len(layers) * model.config.d_mlp)
    return pd.concat(tables, ignore_index=True)


def _survey_one(model: Model, layer: int, k: int, thresholds: Thresholds) -> "pd.DataFrame":
    return survey_layers(model, [layer], k=k, thresholds=thresholds)
