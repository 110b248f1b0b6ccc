"""Commands that run no model: `models`, `params`, and `publish`, which writes results as a site."""

from pathlib import Path
from typing import Annotated

from ffnprobe.arguments import Argument, Option
from ffnprobe.cli.command import command
from ffnprobe.cli.invocation import Common

RESULTS = Argument(
    "Files that --out wrote (.json, .csv, .parquet), or folders published before.", metavar="RESULT…"
)  # fmt: skip


@command
def models(common: Common) -> None:
    """List the models that can be loaded by name."""
    common.check_out()
    import pandas as pd

    from ffnprobe.models.config import PUBLISHED
    from ffnprobe.models.sources import EMBEDDED, PACKAGES, Source, find_config
    from ffnprobe.provenance import Provenance
    from ffnprobe.results import TableSet

    rows: list[tuple[str, str, bool, int, int, int]] = []
    for name in (EMBEDDED, *PUBLISHED):
        source, c = find_config(name)
        rows.append((name, str(source), source.is_here(), c.layers, c.neurons, c.parameters()))
    for name, held in PACKAGES.items():
        is_here, sizes = not held.missing(), (held.layers, held.neurons, held.parameters)
        rows.append((name, f"package {held.module}", is_here, *sizes))
        if not is_here:
            common.note(f"{name}: {held.install}")
    table = pd.DataFrame(rows, columns=["model", "from", "here", "layers", "neurons", "parameters"])
    table["here"] = table.here.map({True: "yes", False: "no"})
    common.note("also: any hub repository as owner/name, a local folder or a local .gguf file")
    provenance = Provenance("every model known by name", Source("list", ""), fingerprint="not read")
    common.emit(TableSet("models", {"models": table}, provenance))


@command
def params(common: Common) -> None:
    """Count the parameters of each part, from the configuration alone."""
    common.check_out()
    import pandas as pd

    from ffnprobe.models.sources import find_config
    from ffnprobe.provenance import Provenance
    from ffnprobe.results import TableSet

    source, config = find_config(common.model_name)
    common.note(f"{common.model_name} ({source}, configuration only)")
    provenance = Provenance(common.model_name, source, fingerprint="not read: no weights needed")
    parts, total = config.parts(), config.parameters()
    embeddings = {name for name in parts if name.endswith("embedding") or name == "head"}
    inner = sum(count for name, count in parts.items() if name not in embeddings)
    rows = [
        (name, count, count / total, None if name in {*embeddings, "all"} else count / inner)
        for name, count in (parts | {"without embeddings": inner, "all": total}).items()
    ]
    columns = ["part", "parameters", "share", "share_without_embeddings"]
    table = pd.DataFrame(rows, columns=columns)
    common.emit(TableSet("where the parameters are", {"parameters": table}, provenance))


@command
def publish(
    common: Common,
    results: Annotated[list[Path], RESULTS],
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
