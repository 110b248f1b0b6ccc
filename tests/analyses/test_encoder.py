"""Encoders: equal starts, equal parameters, right gradients, the same numbers for the same seed."""

from pathlib import Path

import pytest
import torch

from analyses.encoders import wordpieces
from analyses.encoders.encoder import VARIANTS, Encoder, EncoderSettings, FeedForward, count_neurons
from analyses.encoders.sentiment import generate_corpus
from analyses.encoders.training import order_sentences, train_encoder
from analyses.encoders.wordpieces import Pieces, cut_pieces
from ffnprobe.errors import DataRefused, OptionRefused

SMALL = EncoderSettings(width=12, neurons=20, heads=3, tokens=8, batch=16, epochs=3)


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wordpieces, "find_bert", lambda: None)
        return cut_pieces(generate_corpus(train=96, dev=40), tokens=8, size=400)


def build(variant: str, *, seed: int = 0, settings: EncoderSettings = SMALL) -> Encoder:
    return Encoder(settings, vocab=50, pad=0, variant=variant, seed=seed)


def test_all_encoders_of_a_seed_start_alike():
    first = build("relu").state_dict()
    for variant in VARIANTS:
        other = build(variant).state_dict()
        shared = [name for name in first if not name.startswith("ffn.")]
        assert all(torch.equal(first[name], other[name]) for name in shared)
        if variant != "swiglu_equal":
            assert torch.equal(first["ffn.down.weight"], other["ffn.down.weight"])
    assert not torch.equal(first["embed.weight"], build("relu", seed=1).embed.weight)


def test_building_an_encoder_leaves_the_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    build("gelu")
    assert torch.equal(torch.rand(1), expected)


def test_swiglu_equal_has_the_others_parameter_count():
    def count(variant: str) -> int:
        return sum(p.numel() for p in build(variant, settings=EncoderSettings()).ffn.parameters())

    assert (count("relu"), count("swiglu")) == (16576, 24896)
    assert abs(count("swiglu_equal") - 16576) <= (3 * 64 + 2) / 2
    with pytest.raises(OptionRefused, match=r'"tanh" is no FFN here(.|\n)*swiglu_equal'):
        count_neurons(SMALL, "tanh")


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish", "swiglu"])
def test_gradients_equal_finite_differences(activation):
    torch.manual_seed(0)
    ffn = FeedForward(3, 5, activation).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ffn, (x,), atol=1e-6)


def test_swiglu_is_swish_of_the_gate_times_the_score():
    torch.manual_seed(0)
    ffn = FeedForward(3, 5, "swiglu")
    x = torch.randn(4, 3)
    entering, leaving = ffn.open(x)
    assert torch.equal(entering, ffn.gate(x))
    torch.testing.assert_close(leaving, torch.nn.functional.silu(ffn.gate(x)) * ffn.up(x))


def test_padding_changes_nothing():
    encoder = build("swiglu").eval()
    ids = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(encoder(ids), encoder(ids[:, :3]), rtol=0, atol=1e-6)
    entering, leaving = encoder.open(ids)
    assert entering.shape == leaving.shape == (3, 20)
    assert torch.isfinite(encoder(torch.zeros(1, 8, dtype=torch.long))).all()


def test_training_is_the_same_for_a_seed_and_learns(pieces):
    settings = EncoderSettings(width=12, neurons=20, heads=3, tokens=8, epochs=8, rate=1e-2)
    one, history = train_encoder(pieces, "swish", seed=3, settings=settings)
    two, again = train_encoder(pieces, "swish", seed=3, settings=settings)
    assert history == again
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    other = train_encoder(pieces, "swish", seed=4, settings=settings)[1]
    assert other.losses != history.losses
    assert sum(history.losses[-6:]) < 0.8 * sum(history.losses[:6])
    assert len(history.losses) == len(history.gradients) == 8 * 6


def test_every_epoch_shows_every_sentence_once_in_its_own_order():
    first, second = (order_sentences(50, seed=1, epoch=epoch) for epoch in (0, 1))
    assert sorted(first.tolist()) == list(range(50))
    assert not torch.equal(first, second)


def test_the_gradient_norm_is_of_all_parameters(pieces):
    settings = EncoderSettings(width=12, neurons=20, heads=3, tokens=8, epochs=1, batch=200)
    history = train_encoder(pieces, "gelu", seed=0, settings=settings)[1]
    encoder = Encoder(settings, vocab=pieces.vocab, pad=pieces.pad, variant="gelu", seed=0)
    order = order_sentences(96, seed=0, epoch=0)
    loss = torch.nn.functional.cross_entropy(
        encoder(pieces.train[0][order]), pieces.train[1][order]
    )
    gradients = torch.autograd.grad(loss, list(encoder.parameters()))
    whole = torch.cat([g.flatten() for g in gradients]).norm()
    assert history.losses == pytest.approx([loss.item()], rel=1e-5)
    assert history.gradients == pytest.approx([whole.item()], rel=1e-5)


def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(pieces, tmp_path: Path):
    path = tmp_path / "run.pt"
    whole, expected = train_encoder(pieces, "swiglu", seed=0, settings=SMALL)

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        train_encoder(pieces, "swiglu", seed=0, settings=SMALL, checkpoint=path, on_epoch=stop)
    epochs: list[int] = []
    resumed, history = train_encoder(
        pieces, "swiglu", seed=0, settings=SMALL, checkpoint=path, on_epoch=lambda: epochs.append(1)
    )
    assert history == expected
    assert len(epochs) == SMALL.epochs
    assert all(map(torch.equal, whole.state_dict().values(), resumed.state_dict().values()))
    # A finished run is read back, not trained again.
    before = path.read_bytes()
    train_encoder(pieces, "swiglu", seed=0, settings=SMALL, checkpoint=path)
    assert path.read_bytes() == before


def test_another_runs_checkpoint_is_refused(pieces, tmp_path: Path):
    path = tmp_path / "run.pt"
    settings = EncoderSettings(width=12, neurons=20, heads=3, tokens=8, epochs=1)
    train_encoder(pieces, "relu", seed=0, settings=settings, checkpoint=path)
    with pytest.raises(DataRefused, match=r"run.pt is of another run"):
        train_encoder(pieces, "relu", seed=1, settings=settings, checkpoint=path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(DataRefused, match=r"run.pt is not a checkpoint"):
        train_encoder(pieces, "relu", seed=0, settings=settings, checkpoint=path)
