"""The second moment of a layer's keys, C = E[kᵀ k]: which keys a corpus uses, so that edits spare them.

A key is what the neurons of a layer do at one token: their activations. C is over all tokens of a
corpus but BOS, `[neuron neuron]`, in float64. With it come the keys' means and the first tokens of a
few texts: the prefixes an edit is tried behind.

`scan_keys` cuts a corpus as `scan` does. Its store holds the upper triangles of the sums, so that a scan that
resumes after the last block it wrote ends as one that was never stopped. Pocket's own file holds instead the
Cholesky factors of its second moments, in half precision: their product is a second moment, rounded or not.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

import pandas as pd
import torch
import xxhash
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor

from ffnprobe.arguments import Progress, verb
from ffnprobe.corpora.accumulators import group_passages
from ffnprobe.corpora.passages import Block, Done, ScanSettings, cut_blocks
from ffnprobe.corpora.text_sources import Texts, TextSource, find_texts
from ffnprobe.editing.solves import factor_live, find_free_space
from ffnprobe.errors import DataRefused
from ffnprobe.files import atomic_write
from ffnprobe.models import pocket
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model
from ffnprobe.models.sources import cache_folder
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.store import Part, Store, describe, encode_part, hold_store, open_store, read_part

# The store's kind, its part, and how its tensors are named.
KEYS, PART = "scan of keys", "moments"
SUM, FACTOR = "sum.", "factor."
PACKED = pocket.FOLDER / "keys.safetensors"
PREFIXES, PREFIX_TOKENS = 4, 6
SECONDS_BETWEEN_WRITES = 30.0
# A shorter context than most models have: keys far into a text are like those before.
CONTEXT = 256


@dataclass(frozen=True, eq=False, repr=False)
class KeyMoments(Result):
    """The second moments of the keys of some layers, with the corpus they are over.

    >>> import ffnprobe as fp
    >>> moments = fp.scan_keys(fp.load("pocket"), {"one": "Tiger Woods plays golf"}, layers="2-3")
    >>> list(moments.table.columns)
    ['layer', 'tokens', 'mean_square', 'directions']
    """

    sums: Mapping[int, Float64[Tensor, "neuron neuron2"]]
    totals: Float64[Tensor, "layer neuron"]
    done: Done
    prefixes: tuple[tuple[int, ...], ...]
    provenance: Provenance
    is_finished: bool = True
    _projections: dict[tuple[int, float], Tensor] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers measured, in order."""
        return tuple(self.sums)

    @property
    def title(self) -> str:
        """Name the model and the corpus."""
        part = "" if self.is_finished else ", not finished"
        return f"keys of {self.provenance.model}: {self.done.texts:,} texts, {self.done.tokens:,} tokens{part}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "directions: how many the keys use, (Σλ)² / Σλ² over the eigenvalues λ of their second moment"

    @property
    def table(self) -> pd.DataFrame:
        """Each layer: the tokens, the mean square of a key's numbers, and how many directions it uses."""
        rows = []
        for layer in self.layers:
            moment = self.of(layer)
            total = float(moment.trace())
            directions = total**2 / max(float((moment * moment).sum()), 1e-300)
            rows.append((layer, self.done.tokens, total / len(moment), directions))
        columns = ["layer", "tokens", "mean_square", "directions"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of these moments holds."""
        return {"keys": self.table}

    def of(self, layer: int) -> Float64[Tensor, "neuron neuron2"]:
        """Return a layer's second moment, or say which layers were measured."""
        if layer not in self.sums:
            raise DataRefused(
                f"the keys of layer {layer} were not measured; {', '.join(map(str, self.layers))} were.",
                remedy=f'scan_keys(model, texts, layers="{layer}")',
            )
        return self.sums[layer] / self.done.tokens

    def free(self, layer: int, share: float) -> Float64[Tensor, "neuron neuron2"]:
        """Return the projection onto what a layer's keys hardly use, found once."""
        if (layer, share) not in self._projections:
            self._projections[layer, share] = find_free_space(self.of(layer), share)
        return self._projections[layer, share]

    def means(self, model: Model) -> Float[Tensor, "layer neuron"] | None:
        """Return every layer's mean activations, if all layers were measured."""
        if len(self.layers) < model.config.layers:
            return None
        return (self.totals / self.done.tokens).float()

    def check(self, model: Model) -> "KeyMoments":
        """Return these moments if they are of this model, or refuse to mix them."""
        if other := tell_apart(self.provenance.identity or "", model.identity):
            raise DataRefused(
                f"the keys were measured on a model with another {other} "
                f"({self.provenance.model} {self.provenance.fingerprint[:8]}, not {model.name} "
                f"{model.fingerprint[:8]}).",
                remedy=f"scan_keys({model.name}, texts)",
            )
        return self

    def check_solvable(self, layer: int) -> None:
        """Say why a layer's second moment cannot be inverted, if that is plain to see."""
        moment = self.of(layer)
        neurons, tokens = len(moment), self.done.tokens
        singular = f"the second moment of the keys of layer {layer} is singular"
        if tokens < neurons:
            raise DataRefused(
                f"{singular}: {tokens:,} tokens do not span {neurons:,} neurons.",
                remedy=f"scan_keys over more text, {10 * neurons:,} tokens or more",
            )
        if dead := int((moment.diagonal() == 0).sum()):
            remedy = 'more text, or method="alphaedit", which needs no inverse'
            raise DataRefused(f"{singular}: {dead:,} of its neurons never opened.", remedy=remedy)


@verb
@torch.no_grad()
def scan_keys(
    model: Model,
    texts: Texts,
    *,
    layers: str | Sequence[int] | None = None,
    store: str | os.PathLike[str] | None = None,
    lines: bool = False,
    block_tokens: int = 4096,
    progress: Progress | None = None,
) -> KeyMoments:
    """Measure the second moments of keys over texts, for all layers or those named ("3-8").

    Memory is neurons² × 8 bytes a layer. A few hundred tokens a neuron are enough for an edit.

    >>> import ffnprobe as fp
    >>> texts = {"one": "Michael Jordan plays the sport of basketball", "two": "Tiger Woods plays golf"}
    >>> fp.scan_keys(fp.load("pocket"), texts, layers="1-2")
    KeyMoments(keys of pocket: 2 texts, ... tokens)
    """
    chosen = model.find_layers(layers)
    settings = ScanSettings(
        context=min(CONTEXT, model.config.positions), bos=model.vocab.puts_bos(None), top=1,
        lines=lines, block_tokens=block_tokens,
    ).check(model)  # fmt: skip
    sources = find_texts(texts)
    blocks = cut_blocks(model.vocab, sources, settings)
    provenance = model.provenance(run_by=model.run_by, settings={
        "sources": len(sources), "hash": _hash(sources), "context": settings.context,
        "lines": lines, "block_tokens": block_tokens, "layers": chosen,
    })  # fmt: skip
    wide = model.config.d_mlp
    start = KeyMoments(
        sums={layer: torch.zeros(wide, wide, dtype=torch.float64) for layer in chosen},
        totals=torch.zeros(len(chosen), wide, dtype=torch.float64),
        done=Done(), prefixes=(), provenance=provenance, is_finished=False,
    )  # fmt: skip
    asked = asdict(settings) | {"layers": chosen}
    manifest = describe(KEYS, model, settings=asked, texts=[each.describe() for each in sources])
    holding = nullcontext() if store is None else hold_store(Path(store), manifest)
    with closing(blocks), holding as held:
        part = None if held is None else held.read(PART)
        moments = start if part is None else _decode(part)
        moments = _measure(model, blocks, settings, moments, held, progress)
    if moments.done.tokens == 0:
        raise DataRefused("the corpus is empty.", remedy="a file with some text")
    return moments


def name_store(model: Model, texts: Texts) -> Path:
    """Name the folder in the user's cache for the keys of a model over texts."""
    return cache_folder() / "keys" / f"{model.identity}-{_hash(find_texts(texts))}"


def _hash(sources: Sequence[TextSource]) -> str:
    """Tell one corpus from another, by what its sources hold."""
    return xxhash.xxh3_128_hexdigest(repr([source.describe() for source in sources]).encode())


def _measure(
    model: Model, blocks: Iterator[Block], settings: ScanSettings, moments: KeyMoments,
    store: Store | None, progress: Progress | None,
) -> KeyMoments:  # fmt: skip
    """Add block after block, writing now and then, to the end of the corpus."""
    if moments.is_finished:
        return moments
    done = Done()
    for block in islice(blocks, moments.done.blocks):
        done = block.done
    if done != moments.done:
        raise DataRefused(
            "the store is a scan of other texts: these have other tokens.", remedy="another store"
        )
    last_write = time.monotonic()
    for block in blocks:
        moments = _add(model, block, settings, moments)
        if store is not None and time.monotonic() - last_write > SECONDS_BETWEEN_WRITES:
            write_keys(store, moments)
            last_write = time.monotonic()
        if progress is not None:
            progress(block.done.tokens, block.share)
    finished = replace(moments, is_finished=True)
    if store is not None and finished.done.tokens:
        write_keys(store, finished)
    return finished


def _add(model: Model, block: Block, settings: ScanSettings, moments: KeyMoments) -> KeyMoments:
    """Add one block's keys to the sums, in place: they are this scan's own."""

    def add(order: int, layer: int, activations: Tensor) -> None:
        keys = activations[:, int(settings.bos) :]
        keys = rearrange(keys, "batch pos neuron -> (batch pos) neuron")
        moments.sums[layer].add_((keys.mT @ keys).double().cpu())
        moments.totals[order] += keys.sum(0, dtype=torch.float64).cpu()

    layers = enumerate(moments.layers)
    hooks = {("activations", layer): partial(add, order, layer) for order, layer in layers}
    for _, ids in group_passages(block.passages, settings, model.vocab.bos):
        watch(model, ids, hooks)
    # The first tokens of texts spread over a block, each once.
    starts = dict.fromkeys(passage.ids[:PREFIX_TOKENS] for passage in block.passages)
    whole = [ids for ids in starts if len(ids) == PREFIX_TOKENS]
    prefixes = tuple(whole[:: max(1, len(whole) // PREFIXES)][:PREFIXES])
    return replace(moments, done=block.done, prefixes=moments.prefixes or prefixes)


def write_keys(store: Store, moments: KeyMoments) -> None:
    sums = {f"{SUM}{layer}": _pack(moments.sums[layer]) for layer in moments.layers}
    store.write(PART, *_encode(moments, sums))


def pack_factors(path: Path, moments: KeyMoments) -> None:
    """Write the Cholesky factors of second moments, in half precision."""
    factors = {}
    for layer in moments.layers:
        moment = moments.of(layer)
        lower, live = factor_live(moment)
        numbers = live.nonzero()[:, 0]
        factor = torch.zeros_like(moment)  # of silent neurons nothing is kept
        factor[numbers[:, None], numbers] = lower.mT
        factors[f"{FACTOR}{layer}"] = _pack(factor).half()
    atomic_write(path, encode_part(*_encode(moments, factors)))


def open_keys(folder: Path, *, remedy: str) -> KeyMoments:
    part = open_store(folder, KEYS, remedy=remedy).read(PART)
    if part is None:
        raise DataRefused(f"the {KEYS} in {folder} has not begun.", remedy="the same scan again")
    return _decode(part)


def embedded_keys(model: Model) -> KeyMoments | None:
    """Return the package's second moments (of `analyses/pocket/pack_keys.py`) if they are of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        return _read_packed(PACKED).check(model)
    except DataRefused:
        return None


@cache
def _read_packed(path: Path) -> KeyMoments:
    return _decode(read_part(path))


def _encode(moments: KeyMoments, tensors: Mapping[str, Tensor]) -> Part:
    # int32 holds every token id; no prefix is a tensor of no rows.
    prefixes = torch.tensor(moments.prefixes, dtype=torch.int32)
    plain = {
        "done": asdict(moments.done), "is_finished": moments.is_finished,
        "provenance": moments.provenance.as_dict(),
    }  # fmt: skip
    return Part(plain, {**tensors, "totals": moments.totals, "prefixes": prefixes})


def _decode(part: Part) -> KeyMoments:
    plain, tensors = part
    done = Done(**plain["done"])
    sums = {
        int(name.partition(".")[2]): _unpack(tensor, name.startswith(FACTOR), done.tokens)
        for name, tensor in tensors.items()
        if name.startswith((SUM, FACTOR))
    }
    return KeyMoments(
        sums=dict(sorted(sums.items())), totals=tensors["totals"], done=done,
        prefixes=tuple(map(tuple, tensors["prefixes"].tolist())),
        provenance=Provenance.from_dict(plain["provenance"]), is_finished=plain["is_finished"],
    )  # fmt: skip


def _pack(square: Tensor) -> Tensor:
    """Return the upper triangle."""
    rows, columns = torch.triu_indices(*square.shape)
    return square[rows, columns].contiguous()


def _unpack(packed: Tensor, is_factor: bool, tokens: int) -> Tensor:
    """Return the sum that a triangle stands for."""
    wide = int(((8 * len(packed) + 1) ** 0.5 - 1) // 2)
    upper = torch.zeros(wide, wide, dtype=torch.float64)
    rows, columns = torch.triu_indices(wide, wide)
    upper[rows, columns] = packed.double()
    return tokens * (upper.mT @ upper) if is_factor else upper + upper.triu(1).mT
