"""Tables as text: whatever the width, names, tokens and numbers are whole."""

import math

import pandas as pd
import pytest
from rich.cells import cell_len

import ffnprobe as fp
from ffnprobe.layout import format_short, wrap, write_grid, write_table

FRAME = pd.DataFrame(
    {
        "name": ["L0N378", "L11N3071"],
        "token": ["␣of", "␣Jordan"],
        "grade": ["A", ""],
        "activation": [3.951, -0.17004],
        "mean_activation": [0.1964, 0.2],
        "push": [0.6604, -12.3456],
        "effect": [0.2537, 9.579e-05],
        "question_tokens": ["␣passport age adors", "␣see E ␣sed"],
        "answer_tokens": ["␣basketball ␣Orwell ␣racing", "日本 ␣golf ␣chess"],
    }
)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_table_fits_and_cuts_nothing(width):
    text = write_table(FRAME, width=width)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= max(width, 54)  # what is never left out takes 54 columns
    assert "…" not in text
    for whole in ("L0N378", "L11N3071", "␣Jordan", "0.660", "-12.3", "0.254", "9.58e-05"):
        assert whole in text.split()
    known = set(" ".join(FRAME.answer_tokens).split())
    assert set(text.split()) & known, "an answer's tokens are always shown"
    pieces = {word for word in text.split() if word.startswith("␣")}
    assert pieces <= known | set(" ".join(FRAME.question_tokens).split()) | set(FRAME.token)


def test_a_wider_terminal_shows_more_and_a_narrow_one_names_what_is_missing():
    narrow, wide = write_table(FRAME, width=80), write_table(FRAME, width=200)
    assert "not shown for lack of room: mean activation" in narrow
    assert "not shown" not in wide
    assert "␣basketball ␣Orwell ␣racing" in wide
    assert "␣basketball ␣Orwell ␣racing" not in narrow


def test_a_text_is_wrapped_between_words():
    told = pd.DataFrame({"part": ["the strongest of a thousand neurons like them"], "push": [1.0]})
    text = write_table(told, width=36)
    assert max(map(len, text.splitlines())) <= 36
    assert " ".join(text.replace("1.00", "").split()).endswith(told.part[0])
    assert wrap("a bb ccc", 4) == ["a bb", "ccc"]
    assert wrap("incomprehensible", 4) == ["incomprehensible"]


def test_a_grid_keeps_every_column_in_blocks():
    frame = pd.DataFrame([["L0", *["+0.25"] * 30]])
    frame.columns = pd.Index(["", *(f"␣t{n}" for n in range(30))])
    text = write_grid(frame, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("+0.25") == 30
    assert text.count("L0") == len(text.split("\n\n")) > 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (1.0, "1.00"), (20.468, "20.5"), (123.456, "123"), (999.7, "1,000"), (123456.7, "123,457"),
        (-0.17004, "-0.170"), (0.000163, "0.000163"), (9.579e-5, "9.58e-05"), (math.inf, "inf"), (math.nan, ""),
        (4608, "4608"), (36864, "36,864"), (True, "True"), (None, ""), (-0.0, "0"),
    ],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value, shown):
    assert format_short(value) == shown


def test_print_shows_the_title_the_table_and_the_note(tiny_trace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pushes = fp.attribute(tiny_trace, " sat")
    lines = str(pushes).splitlines()
    assert " ".join(lines).startswith(pushes.title)
    assert all(name in str(pushes) for name in pushes.table.name)
    assert pushes.caption.split()[-1] in lines[-1]
    assert max(map(cell_len, lines)) <= 80
    assert repr(pushes).startswith("Pushes(")


def test_print_says_how_many_rows_it_leaves_out(tiny):
    survey = fp.survey(tiny)
    assert f"the first 40 of {len(survey.table):,} rows" in str(survey)
    assert "more rows" not in str(fp.search(tiny, " sat"))


def test_what_is_said_after_an_edit_is_shown_before_the_subject():
    row = ("sport", "LeBron James", "Those who write about LeBron James usually write about",
           " basketball", "␣basketball", "␣tennis", 1, 12, 0.99, 0.01)  # fmt: skip
    names = ["relation", "subject", "prompt", "answer", "said_before", "said_after", "rank_before",
             "rank_after", "probability_before", "probability_after"]  # fmt: skip
    text = write_table(pd.DataFrame([row], columns=names), width=80)
    assert "␣tennis" in text.split()
    assert "not shown for lack of room: subject" in text
