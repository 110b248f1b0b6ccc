"""Models shared by the tests, and which tests are long. A model is never changed, so one serves a session."""

import os
import shutil
import signal
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

import ffnprobe as fp
from ffnprobe.models.config import PUBLISHED
from tests import clock, tiers
from tests.builders import TINY, write_model

SHARED = Path(__file__).parents[2] / "shared"
# What is printed must not depend on the terminal the tests run in.
os.environ.pop("COLUMNS", None)
JORDAN = "Michael Jordan plays the sport of"
SHORT = "not long"  # what pyproject.toml asks for
# What a process of the tests may take: pocket and a few small models; of the long ones, two real models
# and a browser.
WORKER_BYTES, LONG_WORKER_BYTES = 2 * 2**30, 5 * 2**30
# Started in the background, a shell's job ignores Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Time every test, the package's examples too; give each process of the tests its share of the cores."""
    config.pluginmanager.register(clock)
    if workers := config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (psutil.cpu_count() or 1) // workers)))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a module of long tests where these are not asked for."""
    place = collection_path.relative_to(config.rootpath).as_posix()
    return True if config.option.markexpr == SHORT and place in tiers.MODULES else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests in the package alone: a helper of the tests is imported by who needs it."""
    return [found for found in (yield) if type(found) is pytest.Module]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long."""
    for item in items:
        if tiers.is_long(item):
            item.add_marker("long")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Divide the tests among as many processes as there are cores and memory for."""
    each = WORKER_BYTES if config.option.markexpr == SHORT else LONG_WORKER_BYTES
    return max(1, min(psutil.cpu_count() or 1, 4, psutil.virtual_memory().available // each))


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
    model.check()
    c = model.config
    assert (c.layers, c.heads, c.d_model, c.d_mlp, c.positions, c.vocab) == (3, 5, 35, 52, 29, 301)
    assert model.questions.shape == (3, 52, 35)
    assert c == TINY
    return model


@pytest.fixture(scope="session")
def hooked_tiny(tiny: fp.Model) -> fp.Model:
    """The same model, run by TransformerLens."""
    return replace(tiny, hooks=True)


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
    model.check()
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
