"""Numbers of neurons: against scipy and numpy, and the same however the activations are split."""

import itertools

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ffnprobe.corpora.accumulators import Accumulator, _gather
from ffnprobe.corpora.passages import Block, Done, Passage, ScanSettings
from ffnprobe.corpora.peaks import SAMPLE, find_largest, pack, unpack
from ffnprobe.corpora.peaks import draw as draw_tokens
from ffnprobe.corpora.statistics import (
    BINS,
    EDGES,
    SIDE,
    Statistics,
    count_bins,
    first_of,
    merge,
    no_statistics,
    number_ranges,
)

SETTINGS = ScanSettings(context=41, top=3)


def measured(activations: torch.Tensor, first: int = 0) -> Statistics:
    """Make a block's statistics out of activations `[passage layer pos neuron]` as they stand."""
    passages, layers, length, neurons = activations.shape
    ranges = len(first_of(SETTINGS.length))
    accumulators = [
        Accumulator(neurons, ranges, SETTINGS.top, torch.device("cpu")) for _ in range(layers)
    ]
    cut = tuple(Passage(first + n, 0, tuple(range(length))) for n in range(passages))
    block = Block(first, cut, Done(), None)
    chosen = draw_tokens(block)
    for accumulator, seen in zip(accumulators, activations.transpose(0, 1), strict=True):
        scores = 3 * seen - 1  # rises with the activation, so that both rank alike
        picked = [(number, *at) for number, at in chosen.items()]
        accumulator.see(seen, scores, torch.arange(passages), number_ranges(length), picked)
    counts = torch.bincount(number_ranges(length), minlength=ranges) * passages
    return _gather(accumulators, counts, block, chosen)


def draw(seed: int, passages: int = 12) -> torch.Tensor:
    """Draw activations, rounded so that many are equal."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(passages, 2, 40, 5, generator=generator) * 2
    return torch.nn.functional.gelu(drawn.round() / 2)


def same(a: Statistics, b: Statistics) -> None:
    """Check that examples and counts are equal, and sums to rounding."""
    assert a.moments.count == b.moments.count
    others = b.tensors()
    for name, tensor in a.tensors().items():
        if tensor.is_floating_point() and not name.endswith(("activations", "scores")):
            assert torch.allclose(tensor, others[name], rtol=1e-11, atol=1e-9), name
        else:
            assert torch.equal(tensor.nan_to_num(9), others[name].nan_to_num(9)), name


def test_moments_are_scipys():
    # A mean far from zero beside the spread: plain sums of powers would lose every digit.
    drawn = draw(0).double() * 1e-3 + 5
    found = measured(drawn.float()).moments
    rows = drawn.float().double().permute(1, 3, 0, 2).flatten(2).numpy()
    assert found.mean.numpy() == pytest.approx(rows.mean(-1), rel=1e-12)
    assert found.variance.numpy() == pytest.approx(rows.var(-1), rel=1e-8)
    assert found.skew.numpy() == pytest.approx(scipy.stats.skew(rows, axis=-1), rel=1e-6)
    kurtosis = scipy.stats.kurtosis(rows, axis=-1, fisher=False)
    assert found.kurtosis.numpy() == pytest.approx(kurtosis, rel=1e-6)


def test_a_neuron_that_never_moves_has_no_shape():
    found = measured(torch.full((2, 1, 4, 3), 0.25))
    assert torch.equal(found.moments.variance, torch.zeros(1, 3, dtype=torch.float64))
    assert found.moments.skew.isnan().all()
    assert torch.equal(found.position_share, torch.zeros(1, 3, dtype=torch.float64))


@given(cuts=st.lists(st.integers(1, 11), max_size=4), seed=st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_merging_is_associative_and_forgets_the_blocks(cuts, seed):
    activations = draw(seed)
    ends = [0, *sorted(set(cuts)), 12]
    parts = [measured(activations[a:b], a) for a, b in itertools.pairwise(ends)]
    nothing = no_statistics(2, 5, k=SETTINGS.top, length=SETTINGS.length)
    from_left = from_right = nothing
    for part in parts:
        from_left = merge(from_left, part)
    for part in reversed(parts):
        from_right = merge(part, from_right)
    same(from_left, from_right)
    # Passages apart from their windows know nothing of each other, so one block gives the same.
    same(from_left, measured(activations))


def test_examples_are_one_a_passage_and_equals_stand_in_order():
    activations = draw(3)
    found = measured(activations)
    for sign, peaks in ((1, found.strongest), (-1, found.weakest)):
        best = (sign * activations).amax(dim=2)
        for layer, neuron in np.ndindex(2, 5):
            values = best[:, layer, neuron]
            order = sorted(range(12), key=lambda n: (-float(values[n]), n))[:3]
            at = (layer, neuron)
            assert peaks.texts[at].tolist() == order
            assert (sign * peaks.activations[at]).tolist() == values[order].tolist()
            rows = sign * activations[order, layer, :, neuron]
            assert peaks.positions[at].tolist() == rows.argmax(dim=1).tolist()


def test_tokens_are_drawn_from_all_passages_and_offsets():
    """Over many passages the draw is even: no passage and no place in one is preferred."""
    activations = torch.arange(400).float()[:, None, None, None].expand(400, 1, 40, 1)
    found = measured(activations).sample
    assert len(set(found.passages.tolist())) == SAMPLE
    assert found.activations[0, 0].tolist() == found.passages.tolist()
    assert found.scores[0, 0].tolist() == [3 * n - 1 for n in found.passages.tolist()]
    assert 100 < found.passages.float().mean() < 300
    assert len(set(found.positions.tolist())) > SAMPLE // 2
    assert 8 < found.positions.float().mean() < 32
    few = measured(draw(1, passages=2)).sample
    assert few.texts.ge(0).sum() == 2


def test_windows_hold_the_tokens_around_an_example_and_nothing_past_the_ends():
    activations = torch.zeros(3, 1, 12, 1)
    activations[0, 0, 0], activations[1, 0, 11], activations[2, 0, 6] = 3, 2, 1
    windows = measured(activations).strongest.windows[0, 0].tolist()
    assert windows[0] == [-1] * 10 + [0, 1, 2, 3, 4, 5]
    assert windows[1] == [*range(1, 12), *[-1] * 5]
    assert windows[2] == [-1] * 4 + [*range(12)]


def test_fewer_passages_than_examples_leave_the_rest_empty():
    found = measured(draw(1, passages=2)).strongest
    assert found.texts[..., 2].eq(-1).all()
    assert found.activations[..., 2].isnan().all()
    assert found.activations[..., :2].isfinite().all()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30))
def test_packed_integers_sort_as_values_and_then_earlier_passages(values):
    tensor, passages = torch.tensor(values), torch.arange(len(values)) * 7
    keys = pack(tensor, passages)
    expected = sorted(range(len(values)), key=lambda n: (-values[n], n))
    assert torch.sort(keys, descending=True).indices.tolist() == expected
    back, where = unpack(keys)
    assert torch.equal(back, tensor + 0.0)
    assert torch.equal(where, passages)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 40, 255, 256, 257, 261])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_is_found_at_its_first_position(length, sign):
    drawn = torch.randint(-3, 3, (4, length, 6)).float()
    values, positions = find_largest(drawn, sign=sign)
    drawn = sign * drawn
    assert torch.equal(values, drawn.amax(dim=1))
    expected = [[row.tolist().index(max(row.tolist())) for row in rows.t()] for rows in drawn]
    assert positions.tolist() == expected


def test_bins_are_those_of_the_edges():
    drawn = torch.cat([torch.randn(500, 3), torch.randn(500, 3) * 0.02, torch.randn(50, 3) * 90])
    drawn[:6] = torch.tensor([0.0, -0.0, 1.0, -1.5, 64.0, 2.0**-6])[:, None]
    counts = count_bins(drawn)
    assert counts.shape == (3, BINS)
    assert len(EDGES) == BINS + 1
    assert torch.equal(counts[:, SIDE:].sum(1), (drawn > 0).sum(0))
    for neuron in range(3):
        for number, (low, high) in enumerate(itertools.pairwise(EDGES)):
            column = drawn[:, neuron]
            # Sizes are in [low, high): mirrored below zero, and zero itself is not above zero.
            inside = (column >= low) & (column < high) & (column > 0)
            if high <= 0:
                inside = (column > low) & (column <= high)
            assert counts[neuron, number] == inside.sum(), (low, high)


def test_means_by_position_and_what_position_explains():
    activations = torch.zeros(6, 1, 40, 2)
    activations[..., 0] = torch.arange(40).clamp(max=32).float() ** 0.5
    activations[..., 1] = torch.randn(6, 1, 40)
    found = measured(activations)
    firsts = first_of(40)
    assert firsts == list(range(33))
    rows = activations[:, 0].double()
    for number, start in enumerate(firsts):
        stop = [*firsts, 40][number + 1]
        expected = rows[:, start:stop].mean(dim=(0, 1))
        assert torch.allclose(found.position_means[0, number], expected, atol=1e-12)
    assert found.position_share[0, 0] == pytest.approx(1.0)
    assert found.position_share[0, 1] < 0.5
