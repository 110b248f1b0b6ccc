"""What a scan is of: the model, the settings and the texts, and how two of them differ."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import UnionType
from typing import Any

from ffnprobe.corpora.passages import ScanSettings
from ffnprobe.corpora.sources import TextSource
from ffnprobe.errors import DataRefused, FfnProbeError
from ffnprobe.files import quote
from ffnprobe.models.identity import tell_apart
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import HOOKED

# Older stores hold the model's source as text.
_MODEL: dict[str, type | UnionType] = {
    "name": str, "source": dict | str, "fingerprint": str, "layers": int, "neurons": int,
}  # fmt: skip
_SETTINGS: dict[str, type | UnionType] = {"context": int, "bos": bool, "k": int}


def describe(
    model: Model, sources: list[TextSource], settings: ScanSettings, *, format: int
) -> dict[str, Any]:
    """Describe a scan: what its numbers depend on."""
    return {
        "format": format,
        "model": {
            "name": model.name,
            "source": model.source.as_dict(),
            "fingerprint": model.fingerprint,
            "identity": model.identity,
            "layers": model.config.layers,
            "neurons": model.config.d_mlp,
            "run_by": model.run_by,
        },
        "settings": asdict(settings),
        "texts": [source.describe() for source in sources],
    }


def check_manifest(values: Any) -> dict[str, Any]:
    """Return a manifest that was read, or say what it lacks."""
    if not isinstance(values, dict) or not isinstance(values.get("format"), int):
        raise FfnProbeError("it is not the description of a scan")
    for part, wanted in (("model", _MODEL), ("settings", _SETTINGS)):
        found = values.get(part)
        for name, kind in wanted.items():
            if not isinstance(found, dict) or not isinstance(found.get(name), kind):
                raise FfnProbeError(f"it does not say {name} of {part}")
    source = values["model"]["source"]
    if isinstance(source, dict) and not (
        isinstance(source.get("kind"), str) and all(isinstance(v, str) for v in source.values())
    ):
        raise FfnProbeError("it does not say source of model")
    texts = values.get("texts")
    if not isinstance(texts, list) or not all(
        isinstance(text, dict) and isinstance(text.get("name"), str) for text in texts
    ):
        raise FfnProbeError("it does not name the texts")
    return values


def other_model(known: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Name what the model of a manifest differs in from another, or nothing."""
    if known["fingerprint"] != model["fingerprint"]:
        return "weights"
    return tell_apart(known["identity"], model["identity"]) if known.get("identity") else ""


def compare(folder: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to mix two scans, and say in what they differ."""
    remedy = other_store(folder)
    ours, theirs = wanted["model"], known["model"]
    match other_model(theirs, ours):
        case "":
            pass
        case "weights":
            raise DataRefused(
                f"{folder} is a scan of another model: {theirs['name']} "
                f"({theirs['fingerprint'][:8]}), not {ours['name']} ({ours['fingerprint'][:8]}).",
                remedy=remedy,
            )
        case other:
            raise DataRefused(
                f"{folder} is a scan of {theirs['name']} with another {other}.", remedy=remedy
            )
    if run_by(theirs) != run_by(ours):
        raise DataRefused(
            f"{folder} was run by {run_by(theirs)}, not by {run_by(ours)}.", remedy=remedy
        )
    for name, value in wanted["settings"].items():
        if known["settings"].get(name, False) != value:  # older stores do not know `lines`
            raise DataRefused(
                f"{folder} was made with {'top' if name == 'k' else name}="
                f"{known['settings'].get(name)}, not {value}.",
                remedy=remedy,
            )
    if known["texts"] != wanted["texts"]:
        raise DataRefused(
            f"{folder} is a scan of other texts: {_differ(known['texts'], wanted['texts'])}.",
            remedy=remedy,
        )


def run_by(model: Mapping[str, Any]) -> str:
    """Say who ran the model of a manifest; the older ones do not, and were all made by the hooks."""
    named: str = model.get("run_by", HOOKED)
    return named


def other_store(folder: Path) -> str:
    """Name a store that does not exist yet, as a shell reads it."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    number = 2
    while os.path.exists(other := named.parent / f"{named.name or 'scan'}-{number}"):
        number += 1
    return f"--store {quote(other)}"


def _differ(known: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> str:
    """Name the first text that is not the same."""
    before, now = ({text["name"]: text for text in texts} for texts in (known, wanted))
    for name in sorted({*before, *now}):
        if name not in now:
            return f"it has {name}"
        if name not in before:
            return f"it has no {name}"
        if before[name] != now[name]:
            return f"{name} has changed"
    return "their order has changed"
