"""Steering: the change asked for, nowhere else, and nothing left behind."""

import math

import pytest
import torch
from scipy.stats import chisquare

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError
from ffnprobe.interventions.steering import choose_token
from ffnprobe.models.bridge import bridge_of
from ffnprobe.models.forward import forward
from tests.interventions.oracles import hooked

PROMPT = "the cat sat on the basketball court"


def test_steering_to_zero_is_ablating(tiny: fp.Model, tiny_trace: fp.Trace) -> None:
    steered = fp.steer(tiny, PROMPT, {"L1N17": 0.0})
    effect = fp.ablate(
        tiny_trace, 280, position="all", neurons=["L1N17"], convention="folded"
    ).values[1, 17]
    assert float(steered.before[280] - steered.after[280]) == pytest.approx(float(effect), abs=2e-4)
    several = fp.steer(tiny, PROMPT, {"L0N1": 0.0}, scale={"L2N3-L2N9": 0.0}, position=-1)
    lost = several.before - several.after
    for convention, wanted in (("folded", lost[280]), ("centred", lost[280] - lost.mean())):
        together = fp.ablate(
            tiny_trace, 280, together=[["L0N1", "L2N3-L2N9"]], convention=convention
        ).values
        assert float(wanted) == pytest.approx(float(together), abs=2e-4)


def test_set_and_scale_at_positions(tiny: fp.Model, tiny_trace: fp.Trace) -> None:
    def edit(activations: torch.Tensor) -> None:
        activations[:, [2, 4], 17] = 4.0
        activations[:, [2, 4], 5] *= -2.0

    wanted = hooked(tiny, list(tiny_trace.ids), {1: edit})[0, -1]
    steered = fp.steer(tiny, PROMPT, {"L1N17": 4.0}, scale={"L1N5": -2.0}, position=[2, 4])
    assert torch.allclose(steered.after, wanted, atol=1e-5)
    # Run here, with as many threads: the same to the last bit.
    assert torch.equal(steered.before, fp.run(tiny, PROMPT).logits[-1])
    assert steered.provenance.settings == {
        "set": {"L1N17": 4.0},
        "scale": {"L1N5": -2.0},
        "positions": [2, 4],
    }
    table = steered.predictions(301)
    assert table.probability_before.sum() == pytest.approx(1)
    assert table.probability_after.sum() == pytest.approx(1)
    assert table.loc[table.id == 280, "logit_after"].item() == pytest.approx(
        float(wanted[280]), abs=1e-5
    )


def test_generation_is_the_models_own_and_steered(tiny: fp.Model, tiny_trace: fp.Trace) -> None:
    steered = fp.steer(tiny, PROMPT, {"L0": 0.0}, generate=6)
    ids = torch.tensor([tiny_trace.ids])
    own = bridge_of(tiny).original_model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert list(steered.continued_before) == own[0, len(tiny_trace) :].tolist()
    assert steered.text_before == tiny.vocab.text(steered.continued_before)
    assert len(steered.continued_after) == 6
    assert steered.continued_after != steered.continued_before
    # Each token written is the likeliest of a run with the layer silent at every position so far.
    silent = {0: lambda activations: activations.zero_()}
    for count, token in enumerate(steered.continued_after):
        so_far = [*tiny_trace.ids, *steered.continued_after[:count]]
        assert int(hooked(tiny, so_far, silent)[0, -1].argmax()) == token


def test_both_texts_draw_the_same_random_numbers(tiny: fp.Model) -> None:
    drawn = [fp.steer(tiny, PROMPT, scale={"L1N17": 1.0}, generate=5, temperature=3.0, seed=seed)
             for seed in (1, 1, 2)]  # fmt: skip
    assert drawn[0].continued_before == drawn[0].continued_after == drawn[1].continued_before
    assert drawn[2].continued_before != drawn[0].continued_before


def test_sampling_follows_the_distribution(tiny_trace: fp.Trace) -> None:
    logits, random = tiny_trace.logits[-1], torch.Generator().manual_seed(0)
    drawn = [choose_token(logits, temperature=4.0, random=random) for _ in range(20_000)]
    counts = torch.bincount(torch.tensor(drawn), minlength=301)
    expected = torch.softmax(logits.double() / 4.0, dim=-1) * len(drawn)
    assert expected.min() > 5
    assert chisquare(counts.double(), expected).pvalue > 1e-3
    assert choose_token(logits, temperature=None, random=random) == int(logits.argmax())


def test_hooks_never_leak(tiny: fp.Model) -> None:
    before = fp.run(tiny, PROMPT)
    fp.steer(tiny, PROMPT, {"L1": 9.0}, generate=2)
    # A run that is interrupted in its last layer, after an earlier one was changed.

    def interrupt(_: torch.Tensor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forward(
            tiny, torch.tensor([before.ids]),
            {("activations", 1): torch.zeros_like, ("activations", 2): interrupt},
        )  # fmt: skip
    after = fp.run(tiny, PROMPT)
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.activations, after.activations)
    assert tiny.is_unchanged()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activations": {}}, "no neuron is named to steer"),
        ({"activations": {"L1N17": math.nan}}, "L1N17: nan is not an activation.\n  try: L1N17=4.0"),
        ({"activations": {"L1N17": "many"}}, "steer takes a mapping of texts to numbers or None"),
        ({"scale": {"L1N17": math.inf}}, "L1N17: inf is not an activation"),
        ({"activations": {"L1N52": 1.0}}, r"L1N52: .* has neurons L1N0–L1N51"),
        ({"activations": {"L1N1": 1.0}, "scale": {"L1": 0.0}}, "L1N1 is changed twice"),
        ({"activations": {"L1N1": 1.0}, "generate": 99}, r"generate = 99: the prompt is 10 tokens and .* has 29 positions.\n  try: 0 to 20"),
        ({"activations": {"L1N1": 1.0}, "generate": -1}, "generate = -1"),
        ({"activations": {"L1N1": 1.0}, "temperature": 0.0}, "temperature 0.0 has no distribution"),
        ({"activations": {"L1N1": 1.0}, "position": 50}, "position 50 is outside the prompt"),
    ],
)  # fmt: skip
def test_bad_input_is_named(tiny: fp.Model, options: dict, words: str) -> None:
    with pytest.raises(FfnProbeError, match=words):
        fp.steer(tiny, PROMPT, **options)


def test_generation_fills_the_model_to_its_last_position(tiny: fp.Model) -> None:
    steered = fp.steer(tiny, [5] * 28, {"L1N1": 1.0}, generate=1)
    assert len(steered.continued_after) == 1
