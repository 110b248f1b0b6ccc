"""One random model of every family, loaded once."""

from pathlib import Path

import pytest

import ffnprobe as fp
from tests.families.builders import CASES, write_family

TEXT = "the cat sat on the basketball court in Paris"


@pytest.fixture(scope="session", params=list(CASES))
def case(request: pytest.FixtureRequest) -> str:
    """The name of a family's case."""
    return request.param


@pytest.fixture(scope="session")
def folder(case: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("family"), case)


@pytest.fixture(scope="session")
def model(case: str, folder: Path) -> fp.Model:
    found = fp.load(folder, device="cpu", hooks=True)
    c = found.config
    assert (c.layers, c.d_mlp, c.positions, c.vocab) == (3, 52, 29, 301)
    assert c.d_model == CASES[case].get("n_embd", CASES[case].get("hidden_size"))
    assert found.questions.shape == (3, 52, c.d_model)
    return found


@pytest.fixture(scope="session")
def trace(model: fp.Model) -> fp.Trace:
    return fp.run(model, TEXT)
