"""`ffnprobe params`: where the parameters are."""

from ffnprobe.cli.command import Common, command


@command
def params(common: Common) -> None:
    """Count the parameters by part, from the configuration alone."""
    common.check_out()
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.models.sources import find_config
    from ffnprobe.views.parameters import table_parameters

    source, config = find_config(common.model_name)
    common.note(f"{common.model_name} ({source}, configuration only)")
    provenance = Provenance(common.model_name, source, fingerprint="not read: no weights needed")
    common.emit(
        {"parameters": table_parameters(config)}, provenance, title="where the parameters are"
    )
