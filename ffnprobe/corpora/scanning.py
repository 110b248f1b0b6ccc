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
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated

import torch

from ffnprobe.arguments import verb
from ffnprobe.corpora.engines import MeasuredBlocks, measure_blocks
from ffnprobe.corpora.kept import keep, none_kept
from ffnprobe.corpora.passages import Block, Done, ScanSettings, cut_blocks
from ffnprobe.corpora.scans import Scan
from ffnprobe.corpora.sources import Texts, TextSource, find_texts
from ffnprobe.corpora.states import SCAN, State, read_state, write_state
from ffnprobe.corpora.statistics import merge, no_statistics
from ffnprobe.errors import DataRefused
from ffnprobe.models.model import Model
from ffnprobe.options import (
    TOP,
    Address,
    Argument,
    Bos,
    Engine,
    Option,
    Progress,
    Workers,
)
from ffnprobe.store import Store, describe, hold_store, other_store

# Called with how many tokens are done, and with the share of the corpus read where it is known.


@verb
@torch.no_grad()
def scan(
    model: Model,
    texts: Annotated[
        Texts,
        Argument(
            "Text, .jsonl and .parquet files, folders, globs, hub:NAME[:CONFIG[:SPLIT]], or -.",
            list[str], metavar="TEXT…",
        ),
    ],
    *,
    store: str | os.PathLike[str] | None = None,
    context: Annotated[
        int | None,
        Option("The longest passage, in tokens.", metavar="N", default="the model's context"),
    ] = None,
    top: Annotated[int, TOP.but("How many examples of each neuron.")] = 20,
    column: Annotated[str, Option("The column or JSON key that holds text.")] = "text",
    lines: Annotated[bool, Option("Take each line of a text file as a separate text.")] = False,
    errors: Annotated[
        str,
        Option(
            "Stop at bytes that are not UTF-8, or replace them.", choices=("strict", "replace")
        ),
    ] = "strict",
    block_tokens: Annotated[
        int, Option("Tokens in a block; an interruption loses one block at most.")
    ] = 16_384,
    tokens: Annotated[
        int | None,
        Option(
            "Stop after the block with the Nth token; a later scan with more resumes there.",
            metavar="N", default="all", least=1,
        ),
    ] = None,
    engine: Engine = "local",
    workers: Workers = None,
    address: Address = None,
    bos: Bos = None,
    progress: Progress | None = None,
) -> Scan:  # fmt: skip
    """Scan texts once for every neuron's strongest and weakest examples, moments and firing rate.

    A scan with a store is resumable: the same call again, and the result is the same. A text file is one text; with `lines`, each of its lines is one. With `tokens`, the scan ends with the
    block that holds so many; a later one with more resumes there. With a store, a scan that was stopped
    resumes after the last block it finished, and one that is finished is read; the store is held by one process at a time. Workers are threads here, one for each core (in a process of
    their own if torch computes with more than one thread in this one), or Ray actors on a cluster.

    >>> import ffnprobe as fp
    >>> texts = {"one": "Michael Jordan plays the sport of basketball", "two": "Tiger Woods plays golf"}
    >>> fp.scan(fp.load("pocket"), texts, top=5)
    Scan(pocket: 2 texts, 11 tokens ...)
    """
    settings = ScanSettings(
        context=model.config.positions if context is None else context,
        bos=model.vocab.puts_bos(bos), top=top, column=column, lines=lines,
        errors=errors, block_tokens=block_tokens,
    ).check(model)  # fmt: skip
    # A worker elsewhere loads it so, and numbers are the same to the last bit wherever they are made.
    model = replace(model, hooks=False) if model.hooks else model
    sources = find_texts(texts)
    manifest = describe(
        SCAN, model, settings=asdict(settings), texts=[source.describe() for source in sources]
    )
    measured = partial(measure_blocks, engine=engine, workers=workers, address=address)
    if store is None:
        state = _measure(model, sources, settings, None, measured, progress, tokens)
    else:
        with hold_store(Path(store), manifest) as held:
            state = _measure(model, sources, settings, held, measured, progress, tokens)
            manifest = held.manifest
    if state.done.tokens == 0:
        raise DataRefused(
            f"the corpus is empty: {len(sources)} source{'s' * (len(sources) != 1)}, no text.",
            remedy="a file with some text",
        )
    where = None if store is None else Path(store)
    return Scan(
        manifest, state.statistics, state.done, model.vocab.shown, kept=state.kept, folder=where
    )


def _measure(
    model: Model,
    sources: list[TextSource],
    settings: ScanSettings,
    store: Store | None,
    measured: Callable[[Model, Iterator[Block], ScanSettings], MeasuredBlocks],
    progress: Progress | None,
    most: int | None,
) -> State:
    """Merge block after block into the state and the store, to the end of the corpus or `most` tokens."""
    c = model.config
    nothing = no_statistics(c.layers, c.d_mlp, k=settings.top, length=settings.length)
    known = None if store is None else read_state(store)
    state = known[0] if known else State(nothing, Done(), is_finished=False, kept=none_kept())
    if state.is_finished and all(source.hash is not None for source in sources):
        return state
    cut = cut_blocks(model.vocab, sources, settings)
    blocks = _skip(cut, state, store)
    if most is not None:
        blocks = takewhile(lambda block: _tokens_before(block) < most, blocks)
    if progress is not None:
        progress(state.done.tokens, None)
    with closing(cut), closing(measured(model, blocks, settings)) as results:
        for block, statistics in results:
            state = State(
                merge(state.statistics, statistics), block.done, is_finished=False,
                kept=keep(state.kept, block),
            )  # fmt: skip
            if store is not None:
                write_state(store, state, model.vocab.shown)
            if progress is not None:
                progress(block.done.tokens, block.share)
    if most is not None and state.done.tokens >= most:
        return state  # whether the corpus ends here is not known
    state = replace(state, is_finished=True)
    if store is not None and state.done.tokens:
        write_state(store, state, model.vocab.shown)
    return state


def _tokens_before(block: Block) -> int:
    return block.done.tokens - sum(len(passage.ids) for passage in block.passages)


def _skip(blocks: Iterator[Block], state: State, store: Store | None) -> Iterator[Block]:
    """Pass over the blocks that are done, checking that they are the same tokens as then."""
    done = Done()
    for block in islice(blocks, state.done.blocks):
        done = block.done
    if done != state.done:
        raise _changed(store)
    for block in blocks:
        if state.is_finished:
            raise _changed(store)
        yield block


def _changed(store: Store | None) -> DataRefused:
    assert store is not None, "only a store knows what was done before"
    return DataRefused(
        f"{store.folder} is a scan of other texts: these have other tokens.",
        remedy=f"the same texts again, or {other_store(store.folder)}",
    )
