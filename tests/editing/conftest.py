"""Models to edit: pocket with its own second moments, and random ones of several families."""

import random
import string

import pytest

import ffnprobe as fp
from tests.builders import TEXT
from tests.families.builders import write_family

# Gated and not, Conv1D and Linear, with b_out and without, side by side, through a norm.
FAMILIES = ["gpt2", "gpt_neox", "opt", "llama", "mistral", "gemma2", "gemma3_text"]


@pytest.fixture(scope="session")
def pocket():
    return fp.load("pocket")


@pytest.fixture(scope="session", params=FAMILIES)
def family(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / request.param
    return fp.load(write_family(folder, request.param))


@pytest.fixture(scope="session")
def texts():
    draw, words = random.Random(0), [*TEXT.split(), *string.ascii_letters, *string.punctuation]
    return {f"{number:02d}": " ".join(draw.choices(words, k=60)) for number in range(24)}
