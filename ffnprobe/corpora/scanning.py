"""Scan a corpus: for every neuron the texts that open it most and least, its moments and firing.

>>> import ffnprobe as fp
>>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
>>> scan.done.tokens, scan.done.texts
(7, 1)

Every number is over all tokens but BOS. The scan of a corpus is the same to the last bit on every
engine and with any number of workers, provided the processors round alike (on GPUs it is not), and
after any number of interruptions; how the texts are split over files can move the last digits.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from ffnprobe.corpora import store as stores
from ffnprobe.corpora.engines import measure_blocks
from ffnprobe.corpora.passages import Block, Done, Settings, cut_blocks
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.sources import Texts, TextSource, find_texts
from ffnprobe.corpora.statistics import Statistics, merge, no_statistics
from ffnprobe.errors import DataRefused
from ffnprobe.models.model import Model

# Called with how many tokens are done, and with the share of the corpus read where it is known.
Progress = Callable[[int, float | None], None]


@torch.no_grad()
def scan(
    model: Model,
    texts: Texts,
    *,
    store: str | os.PathLike[str] | None = None,
    context: int | None = None,
    bos: bool | None = None,
    k: int = 20,
    column: str = "text",
    errors: str = "strict",
    block_tokens: int = Settings.block_tokens,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Scan:
    """Scan texts, keeping the k strongest and weakest examples of every neuron.

    With a store, a scan that was stopped goes on after the last block it finished, and one that is
    finished is read. Workers are threads here, one for each core, or Ray actors on a cluster.

    >>> import ffnprobe as fp
    >>> texts = {"one": "Michael Jordan plays the sport of basketball", "two": "Tiger Woods plays golf"}
    >>> fp.scan(fp.load("pocket"), texts, k=5)
    Scan(pocket: 2 texts, 14 tokens ...)
    """
    settings = Settings(
        context=model.config.positions if context is None else context,
        bos=model.vocab.puts_bos(bos), k=k, column=column, errors=errors, block_tokens=block_tokens,
    ).check(model)  # fmt: skip
    sources = find_texts(texts)
    manifest = _describe(model, sources, settings)
    folder = None if store is None else Path(store)
    state: stores.State | None = None
    if folder is not None:
        stores.check_folder(folder, manifest)
        state = stores.read_state(folder)
    if state is None:
        c = model.config
        nothing = no_statistics(c.layers, c.d_mlp, k=k, length=settings.length)
        state = stores.State(nothing, Done(), is_finished=False)
    is_known = all(source.hash is not None for source in sources)
    if not (state.is_finished and is_known):
        blocks = _skip(cut_blocks(model.vocab, sources, settings), state, folder)
        measured = measure_blocks(
            model, blocks, settings, engine=engine, workers=workers, address=address
        )
        state = _go_on(model, manifest, state, measured, folder, progress)
    if state.done.tokens == 0:
        raise DataRefused(
            f"the corpus is empty: {len(sources)} source{'s' * (len(sources) != 1)}, no text.",
            remedy="a file with some text",
        )
    return Scan(manifest, state.statistics, state.done, model.vocab.shown)


def _go_on(
    model: Model,
    manifest: dict[str, Any],
    state: stores.State,
    measured: Iterator[tuple[Block, Statistics]],
    folder: Path | None,
    progress: Progress | None,
) -> stores.State:
    """Merge block after block into the state and the store, to the end of the corpus."""
    if progress is not None:
        progress(state.done.tokens, None)
    for block, statistics in measured:
        if folder is not None and state.done.blocks == 0:
            stores.begin(folder, manifest, model.vocab.shown)
        state = stores.State(merge(state.statistics, statistics), block.done, is_finished=False)
        if folder is not None:
            stores.write_state(folder, state)
        if progress is not None:
            progress(block.done.tokens, block.share)
    state = stores.State(state.statistics, state.done, is_finished=True)
    if folder is not None and state.done.tokens:
        stores.write_state(folder, state)
    return state


def _skip(blocks: Iterator[Block], state: stores.State, folder: Path | None) -> Iterator[Block]:
    """Pass over the blocks that are done, checking that they are the same tokens as then."""
    done = Done()
    for block in islice(blocks, state.done.blocks):
        done = block.done
    if done != state.done:
        raise _changed(folder)
    for block in blocks:
        if state.is_finished:
            raise _changed(folder)
        yield block


def _changed(folder: Path | None) -> DataRefused:
    return DataRefused(
        f"{folder} is a scan of other texts: these have other tokens.",
        remedy=f"the same texts again, another --store, or rm -r {folder}",
    )


def _describe(model: Model, sources: list[TextSource], settings: Settings) -> dict[str, Any]:
    """Describe a scan: what its numbers depend on."""
    return {
        "format": stores.FORMAT,
        "model": {
            "name": model.name,
            "source": model.source.as_dict(),
            "fingerprint": model.fingerprint,
            "layers": model.config.layers,
            "neurons": model.config.d_mlp,
        },
        "settings": asdict(settings),
        "texts": [source.describe() for source in sources],
    }
