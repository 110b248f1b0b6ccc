"""The option of commands that show what a scan has found."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.models.model import Model

StoreOption = Annotated[
    Path | None, typer.Option("--store", metavar="DIR", help="Show what this scan has found.")
]


def open_store(model: "Model", store: Path | None) -> "Scan | None":
    """Open a scan of this model, if one is named."""
    if store is None:
        return None
    from ffnprobe.corpora.scans import Scan

    return Scan.open(store).check(model)
