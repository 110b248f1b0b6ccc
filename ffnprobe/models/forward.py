"""Run token ids through all layers: by our own step, or by TransformerLens's hooks where a model asks for them.

Both see and replace the same things, by the same names: `ffnprobe.models.bridge` lists them. `load(…, hooks=True)`
and `--hooks` run a model by the hooks. Every result that comes of a run says in its provenance who ran it.

Before a model is first run, Hugging Face, TransformerLens and our own step must give it the same logits on a
few tokens: where they differ, one of them has misread its configuration, and every number would be wrong in
silence. Pocket is compared by the tests. Of any other model it is recorded in the user's cache folder:

    made_for   the identity of the model, a hash of all its options, the versions of the libraries
    rotary     each layer's frequencies, as Hugging Face computed them; none where positions are embedded
    checksum   over all of it (`ffnprobe.files`)

A model is compared again where its record is damaged or made for anything else, where the cache cannot be
written, and where logits overflow and cannot be compared.

Limits: eight tokens do not show a window longer than they are.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import xxhash
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import FileNotWritten, ModelNotLoaded, PromptRefused
from ffnprobe.files import BLANK, atomic_write, is_sealed, seal
from ffnprobe.models import bridge
from ffnprobe.models.folding import is_finite
from ffnprobe.models.model import Model
from ffnprobe.models.sources import cache_folder
from ffnprobe.models.step import FINAL_HOOKS, Hook, measure_angles, normalise, step, unembed
from ffnprobe.version import VERSION

# By a hook's name and its layer, 0 for the final one.
Hooks = Mapping[tuple[str, int], Hook]
LIBRARIES = ("torch", "transformers", "transformer-lens")
# Within a model's positions the frequencies of these do not depend on the length of the prompt.
FIXED = ("default", "linear", "dynamic", "llama3", "yarn")
WITHIN = 1e-3
Frequencies = list[tuple[list[float], float]]
Rotary = tuple[tuple[Float[Tensor, " pair"], float], ...]


def forward(
    model: Model, ids: Int[Tensor, "batch pos"], hooks: Hooks
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids and return the logits, if finite; each hook sees its tensor and may replace it."""
    model.check()
    run = bridge.run_hooked if model.hooks else run_steps
    with torch.no_grad():
        return _finite(model, run(model, ids.to(model.device), hooks), "logits")


def run_steps(
    model: Model, ids: Int[Tensor, "batch pos"], hooks: Hooks
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids by our own step, layer after layer."""
    stream = embed(model, ids)
    at = torch.arange(ids.shape[1], device=model.device)[None]
    for layer in range(model.config.layers):
        own = {name: hook for (name, number), hook in hooks.items() if number == layer}
        (stream,) = step(model, layer, [stream], [at], hooks=[own] if own else None)
    changed = hooks["final", 0](stream) if ("final", 0) in hooks else None
    return unembed(model, normalise(model, stream if changed is None else changed))


def embed(model: Model, ids: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
    """Return the stream that enters the first layer."""
    embedding = model.weights[f"{model.layout.embedding}.weight"]
    stream = embedding[ids.to(embedding.device)].to(device=model.device, dtype=torch.float32)
    stream = stream * model.config.embedding_scale
    if model.position_embedding is None:
        return stream
    return stream + model.position_embedding[: ids.shape[1]]


def _finite(model: Model, numbers: Tensor, name: str) -> Tensor:
    """Return numbers that are finite, or say that they are not."""
    if is_finite(numbers):
        return numbers
    raise PromptRefused(
        f"{model.name} overflows on this prompt: its {name} exceed what fp32 holds "
        f"(3.4e38), so they are not numbers.",
        remedy="a model whose weights are not this large; when steering, a smaller change",
    )


class _SeenEnough(Exception):
    """Ends a run whose logits nobody asked for."""


def watch(model: Model, ids: Int[Tensor, "batch pos"], hooks: Hooks) -> None:
    """Run token ids through all layers for the hooks' sake; the logits are not made."""
    at_end = hooks.get(("final", 0))

    def stop(stream: Tensor) -> None:
        _finite(model, stream, "vectors")
        if at_end is not None:
            at_end(stream)
        raise _SeenEnough

    with suppress(_SeenEnough):
        forward(model, ids, {**hooks, ("final", 0): stop})


def capture(model: Model, ids: Int[Tensor, "batch pos"], names: Iterable[str]) -> dict[str, Tensor]:
    """Run token ids once and copy out what these hooks see, `[layer batch …]`, and the logits, to CPU."""
    layers = model.config.layers
    captured: dict[str, Tensor] = {}

    def keep(name: str, layer: int, tensor: Tensor) -> None:
        if name in FINAL_HOOKS:
            captured[name] = tensor.cpu().clone()
            return
        if name not in captured:
            captured[name] = torch.empty(layers, *tensor.shape, dtype=tensor.dtype)
        captured[name][layer] = tensor

    hooks: dict[tuple[str, int], Hook] = {
        (name, layer): partial(keep, name, layer)
        for name in names
        for layer in range(1 if name in FINAL_HOOKS else layers)
    }
    captured["logits"] = forward(model, ids, hooks).cpu()
    return captured


def verify(model: Model) -> Rotary:
    """Return what a model's positions are rotated by, layer by layer, once our own step is seen to run it."""
    if model.source.kind == "embedded":
        return ()
    path = cache_folder() / "verified" / f"{model.identity}.json"
    written = json.dumps(dict(model.config.native), sort_keys=True, default=str)
    options = xxhash.xxh3_128_hexdigest(written.encode())
    versions = {"ffnprobe": VERSION, **{name: version(name) for name in LIBRARIES}}
    made_for = {"identity": model.identity, "options": options, "versions": versions}
    frequencies = _read(path, made_for)
    if frequencies is None:
        frequencies, was_compared = _compare(model)
        if was_compared:
            record = {"made_for": made_for, "rotary": frequencies, "checksum": BLANK.decode()}
            with suppress(OSError, FileNotWritten):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, seal(json.dumps(record).encode()))
    return _hold(model, frequencies)


def check_agreement(model: Model, logits: Mapping[str, Float[Tensor, "pos vocab"]]) -> bool:
    """Raise unless all logits are one; False where they overflow, so that nothing is compared."""
    (first, wanted), *others = logits.items()
    if not wanted.isfinite().all():
        return False
    for name, theirs in others:
        off = float((theirs - wanted).abs().max())
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
        logits = {"Hugging Face": booted.logits, "TransformerLens": booted.bridge(ids)[0]}
        logits["ffnprobe"] = run_steps(trial, ids, {})[0]
    was_compared = check_agreement(model, logits)
    vars(model).update(vars(trial))  # what was made of the weights need not be made again
    if not model.hooks:
        bridge.forget_bridge(model)
    return frequencies, was_compared


def _read_rotary(trial: Model, rotary: Any) -> Frequencies:
    """Read each layer's frequencies off Hugging Face's module; what they make of the last position is checked."""
    _refuse_changing(trial)
    last, like = torch.tensor([[trial.config.positions - 1]], device=trial.device), torch.zeros(1)
    frequencies: Frequencies = []
    for layer in range(trial.config.layers):
        # Gemma 3 has one base where attention sees all and another where it has a window.
        kinds = [rotary.config.layer_types[layer]] if hasattr(rotary, "layer_types") else []
        prefix = "".join(f"{kind}_" for kind in kinds)
        own = getattr(rotary, f"{prefix}inv_freq").float().cpu().tolist()
        frequencies.append((own, float(getattr(rotary, f"{prefix}attention_scaling"))))
        vars(trial)["rotary"] = _hold(trial, frequencies)
        theirs = rotary(like.to(trial.device), last, *kinds)
        ours = measure_angles(trial, layer, last) or ()
        if not all(torch.allclose(torch.cat([a, a], -1), b) for a, b in zip(ours, theirs, strict=True)):  # fmt: skip
            raise ModelNotLoaded(
                f"{trial.name}: ffnprobe and Hugging Face tell its last position differently.",
                remedy="report its config.json",
            )
    return frequencies


def _refuse_changing(model: Model) -> None:
    """Refuse rotary embeddings whose frequencies change with the length of the prompt."""
    for name in ("rope_parameters", "rope_scaling"):
        parameters = model.config.native.get(name)
        if not isinstance(parameters, Mapping):
            continue  # a list or a text is refused by Hugging Face's own code
        # Gemma 3 says it for each kind of layer.
        for each in (parameters, *(p for p in parameters.values() if isinstance(p, Mapping))):
            kind = each.get("rope_type", each.get("type", "default"))
            if kind not in FIXED:
                why = f'its rotary embeddings are of kind "{kind}", which ffnprobe does not run'
                remedy = f"a model with {', '.join(FIXED)}"
                raise ModelNotLoaded(f"{model.name}: {why}.", remedy=remedy)


def _hold(model: Model, rotary: Frequencies) -> Rotary:
    return tuple((torch.tensor(each, device=model.device), scaling) for each, scaling in rotary)


def _read(path: Path, made_for: dict[str, Any]) -> Frequencies | None:
    """Read a record, if it is whole and made for this."""
    with suppress(OSError):
        data = path.read_bytes()
        if is_sealed(data) and (record := json.loads(data))["made_for"] == made_for:
            rotary: Frequencies = record["rotary"]
            return rotary
    return None
