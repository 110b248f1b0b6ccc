"""A model with a circuit of two steps written into it, and nothing else that reaches the answer."""

import pytest
import torch

import ffnprobe as fp
from tests.builders import TINY, random_weights, write_model

SUBJECT, OTHER, ANSWER, RIVAL = " cat", " mat", " Paris", " basketball"
FIRST, SECOND = (0, 9), (2, 31)  # layer, neuron
MOVER = (1, 3)  # layer, head
PROMPT, CONTRAST = f" the{SUBJECT} sat on", f" the{OTHER} sat on"


def _axis(number: int) -> torch.Tensor:
    """A direction of mean zero, so that LayerNorm lets it through."""
    found = torch.zeros(TINY.d_model)
    found[2 * number], found[2 * number + 1] = 1.0, -1.0
    return found


@pytest.fixture(scope="session")
def planted(tmp_path_factory) -> fp.Model:
    """L0N9 knows the subject, L1H3 moves what it says to the end, and L2N31 turns it into the answer.

    All other neurons ask at random, differ between prompts, and write to an axis that nothing reads.
    """
    random = torch.Generator().manual_seed(4)
    weights = {name: torch.zeros_like(t) for name, t in random_weights(TINY).items()}
    seen, said, moved, told, unread = (_axis(number) for number in range(5))
    rest = torch.randn(TINY.vocab, 24, generator=random)
    weights["wte.weight"][:, 10:34] = rest - rest.mean(dim=-1, keepdim=True)
    for name in weights:
        if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            weights[name] = torch.ones(TINY.d_model)
    for layer in range(TINY.layers):
        asked = torch.randn(TINY.d_model, TINY.d_mlp, generator=random)
        asked[:10] = 0
        weights[f"h.{layer}.mlp.c_fc.weight"] = asked
        written = torch.randn(TINY.d_mlp, 1, generator=random) * unread
        weights[f"h.{layer}.mlp.c_proj.weight"] = written
    vocab = fp.load(write_model(tmp_path_factory.mktemp("planted"), TINY, weights)).vocab
    ids = {text: vocab.one(text) for text in (SUBJECT, OTHER, ANSWER, RIVAL)}
    weights["wte.weight"][ids[SUBJECT]] += 6 * seen
    weights["wte.weight"][ids[ANSWER]] += 4 * told
    for (layer, neuron), reads, writes in ((FIRST, seen, said), (SECOND, moved, told)):
        weights[f"h.{layer}.mlp.c_fc.weight"][:, neuron] = 3 * reads
        weights[f"h.{layer}.mlp.c_fc.bias"][neuron] = -0.5
        weights[f"h.{layer}.mlp.c_proj.weight"][neuron] = 8 * writes
    layer, head = MOVER
    d_head = TINY.d_head
    weights[f"h.{layer}.attn.c_attn.weight"][:, 2 * TINY.d_model + head * d_head] = 4 * said
    weights[f"h.{layer}.attn.c_proj.weight"][head * d_head] = 4 * moved
    return fp.load(write_model(tmp_path_factory.mktemp("planted"), TINY, weights), device="cpu")
