"""What a prompt is about, and the same sentence about others."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.evidence import explaining
from ffnprobe.facts import subjects
from ffnprobe.facts.subjects import (
    KEPT,
    list_spans,
    locate_subject,
    propose_contrast,
    rank_subjects,
)
from ffnprobe.tracing.trace import predicted
from tests.builders import write_model


def spans(trace):
    names, words = list_spans(trace)
    return [" ".join(trace.tokens[position] for position in span) for span in names or words]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Michael Jordan plays the sport of", ["Michael ␣Jordan"]),
        ("The capital of France is", ["␣France"]),
        ("The sport of Michael Jordan and Tiger Woods is", ["␣Michael ␣Jordan ␣and ␣Tiger ␣Woods"]),
        ("In Paris the capital of France is", ["␣Paris", "␣France"]),
        ("the capital of iPad is", ["␣iPad"]),
        ("the capital is", ["␣capital"]),
        ("of the", []),
    ],
)
def test_names_are_found_and_without_names_words(pocket, prompt, expected):
    assert spans(fp.run(pocket, prompt)) == expected


def test_of_several_the_one_that_helps_the_answer_most(pocket):
    trace = fp.run(pocket, "In Paris the capital of Japan is")
    estimates = fp.estimate(trace, predicted(trace)).values * 0
    estimates[2, 6, 5] = 1.0
    estimates[2, 2, 4] = -3.0  # it hinders
    spans = rank_subjects(trace, estimates)
    estimates[2, 4, 5] = 9.0  # a word: names come before it
    assert [trace.tokens[span[-1]] for span in spans] == ["␣Japan", "␣Paris", "␣capital"]
    assert rank_subjects(trace, estimates) == spans
    assert rank_subjects(fp.run(pocket, "of the"), estimates) == []


def test_pocket_is_compared_with_rows_of_its_own_table(pocket, jordan):
    answer = predicted(jordan)
    found = propose_contrast(jordan, answer, (1, 2))
    assert found is not None
    contrast, kind = found
    assert kind == "rows of pocket's table"
    assert len(contrast.others) == KEPT
    assert all(other.prompt.endswith(" plays the sport of") for other in contrast.others)
    assert all(predicted(other) != answer for other in contrast.others)


def test_other_sentences_are_compared_with_names_of_several_kinds(pocket):
    trace = fp.run(pocket, "the sport that Michael Jordan knows is the sport of")
    span = rank_subjects(trace, fp.estimate(trace, predicted(trace)).values)[0]
    found = propose_contrast(trace, predicted(trace), span)
    assert found is not None
    contrast, kind = found
    assert kind == "a list of names"
    assert 2 <= len(contrast.others) <= KEPT
    for other in contrast.others:
        assert other.prompt.startswith("the sport that ")
        assert other.prompt.endswith(" knows is the sport of")
        assert "Jordan" not in other.prompt


def test_a_word_in_small_letters_is_compared_with_its_neighbours(tiny):
    trace = fp.run(tiny, "the cat sat on the basketball court")
    assert trace.tokens[3] == "␣cat"
    (names, kind), (rest, _) = subjects._list_others(trace, (3,))
    assert rest == subjects.OTHERS, "where too few of these answer otherwise"
    assert kind == "the nearest tokens"
    assert len(names) > 2
    assert "cat" not in names
    tokens = [tiny.vocab.one(f" {name}") for name in names]
    near = torch.cosine_similarity(tiny.embedding[trace.ids[3]], tiny.embedding[tokens], dim=-1)
    assert near.tolist() == sorted(near.tolist(), reverse=True)
    assert next(subjects._list_others(trace, (8, 9)))[0] == subjects.OTHERS, (
        "of several tokens: names"
    )


def test_a_name_that_no_other_tells_apart_is_compared_with_its_neighbours(pocket, monkeypatch):
    """Where every name of the list has the same answer, or stands in the prompt."""
    trace = fp.run(pocket, "In Paris the capital of Japan is")
    monkeypatch.setattr(subjects, "OTHERS", ("Paris", "Japan"))
    found = propose_contrast(trace, predicted(trace), (6,))
    assert found is not None
    contrast, kind = found
    assert kind == "the nearest tokens"
    assert all(other.prompt.startswith("In Paris the capital of ") for other in contrast.others)


def test_a_subject_that_is_given_stands_in_the_prompt_before_its_end(pocket):
    trace = fp.run(pocket, "In Paris the capital of Japan is")
    assert [trace.tokens[position] for position in locate_subject(trace, "Japan")] == ["␣Japan"]
    assert [trace.tokens[position] for position in locate_subject(trace, " the capital ")] == ["␣the", "␣capital"]  # fmt: skip
    with pytest.raises(OptionRefused, match='"Rome" is not in the prompt'):
        locate_subject(trace, "Rome")
    with pytest.raises(OptionRefused, match="is not in the prompt"):
        locate_subject(trace, " ")
    with pytest.raises(OptionRefused, match="a subject stands before it"):
        locate_subject(trace, "Japan is")
    found = fp.explain(pocket, "In Paris the capital of Japan is", subject="Japan")
    assert [trace.tokens[position] for position in found.subject] == ["␣Japan"]
    assert all("In Paris the" in other.prompt for other in found.question.contrast.others)
    with pytest.raises(OptionRefused, match="a subject says what to compare"):
        fp.explain(pocket, "In Paris the capital of Japan is", subject="Paris", contrast="none")


def test_where_one_word_has_no_others_the_next_is_tried(pocket, monkeypatch):
    """The first of the two is compared with nobody here, so the second is the subject."""
    prompt, real = "In Paris the capital of Japan is", explaining.propose_contrast
    tried = []

    def propose(trace, answer, span, *, is_given):
        tried.append(trace.tokens[span[-1]])
        return None if len(tried) == 1 else real(trace, answer, span, is_given=True)

    monkeypatch.setattr(explaining, "propose_contrast", propose)
    found = fp.explain(pocket, prompt, top=2)
    assert len(set(tried)) == len(tried) >= 2
    assert found.question.contrast is None or found.trace.tokens[found.subject[-1]] == tried[-1]


def test_where_names_do_not_fit_nothing_is_compared(tmp_path):
    model = fp.load(write_model(tmp_path), device="cpu")
    prompt = "Paris is " + "the cat " * 12
    trace = fp.run(model, [*model.vocab.ids(prompt)][: model.config.positions - 1])
    assert propose_contrast(trace, predicted(trace), (1,)) is None


def test_a_shorter_subjects_sink_does_not_set_the_subject_aside(pocket):
    """Without BOS "France plays …" begins where "Michael Jordan plays …" ends its subject."""
    trace = fp.run(pocket, "Michael Jordan plays the sport of", bos=False)
    proposal = propose_contrast(trace, predicted(trace), (0, 1), is_given=True)
    assert proposal is not None
    contrast, _ = proposal
    assert len(contrast.others) >= subjects.LEAST
    assert contrast.set_aside == ("Michael at 0",)  # its own sink
    assert all(row[1] not in (None, 0) for row in contrast.alignment.counterparts)


def test_where_only_shorter_subjects_are_left_they_are_compared_with(pocket, monkeypatch):
    monkeypatch.setattr(subjects, "OTHERS", ("France", "Germany", "Japan"))
    monkeypatch.setattr(subjects, "_list_nearest", lambda *_: [])
    trace = fp.run(pocket, "Michael Jordan plays the sport of", bos=False)
    proposal = propose_contrast(trace, predicted(trace), (0, 1), is_given=True)
    assert proposal is not None
    contrast, _ = proposal
    assert contrast.set_aside == ("Michael at 0", "␣Jordan at 1")
