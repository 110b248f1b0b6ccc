"""The tool that labels neurons: what opens each, what it says, with a score."""

from typing import Annotated

from pydantic import Field

from ffnprobe.corpora.embedded import embedded_scan
from ffnprobe.corpora.labels import Labels
from ffnprobe.corpora.stored_labels import find_labels
from ffnprobe.errors import DataRefused
from ffnprobe.labels.labelling import LEAST
from ffnprobe.labels.labelling import label as label_neurons
from ffnprobe.serving.answers import Found
from ffnprobe.serving.arguments import Neurons
from ffnprobe.serving.table import Call, tool


@tool(
    grade="corpus: a rule scored on texts it was not found on, next to a look-up and to shuffled activations",
    has_progress=True,
)
def label(
    call: Call,
    neurons: Annotated[
        Neurons | None,
        Field(
            description="Neurons L3N12, layers L3, ranges L3N5-L3N9; a summary of all by default."
        ),
    ] = None,
    share: Annotated[
        float,
        Field(gt=0, le=0.5, description="How much of a neuron's activations count as strong."),
    ] = 0.01,
    least: Annotated[
        float, Field(ge=0, le=1, description="The F1 below which a neuron is unexplained.")
    ] = LEAST,
) -> Found:
    """Say what opens neurons and what they say, by labels that were scored on held-out texts.

    Labels kept with a scan are read; with other settings the neurons named are labelled now, and not kept.
    """
    labels = _find(call, neurons, share, least)
    call.note(labels.summary)
    tables = labels.tables()
    first = "layers" if neurons is None else "neurons"
    return Found(labels, {first: tables.pop(first), **tables}, labels.title)


def _find(call: Call, neurons: list[str] | None, share: float, least: float) -> Labels:
    """Return the labels that are kept, or make those of the neurons named."""
    known = find_labels(call.model, call.scan)
    if known is not None:
        made = known.provenance.settings
        if (made["share"], made["least"]) == (share, least):
            if neurons is None:
                return known
            return known.pick([str(name) for name in call.model.find_neurons(neurons)])
    scan = embedded_scan(call.model) if call.scan is None else call.scan
    if scan is None:
        raise DataRefused(
            f"no scan of {call.model.name} is served, so there are no labels.",
            remedy="ffnprobe serve --mcp --store DIR",
        )
    if neurons is None:
        raise DataRefused(
            "no labels of all neurons are kept with these settings.",
            remedy="name neurons, or first ffnprobe label --store DIR",
        )
    return label_neurons(
        call.model, scan, neurons=neurons, share=share, least=least, progress=call.budget.count
    )
