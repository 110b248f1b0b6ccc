"""Models shared by the tests. A model is never changed, so one serves a whole session."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

import ffnprobe as fp
from ffnprobe.models.config import PUBLISHED
from tests.builders import TINY, write_model

SHARED = Path(__file__).parents[2] / "shared"
# What is printed must not depend on the terminal the tests run in.
os.environ.pop("COLUMNS", None)
JORDAN = "Michael Jordan plays the sport of"
# What a process of the tests may take: two real models and a browser.
WORKER_BYTES = 5 * 2**30
# Started in the background, a shell's job ignores Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Divide the tests among as many processes as there are cores and memory for, each with its share."""
    cores = psutil.cpu_count() or 1
    workers = max(1, min(cores, 4, psutil.virtual_memory().available // WORKER_BYTES))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
    return workers


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the tests' own, so that nothing is left in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FFNPROBE_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """Check that gradients are left on, and give torch its threads back: a command's process is its own."""
    threads = torch.get_num_threads()
    yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    is_on = torch.is_grad_enabled()
    torch.set_grad_enabled(True)  # so that one test fails, not all that follow
    assert is_on, "gradients were left switched off"


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
