"""Scan a corpus: for every neuron the texts that open it most and least, its moments and firing.

Every number is over all tokens but BOS. The scan of a corpus is the same to the last bit on every
engine and with any number of workers, provided the processors round alike (on GPUs it is not), and
after any number of interruptions; how the texts are split over files can move the last digits.

A store holds one part: how far the scan is, what it knows so far, and the vocabulary as it is shown, so that
examples need no model.
"""

import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch

from ffnprobe.arguments import TOP, Address, Argument, Bos, Engine, Option, Progress, Workers, verb
from ffnprobe.corpora.engines import MeasuredBlocks, measure_blocks
from ffnprobe.corpora.passages import Block, Done, Kept, ScanSettings, cut_blocks
from ffnprobe.corpora.statistics import Statistics, from_tensors, merge, no_statistics
from ffnprobe.corpora.text_sources import Texts, TextSource, find_texts
from ffnprobe.errors import DataRefused
from ffnprobe.files import quote
from ffnprobe.models import pocket
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Means, Model
from ffnprobe.models.sources import Source
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.results import Result
from ffnprobe.store import Store, describe, hold_store, open_store, other_store

if TYPE_CHECKING:
    import pandas as pd


SCAN = "scan"
# A neuron with more of its variance explained by position than this is position-only.
POSITION_ONLY = 0.9
# A scan of its own texts lies in the package with pocket; `analyses/pocket/pack_scan.py` packs it.
PACKED = pocket.FOLDER / "scan.tar.xz"


@dataclass(frozen=True, eq=False, repr=False)
class Scan(Result):
    """What a corpus showed of every neuron, with the description of the corpus.

    >>> import ffnprobe as fp
    >>> import tempfile
    >>> store = tempfile.mkdtemp() + "/scan"
    >>> done = fp.scan(fp.load("pocket"), {"one": "Tiger Woods plays golf"}, store=store)
    >>> fp.Scan.open(store).is_finished
    True
    """

    in_terminal: ClassVar = ("layers",)
    manifest: dict[str, Any]
    statistics: Statistics
    done: Done
    tokens: tuple[str, ...]
    is_finished: bool = True
    kept: Kept = field(default_factory=Kept.none)
    folder: Path | None = None

    @classmethod
    @verb
    def open(cls, folder: str | os.PathLike[str]) -> "Scan":
        """Open a store; one that is not finished tells what it knows so far."""
        store = open_store(Path(folder), SCAN, remedy=f"ffnprobe scan … --store {quote(folder)}")
        scan = _read(store)
        if scan is None:
            raise DataRefused(
                f"the scan in {folder} has finished no block yet.",
                remedy="the same scan again: it resumes",
            )
        return scan

    @property
    def title(self) -> str:
        """Name the model and the corpus."""
        return f"{self.manifest['model']['name']}: {self.corpus}"

    @property
    def corpus(self) -> str:
        """Describe the corpus in a line."""
        done, part = self.done, "" if self.is_finished else ", not finished"
        return f"{done.texts:,} texts, {done.tokens:,} tokens ({done.digest[:8]}{part})"

    @property
    def provenance(self) -> Provenance:
        """The model, the corpus and the settings behind every number."""
        model, options, done = self.manifest["model"], self.manifest["settings"], self.done
        settings: dict[str, Setting] = {
            "texts": done.texts, "tokens": done.tokens, "digest": done.digest[:8],
            "context": options["context"],
        }  # fmt: skip
        if not self.is_finished:
            settings["finished"] = False
        return Provenance(
            model["name"], Source.from_dict(model["source"]), model["fingerprint"], model["identity"],
            bos=options["bos"], run_by=model["run_by"], settings=settings,
        )  # fmt: skip

    @cached_property
    def means(self) -> Means:
        """Every neuron's mean activation, to replace a neuron's own with."""
        means = self.statistics.moments.mean.float()
        return Means(means, self.manifest["model"]["identity"], self.corpus)

    def check(self, model: Model) -> "Scan":
        """Return this scan if it is of this model, or refuse to mix them."""
        own = self.manifest["model"]
        if own["fingerprint"] != model.fingerprint:
            cause = (
                f"of other weights: {own['name']} ({own['fingerprint'][:8]}), "
                f"not {model.name} ({model.fingerprint[:8]})."
            )
        elif other := tell_apart(own["identity"], model.identity):
            cause = f"of {own['name']} with another {other}."
        else:
            return self
        raise DataRefused(f"the scan is {cause}", remedy=f"scan the texts with {model.name}")

    def find(self, name: str | NeuronId) -> NeuronId:
        """Return a neuron's name if the scan has it, or say what it has."""
        own = self.manifest["model"]
        neuron = name if isinstance(name, NeuronId) else NeuronId.parse(name)
        return neuron.check(layers=own["layers"], neurons=own["neurons"], model=own["name"])

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables: every neuron, and each layer."""
        return {"neurons": self.table, "layers": self.by_layer()}

    @property
    def table(self) -> "pd.DataFrame":
        """Every neuron: mean and shape of its activations, firing rate, dead, position-only."""
        facts, moments = self.statistics, self.statistics.moments
        names = [NeuronId(layer, neuron) for layer, neuron in np.ndindex(*facts.above.shape)]
        columns = {
            "mean_activation": moments.mean,
            "activation_variance": moments.variance,
            "activation_skew": moments.skew,
            "activation_kurtosis": moments.kurtosis,
            "firing_rate": facts.firing_rate,
            "position_share": facts.position_share,
            "is_dead": facts.above == 0,
            "is_position_only": facts.position_share > POSITION_ONLY,
        }
        return self.provenance.note(list_neurons(None, names, columns))

    def by_layer(self) -> "pd.DataFrame":
        """Table each layer: how many neurons, dead and position-only ones, the mean firing rate."""
        layers = self.table.groupby("layer").agg(
            neurons=("neuron", "count"),
            dead=("is_dead", "sum"),
            position_only=("is_position_only", "sum"),
            firing_rate=("firing_rate", "mean"),
        )
        return self.provenance.note(layers.reset_index())


def _read(store: Store) -> Scan | None:
    """Read what was last written to a store; None before the first block."""
    part = store.read(SCAN)
    if part is None:
        return None
    progress, tensors = part
    done = Done(**progress["done"])
    return Scan(
        store.manifest, from_tensors(tensors, done.tokens), done, tuple(progress["vocabulary"]),
        progress["is_finished"], Kept.read(tensors), store.folder,
    )  # fmt: skip


def _write(store: Store, scan: Scan) -> None:
    """Replace what was last written to a store."""
    progress = {
        "done": asdict(scan.done), "is_finished": scan.is_finished, "vocabulary": scan.tokens,
    }  # fmt: skip
    store.write(SCAN, progress, scan.statistics.tensors() | scan.kept.tensors())


def embedded_scan(model: Model) -> Scan | None:
    """Return the scan in the package if it is of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        return _unpack(PACKED).check(model)
    except DataRefused:
        return None


@cache
def _unpack(packed: Path) -> Scan:
    # Its tensors are mapped from the file; where files in use cannot be removed, it stays.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with tarfile.open(packed) as members:
            members.extractall(folder, filter="data")
        return Scan.open(folder)


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
        str, Option("Stop at bytes that are not UTF-8, or replace them.", choices=("strict", "replace")),
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

    A text file is one text; with `lines`, each of its lines is one. With a store, a scan that was stopped
    resumes after the last block it finished, and one that is finished is read; the store is held by one
    process at a time. With `tokens`, the scan ends with the block that holds so many; a later one with more
    resumes there. Workers are threads here, one for each core (in a process of their own if torch computes
    with more than one thread in this one), or Ray actors on a cluster.

    >>> import ffnprobe as fp
    >>> texts = {"one": "Michael Jordan plays the sport of basketball", "two": "Tiger Woods plays golf"}
    >>> fp.scan(fp.load("pocket"), texts, top=5)
    Scan(pocket: 2 texts, 11 tokens ...)
    """
    c = model.config
    settings = ScanSettings(
        context=c.positions if context is None else context,
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
    folder = None if store is None else Path(store)
    with nullcontext() if folder is None else hold_store(folder, manifest) as held:
        begun = Scan(
            manifest if held is None else held.manifest,
            no_statistics(c.layers, c.d_mlp, k=settings.top, length=settings.length),
            Done(), model.vocab.shown, is_finished=False, folder=folder,
        )  # fmt: skip
        so_far = (None if held is None else _read(held)) or begun
        scanned = _measure(model, sources, settings, so_far, held, measured, progress, tokens)
    if scanned.done.tokens == 0:
        raise DataRefused(
            f"the corpus is empty: {len(sources)} source{'s' * (len(sources) != 1)}, no text.",
            remedy="a file with some text",
        )
    return scanned


def _measure(
    model: Model,
    sources: list[TextSource],
    settings: ScanSettings,
    scan: Scan,
    store: Store | None,
    measured: Callable[[Model, Iterator[Block], ScanSettings], MeasuredBlocks],
    progress: Progress | None,
    most: int | None,
) -> Scan:
    """Merge block after block into the scan and the store, to the end of the corpus or `most` tokens."""
    if scan.is_finished and all(source.hash is not None for source in sources):
        return scan
    cut = cut_blocks(model.vocab, sources, settings)
    blocks = _skip(cut, scan)
    if most is not None:
        blocks = takewhile(lambda block: block.tokens_before < most, blocks)
    if progress is not None:
        progress(scan.done.tokens, None)
    with closing(cut), closing(measured(model, blocks, settings)) as results:
        for block, statistics in results:
            scan = replace(
                scan, statistics=merge(scan.statistics, statistics), done=block.done,
                is_finished=False, kept=scan.kept.add(block),
            )  # fmt: skip
            if store is not None:
                _write(store, scan)
            if progress is not None:
                progress(block.done.tokens, block.share)
    if most is not None and scan.done.tokens >= most:
        return scan  # whether the corpus ends here is not known
    scan = replace(scan, is_finished=True)
    if store is not None and scan.done.tokens:
        _write(store, scan)
    return scan


def _skip(blocks: Iterator[Block], scan: Scan) -> Iterator[Block]:
    """Pass over the blocks that are done, checking that they are the same tokens as then."""
    done = Done()
    for block in islice(blocks, scan.done.blocks):
        done = block.done
    has_changed = done != scan.done or (scan.is_finished and next(blocks, None) is not None)
    if has_changed:
        assert scan.folder is not None, "only a store knows what was done before"
        raise DataRefused(
            f"{scan.folder} is a scan of other texts: these have other tokens.",
            remedy=f"the same texts again, or {other_store(scan.folder)}",
        )
    yield from blocks
