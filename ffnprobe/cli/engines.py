"""The options of commands that can work on a cluster."""

from enum import StrEnum
from typing import Annotated

import typer


class Engine(StrEnum):
    local = "local"
    ray = "ray"


EngineOption = Annotated[Engine, typer.Option(help="Work in this process, or on a Ray cluster.")]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", help="How many.", show_default="one for each core")
]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Of a Ray cluster.", show_default="one is started here"),
]
