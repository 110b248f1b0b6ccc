"""Scan the keys of texts: their second moments, resumable, kept in a store and used again.

The corpus is cut as `scan` cuts it. With a store, a scan that was stopped resumes after the last
block it wrote; one that is finished is read.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import torch
import xxhash
from einops import rearrange
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.corpora.accumulators import group_passages
from ffnprobe.corpora.passages import Block, Done, ScanSettings, cut_blocks
from ffnprobe.corpora.text_sources import Texts, TextSource, find_texts
from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.key_stores import KEYS, read_keys, write_keys
from ffnprobe.errors import DataRefused
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model
from ffnprobe.models.sources import cache_folder
from ffnprobe.models.step import Hook
from ffnprobe.options import Progress
from ffnprobe.store import Store, describe, hold_store

# Called with how many tokens are done, and with the share of the corpus read where it is known.
PREFIXES, PREFIX_TOKENS = 4, 6
SECONDS_BETWEEN_WRITES = 30.0
# A shorter context than most models have: keys far into a text are like those before.
CONTEXT = 256


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
    known = model.provenance(run_by=model.run_by, settings={
        "sources": len(sources), "hash": _hash(sources), "context": settings.context,
        "lines": lines, "block_tokens": block_tokens, "layers": chosen,
    })  # fmt: skip
    start = _nothing(model, chosen, known)
    if store is None:
        with closing(blocks):
            return _filled(_measure(model, blocks, settings, start, None, progress))
    asked = asdict(settings) | {"layers": chosen}
    manifest = describe(KEYS, model, settings=asked, texts=[each.describe() for each in sources])
    with closing(blocks), hold_store(Path(store), manifest) as held:
        found = read_keys(held) or start
        return _filled(_measure(model, blocks, settings, found, held, progress))


def _hash(sources: Sequence[TextSource]) -> str:
    """Tell one corpus from another, by what its sources hold."""
    return xxhash.xxh3_128_hexdigest(repr([source.describe() for source in sources]).encode())


def _filled(moments: KeyMoments) -> KeyMoments:
    if moments.done.tokens == 0:
        raise DataRefused("the corpus is empty.", remedy="a file with some text")
    return moments


def _nothing(model: Model, layers: Sequence[int], known: object) -> KeyMoments:
    wide = model.config.d_mlp
    return KeyMoments(
        sums={layer: torch.zeros(wide, wide, dtype=torch.float64) for layer in layers},
        totals=torch.zeros(len(layers), wide, dtype=torch.float64),
        done=Done(), prefixes=(), provenance=known, is_finished=False,  # type: ignore[arg-type]
    )  # fmt: skip


def _measure(
    model: Model,
    blocks: Iterator[Block],
    settings: ScanSettings,
    moments: KeyMoments,
    store: Store | None,
    progress: Progress | None,
) -> KeyMoments:
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
    written = time.monotonic()
    for block in blocks:
        moments = _add(model, block, settings, moments)
        if store is not None and time.monotonic() - written > SECONDS_BETWEEN_WRITES:
            write_keys(store, moments)
            written = time.monotonic()
        if progress is not None:
            progress(block.done.tokens, block.share)
    finished = KeyMoments(
        moments.sums, moments.totals, moments.done, moments.prefixes, moments.provenance
    )
    if store is not None and finished.done.tokens:
        write_keys(store, finished)
    return finished


def _add(model: Model, block: Block, settings: ScanSettings, moments: KeyMoments) -> KeyMoments:
    """Add one block's keys to the sums, in place: they are this scan's own."""
    totals = moments.totals

    def tap(order: int, layer: int) -> Hook:
        def see(activations: Tensor) -> None:
            keys = rearrange(
                activations[:, int(settings.bos) :], "batch pos neuron -> (batch pos) neuron"
            )
            moments.sums[layer].add_((keys.mT @ keys).double().cpu())
            totals[order] += keys.sum(0, dtype=torch.float64).cpu()

        return see

    for _, ids in group_passages(block.passages, settings, model.vocab.bos):
        watch(model, ids, {("activations", n): tap(o, n) for o, n in enumerate(moments.layers)})
    prefixes = moments.prefixes or _choose_prefixes(block)
    return KeyMoments(
        moments.sums, totals, block.done, prefixes, moments.provenance, is_finished=False
    )


def _choose_prefixes(block: Block) -> tuple[tuple[int, ...], ...]:
    """Take the first tokens of texts spread over a block, each once."""
    begun = [passage.ids[:PREFIX_TOKENS] for passage in block.passages]
    whole = [ids for ids in dict.fromkeys(begun) if len(ids) == PREFIX_TOKENS]
    return tuple(whole[:: max(1, len(whole) // PREFIXES)][:PREFIXES])


def name_store(model: Model, texts: Texts) -> Path:
    """Name the folder in the user's cache for the keys of a model over texts."""
    return cache_folder() / "keys" / f"{model.identity}-{_hash(find_texts(texts))}"
