"""`ffnprobe publish RESULT… --to FOLDER`: results as a small static site."""

from pathlib import Path
from typing import Annotated

from ffnprobe.arguments import Argument, Option
from ffnprobe.cli.command import command
from ffnprobe.cli.invocation import Common


@command
def publish(
    common: Common,
    results: Annotated[
        list[Path],
        Argument(
            "Files that --out wrote (.json, .csv, .parquet), or folders published before.",
            metavar="RESULT…",
        ),
    ],
    to: Annotated[Path, Option("The folder of the site.", metavar="FOLDER")],
) -> None:
    """Publish results of one model as a site: pages, tables, provenance, and an index with a search.

    Results of the same model are added to a site that exists; those of another are refused.
    """
    common.refuse_output("publish writes a folder.", remedy="--to FOLDER alone")
    from ffnprobe.views.publishing import publish as publish_results

    index = publish_results([str(path) for path in results], to)
    common.note(f"{len(list(index.parent.glob('results/*.html'))):,} results")
    print(index)
