"""Fit a Jacobian lens: the mean effect of the layers between a neuron and the words, over passages.

For each passage every row of J_l and every column of K_l (`ffnprobe.reading.jacobian`) is measured exactly: d_model
backward passes give the first of all layers at once, d_model forward products the second. A dozen passages
are enough to read by; the sums are kept in a store after each, so that a fit that is stopped resumes and a later
one with more passages adds to it.
"""

import os
import time
from collections.abc import Generator
from contextlib import closing, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch

from ffnprobe.arguments import Argument, Option, Progress, verb
from ffnprobe.corpora.passages import Passage, ScanSettings, cut_blocks
from ffnprobe.corpora.text_sources import Texts, find_texts
from ffnprobe.errors import DataRefused
from ffnprobe.models.model import Model
from ffnprobe.reading.jacobian import (
    LENS,
    PART,
    JacobianLens,
    count_positions,
    decode_lens,
    measure_answers,
    measure_questions,
)
from ffnprobe.store import Part, describe, hold_store

SECONDS_BETWEEN_WRITES = 30.0


@verb
@torch.no_grad()
def fit_lens(
    model: Model,
    texts: Annotated[
        Texts,
        Argument(
            "Text, .jsonl and .parquet files, folders, globs, hub:NAME[:CONFIG[:SPLIT]], or -.",
            list[str], metavar="TEXT…",
        ),
    ],
    *,
    store: Annotated[
        str | os.PathLike[str] | None,
        Option("Keep the lens in this folder; the same command resumes.", str | None, metavar="DIR"),
    ] = None,
    passages: Annotated[int, Option("Over how many passages, the first long enough.", least=1)] = 12,
    context: Annotated[int, Option("The longest passage, in tokens.", least=4)] = 64,
    skip: Annotated[int, Option("How many first positions of a passage count for nothing.", least=0)] = 16,
    lines: Annotated[bool, Option("Take each line of a text file as a separate text.")] = False,
    progress: Progress | None = None,
) -> JacobianLens:  # fmt: skip
    """Fit a Jacobian lens, through which answers and questions are read with the layers between.

    It costs about 2 d_model passes for each passage: minutes for a small model, hours for one of a
    billion parameters, for which `use_lens(model, "on-demand")` reads the neurons asked for without a fit.
    `use_lens(model, lens)` (`--lens DIR`) reads by it.

    >>> import ffnprobe as fp
    >>> lens = fp.fit_lens(fp.load("pocket"), {"one": "Tiger Woods plays golf . " * 3}, skip=1)
    >>> lens
    JacobianLens(Jacobian lens of pocket over 1 passages)
    """
    settings = ScanSettings(
        context=min(context, model.config.positions), bos=model.vocab.puts_bos(None), top=1, lines=lines
    ).check(model)  # fmt: skip
    sources = find_texts(texts)
    model.check()
    asked = {**asdict(settings), "skip": skip}
    manifest = describe(LENS, model, settings=asked, texts=[each.describe() for each in sources])
    shown = {"context": settings.context, "skip": skip, "sources": len(sources)}
    provenance = model.provenance(run_by=model.run_by, settings=shown)
    c = model.config
    total = 2 * passages * c.d_model
    sums = {"J": torch.zeros(c.layers - 1, c.d_model, c.d_model),
            "K": torch.zeros(c.layers, c.d_model, c.d_model)}  # fmt: skip
    done = 0
    with nullcontext() if store is None else hold_store(Path(store), manifest) as held:
        part = None if held is None else held.read(PART)
        if part is not None:
            done, sums = part.said["passages"], {name: each.clone() for name, each in part.tensors.items()}  # fmt: skip
        ticks = 2 * done * c.d_model

        def tick(many: int) -> None:
            nonlocal ticks
            ticks += many
            if progress is not None:
                progress(ticks, total)

        def encode() -> Part:
            said = {"passages": done, "provenance": provenance.including(passages=done).as_dict()}
            return Part(said, sums)

        last_write = time.monotonic()
        with closing(_cut(model, sources, settings, skip)) as long:
            for ids in islice(long, done, passages):
                counted = count_positions(len(ids), skip)
                one = measure_answers(model, ids, counted, tick).cpu()
                sums["K"] += measure_questions(model, ids, counted, tick).cpu()
                sums["J"] += one
                done += 1
                is_due = time.monotonic() - last_write > SECONDS_BETWEEN_WRITES
                if held is not None and (is_due or done == passages):
                    held.write(PART, *encode())
                    last_write = time.monotonic()
        if not done:
            raise DataRefused(
                f"no passage is longer than the {skip} positions that count for nothing.",
                remedy="longer texts, or a smaller skip",
            )
        if held is not None:
            held.write(PART, *encode())
        return decode_lens(encode()).check(model)


def _cut(
    model: Model, sources: Any, settings: ScanSettings, skip: int
) -> Generator[tuple[int, ...]]:
    """Cut texts into passages, and yield the tokens of those long enough to count, BOS before them."""
    begin = (model.vocab.bos,) if settings.bos and model.vocab.bos is not None else ()
    with closing(cut_blocks(model.vocab, sources, settings)) as blocks:
        for block in blocks:
            for passage in block.passages:
                ids = (*begin, *_ids(passage))
                if len(count_positions(len(ids), skip)):
                    yield ids


def _ids(passage: Passage) -> tuple[int, ...]:
    return tuple(map(int, passage.ids))
