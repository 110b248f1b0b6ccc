"""Where a number comes from: it travels with every result and into every exported file."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ffnprobe.version import VERSION

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Provenance:
    """The model, its weights, the conventions and the prompt behind a result.

    The identity is of weights, configuration and vocabulary; a store of an older version has none.
    """

    model: str
    source: str
    fingerprint: str
    identity: str | None = None
    convention: str | None = None
    bos: bool | None = None
    prompt: str | None = None
    tokens: tuple[str, ...] | None = None
    position: int | None = None
    answer: str | None = None
    versus: str | None = None
    settings: str | None = None
    version: str = VERSION

    def as_dict(self) -> dict[str, Any]:
        """List what is known, in a fixed order, as plain data."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in known.items()}

    def note(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Write into a table where its numbers come from, and return it."""
        table.attrs["provenance"] = self.as_dict()
        return table

    def as_lines(self) -> list[str]:
        """Write `name: value` lines, each on one line whatever the prompt holds."""
        return [f"{name}: {_line(value)}" for name, value in self.as_dict().items()]


def _line(value: Any) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    return text.encode("unicode_escape").decode() if "\n" in text or "\r" in text else text
