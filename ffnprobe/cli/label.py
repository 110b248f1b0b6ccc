"""`ffnprobe label [NEURON…] --store DIR`: what opens each neuron and what it says, with a score."""

from pathlib import Path
from typing import Annotated, Any

from ffnprobe.cli.command import Common
from ffnprobe.cli.terminal import show_progress
from ffnprobe.cli.verbs import by_hand
from ffnprobe.options import HOOKS, Option

COLUMNS = ["name", "label", "f1", "lookup_f1", "output_gain", "output_gain_random"]


@by_hand
def label(
    common: Common,
    store: Annotated[Path, Option("The scan to label with; labels are kept in it.", metavar="DIR")],
    hooks: Annotated[bool, HOOKS] = False,
    **given: Any,
) -> None:
    """Label neurons by rules found on half of a scan's texts and scored on the other half.

    Labelling is resumable: run the same command again.
    """
    model = common.load(hooks=hooks)
    from ffnprobe.labels.labelling import label as label_neurons

    try:
        with show_progress(common, "label") as progress:
            found = label_neurons(model, store, progress=progress, **given)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command resumes.") from None
    common.note(found.summary)
    tables = found.tables()
    if given["neurons"] is None:
        printed = {"layers": tables["layers"]}
    else:
        printed = {"neurons": tables["neurons"][COLUMNS]}
    common.emit(found, tables, printed=printed)
