"""What can be saved and drawn: anything with tables and a provenance, or a table that has one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from ffnprobe.errors import DataRefused
from ffnprobe.models.provenance import Provenance


class Result(Protocol):
    """What every result type offers."""

    @property
    def provenance(self) -> Provenance: ...

    def tables(self) -> dict[str, pd.DataFrame]: ...


@dataclass(frozen=True, eq=False)
class Listing:
    """Tables without a result type of their own."""

    named: Mapping[str, pd.DataFrame]
    provenance: Provenance

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables."""
        return dict(self.named)


def as_result(given: Any) -> Result:
    """Return a result as it is and a table as a result, or say what is missing."""
    if isinstance(given, pd.DataFrame):
        known = given.attrs.get("provenance")
        if known is None:
            raise DataRefused(
                "this table has no provenance.",
                remedy='the result it was taken from, or table.attrs["provenance"] = result.provenance.as_dict()',
            )
        tokens = {"tokens": tuple(known["tokens"])} if "tokens" in known else {}
        return Listing({"rows": given}, Provenance(**known | tokens))
    if not (hasattr(given, "tables") and hasattr(given, "provenance")):
        raise DataRefused(
            f"{type(given).__name__} is not a result of ffnprobe.",
            remedy="what fp.run, fp.attribute, fp.explain, … return, or a table of theirs",
        )
    result: Result = given
    return result
