"""`ffnprobe models`, `ffnprobe params`: what can be loaded by name, and where the parameters are."""

from ffnprobe.cli.command import command
from ffnprobe.cli.invocation import Common


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
