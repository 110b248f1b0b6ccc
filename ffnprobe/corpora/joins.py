"""Join a scan's numbers with other tables of neurons."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ffnprobe.corpora.contexts import examples, quote
from ffnprobe.corpora.corpus_roles import correlate_frequency, name_corpus_roles
from ffnprobe.corpora.labels import Labels
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.stored_labels import find_labels
from ffnprobe.models.model import Model
from ffnprobe.reading.kinds import Thresholds
from ffnprobe.reading.neuron_tables import order_columns
from ffnprobe.reading.surveys import Survey

if TYPE_CHECKING:
    import pandas as pd


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
