"""`ffnprobe read NEURON…`: what neurons ask and answer, from the weights alone."""

from enum import StrEnum
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import StoreOption, open_store
from ffnprobe.errors import OptionRefused


class Projection(StrEnum):
    centred = "centred"
    gain = "gain"
    raw = "raw"
    normed = "normed"


class Through(StrEnum):
    embed = "embed"
    unembed = "unembed"


@command
def read(
    common: Common,
    neurons: Annotated[
        list[str],
        typer.Argument(metavar="NEURON…", help="A neuron L3N12, a layer L3, a range L3N5-L3N9."),
    ],
    top: Annotated[int, typer.Option("--top", "-k", help="How many tokens in each list.")] = 10,
    convention: Annotated[
        Projection, typer.Option(help="How answers are projected onto tokens.")
    ] = Projection.centred,
    through: Annotated[
        Through, typer.Option(help="The matrix questions are projected through.")
    ] = Through.embed,
    related: Annotated[
        bool, typer.Option("--related", help="Show neurons it feeds, is fed by, or resembles.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Read neurons: the tokens that match a question, those an answer promotes and suppresses.

    With a store, also the texts that activated each neuron most and least; pocket has its own.
    """
    from ffnprobe.corpora.stored_labels import find_labels
    from ffnprobe.reading.readings import read as read_neurons

    model = common.load()
    scanned = open_store(model, store)
    readings = read_neurons(model, neurons, convention=convention.value, through=through.value)
    if related:
        if len(readings) > 1:
            raise OptionRefused(
                f"--related takes one neuron; {len(readings)} are named.", remedy=readings[0].name
            )
        found = readings[0].related(top)
        common.emit(found.tables(), found.provenance, title=found.title, result=found)
        return
    result = readings[0] if len(readings) == 1 else readings
    if len(readings) == 1 and common.is_for_terminal:
        # A card is text: it does not need pandas, whose import takes longer than reading a neuron.
        common.write(result)
        print(readings[0].card(top))
        labels = find_labels(model, scanned)
        known = None if labels is None else labels.of(readings[0].name)
        if known is not None:
            from ffnprobe.layout import find_width, wrap

            print("\n" + "\n".join(wrap(f"label: {known.describe()}", find_width())))
        if scanned is None:
            from ffnprobe.corpora.embedded import embedded_scan

            scanned = embedded_scan(model)
        if scanned is not None:
            from ffnprobe.corpora.contexts import examples
            from ffnprobe.views.terminal.examples import print_examples

            print_examples(examples(scanned, readings[0].name), top=top)
    else:
        labels = find_labels(model, scanned)
        rows = readings.rows(top)
        if labels is not None:
            rows = readings.provenance.note(labels.join(rows))
        tables = {"rows": rows, "tokens": readings.tokens(top)}
        if scanned is not None:
            from ffnprobe.corpora.joins import table_examples

            tables["examples"] = table_examples(scanned, [r.name for r in readings], top=top)
        common.emit(
            tables, readings.provenance, title="neurons", result=result, shown=("rows",), most=40
        )
