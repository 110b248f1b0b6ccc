"""The rest of several prompts, from a layer and a position on, against the whole model."""

from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.editing import methods
from ffnprobe.editing.methods import average_by_request, find_targets
from ffnprobe.editing.requests import Context, make_request, open_tails, write_contexts
from ffnprobe.editing.solves import solve_rome
from ffnprobe.models.forward import forward
from ffnprobe.models.loading import change_rows
from tests.builders import TINY, write_model

# Different lengths and starts; an answer of two pieces, and a prompt that is only watched.
CONTEXTS = [
    Context(0, (0, 5, 9, 33, 71, 8), 2, (4, 5), (8, 101)),
    Context(0, (0, 44, 3, 17, 90, 9, 33, 71, 8), 5, (7, 8), (8, 101)),
    Context(0, (0, 5, 9, 12), 2, (3,), ()),
    Context(1, (0, 61, 250, 7), 3, (3,), (200,)),
]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_tails_are_the_model_with_a_shift_at_the_subject(family, layer):
    shifts = torch.randn(4, family.config.d_model, generator=torch.Generator().manual_seed(layer))
    tails = open_tails(family, layer, CONTEXTS)
    found = iter(tails.log_probabilities(shifts))
    for row, context in enumerate(CONTEXTS):

        def shift(total, row=row, start=context.start):
            moved = total.clone()
            moved[0, start] += shifts[row]
            return moved

        logits = forward(family, torch.tensor([context.ids]), {("mlp_totals", layer): shift})
        for read in context.reads:
            assert torch.allclose(next(found), logits[0, read].log_softmax(-1), atol=2e-4)


def test_the_edited_model_maps_the_key_to_its_target(family):
    """W' k = v* to 1e-4, as the model itself runs it; gated or not, in every layout."""
    wide, layer = family.config.d_mlp, 1
    found = find_targets(family, layer, [CONTEXTS[:3]])
    random = torch.randn(400, wide, generator=torch.Generator().manual_seed(7)).double()
    change = solve_rome(layer, random.mT @ random / 400, found.keys[0], found.shifts[0])
    edited = change_rows(family, {layer: change.whole})
    totals = open_tails(edited, layer, CONTEXTS[:2]).totals
    now = average_by_request(CONTEXTS[:2], totals)
    assert found.shifts.abs().max() > 1e-3
    assert torch.allclose(now, found.outputs + found.shifts, atol=1e-4)
    assert family.is_unchanged()


def test_optimising_makes_the_answer_likelier(family):
    clean = open_tails(family, 0, CONTEXTS[:3])
    logs = clean.log_probabilities(torch.zeros(3, family.config.d_model))
    before = float((logs[0, 8] + logs[1, 101]).exp())
    found = find_targets(family, 0, [CONTEXTS[:3]])
    assert float(found.probabilities[0]) > before


def test_it_descends_for_as_many_steps_as_it_may(tmp_path, monkeypatch):
    """With 36 dimensions the longest shift is 12 lengths, which is no number of steps."""
    config = replace(TINY, d_model=36, heads=4)
    model = fp.load(write_model(tmp_path / "tiny", config))
    monkeypatch.setattr(methods, "ENOUGH", 2.0)  # never reached
    assert find_targets(model, 1, [CONTEXTS[:3]], steps=15).steps == 15


def test_the_subject_ends_where_its_last_token_does(pocket):
    request = make_request(pocket, "Michael Jordan plays the sport of", "Michael Jordan", " tennis")
    for context in write_contexts(pocket, request, [pocket.vocab.ids("The cat sat")]):
        assert pocket.vocab.text(context.ids[: context.start + 1]).endswith("Jordan")
        assert not pocket.vocab.text(context.ids[: context.start]).endswith("Jordan")
