"""Reading neurons: planted ones are read back, lists are the same whichever way they are asked for."""

import re
from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood, OptionRefused
from tests.reading import formulas
from tests.reading.conftest import ANSWERED, ASKED


def test_a_planted_neuron_is_read_back_first(planted):
    neuron = fp.read(planted, "L1N3")
    assert neuron.question.top(3).id[0] == ASKED
    # Tokens 57 and 200 have one embedding: equal values come in the order of their ids.
    promoted = neuron.answer.promotes(3)
    assert promoted.id[:2].tolist() == [ANSWERED, 200]
    assert promoted.value[0] == promoted.value[1]
    assert neuron.kind in fp.survey(planted).table.kind.unique()


@pytest.mark.parametrize(("convention", "through"), [("centred", "embed"), ("gain", "unembed")])
def test_values_are_the_projections(pocket, convention, through):
    neuron = fp.read(pocket, "L4N11", convention=convention, through=through)
    answer = formulas.project_answers(pocket, pocket.answers[4, 11:12], convention)[0].float()
    question = formulas.project_questions(pocket, pocket.questions[4, 11:12], through)[0].float()
    for frame, values, largest in (
        (neuron.answer.promotes(20), answer, True),
        (neuron.answer.suppresses(20), answer, False),
        (neuron.question.top(20), question, True),
    ):
        assert list(frame.columns) == ["token", "id", "value"]
        best = torch.topk(values, 20, largest=largest).values
        assert frame.value.tolist() == pytest.approx(best.tolist(), rel=1e-4, abs=1e-6)
        torch.testing.assert_close(values[frame.id.tolist()], best, rtol=1e-4, atol=1e-6)
        assert frame.token.tolist() == pocket.vocab.show_all(frame.id.tolist())
    assert neuron.provenance.convention == convention
    assert neuron.provenance.settings["questions_through"] == through


def test_one_name_gives_a_reading_and_several_give_readings(tiny):
    assert repr(fp.read(tiny, "L1N2")).startswith("Reading(L1N2")
    several = fp.read(tiny, ["L1N2", "L0N5-L0N7", "L1N2", "L2"])
    assert [r.name for r in several[:5]] == ["L1N2", "L0N5", "L0N6", "L0N7", "L2N0"]
    assert len(several) == 1 + 3 + 52
    assert len(fp.read(tiny, ["L1N2"])) == 1
    assert repr(several) == f"Readings(56 neurons of {tiny.name})"
    assert fp.read(tiny, "L1N2").table.equals(fp.read(tiny, ["L1N2"]).table)


def test_readings_and_survey_say_the_same(tiny):
    surveyed = fp.survey(tiny, layers="1-2", top=4).table
    table = fp.read(tiny, "L1-L2").rows(4)
    assert list(table.columns) == list(surveyed.columns)
    texts = ["name", "layer", "neuron", "kind", "question_tokens", "promotes", "suppresses", "role"]  # fmt: skip
    assert table[texts].equals(surveyed[texts])
    numbers = table.drop(columns=texts).to_numpy() - surveyed.drop(columns=texts).to_numpy()
    assert abs(numbers).max() < 1e-5
    tokens = fp.read(tiny, "L1-L2").tokens(4)
    joined = tokens[tokens.list == "promotes"].groupby("name", sort=False).token.agg(" ".join)
    assert joined.tolist() == table.promotes.tolist()


def test_a_card_pastes_as_text_and_shows_in_a_notebook(pocket):
    neuron = fp.read(pocket, "L3N12")
    lines = str(neuron).splitlines()
    assert lines[0] == f"L3N12  {neuron.kind}"
    assert re.split(r"   +", lines[2]) == [
        "question opens on",
        "answer promotes",
        "answer suppresses",
    ]
    assert lines[3].split() == [
        text
        for frame in (
            neuron.question.top(1),
            neuron.answer.promotes(1),
            neuron.answer.suppresses(1),
        )
        for text in (frame.token[0], f"{frame.value[0]:.4f}")
    ]
    assert f"kurtosis {neuron.moments.kurtosis:.2f}" in str(neuron)
    assert "<table" in neuron._repr_html_()
    assert "<table" in fp.read(pocket, "L3N1-3")._repr_html_()
    text = str(fp.read(pocket, "L3N1-3"))
    assert text.startswith("3 neurons of pocket\n\n")
    assert "\nname " in text


def test_html_shows_tokens_and_not_markup(pocket):
    pipes = pocket.vocab.show(0)
    assert "<" in pipes
    weights = pocket.embedding[0]
    reading = fp.read(pocket, "L0N0")
    asked = type(reading.question)(pocket, weights, "embed", weights)
    html = replace(reading, question=asked)._repr_html_()
    assert "&lt;|endoftext|&gt;" in html
    assert pipes not in html


def test_reading_leaves_the_weights_alone(tiny):
    _ = fp.read(tiny, "L0-L2").table
    fp.survey(tiny)
    fp.search(tiny, " basketball")
    assert tiny.is_unchanged()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("L3N0", "L3N0: tiny.* has layers L0–L2."),
        ("L1N52", "L1N52: tiny.* has neurons L1N0–L1N51."),
        ("L1N9-L1N4", '"L1N9-L1N4" is empty: it ends before it begins.'),
        ("L1N1-L2N1", '"L1N1-L2N1" runs over two layers.'),
        ("N5", '"N5" is not the name of a neuron.'),
        ("l1n2", '"l1n2" is not the name of a neuron.'),
        ("", '"" is not the name of a neuron.'),
        ("L1N-3", '"L1N-3" is not the name of a neuron.'),
    ],
)
def test_names_that_are_wrong(tiny, name, words):
    with pytest.raises(NameNotUnderstood, match=words):
        fp.read(tiny, name)


def test_nothing_named_and_too_many_tokens(tiny):
    with pytest.raises(NameNotUnderstood, match="no neuron is named"):
        fp.read(tiny, [])
    with pytest.raises(OptionRefused, match=r"top = 302: there are 301 tokens\.") as caught:
        fp.read(tiny, "L1N2").answer.promotes(302)
    assert caught.value.remedy == "1 to 301"
    with pytest.raises(OptionRefused, match=r"top = 0: there are 301 tokens\."):
        fp.read(tiny, "L1N2").card(0)
    with pytest.raises(
        OptionRefused, match="convention = 'mean': it must be centred, gain, raw or normed"
    ):
        fp.read(tiny, "L1N2", convention="mean")


def test_all_tokens_may_be_listed(tiny):
    assert sorted(fp.read(tiny, "L1N2").answer.promotes(301).id) == list(range(301))
