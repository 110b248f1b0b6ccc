"""`ffnprobe params`: where the parameters are."""

from typing import TYPE_CHECKING

from ffnprobe.cli.command import Common, command

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.models.config import Config


@command
def params(common: Common) -> None:
    """Count the parameters of each part, from the configuration alone."""
    common.check_out()
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.models.sources import find_config

    source, config = find_config(common.model_name)
    common.note(f"{common.model_name} ({source}, configuration only)")
    provenance = Provenance(common.model_name, source, fingerprint="not read: no weights needed")
    common.emit(
        {"parameters": table_parameters(config)}, provenance, title="where the parameters are"
    )


def table_parameters(config: "Config") -> "pd.DataFrame":
    """Table each part's parameters, its share of all, and its share of what is not embedding."""
    import pandas as pd

    parts = config.parts()
    embeddings = {name for name in parts if name.endswith("embedding") or name == "head"}
    inner = sum(count for name, count in parts.items() if name not in embeddings)
    total = sum(parts.values())
    rows = [
        {
            "part": name,
            "parameters": count,
            "share": count / total,
            "share_without_embeddings": None if name in embeddings else count / inner,
        }
        for name, count in parts.items()
    ]
    rows.append({"part": "without embeddings", "parameters": inner, "share": inner / total,
                 "share_without_embeddings": 1.0})  # fmt: skip
    rows.append(
        {"part": "all", "parameters": total, "share": 1.0, "share_without_embeddings": None}
    )
    return pd.DataFrame(rows)
