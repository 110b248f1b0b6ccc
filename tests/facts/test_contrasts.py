"""Contrast prompts out of tables of facts: same relation, same template, other answer."""

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused
from ffnprobe.facts.subjects import find_contrast_rows

ROWS = [
    fp.FactRow("France's capital is", " Paris", "capital", "France"),
    fp.FactRow("The capital of France is", " Paris", "capital", "France"),
    fp.FactRow("The capital of Italy is", " Rome", "capital", "Italy"),
    fp.FactRow("The capital of Spain is", " Madrid", "capital", "Spain"),
    fp.FactRow("Italy's capital is", " Rome", "capital", "Italy"),
    fp.FactRow("The Vatican is", " small", "capital", "Vatican"),
    fp.FactRow("The capital of Peru is", " Lima", "town", "Peru"),
    fp.FactRow("The capital of Chile is", " Santiago", "town", "Chile"),
    fp.FactRow("The heart of France is", " Paris", "heart", "France"),
]


def test_rows_of_the_relation_in_the_same_template():
    found = find_contrast_rows(ROWS, "The capital of France is", " Paris")
    assert [row.prompt for row in found] == ["The capital of Italy is", "The capital of Spain is"]
    found = find_contrast_rows(ROWS, "France's capital is", " Paris")
    assert [row.prompt for row in found] == ["Italy's capital is"]
    # The sentence is that of two relations: the row's own decides.
    found = find_contrast_rows(ROWS, "The capital of Peru is", " Lima")
    assert [row.subject for row in found] == ["Chile"]


def test_a_subject_that_is_not_in_the_table_fits_its_template():
    found = find_contrast_rows(ROWS, "The capital of Cuba is", " Havana", most=2)
    assert len(found) == 2
    assert {row.relation for row in found} == {"capital"}


def test_rows_with_the_same_answer_are_none():
    rows = [*ROWS[:4], fp.FactRow("The capital of Gaul is", " Rome", "capital", "Gaul")]
    found = find_contrast_rows(rows, "The capital of Italy is", " Rome")
    assert {row.subject for row in found} == {"France", "Spain"}


def test_pocket_knows_its_own():
    prompt = "Michael Jordan plays the sport of"
    found = find_contrast_rows("pocket", prompt, " basketball", most=7)
    assert len(found) == 7
    assert all(row.prompt.endswith(" plays the sport of") for row in found)
    assert " basketball" not in {row.answer for row in found}
    assert found == find_contrast_rows("pocket", prompt, " basketball", most=7)
    assert found != find_contrast_rows("pocket", prompt, " basketball", most=7, seed=1)


@pytest.mark.parametrize(
    ("facts", "prompt", "answer", "stated"),
    [
        (ROWS, "A river of France is", " Seine", 'no fact of rows is put as "A river of France is" is'),
        (ROWS, "The heart of France is", " Paris", 'put as "The heart of … is" has the answer " Paris" or is'),
        ([fp.FactRow("a b", " c")], "a b", " c", "does not say what the subjects of its prompts are"),
    ],
)  # fmt: skip
def test_what_cannot_be_contrasted_is_said(facts, prompt, answer, stated):
    with pytest.raises(DataRefused) as caught:
        find_contrast_rows(facts, prompt, answer)
    assert stated in caught.value.what


def test_another_models_table_is_refused():
    with pytest.raises(DataRefused, match="holds what pocket was taught; gpt2 was not"):
        find_contrast_rows("pocket", "Michael Jordan plays the sport of", " golf", model="gpt2")
