"""`ffnprobe publish RESULT… --to FOLDER`: results as a small static site."""

from pathlib import Path
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, Format, command
from ffnprobe.errors import OptionRefused


@command
def publish(
    common: Common,
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT…",
            help="Files that --out wrote (.json, .csv, .parquet), or folders published before.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The folder of the site.")],
) -> None:
    """Publish results of one model as a site: pages, tables, provenance, and an index with a search.

    Results of the same model are added to a site that exists; those of another are refused.
    """
    if common.out or common.html or common.plot or common.format is not Format.table:
        raise OptionRefused("publish writes a folder.", remedy="--to FOLDER alone")
    from ffnprobe.views.site.publishing import publish as publish_results

    index = publish_results([str(path) for path in results], to)
    common.note(f"{len(list(index.parent.glob('results/*.html'))):,} results")
    print(index)
