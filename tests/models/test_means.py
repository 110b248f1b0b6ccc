"""Activation means: read where they came with the model, refused where they are another's."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from tests.builders import write_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def test_without_a_file_there_are_none(folder: Path) -> None:
    assert fp.load(folder).means is None


def test_means_are_used_by_name(folder: Path) -> None:
    means, model = torch.randn(3, 52), fp.load(folder)
    save_file(
        {"activations": means}, folder / "means.safetensors", {"fingerprint": model.fingerprint}
    )
    trace = fp.run(model, "the cat")
    assert torch.equal(model.means, means)
    by_name, by_value = (fp.ablate(trace, 5, replace=r).values for r in ("mean", means))
    assert torch.equal(by_name, by_value)


def test_means_are_read_once(folder: Path) -> None:
    save_file({"activations": torch.randn(3, 52)}, folder / "means.safetensors")
    model = fp.load(folder)
    first = model.means
    (folder / "means.safetensors").unlink()
    assert model.means is first is not None


@pytest.mark.parametrize(
    ("tensors", "note", "words"),
    [
        ({"activations": torch.zeros(2, 52)}, {}, "does not hold 3 × 52 finite numbers"),
        ({"activations": torch.full((3, 52), torch.inf)}, {}, "does not hold 3 × 52 finite numbers"),
        ({"activations": torch.zeros(3, 52)}, {"fingerprint": "0123456789"}, "measured on other weights"),
        ({"scores": torch.zeros(3, 52)}, {}, "cannot be read"),
    ],
)  # fmt: skip
def test_wrong_means_are_refused(folder: Path, tensors: dict, note: dict, words: str) -> None:
    save_file(tensors, folder / "means.safetensors", note)
    with pytest.raises(ModelNotLoaded, match=words):
        _ = fp.load(folder).means
