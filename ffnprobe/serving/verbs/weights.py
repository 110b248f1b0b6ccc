"""Tools that read the weights alone: read, search, match."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from ffnprobe.corpora.embedded import embedded_scan
from ffnprobe.corpora.joins import join_labels, table_examples
from ffnprobe.corpora.matching import match as match_models
from ffnprobe.corpora.stored_labels import find_labels
from ffnprobe.corpora.surveying import survey
from ffnprobe.errors import OptionRefused
from ffnprobe.reading.rankings import search as search_neurons
from ffnprobe.reading.readings import read as read_neurons
from ffnprobe.results import Result
from ffnprobe.serving.answers import Found
from ffnprobe.serving.arguments import Layers, Neurons, Seed, Top
from ffnprobe.serving.table import Call, tool

WEIGHTS = "weights only: what a neuron could do; no prompt was run"
# Of more neurons no examples are sent.
EXAMPLES_OF = 5

Projection = Annotated[
    Literal["centred", "gain", "raw", "normed"],
    Field(description="How answers are projected onto tokens."),
]
Through = Annotated[
    Literal["embed", "unembed"], Field(description="The matrix questions are projected through.")
]
Tokens = Annotated[
    list[str],
    Field(min_length=1, max_length=50, description='Single tokens, such as " basketball".'),
]
Kind = Literal["entropy", "prediction", "suppression", "partition", "unlabelled"] | None


@tool(grade=WEIGHTS)
def read(
    call: Call,
    neurons: Neurons,
    top: Top = 10,
    convention: Projection = "centred",
    through: Through = "embed",
    related: Annotated[
        bool, Field(description="Find neurons that one neuron feeds, is fed by, or resembles.")
    ] = False,
) -> Result | Found:
    """Read neurons: the tokens that match their question, those their answer promotes and suppresses.

    Where there is a scan of the model, also the texts that activated them most and least, and their labels.
    """
    readings = read_neurons(call.model, neurons, convention=convention, through=through)
    if related:
        if len(readings) > 1:
            raise OptionRefused(
                f"related takes one neuron; {len(readings)} are named.", remedy=readings[0].name
            )
        return readings[0].related(top)
    rows = join_labels(readings.rows(top), find_labels(call.model, call.scan))
    tables = {"neurons": rows, "tokens": readings.tokens(top)}
    scan = embedded_scan(call.model) if call.scan is None else call.scan
    if len(readings) <= EXAMPLES_OF and scan is not None:
        tables["examples"] = table_examples(scan, [r.name for r in readings], top=top)
    return Found(readings, tables)


@tool(grade=WEIGHTS)
def search(
    call: Call,
    tokens: Tokens,
    rank: Annotated[
        Literal["z", "cosine", "dot"],
        Field(description="What to rank by; dot and cosine put hub neurons first."),
    ] = "z",
    away: Annotated[bool, Field(description="Find neurons that suppress the tokens.")] = False,
    by: Annotated[
        Literal["answer", "question", "gate"],
        Field(description="Search answers, questions, or the gates of gated neurons."),
    ] = "answer",
    top: Top = 10,
    layers: Layers = None,
    kind: Annotated[Kind, Field(description="Only neurons of this kind.")] = None,
) -> Result:
    """Find the neurons that promote (or suppress, or are opened by) tokens; hub neurons are discounted."""
    among = None
    if kind is not None:
        among = survey(call.model, layers=layers, top=1, progress=call.budget.count).of_kind(kind)
    found = search_neurons(
        call.model, tokens, rank=rank, away=away, by=by, top=top, layers=layers, among=among
    )
    return replace(found, table=join_labels(found.table, find_labels(call.model, call.scan)))


@tool(grade=f"{WEIGHTS}; a random control beside every pair", has_progress=True)
def match(
    call: Call,
    other: Annotated[str, Field(description="The other model, one of those served.")],
    top: Top = 10,
    seed: Seed = 0,
) -> Result:
    """Find the neurons that answer alike in two served models of one vocabulary (universal neurons)."""
    counterpart = call.service.models.get(other)
    return match_models(call.model, counterpart, top=top, seed=seed, progress=call.budget.count)
