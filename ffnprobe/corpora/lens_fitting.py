"""Fit a Jacobian lens: the mean effect of the layers between a neuron and the words, over passages.

For each passage every row of J_l and every column of K_l (`ffnprobe.reading.jacobian`) is measured exactly: d_model
backward passes give the first of all layers at once, d_model forward products the second. A dozen passages
are enough to read by; the sums are kept in a store after each, so that a fit that is stopped resumes and a later
one with more passages adds to it.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Argument, Option, Progress, verb
from ffnprobe.corpora.passages import ScanSettings, cut_blocks
from ffnprobe.corpora.text_sources import Texts, find_texts
from ffnprobe.errors import DataRefused
from ffnprobe.models.forward import embed
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise
from ffnprobe.reading.jacobian import (
    AT_ONCE,
    LENS,
    PART,
    JacobianLens,
    count_positions,
    decode_lens,
    place_rows,
    pull_rows,
    push_rows,
    run_layers,
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
    JacobianLens(Jacobian lens of pocket over 1 passage)
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
    zeros = {
        name: torch.zeros(layers, c.d_model, c.d_model)
        for name, layers in (("J", c.layers - 1), ("K", c.layers))
    }
    with nullcontext() if store is None else hold_store(Path(store), manifest) as held:
        # Replaced whole, so that an interrupt finds sums over so many passages.
        sums = (None if held is None else held.read(PART)) or Part({"passages": 0}, zeros)
        done = ticks = 0

        def tick(many: int) -> None:
            nonlocal ticks
            ticks += many
            if progress is not None:
                progress(2 * done * c.d_model + ticks, total)

        def keep() -> None:
            if held is not None and sums.said["passages"]:
                held.write(PART, *sums)

        last_write = time.monotonic()
        try:
            with closing(_cut(model, sources, settings, skip)) as long:
                done = sums.said["passages"]
                for ids in islice(long, done, passages):
                    counted, ticks = count_positions(len(ids), skip), 0
                    measured = {
                        "J": measure_answers(model, ids, counted, tick),
                        "K": measure_questions(model, ids, counted, tick),
                    }
                    done += 1
                    added = provenance.including(passages=done).as_dict()
                    sums = Part(
                        {"passages": done, "provenance": added},
                        {name: sums.tensors[name] + each.cpu() for name, each in measured.items()},
                    )
                    if time.monotonic() - last_write > SECONDS_BETWEEN_WRITES:
                        keep()
                        last_write = time.monotonic()
        except KeyboardInterrupt:
            keep()
            kept = f"{sums.said['passages']} of {passages} passages are kept in {store}; the same command resumes."
            raise KeyboardInterrupt(kept if held is not None else "") from None
        keep()
    if not sums.said["passages"]:
        raise DataRefused(
            f"no passage is longer than the {skip} positions that count for nothing.",
            remedy="longer texts, or a smaller skip",
        )
    found = decode_lens(sums).check(model)
    return found if store is None else replace(found, where=os.fspath(store))


def measure_answers(
    model: Model, ids: Sequence[int], counted: list[int], tick: Callable[[int], None]
) -> Float[Tensor, "layer d_model d_model2"]:
    """Return J over one passage, of every layer but the last: a backward pass for each of its rows."""
    units = torch.eye(model.config.d_model, device=model.device)
    if model.config.layers == 1:
        return torch.zeros(0, *units.shape)
    parts = []
    with torch.enable_grad():
        streams = [run_layers(model, embed(model, torch.tensor([ids])), range(1)).requires_grad_()]
        for layer in range(1, model.config.layers):
            streams.append(run_layers(model, streams[-1], range(layer, layer + 1)))
        for rows in torch.split(units, AT_ONCE):
            slopes = pull_rows(streams[-1], streams[:-1], place_rows(rows, len(ids), counted))
            parts.append(torch.stack([each[:, 0, counted].mean(dim=1) for each in slopes]))
            tick(len(rows))
    return torch.cat(parts, dim=1)


def measure_questions(
    model: Model, ids: Sequence[int], counted: list[int], tick: Callable[[int], None]
) -> Float[Tensor, "layer d_model d_model2"]:
    """Return K over one passage, of every layer: a forward product for each of its columns."""
    embedded, parts = embed(model, torch.tensor([ids])), []

    def look(stream: Tensor) -> Tensor:
        seen: list[Tensor] = []
        hook = {"before_mlp": lambda rows: seen.append(normalise(model, rows))}
        run_layers(model, stream, range(model.config.layers), hook)
        return torch.stack(seen)

    pattern = "row layer pos d_model -> layer d_model row"
    for rows in torch.split(torch.eye(model.config.d_model, device=model.device), AT_ONCE):
        moved = push_rows(look, embedded, place_rows(rows, len(ids), counted))
        parts.append(reduce(moved[:, :, 0, counted], pattern, "mean"))
        tick(len(rows))
    return torch.cat(parts, dim=2)


def _cut(
    model: Model, sources: Any, settings: ScanSettings, skip: int
) -> Generator[tuple[int, ...]]:
    """Cut texts into passages, and yield the tokens of those long enough to count, BOS before them."""
    begin = (model.vocab.bos,) if settings.bos and model.vocab.bos is not None else ()
    with closing(cut_blocks(model.vocab, sources, settings)) as blocks:
        for block in blocks:
            for passage in block.passages:
                ids = (*begin, *passage.ids)
                if len(count_positions(len(ids), skip)):
                    yield ids
