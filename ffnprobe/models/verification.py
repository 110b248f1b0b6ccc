"""Is a model run right? Hugging Face, TransformerLens and our own step must give it the same logits.

They read one configuration in three codes. Where they differ, one of them has misread it, and every number
after that is wrong in silence: so they are compared on a few tokens before a model is first run. Pocket is
compared by the tests. What was found for any other model is recorded in the user's cache folder:

    made_for   the identity of the model, a hash of all its options, the versions of the libraries
    rotary     each layer's frequencies, as Hugging Face computed them; none where positions are embedded
    checksum   over all of it (`seals`)

A record that is damaged, or made for anything else, is ignored and the model is compared again. So it
is, each time, where the cache cannot be written or where logits overflow and cannot be compared.

Limits: eight tokens do not show a window longer than they are.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import xxhash
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import FileNotWritten, ModelNotLoaded
from ffnprobe.files import BLANK, atomic_write, is_sealed, seal
from ffnprobe.models import bridge
from ffnprobe.models.forward import run_steps
from ffnprobe.models.model import Model
from ffnprobe.models.sources import cache_folder
from ffnprobe.models.step import measure_angles
from ffnprobe.version import VERSION

LIBRARIES = ("torch", "transformers", "transformer-lens")
# Within a model's positions the frequencies of these do not depend on the length of the prompt.
FIXED = ("default", "linear", "dynamic", "llama3", "yarn")
WITHIN = 1e-3

Frequencies = list[tuple[list[float], float]]
Rotary = tuple[tuple[Float[Tensor, " pair"], float], ...]


def verify(model: Model) -> Rotary:
    """Return what a model's positions are rotated by, layer by layer, once our own step is seen to run it."""
    if model.source.kind == "embedded":
        return ()
    path, made_for = cache_folder() / "verified" / f"{model.identity}.json", _describe(model)
    known = _read(path, made_for)
    if known is None:
        known, was_compared = _compare(model)
        if was_compared:
            record = {"made_for": made_for, "rotary": known, "checksum": BLANK.decode()}
            with suppress(OSError, FileNotWritten):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, seal(json.dumps(record).encode()))
    return _hold(model, known)


def check_agreement(model: Model, logits: Mapping[str, Float[Tensor, "pos vocab"]]) -> bool:
    """Raise unless all logits are one; False where they overflow, so that nothing is compared."""
    (first, wanted), *others = logits.items()
    if not wanted.isfinite().all():
        return False
    for name, found in others:
        off = float((found - wanted).abs().max())
        if not off <= WITHIN * max(1.0, float(wanted.abs().max())):
            raise ModelNotLoaded(
                f"{model.name} is not run right: on {len(wanted)} tokens the logits of {name} are off "
                f"by {off:.2g} from those of {first}, so one of them misreads its configuration.",
                remedy="report its config.json; the verbs that read weights alone (read, survey) "
                "may be wrong for it too",
            )
    return True


def _compare(model: Model) -> tuple[Frequencies, bool]:
    """Run a few tokens in three ways; return the rotary frequencies, and whether the logits could be compared."""
    booted = bridge.boot(model)
    trial = copy(model)  # so that nobody runs the model before it is compared
    frequencies = [] if booted.rotary is None else _read_rotary(trial, booted.rotary)
    vars(trial)["rotary"] = _hold(model, frequencies)
    ids = bridge.few_tokens(model)
    with torch.no_grad():
        logits = {
            "Hugging Face": booted.logits,
            "TransformerLens": booted.bridge(ids)[0],
            "ffnprobe": run_steps(trial, ids, {})[0],
        }
    was_compared = check_agreement(model, logits)
    vars(model).update(vars(trial))  # what was made of the weights need not be made again
    if not model.hooks:
        bridge.forget_bridge(model)
    return frequencies, was_compared


def _read_rotary(trial: Model, rotary: Any) -> Frequencies:
    """Read each layer's frequencies off Hugging Face's module; what they make of the last position is checked."""
    _refuse_changing(trial)
    last, like = torch.tensor([[trial.config.positions - 1]], device=trial.device), torch.zeros(1)
    found: Frequencies = []
    for layer in range(trial.config.layers):
        # Gemma 3 has one base where attention sees all and another where it has a window.
        kinds = [rotary.config.layer_types[layer]] if hasattr(rotary, "layer_types") else []
        named = "".join(f"{kind}_" for kind in kinds)
        frequencies = getattr(rotary, f"{named}inv_freq").float().cpu().tolist()
        found.append((frequencies, float(getattr(rotary, f"{named}attention_scaling"))))
        vars(trial)["rotary"] = _hold(trial, found)
        theirs = rotary(like.to(trial.device), last, *kinds)
        ours = measure_angles(trial, layer, last) or ()
        if not all(torch.allclose(torch.cat([a, a], -1), b) for a, b in zip(ours, theirs, strict=True)):  # fmt: skip
            raise ModelNotLoaded(
                f"{trial.name}: ffnprobe and Hugging Face tell its last position differently.",
                remedy="report its config.json",
            )
    return found


def _refuse_changing(model: Model) -> None:
    """Refuse rotary embeddings whose frequencies change with the length of the prompt."""
    for name in ("rope_parameters", "rope_scaling"):
        said = model.config.native.get(name)
        if not isinstance(said, Mapping):
            continue  # a list or a text is refused by Hugging Face's own code
        # Gemma 3 says it for each kind of layer.
        for part in (said, *(value for value in said.values() if isinstance(value, Mapping))):
            kind = part.get("rope_type", part.get("type", "default"))
            if kind not in FIXED:
                raise ModelNotLoaded(
                    f'{model.name}: its rotary embeddings are of kind "{kind}", which ffnprobe does '
                    "not run.",
                    remedy=f"a model with {', '.join(FIXED)}",
                )


def _hold(model: Model, rotary: Frequencies) -> Rotary:
    return tuple((torch.tensor(each, device=model.device), scaling) for each, scaling in rotary)


def _describe(model: Model) -> dict[str, Any]:
    options = json.dumps(dict(model.config.native), sort_keys=True, default=str)
    versions = {"ffnprobe": VERSION, **{name: version(name) for name in LIBRARIES}}
    return {
        "identity": model.identity,
        "options": xxhash.xxh3_128_hexdigest(options.encode()),
        "versions": versions,
    }


def _read(path: Path, made_for: dict[str, Any]) -> Frequencies | None:
    """Read a record, if it is whole and made for this."""
    with suppress(OSError):
        data = path.read_bytes()
        if is_sealed(data) and (known := json.loads(data))["made_for"] == made_for:
            rotary: Frequencies = known["rotary"]
            return rotary
    return None
