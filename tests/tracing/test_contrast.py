"""Contrast: positions aligned as defined, means put in exactly, pushes that add up, refusals by word."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused, PromptRefused, TokenNotFound
from ffnprobe.tracing.comparison import contrast_pushes
from ffnprobe.tracing.contrast import align, contrast_with

SPORT = "{} plays the sport of"
OTHERS = [SPORT.format(name) for name in ("Tiger Woods", "Billie Jean King", "Lionel Messi")]


@pytest.mark.parametrize(
    ("prompt", "others", "counterparts", "middle", "unmatched"),
    [
        ("as", ["as"], ["01"], [], []),
        ("<Jordan>", ["<Madrid>"], ["01234567"], [1, 2, 3, 4, 5, 6], []),
        ("<ab>", ["<cb>"], ["0123"], [1], []),
        # A longer subject: from the end while there are any.
        ("<abc>", ["<d>"], ["0--12"], [1, 2, 3], [1, 2]),
        # A shorter one leaves nothing unmatched here.
        ("<d>", ["<abc>"], ["034"], [1], []),
        # Of several prompts one may have a counterpart where another has none.
        ("<abc>", ["<d>", "<fg>"], ["0--12", "0-123"], [1, 2, 3], [1]),
        # Common front and back are those of all prompts.
        ("<abc>", ["<abd>", "<xbc>"], ["01234", "01234"], [1, 2, 3], []),
        ("<aab>", ["<ab>"], ["0" + "1" + "-" + "23"], [2], [2]),
        # Nothing in common at the back, nor at the front.
        ("ab", ["cde"], ["12"], [0, 1], []),
        ("abc", ["d"], ["--0"], [0, 1, 2], [0, 1]),
    ],
)  # fmt: skip
def test_prompts_are_aligned(prompt, others, counterparts, middle, unmatched):
    found = align([*map(ord, prompt)], [[*map(ord, other)] for other in others])
    expected = [[None if c == "-" else int(c) for c in row] for row in counterparts]
    assert [list(row) for row in found.counterparts] == expected
    assert list(found.middle) == middle
    assert list(found.unmatched) == unmatched


def test_the_mean_is_that_of_the_aligned_positions(jordan):
    contrast = contrast_with(jordan, " basketball", OTHERS)
    assert len(contrast.others) == 3
    lengths = {len(other) for other in contrast.others}
    assert len(lengths) > 1, "the subjects should differ in length"
    for position in contrast.alignment.middle:
        held = [
            other.activations[:, places[position]]
            for other, places in zip(contrast.others, contrast.alignment.counterparts, strict=True)
            if places[position] is not None
        ]
        assert torch.allclose(
            contrast.replacement[:, position], torch.stack(held).mean(0), atol=1e-6
        )
    last = torch.stack([other.activations[:, -1] for other in contrast.others]).mean(0)
    assert torch.allclose(contrast.replacement[:, -1], last, atol=1e-6)


def test_where_prompts_begin_alike_nothing_changes(jordan):
    contrast = contrast_with(jordan, " basketball", OTHERS)
    assert contrast.alignment.front == 1  # BOS
    gap = contrast.replacement[:, 0] - jordan.activations[:, 0]
    assert torch.equal(gap, torch.zeros_like(gap))


def test_a_position_without_counterpart_is_left_alone_and_named(tiny):
    trace = fp.run(tiny, [5, 6, 7, 8, 9], bos=False)
    other = fp.run(tiny, [5, 8, 9], bos=False)
    contrast = contrast_with(trace, 17, [other], answers=[18])
    assert contrast.alignment.unmatched == (1, 2)
    assert torch.equal(contrast.replacement[:, 1:3], trace.activations[:, 1:3])
    assert not torch.equal(contrast.replacement[:, 3], trace.activations[:, 3])
    assert contrast.unmatched == (f"{trace.tokens[1]} at 1", f"{trace.tokens[2]} at 2")
    assert contrast.settings()["no_counterpart"] == list(contrast.unmatched)


def test_pushes_add_up_to_the_difference_of_logits(jordan):
    contrast = contrast_with(jordan, " basketball", OTHERS)
    found = fp.attribute(jordan, " basketball", contrast=contrast)
    token = jordan.model.vocab.one(" basketball")
    there = torch.stack([other.logits[-1, token] for other in contrast.others]).mean()
    assert found.difference == pytest.approx(float(jordan.logits[-1, token] - there), abs=1e-4)
    assert found.by_part().difference.sum() == pytest.approx(found.difference, abs=1e-3)
    name = found.top(1).iloc[0]
    assert name.difference == pytest.approx(float(found.values.max()), abs=1e-6)
    own = fp.attribute(jordan, " basketball").values[name.layer, name.neuron]
    assert name.push == pytest.approx(float(own), abs=1e-6)
    assert name.push - name.contrast_push == pytest.approx(name.difference, abs=1e-6)
    assert found.provenance.settings == {"contrast": OTHERS}


def test_one_contrast_prompt_is_a_comparison(jordan):
    contrast = contrast_with(jordan, " basketball", OTHERS[0])
    compared = fp.compare(jordan, contrast.others[0], " basketball")
    found = contrast_pushes(contrast, " basketball").values
    assert torch.allclose(found.float(), compared.values, atol=1e-6)


def test_what_is_no_contrast_is_refused(jordan, pocket, tiny):
    with pytest.raises(PromptRefused, match="there is no contrast prompt"):
        contrast_with(jordan, " basketball", [])
    with pytest.raises(PromptRefused, match="no contrast prompt differs from the prompt") as caught:
        contrast_with(jordan, " basketball", jordan.prompt)
    assert caught.value.remedy == "the same sentence about another subject"
    same = [SPORT.format("LeBron James"), SPORT.format("Magic Johnson")]
    with pytest.raises(PromptRefused, match="every contrast prompt has the answer ␣basketball too"):
        contrast_with(jordan, " basketball", same)
    with pytest.raises(PromptRefused, match="run on another model: tiny0, not pocket"):
        contrast_with(jordan, " basketball", [fp.run(tiny, "the cat sat")])


def test_a_prompt_that_does_not_contrast_is_left_out_and_named(jordan):
    same = SPORT.format("LeBron James")
    contrast = contrast_with(jordan, " basketball", [OTHERS[0], same, jordan.prompt])
    assert [other.prompt for other in contrast.others] == OTHERS[:1]
    assert contrast.left_out == (same, jordan.prompt)


def test_rows_of_facts_bring_their_own_answers(jordan):
    rows = [fp.FactRow(OTHERS[0], " golf"), fp.FactRow(OTHERS[1], " basketball")]
    contrast = contrast_with(jordan, " basketball", rows)
    assert [other.prompt for other in contrast.others] == OTHERS[:1]
    assert contrast.left_out == (OTHERS[1],)
    assert contrast.table.answer.tolist() == ["␣golf"]
    assert contrast.subject == "Michael ␣Jordan"


def test_pushes_are_contrasted_at_the_last_position(jordan):
    with pytest.raises(OptionRefused, match="compared at their last positions"):
        fp.attribute(jordan, " basketball", position=2, contrast=OTHERS)
    with pytest.raises(TokenNotFound, match="an answer with contrast needs one"):
        fp.attribute(jordan, " basket ball", contrast=OTHERS)
