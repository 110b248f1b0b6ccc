"""Measure one block: run its passages through the model and account for every activation.

A block is run the same way wherever it is run: passages of one length together, shortest first,
about `TOKENS_AT_ONCE` tokens at a time and without padding, each batch added up in the same order.
With one thread a block's result is therefore the same to the last bit on every machine whose
processor rounds in the same way.

Activations are used up layer by layer as the model makes them; none is kept.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from einops import rearrange, reduce
from jaxtyping import Float32, Int64
from torch import Tensor

from ffnprobe.corpora.passages import Block, Passage, ScanSettings, batch_lengths
from ffnprobe.corpora.peaks import SAMPLE, Occurrences, TopK, draw, locate, unpack
from ffnprobe.corpora.statistics import BINS, Statistics, centre_sums, count_bins, number_ranges
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model

TOKENS_AT_ONCE = 1024
# Rows of activations whose float64 copies stay in a core's cache: 32 × 3,072 × 8 bytes are 0.8 MB.
ROWS_IN_CACHE = 32


class Accumulator:
    """One layer's account of a block, kept while its batches come in."""

    pivot: Tensor  # near each neuron's mean: that of the first rows

    def __init__(self, neurons: int, ranges: int, k: int, device: torch.device) -> None:
        self.position_sums = torch.zeros(ranges, neurons, dtype=torch.float64, device=device)
        self.powers = torch.zeros(3, neurons, dtype=torch.float64, device=device)
        self.histogram = torch.zeros(neurons, BINS, dtype=torch.int64, device=device)
        self.strongest = TopK(neurons, k, device)
        self.weakest = TopK(neurons, k, device, sign=-1)
        # Activations and scores of the tokens drawn at random.
        self.drawn = torch.full((2, neurons, SAMPLE), float("nan"), device=device)

    def see(
        self,
        activations: Float32[Tensor, "batch pos neuron"],
        scores: Float32[Tensor, "batch pos neuron"],
        passages: Int64[Tensor, " batch"],
        ranges: Int64[Tensor, " pos"],
        picked: Sequence[tuple[int, int, int]],
    ) -> None:
        """Account for a batch; of the tokens picked: row in the batch, slot in the sample, offset."""
        self.strongest.see(activations, scores, passages)
        self.weakest.see(scores, activations, passages)
        for row, slot, offset in picked:
            self.drawn[0, :, slot] = activations[row, offset]
            self.drawn[1, :, slot] = scores[row, offset]
        rows = rearrange(activations, "batch pos neuron -> (batch pos) neuron")
        self.histogram += count_bins(rows)
        if not hasattr(self, "pivot"):
            self.pivot = reduce(rows[:ROWS_IN_CACHE].double(), "row neuron -> neuron", "mean")
        numbers = ranges.repeat(len(activations))
        for start in range(0, len(rows), ROWS_IN_CACHE):
            part = slice(start, start + ROWS_IN_CACHE)
            gaps = rows[part].double().sub_(self.pivot)
            squares = gaps * gaps
            self.position_sums.index_add_(0, numbers[part], gaps)
            self.powers[0] += squares.sum(dim=0)
            self.powers[1] += gaps.mul_(squares).sum(dim=0)
            self.powers[2] += squares.mul_(squares).sum(dim=0)


def measure(
    model: Model, block: Block, settings: ScanSettings, *, check: Callable[[], None] = lambda: None
) -> Statistics:
    """Run a block and return its statistics, on CPU; `check` is called before each batch."""
    c, front = model.config, int(settings.bos)
    many = int(number_ranges(settings.length).max()) + 1
    # Apple's GPUs have no float64.
    device = torch.device("cpu") if model.device.type == "mps" else model.device
    accumulators = [Accumulator(c.d_mlp, many, settings.top, device) for _ in range(c.layers)]
    counts = torch.zeros(many, dtype=torch.int64)
    chosen = draw(block)
    held: dict[int, Tensor] = {}

    def hold(layer: int, scores: Tensor) -> None:
        held[layer] = scores[:, front:].to(device)

    def account(layer: int, batch: tuple[Any, ...], activations: Tensor) -> None:
        own = activations[:, front:].to(device)
        accumulators[layer].see(own, held.pop(layer), *batch)

    # What closes a neuron is its score, and where it has a gate the gate's.
    asked = "gate_scores" if c.is_gated else "scores"
    hooks = {(asked, layer): partial(hold, layer) for layer in range(c.layers)}
    for numbers, ids in group_passages(block.passages, settings, model.vocab.bos):
        check()
        ranges = number_ranges(ids.shape[1] - front)
        counts += torch.bincount(ranges, minlength=many) * len(numbers)
        picked = [(row, *chosen[n]) for row, n in enumerate(numbers.tolist()) if n in chosen]
        batch = (numbers.to(device), ranges.to(device), picked)
        own = {("activations", n): partial(account, n, batch) for n in range(c.layers)}
        watch(model, ids, hooks | own)
    return _gather(accumulators, counts, block, chosen)


def group_passages(
    passages: Sequence[Passage], settings: ScanSettings, bos: int | None
) -> Iterator[tuple[Int64[Tensor, " batch"], Int64[Tensor, "batch pos"]]]:
    """Batch passages of one length, the shortest first: their numbers in the block, their ids."""
    front = [bos] if settings.bos else []
    lengths = [len(passage.ids) for passage in passages]
    for numbers in batch_lengths(lengths, tokens=TOKENS_AT_ONCE, most=len(passages)):
        yield torch.tensor(numbers), torch.tensor([[*front, *passages[n].ids] for n in numbers])


def _gather(
    accumulators: Sequence[Accumulator],
    counts: Tensor,
    block: Block,
    chosen: dict[int, tuple[int, int]],
) -> Statistics:
    pivots, gaps = _stack(accumulators, "pivot"), _stack(accumulators, "position_sums")
    first = reduce(gaps, "layer range neuron -> layer neuron", "sum")
    powers = rearrange(_stack(accumulators, "powers"), "layer power neuron -> power layer neuron")
    drawn = _stack(accumulators, "drawn")
    slots = {slot: (number, offset) for number, (slot, offset) in chosen.items()}
    numbers, offsets = torch.tensor([slots.get(slot, (-1, 0)) for slot in range(SAMPLE)]).unbind(1)
    return Statistics(
        moments=centre_sums(int(counts.sum()), pivots, torch.cat([first[None], powers])),
        histogram=_stack(accumulators, "histogram"),
        position_sums=gaps + pivots[:, None] * counts[:, None],
        position_counts=counts,
        strongest=_read_peaks([each.strongest for each in accumulators], block),
        weakest=_read_peaks([each.weakest for each in accumulators], block),
        sample=Occurrences(drawn[:, 0], drawn[:, 1], **locate(block, numbers, offsets)),
    )


def _stack(layers: Sequence[object], name: str) -> Tensor:
    return torch.stack([getattr(each, name).cpu() for each in layers])


def _read_peaks(layers: Sequence[TopK], block: Block) -> Occurrences:
    """Unpack a block's extreme examples and look up where they are."""
    values, numbers = unpack(_stack(layers, "keys"))
    activations = scores = _stack(layers, "others")
    if layers[0].sign > 0:
        activations = values
    else:
        scores = (-values).masked_fill(numbers < 0, float("nan"))
    return Occurrences(activations, scores, **locate(block, numbers, _stack(layers, "offsets")))
