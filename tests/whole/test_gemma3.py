"""A real base model with norms on what it writes: Gemma 3 270M, put together from its packages."""

import pytest

import ffnprobe as fp
from ffnprobe.models.gguf import open_gguf
from ffnprobe.models.sources import PACKAGES
from ffnprobe.tracing.attention import find_owners

KNOWN = PACKAGES["gemma3-270m"]
pytestmark = [
    pytest.mark.gemma3,
    pytest.mark.skipif(bool(KNOWN.missing()), reason=f"needs Gemma 3 270M: {KNOWN.install}"),
]
EIFFEL = "The Eiffel Tower is located in the city of"


@pytest.fixture(scope="module")
def gemma3():
    model = fp.load("gemma3-270m", device="cpu")
    c = model.config
    assert (c.layers, c.heads, c.kv_heads, c.d_mlp, c.d_model) == (18, 4, 1, 2048, 640)
    assert c.has_post_norms
    return model


@pytest.fixture(scope="module")
def eiffel(gemma3):
    return fp.run(gemma3, EIFFEL)


def test_its_measurements_are_known_without_it(gemma3):
    file = open_gguf(KNOWN.file())
    assert KNOWN.layers == gemma3.config.layers
    assert KNOWN.neurons == gemma3.config.neurons
    assert KNOWN.parameters == sum(entry.size for entry in file.tensors)
    assert gemma3.name == "gemma3-270m"
    assert "Q4_K_M" in str(gemma3.source)


def test_paris_is_what_it_says_next(eiffel):
    first = eiffel.predictions(1)
    assert first.token.item() == "␣Paris"
    assert first.probability.item() == pytest.approx(0.76, abs=0.01)
    assert eiffel.has_bos


def test_the_account_closes(eiffel):
    assert abs(fp.attribute(eiffel, " Paris").remainder) < 1e-3


def test_paths_close_for_every_head(eiffel):
    found = fp.paths(eiffel, " Paris", depth=2)
    assert found.remainder < 1e-4
    assert abs(found.push) > 1
    assert find_owners(found.pushes).total == pytest.approx(found.logit, abs=1e-3)
