"""Join a scan's numbers with other tables of neurons."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ffnprobe.corpora.contexts import examples, quote
from ffnprobe.corpora.scans import Scan
from ffnprobe.reading.surveys import Survey

if TYPE_CHECKING:
    import pandas as pd


def join_survey(survey: Survey, scan: Scan) -> Survey:
    """Add each neuron's mean activation, its moments, firing rate, dead and position-only."""
    fired = scan.table.drop(columns=["layer", "neuron"])
    provenance = survey.provenance.including(scan=dict(scan.provenance.settings))
    return Survey(provenance.note(survey.table.merge(fired, on="name", how="left")), provenance)


def join_examples(neurons: "pd.DataFrame", scan: Scan) -> "pd.DataFrame":
    """Add the corpus's mean after each neuron's activation, and its strongest example last."""
    found = [examples(scan, name, 1) for name in neurons.name]
    joined = neurons.drop(columns="mean_activation", errors="ignore")
    after = list(joined.columns).index("activation") + 1
    joined.insert(after, "mean_activation", [each.mean for each in found])
    joined["strongest_example"] = [
        quote(each.strongest[0]) if each.strongest else "" for each in found
    ]
    return joined


def table_examples(scan: Scan, names: Sequence[str], *, k: int) -> "pd.DataFrame":
    """Table several neurons' examples, at most k on each side, one row each."""
    import pandas as pd

    tables = [examples(scan, name).rows(k) for name in names]
    return scan.provenance.note(pd.concat(tables, ignore_index=True))
