"""The table of where a model's parameters are."""

import pandas as pd

from ffnprobe.models.config import Config


def table_parameters(config: Config) -> pd.DataFrame:
    """Table each part's parameters, its share of all, and its share of what is not embedding."""
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
