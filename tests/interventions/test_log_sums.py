"""The log of the sum over the vocabulary near a state: within what is proven, and used where it pays."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions import replay
from ffnprobe.interventions.replay import Readout, Surroundings, read_answer
from ffnprobe.models.step import normalise
from tests.conftest import JORDAN


@pytest.mark.parametrize("size", [1e-3, 0.03, 0.3, 3.0])
@pytest.mark.parametrize("sharp", [0.1, 5.0])
def test_the_error_is_at_most_what_is_proven(size, sharp, monkeypatch):
    monkeypatch.setattr(replay, "TOKENS_AT_ONCE", 100)
    monkeypatch.setattr(replay, "HEAVIEST", 3)
    chance = torch.Generator().manual_seed(7)
    rows, moves = (torch.randn(n, 13, generator=chance, dtype=torch.double) for n in (1001, 257))
    logits = sharp * torch.randn(1001, generator=chance, dtype=torch.double)
    moves *= size / 13**0.5
    shifts, errors = Surroundings.of(rows, logits).follow(moves)
    exact = (logits + moves @ rows.T).logsumexp(-1) - logits.logsumexp(-1)
    off = (shifts - exact).abs()
    assert bool((off <= errors + 1e-12).all())
    if size < 0.1:  # and the bound is of some use
        assert float(errors.max()) < 0.1 * float(exact.abs().max())


def test_the_error_comes_close_to_what_is_proven_where_one_of_two_tokens_is_rare(monkeypatch):
    """There the third moment is nearly as large as it can be."""
    monkeypatch.setattr(replay, "HEAVIEST", 0)
    rows = torch.tensor([[1.0], [-1.0]], dtype=torch.double)
    logits = torch.tensor([0.0, -5.0], dtype=torch.double)
    move = torch.tensor([[0.01]], dtype=torch.double)
    shifts, errors = Surroundings.of(rows, logits).follow(move)
    exact = (logits + (move @ rows.T)[0]).logsumexp(-1) - logits.logsumexp(-1)
    assert 0.9 < float((shifts - exact).abs() / errors) <= 1


def test_a_small_vocabulary_is_taken_exactly():
    chance = torch.Generator().manual_seed(1)
    rows, moves = (torch.randn(n, 5, generator=chance, dtype=torch.double) for n in (100, 20))
    logits = torch.randn(100, generator=chance, dtype=torch.double)
    shifts, errors = Surroundings.of(rows, logits).follow(moves)
    exact = (logits + moves @ rows.T).logsumexp(-1) - logits.logsumexp(-1)
    torch.testing.assert_close(shifts, exact, rtol=0, atol=1e-12)
    assert bool((errors == 0).all())


def test_a_log_probability_is_that_of_all_logits(pocket):
    read = read_answer(fp.run(pocket, JORDAN), " basketball and")
    clean = normalise(pocket, read.replay.trace.final)[read.first :]
    chance = torch.Generator().manual_seed(3)
    moves = torch.randn(400, pocket.config.d_model, generator=chance)
    moves *= torch.logspace(-6, 0, 400)[:, None]
    for piece in (0, 1):
        seen = clean[piece] + torch.cat([torch.zeros(1, len(moves[0])), moves])
        logits = seen.double() @ pocket.unembedding.double().T + pocket.unembedding_bias.double()
        exact = torch.log_softmax(logits, dim=-1)[:, read.tokens[piece]]
        found = read._follow(seen, piece).double()
        torch.testing.assert_close(found - found[0], exact - exact[0], rtol=2e-6, atol=2e-5)
        # Those near to the first are nearer to the truth than sums in fp32 are.
        torch.testing.assert_close((found - found[0])[:200], (exact - exact[0])[:200], rtol=0, atol=3e-6)  # fmt: skip


def test_a_batch_that_begins_elsewhere_is_not_told_from_there(pocket):
    """What is around the first batch's first state is kept; a batch far from it needs all its logits."""
    read = read_answer(fp.run(pocket, JORDAN), " basketball")
    clean = normalise(pocket, read.replay.trace.final)[read.first]
    chance = torch.Generator().manual_seed(5)
    moves = 1e-3 * torch.randn(400, pocket.config.d_model, generator=chance)
    read._follow(clean + moves, 0)
    for away in (1e-3, 3.0):
        seen = clean + away * torch.randn(len(clean), generator=chance) + moves
        logits = seen.double() @ pocket.unembedding.double().T + pocket.unembedding_bias.double()
        exact = torch.log_softmax(logits, dim=-1)[:, read.tokens[0]]
        found = read._follow(seen, 0).double()
        torch.testing.assert_close(found - found[0], exact - exact[0], rtol=2e-6, atol=2e-5)


def test_few_neurons_need_all_logits(pocket, monkeypatch):
    trace = fp.run(pocket, JORDAN)
    asked = {"neurons": ["L1"], "position": 2}
    counted = []
    read = Readout._log_probabilities

    def count(self, seen, token):
        counted.append(len(seen))
        return read(self, seen, token)

    monkeypatch.setattr(Readout, "_log_probabilities", count)
    near = fp.ablate(trace, " basketball", **asked)
    few = sum(counted)
    counted.clear()
    monkeypatch.setattr(replay, "SHIFT_WITHIN", -1)
    whole = fp.ablate(trace, " basketball", **asked)
    assert 1 < few < 0.2 * sum(counted)
    assert torch.equal(near.values[1], whole.values[1])
    torch.testing.assert_close(near.log_probability[1], whole.log_probability[1], rtol=0, atol=2e-6)
    assert float(whole.log_probability[1].max()) > 1e-3
