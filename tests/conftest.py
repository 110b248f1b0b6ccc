"""Models shared by the tests. A model is never changed, so one serves a whole session."""

import shutil
from pathlib import Path

import pytest
import torch

import ffnprobe as fp
from ffnprobe.models.config import PUBLISHED
from tests.builders import TINY, write_model

SHARED = Path(__file__).parents[2] / "shared"
JORDAN = "Michael Jordan plays the sport of"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the real data of ../shared/data, which is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> fp.Model:
    """A random model with every axis a different length."""
    model = fp.load(tiny_folder, device="cpu")
    c = model.config
    assert (c.layers, c.heads, c.d_model, c.d_mlp, c.positions, c.vocab) == (3, 5, 35, 52, 29, 301)
    assert model.questions.shape == (3, 52, 35)
    assert c == TINY
    return model


@pytest.fixture(scope="session")
def tiny_trace(tiny: fp.Model) -> fp.Trace:
    return fp.run(tiny, "the cat sat on the basketball court")


@pytest.fixture(scope="session")
def pocket() -> fp.Model:
    """The embedded model."""
    return fp.load("pocket", device="cpu")


@pytest.fixture(scope="session")
def jordan(pocket: fp.Model) -> fp.Trace:
    """The embedded model on the prompt everybody knows."""
    return fp.run(pocket, JORDAN)


@pytest.fixture(scope="session")
def small_folder(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of GPT-2 small's shape and tokenizer with seeded random weights."""
    folder = tmp_path_factory.mktemp("small")
    write_small(folder, shared / "data" / "gpt2_tokenizer")
    return folder


@pytest.fixture(scope="session")
def small(small_folder: Path) -> fp.Model:
    """A random model of GPT-2 small's shape."""
    model = fp.load(small_folder, device="cpu")
    assert model.config == PUBLISHED["gpt2"]
    return model


def write_small(folder: Path, tokenizer: Path) -> None:
    """Write the GPT-2-small-shaped folder."""
    from tests.builders import random_weights

    config = PUBLISHED["gpt2"]
    torch.manual_seed(0)
    write_model(folder, config, random_weights(config, size=0.03))
    (folder / "tokenizer.json").unlink()
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(tokenizer / name, folder / name)
