"""Where a number comes from: it travels with every result and into every exported file.

A provenance is data. It becomes text only where it is written out: `as_dict` for JSON and parquet,
`as_lines` and `describe` for people. No code reads that text again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ffnprobe.errors import DataRefused
from ffnprobe.models.sources import Source
from ffnprobe.version import VERSION

if TYPE_CHECKING:
    import pandas as pd

# Plain values only (text, numbers, lists and mappings of them), so that a file can hold them.
Setting = str | int | float | bool | list[Any] | dict[str, Any] | None

# Who ran a model.
HOOKED, OWN = "TransformerLens hooks", "ffnprobe's own forward pass"
# What `as_dict` writes.
_TYPES = {
    **dict.fromkeys(("model", "fingerprint", "identity", "convention", "prompt", "answer", "versus", "run_by", "version"), str),
    "source": dict, "bos": bool, "tokens": list, "position": int, "settings": dict, "verified": bool,
}  # fmt: skip


@dataclass(frozen=True)
class Provenance:
    """The model, its weights, the conventions and the prompt behind a result.

    The identity is of weights, configuration and vocabulary; a list of models has none.
    `verified` is False of what was read from a file without a look at its checksum.

    >>> import ffnprobe as fp
    >>> known = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of").provenance
    >>> known.model, known.bos, known.tokens[1:3]
    ('pocket', True, ('Michael', '␣Jordan'))
    >>> Provenance.from_dict(known.as_dict()) == known
    True
    """

    model: str
    source: Source
    fingerprint: str
    identity: str | None = None
    convention: str | None = None
    bos: bool | None = None
    prompt: str | None = None
    tokens: tuple[str, ...] | None = None
    position: int | None = None
    answer: str | None = None
    versus: str | None = None
    run_by: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    version: str = VERSION
    verified: bool | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Provenance":
        """Read what `as_dict` wrote, or say what is wrong with it."""
        try:
            _check_types(data)
            tokens = data.get("tokens")
            settings, source = dict(data.get("settings", {})), Source.from_dict(data["source"])
            tokens = None if tokens is None else tuple(tokens)
            return cls(**{**data, "source": source, "tokens": tokens, "settings": settings})
        except ValueError as error:
            raise DataRefused(f"this is not a provenance that ffnprobe wrote: {error}.") from None

    def including(self, **settings: Setting) -> "Provenance":
        """Return the same provenance with more settings."""
        return replace(self, settings={**self.settings, **settings})

    def as_dict(self) -> dict[str, Any]:
        """List what is known, in a fixed order, as plain data."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain |= {"source": dict(self.source.plain), "settings": dict(self.settings)}
        plain["tokens"] = None if self.tokens is None else list(self.tokens)
        return {name: value for name, value in plain.items() if value is not None and value != {}}

    def note(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Write into a table where its numbers come from, and return it."""
        table.attrs["provenance"] = self.as_dict()
        return table

    def describe(self) -> str:
        """Write the settings in one line, for people."""
        settings = self.settings.items()
        return ", ".join(f"{name.replace('_', ' ')} {_words(value)}" for name, value in settings)

    def as_lines(self) -> list[str]:
        """Write `name: value` lines for people, each on one line whatever the prompt holds."""
        lines = self.as_dict() | {"source": str(self.source)}
        if self.settings:
            lines["settings"] = self.describe()
        if lines.pop("verified", None) is False:
            lines["checksum"] = "not verified: a file that may have been changed"
        return [f"{name.replace('_', ' ')}: {_line(value)}" for name, value in lines.items()]


def _check_types(data: Mapping[str, Any]) -> None:
    """Check that every field is there, known and of its type."""
    if not isinstance(data, Mapping):
        raise ValueError(f"it is a {type(data).__name__}")
    if lacking := [name for name in ("model", "source", "fingerprint") if name not in data]:
        raise ValueError(f"it has no {', '.join(lacking)}")
    for name, value in data.items():
        if name not in _TYPES:
            raise ValueError(f"it has a field {name!r}")
        if type(value) is not _TYPES[name]:
            raise ValueError(f"its {name} is {value!r}")
    if not all(isinstance(token, str) for token in data.get("tokens", ())):
        raise ValueError("its tokens are not texts")


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(value: Any) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    return json.dumps(text, ensure_ascii=False)[1:-1] if "\n" in text or "\r" in text else text
