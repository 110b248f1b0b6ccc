"""A planted model: weights written by hand so that the right answer is known."""

import pytest
import torch

import ffnprobe as fp
from tests.builders import TINY, random_weights, write_model

ASKED, ANSWERED = 41, 57
ASKER, HUB, ZERO = (1, 3), (0, 30), (2, 6)


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """L1N3 asks for token 41 and answers token 57; L0N30 is a hub; L2N6 answers nothing, L2N7 the same to all."""
    weights = random_weights(TINY, seed=3)
    embedding, gain = weights["wte.weight"], weights["ln_f.weight"]
    layer, neuron = ASKER
    weights[f"h.{layer}.mlp.c_fc.weight"][:, neuron] = (
        embedding[ASKED] / weights[f"h.{layer}.ln_2.weight"]
    )
    read = embedding * gain
    read = read - read.mean(-1, keepdim=True)
    weights[f"h.{layer}.mlp.c_proj.weight"][neuron] = read[ANSWERED]
    # The hub writes far more than anybody, a little more of it toward the answer than not.
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(TINY.d_model, generator=generator)
    layer, neuron = HUB
    weights[f"h.{layer}.mlp.c_proj.weight"][neuron] = (
        40 * noise * torch.sign(noise @ read[ANSWERED])
    )
    layer, neuron = ZERO
    weights[f"h.{layer}.mlp.c_proj.weight"][neuron] = 0
    weights[f"h.{layer}.mlp.c_proj.weight"][neuron + 1] = 3
    # Two tokens that are one to the model: only their ids tell them apart.
    embedding[200] = embedding[ANSWERED]
    return fp.load(write_model(tmp_path_factory.mktemp("planted"), TINY, weights), device="cpu")
