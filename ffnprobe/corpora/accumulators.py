"""Measure one block: run its passages through the model and account for every activation.

A block is run the same way wherever it is run: passages of one length together, shortest first,
about `TOKENS_AT_ONCE` tokens at a time and without padding, each batch added up in the same order.
With one thread a block's result is therefore the same to the last bit on every machine whose
processor rounds in the same way.

Activations are used up layer by layer as the model makes them; none is kept.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from einops import rearrange, reduce
from jaxtyping import Float32, Int64
from torch import Tensor

from ffnprobe.corpora.passages import Block, Passage, ScanSettings
from ffnprobe.corpora.peaks import (
    AFTER,
    BEFORE,
    NO_TOKEN,
    SAMPLE,
    WINDOW,
    Peaks,
    Sample,
    TopK,
    draw,
    unpack,
)
from ffnprobe.corpora.statistics import (
    BINS,
    Statistics,
    centre_sums,
    count_bins,
    first_of,
    number_ranges,
)
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import Hook

TOKENS_AT_ONCE = 1024
# Rows of activations whose float64 copies stay in a core's cache: 32 × 3,072 × 8 bytes are 0.8 MB.
ROWS_IN_CACHE = 32


class Accumulator:
    """One layer's account of a block, kept while its batches come in."""

    def __init__(self, neurons: int, ranges: int, k: int, device: torch.device) -> None:
        self.pivot: Tensor | None = None
        self.position_sums = torch.zeros(ranges, neurons, dtype=torch.float64, device=device)
        self.powers = torch.zeros(3, neurons, dtype=torch.float64, device=device)
        self.histogram = torch.zeros(neurons, BINS, dtype=torch.int64, device=device)
        self.strongest = TopK(neurons, k, device)
        self.weakest = TopK(neurons, k, device, sign=-1)
        # Activations and scores of the tokens drawn at random.
        self.drawn = torch.full((2, neurons, SAMPLE), float("nan"), device=device)

    def draw(
        self,
        activations: Float32[Tensor, "batch pos neuron"],
        scores: Float32[Tensor, "batch pos neuron"],
        picked: Sequence[tuple[int, int, int]],
    ) -> None:
        """Keep the tokens picked: their row in the batch, their slot in the sample, their offset."""
        for row, slot, offset in picked:
            self.drawn[0, :, slot] = activations[row, offset]
            self.drawn[1, :, slot] = scores[row, offset]

    def see(
        self,
        activations: Float32[Tensor, "batch pos neuron"],
        scores: Float32[Tensor, "batch pos neuron"],
        passages: Int64[Tensor, " batch"],
        ranges: Int64[Tensor, " pos"],
    ) -> None:
        """Account for a batch of passages."""
        self.strongest.see(activations, scores, passages)
        self.weakest.see(scores, activations, passages)
        rows = rearrange(activations, "batch pos neuron -> (batch pos) neuron")
        self.histogram += count_bins(rows)
        if self.pivot is None:
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
    c = model.config
    ranges = len(first_of(settings.length))
    # Apple's GPUs have no float64.
    device = torch.device("cpu") if model.device.type == "mps" else model.device
    meters = [Accumulator(c.d_mlp, ranges, settings.top, device) for _ in range(c.layers)]
    counts = torch.zeros(ranges, dtype=torch.int64)
    chosen = draw(block)
    # What closes a neuron is its score, and where it has a gate the gate's.
    asked = "gate_scores" if c.is_gated else "scores"
    for numbers, ids in group_passages(block.passages, settings, model.vocab.bos):
        check()
        length = ids.shape[1] - settings.bos
        numbered = number_ranges(length)
        counts += torch.bincount(numbered, minlength=ranges) * len(numbers)
        rows, spans = numbers.to(device), numbered.to(device)
        picked = [(row, *chosen[n]) for row, n in enumerate(numbers.tolist()) if n in chosen]
        held: dict[int, Tensor] = {}

        def keep(layer: int, held: dict[int, Tensor] = held) -> Hook:
            def see(scores: Tensor) -> None:
                held[layer] = scores[:, int(settings.bos) :].to(device)

            return see

        def tap(
            layer: int, held: dict[int, Tensor] = held, rows: Tensor = rows, spans: Tensor = spans,
            picked: list[tuple[int, int, int]] = picked,
        ) -> Hook:  # fmt: skip
            def see(activations: Tensor) -> None:
                own, scores = activations[:, int(settings.bos) :].to(device), held.pop(layer)
                meters[layer].see(own, scores, rows, spans)
                meters[layer].draw(own, scores, picked)

            return see

        layers = range(c.layers)
        taps = {(asked, layer): keep(layer) for layer in layers}
        watch(model, ids, taps | {("activations", layer): tap(layer) for layer in layers})
    return _gather(meters, counts, block, chosen)


def group_passages(
    passages: tuple[Passage, ...], settings: ScanSettings, bos: int | None
) -> Iterator[tuple[Int64[Tensor, " batch"], Int64[Tensor, "batch pos"]]]:
    """Batch passages of one length, the shortest first: their numbers in the block, their ids."""
    front = [bos] if settings.bos else []
    by_length: dict[int, list[int]] = {}
    for number, passage in enumerate(passages):
        by_length.setdefault(len(passage.ids), []).append(number)
    for length in sorted(by_length):
        size = max(1, TOKENS_AT_ONCE // length)
        for numbers in torch.split(torch.tensor(by_length[length]), size):
            yield numbers, torch.tensor([[*front, *passages[n].ids] for n in numbers.tolist()])


def _gather(
    meters: list[Accumulator], counts: Tensor, block: Block, chosen: dict[int, tuple[int, int]]
) -> Statistics:
    """Put the layers' accounts together."""

    def stack(pick: Callable[[Accumulator], Tensor]) -> Tensor:
        return torch.stack([pick(meter).cpu() for meter in meters])

    def pivot_of(meter: Accumulator) -> Tensor:
        assert meter.pivot is not None, "a block has passages, and a passage has tokens"
        return meter.pivot

    pivots = stack(pivot_of)
    gaps = stack(lambda meter: meter.position_sums)
    first = reduce(gaps, "layer range neuron -> layer neuron", "sum")
    powers = rearrange(stack(lambda m: m.powers), "layer power neuron -> power layer neuron")
    return Statistics(
        moments=centre_sums(int(counts.sum()), pivots, torch.cat([first[None], powers])),
        histogram=stack(lambda meter: meter.histogram),
        position_sums=gaps + pivots[:, None] * counts[:, None],
        position_counts=counts,
        strongest=_peaks(
            stack(lambda m: m.strongest.keys), stack(lambda m: m.strongest.offsets),
            stack(lambda m: m.strongest.others), block, by="activations",
        ),
        weakest=_peaks(
            stack(lambda m: m.weakest.keys), stack(lambda m: m.weakest.offsets),
            stack(lambda m: m.weakest.others), block, by="scores",
        ),
        sample=_sample(stack(lambda m: m.drawn), block, chosen),
    )  # fmt: skip


def _sample(drawn: Tensor, block: Block, chosen: dict[int, tuple[int, int]]) -> Sample:
    """Look up the texts, positions and surrounding tokens of the tokens drawn."""
    slots = {slot: (number, offset) for number, (slot, offset) in chosen.items()}
    numbers = torch.tensor([slots.get(slot, (-1, 0))[0] for slot in range(SAMPLE)])
    offsets = torch.tensor([slots.get(slot, (-1, 0))[1] for slot in range(SAMPLE)])
    is_none = numbers < 0
    texts, starts = (torch.tensor([passage[part] for passage in block.passages]) for part in (0, 1))
    windows = _windows(block.passages, numbers, offsets)
    return Sample(
        passages=torch.where(is_none, -1, block.first + numbers),
        texts=torch.where(is_none, -1, texts[numbers]),
        positions=(starts[numbers] + offsets).int().masked_fill(is_none, -1),
        windows=windows.masked_fill(is_none[:, None], NO_TOKEN),
        activations=drawn[:, 0],
        scores=drawn[:, 1],
    )


def _peaks(keys: Tensor, offsets: Tensor, others: Tensor, block: Block, *, by: str) -> Peaks:
    """Look up the texts, positions and surrounding tokens of a block's extreme examples."""
    values, numbers = unpack(keys)
    is_none = numbers < 0
    texts, starts = (torch.tensor([passage[part] for passage in block.passages]) for part in (0, 1))
    positions = (starts[numbers] + offsets).int()
    return Peaks(
        activations=values if by == "activations" else others,
        scores=others if by == "activations" else (-values).masked_fill(is_none, float("nan")),
        passages=torch.where(is_none, -1, block.first + numbers),
        texts=torch.where(is_none, -1, texts[numbers]),
        positions=positions.masked_fill(is_none, -1),
        windows=_windows(block.passages, numbers, offsets).masked_fill(
            is_none[..., None], NO_TOKEN
        ),
    )


def _windows(passages: tuple[Passage, ...], numbers: Tensor, offsets: Tensor) -> Tensor:
    """Cut the tokens around each example out of its passage; NO_TOKEN past its ends."""
    none_before, none_after = [NO_TOKEN] * BEFORE, [NO_TOKEN] * AFTER
    lengths = torch.tensor([len(passage.ids) + BEFORE + AFTER for passage in passages])
    padded = [token for p in passages for token in (*none_before, *p.ids, *none_after)]
    starts = torch.cumsum(lengths, dim=0) - lengths
    first = starts[numbers] + offsets
    return torch.tensor(padded, dtype=torch.int32)[first[..., None] + torch.arange(WINDOW)]
