"""Every family: our own step is the hooks', at every hook, with what they see replaced."""

import dataclasses

import pytest
import torch

import ffnprobe as fp
from ffnprobe.models.bridge import bridge_of
from ffnprobe.models.forward import forward
from ffnprobe.models.step import hooks_of
from tests.families.builders import write_family
from tests.families.conftest import TEXT


@pytest.fixture(scope="session")
def own(folder):
    """The same model, run by our own forward pass."""
    return fp.load(folder, device="cpu")


def distance(found, wanted):
    """The largest difference, of the largest number."""
    return float((found - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))


def test_every_tensor_of_a_trace_is_the_hooks(trace, own):
    ours = fp.run(own, TEXT)
    for field in dataclasses.fields(fp.Trace):
        wanted, found = getattr(trace, field.name), getattr(ours, field.name)
        if isinstance(wanted, torch.Tensor):
            assert found.shape == wanted.shape, field.name
            assert distance(found, wanted) < 1e-5, field.name


@pytest.mark.parametrize("length", [1, 29])
def test_batches_of_any_length_are_the_hooks(model, own, length):
    random = torch.Generator().manual_seed(length)
    ids = torch.randint(0, 301, (2, length), generator=random)
    wanted, found = forward(model, ids, {}), forward(own, ids, {})
    assert distance(found, wanted) < 1e-5


def test_what_a_hook_returns_is_continued_with(model, own):
    ids = torch.tensor([[3, 141, 59, 26, 5, 35, 89, 79]])
    clean = forward(model, ids, {})
    # What heads saw cannot be replaced by a hook in every family, and no verb does.
    for name in set(hooks_of(model)) - {"patterns"}:
        # A norm does not see a shift or a scale: the numbers change places.
        taps = {(name, 0 if name == "final" else 1): lambda seen: seen.flip(-1)}
        wanted, found = forward(model, ids, taps), forward(own, ids, taps)
        assert distance(wanted, clean) > 1e-3, name
        assert distance(found, wanted) < 1e-5, name


def test_verbs_on_our_own_pass_need_no_bridge(own, monkeypatch):
    fp.run(own, TEXT)  # the first run compares

    def refuse(model):
        raise AssertionError("TransformerLens was asked")

    monkeypatch.setattr("ffnprobe.models.bridge.bridge_of", refuse)
    explanation = fp.explain(own, TEXT, " basketball", top=3)
    assert explanation.provenance.run_by == "ffnprobe's own forward pass"
    assert fp.steer(own, TEXT, {"L1N3": 2.0}, generate=2).provenance.run_by == own.run_by
    assert fp.score(own, [fp.FactRow(TEXT, " basketball")]).provenance.run_by == own.run_by
    assert fp.paths(fp.run(own, TEXT), " basketball").provenance.run_by == own.run_by


def test_effects_are_the_hooks(trace, own):
    wanted = fp.ablate(trace, " basketball", position=[2, 5]).values
    found = fp.ablate(fp.run(own, TEXT), " basketball", position=[2, 5]).values
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_both_are_of_one_identity(model, own):
    assert model.hooks
    assert not own.hooks
    assert own.identity == model.identity
    assert bridge_of(model) is not None


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}


@pytest.mark.parametrize("kind", [YARN, LINEAR, DYNAMIC], ids=["yarn", "linear", "dynamic"])
def test_positions_are_rotated_as_hugging_face_rotates_them(kind, tmp_path):
    folder = write_family(tmp_path, "llama", rope_parameters=kind)
    ids = torch.arange(29)[None]
    wanted = forward(fp.load(folder, device="cpu", hooks=True), ids, {})
    own = fp.load(folder, device="cpu")
    for length in (29, 9):
        assert distance(forward(own, ids[:, :length], {}), wanted[:, :length]) < 1e-5
    # And from the record alone.
    again = fp.load(folder, device="cpu")
    assert torch.equal(forward(again, ids, {}), forward(own, ids, {}))
