"""The field's own files are read as they are; each row that cannot be read says where and why."""

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.facts.formats import read_facts
from ffnprobe.facts.rows import FactRow
from ffnprobe.models import pocket as own


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def lines(*entries: dict) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def stated(path: Path, **options: str) -> list[tuple[str, str]]:
    return [(row.prompt, row.answer) for row in read_facts(path, **options).rows]


def problems(path: Path) -> list[tuple[str, str]]:
    return [(p.where, p.problem) for p in read_facts(path).problems]


def test_a_prompt_and_its_answer_are_taken_exactly_as_written(tmp_path):
    text = 'prompt,answer\n"One, two,", three\nNo space,here\n"two\nlines", end\n'
    table = read_facts(write(tmp_path / "facts.csv", text))
    assert [(r.prompt, r.answer, r.where) for r in table.rows] == [
        ("One, two,", " three", "facts.csv line 2"),
        ("No space", "here", "facts.csv line 3"),
        ("two\nlines", " end", "facts.csv line 4"),
    ]
    assert table.format == "prompt,answer"
    tabbed = write(tmp_path / "facts.tsv", 'answer\tprompt\n "three"\tOne, two,\n')
    assert stated(tabbed) == [("One, two,", ' "three"')]


def test_a_subject_is_put_into_its_relations_template(tmp_path):
    text = "answer,subject,relation\nbasketball,Michael Jordan,{} plays the sport of\n golf,Tiger Woods,{subject} plays\n"
    assert stated(write(tmp_path / "facts.csv", text)) == [
        ("Michael Jordan plays the sport of", " basketball"),
        ("Tiger Woods plays", " golf"),
    ]
    text = "subject,relation,answer,template\nFrance,capital,Paris,The capital of {} is\n"
    row = read_facts(write(tmp_path / "more.csv", text)).rows[0]
    assert row == FactRow(
        "The capital of France is", " Paris", "capital", "France", "more.csv line 2"
    )


def test_named_relations_find_their_templates_beside_the_table():
    path = own.FOLDER / "facts.csv"
    found = read_facts(path, templates="all")
    # Pocket itself begins its sentences with a capital; a table is taken as written.
    assert [row.prompt[1:] for row in found.rows] == [p.text[1:] for p in own.prompts()]
    assert len(read_facts(path).rows) == len(own.facts())


def test_pockets_own_table(tmp_path):
    first, every = read_facts("pocket"), read_facts("pocket", templates="all")
    assert (len(first.rows), len(every.rows)) == (2140, 10700)
    assert not first.problems
    jordan = next(row for row in first.rows if row.subject == "Michael Jordan")
    line = (own.FOLDER / "facts.csv").read_text().splitlines()[int(jordan.where.split()[-1]) - 1]
    assert line == "sport,Michael Jordan,basketball"


def test_frames_and_rows_are_tables_too():
    frame = pd.DataFrame({"prompt": ["A is", "B is", None], "answer": [" a", float("nan"), " c"]})
    table = read_facts(frame)
    assert [(row.prompt, row.answer) for row in table.rows] == [("A is", " a")]
    assert [(p.where, p.problem) for p in table.problems] == [
        ("row 1", "no answer"),
        ("row 2", "no prompt"),
    ]
    rows = [FactRow("A is", " a"), FactRow("A is", " a")]
    assert read_facts(rows).problems[0].problem == "the same fact as row 0"


LRE = {
    "name": "sport", "prompt_templates": ["{} plays the", "{} is good at"],
    "prompt_templates_zs": ["{} plays the"], "properties": {},
    "samples": [{"subject": "Pele", "object": "soccer"}, {"subject": "Ali", "object": "boxing "}],
}  # fmt: skip


def test_lre_relations_put_zero_shot_templates_first(tmp_path):
    content = LRE | {"prompt_templates_zs": ["What does {} play? It is", "{} plays the"]}
    path = write(tmp_path / "sport.json", json.dumps(content))
    assert stated(path)[0] == ("What does Pele play? It is", " soccer")
    assert stated(path)[1][1] == " boxing "
    asked = [prompt for prompt, answer in stated(path, templates="all") if answer == " soccer"]
    assert asked == ["What does Pele play? It is", "Pele plays the", "Pele is good at"]
    write(tmp_path / "inner" / "other.json", json.dumps(LRE | {"name": "other"}))
    assert {row.relation for row in read_facts(tmp_path).rows} == {"sport", "other"}


def test_counterfact_asks_for_what_is_true(tmp_path):
    rewrite = {
        "prompt": "The mother tongue of {} is", "relation_id": "P103", "subject": "Danielle Darrieux",
        "target_new": {"str": "English", "id": "Q1860"}, "target_true": {"str": "French", "id": "Q150"},
    }  # fmt: skip
    entries = [
        {"case_id": 0, "requested_rewrite": rewrite, "paraphrase_prompts": ["…"]},
        {"case_id": 1, "requested_rewrite": rewrite | {"prompt": "The mother tongue is"}},
        {"case_id": 2, "requested_rewrite": rewrite | {"target_true": {}}},
        {"case_id": 3},
    ]
    path = write(tmp_path / "counterfact.json", json.dumps(entries))
    table = read_facts(path)
    assert table.format == "CounterFact"
    row = table.rows[0]
    assert (row.prompt, row.answer) == ("The mother tongue of Danielle Darrieux is", " French")
    assert (row.relation, row.subject, row.where) == (
        "P103", "Danielle Darrieux", "counterfact.json entry 1",
    )  # fmt: skip
    assert problems(path) == [
        ("counterfact.json entry 2", 'the template "The mother tongue is" has no slot for the subject: {} or [X]'),
        ("counterfact.json entry 3", "no answer"),
        ("counterfact.json entry 4", "no subject"),
    ]  # fmt: skip


def test_lama_finds_its_patterns_above_the_facts(tmp_path):
    write(
        tmp_path / "relations.jsonl",
        lines(
            {"relation": "P36", "template": "The capital of [X] is [Y] .", "label": "capital"},
            {"relation": "place_of_birth", "template": "[X] was born in [Y] ."},
        ),
    )
    fact = {"sub_label": "France", "obj_label": "Paris", "predicate_id": "P36", "uuid": "1"}
    path = write(
        tmp_path / "TREx" / "P36.jsonl",
        lines(fact, fact) + "{broken\n" + lines(fact | {"obj_label": ""}),
    )
    assert stated(path) == [("The capital of France is", " Paris")]
    assert problems(path) == [
        ("P36.jsonl line 2", "the same fact as P36.jsonl line 1"),
        ("P36.jsonl line 3", "not a JSON object"),
        ("P36.jsonl line 4", "no answer"),
    ]
    born = {"pred": "/people/person/place_of_birth", "sub_label": "Mozart", "obj_label": "Salzburg"}
    write(tmp_path / "Google_RE" / "place_of_birth_test.jsonl", lines(born))
    found = {(row.relation, row.prompt) for row in read_facts(tmp_path).rows}
    assert found == {("P36", "The capital of France is"), ("place_of_birth", "Mozart was born in")}


def test_pararel_passes_over_patterns_that_cannot_be_asked(tmp_path):
    patterns = [
        "[Y] is the capital of [X].",
        "[X], whose capital is [Y].",
        "[X] (capital: [Y])",
        "[X]",
    ]
    write(
        tmp_path / "pattern_data" / "graphs_json" / "P36.jsonl",
        lines(*({"pattern": p, "lemma": "capital", "tense": "present"} for p in patterns[:3])),
    )
    fact = {"sub_label": "France", "obj_label": "Paris", "lineid": 1}
    path = write(tmp_path / "trex_lms_vocab" / "P36.jsonl", lines(fact))
    assert stated(path) == [("France, whose capital is", " Paris")]
    assert stated(path, templates="all")[1] == ("France (capital:", " Paris")
    assert read_facts(tmp_path).rows == read_facts(path).rows
    only = write(
        tmp_path / "P1.jsonl",
        lines({"pattern": patterns[0]}, fact, fact | {"template": "[X]: “[Y]”"}),
    )
    assert stated(only) == [("France: “", "Paris")]
    assert problems(only) == [
        (
            "P1.jsonl line 2",
            '"[Y] is the capital of [X]." has text after its answer [Y]: it cannot be used with a left-to-right model',
        )
    ]
    alone = write(tmp_path / "alone" / "deep" / "P2.jsonl", lines(fact))
    assert problems(alone) == [("P2.jsonl line 1", 'the relation "P2" has no template')]


def test_every_bad_row_is_named_and_the_rest_is_read(tmp_path):
    text = (
        "subject,relation,answer\nPele,{} plays,soccer\nAli,{} plays,\nAli,{} plays\n,{} plays,golf\n\n"
        "Ali,boxer,boxing\nPele,{} plays,soccer\n"
    )
    path = write(tmp_path / "facts.csv", text)
    assert stated(path) == [("Pele plays", " soccer")]
    assert problems(path) == [
        ("facts.csv line 3", "no answer"),
        ("facts.csv line 4", "not the 3 cells of the header"),
        ("facts.csv line 5", "no subject"),
        ("facts.csv line 7", 'the relation "boxer" has no template'),
        ("facts.csv line 8", "the same fact as facts.csv line 2"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "subject,answer\nx,y\n", "columns subject, answer; missing: (prompt|relation)"),
        ("a.csv", "city,prompt\nx,y\n", "missing: answer.\n  try: prompt,answer or subject,relation,answer"),
        ("a.csv", "", r"columns \(none\); missing: prompt, answer"),
        ("a.csv", "prompt,answer\n", "has no rows"),
        ("a.txt", "x", '".txt" is not a format of facts'),
        ("a.json", "[1, 2]", r"fields \(none\), which is not a known format of facts.\n  try: LRE"),
        ("a.json", '[{"question": 1}]', "has the fields question"),
        ("a.json", "{", "is not JSON"),
        ("a.jsonl", '{"pattern": "[X] [Y]"}\n', "no line has sub_label and obj_label"),
    ],
)  # fmt: skip
def test_unknown_formats_say_what_is_known_and_what_is_missing(tmp_path, name, text, words):
    with pytest.raises(DataRefused) as raised:
        read_facts(write(tmp_path / name, text))
    assert re.search(words, str(raised.value)), raised.value


def test_what_is_not_there_or_not_text_is_refused(tmp_path):
    (tmp_path / "latin.csv").write_bytes("prompt,answer\ncaf\xe9, x\n".encode("latin-1"))
    for given, words in [
        (tmp_path / "none.csv", "there is no file or folder"),
        (tmp_path / "latin.csv", "is not UTF-8"),
        (write(tmp_path / "empty" / "readme.md", "").parent, "holds no facts"),
    ]:
        with pytest.raises(DataRefused, match=words):
            read_facts(given)
    with pytest.raises(OptionRefused, match='"some" is not a choice of templates'):
        read_facts("pocket", templates="some")


@pytest.mark.shared
def test_published_files_are_read_whole(shared):
    relations = read_facts(shared / "data" / "relations" / "data")
    assert len(relations.rows) + len(relations.problems) == 11_089
    assert all("the same fact as" in p.problem for p in relations.problems)
    assert len({row.relation for row in relations.rows}) == 47
    jordan = [row for row in relations.rows if row.subject == "Michael Jordan"]
    assert ("Michael Jordan plays the sport of", " basketball") in {
        (r.prompt, r.answer) for r in jordan
    }
    assert any(row.answer == " Bon Jovi " for row in relations.rows)

    known = read_facts(shared / "data" / "rome_known_1000" / "known_1000.json")
    assert (known.format, len(known.rows), len(known.problems)) == ("ROME", 1209, 0)
    first = known.rows[0]
    assert first.prompt == "Vinson Massif is located in the continent of"
    assert (first.answer, first.relation) == (" Antarctica", "P30")

    athletes = read_facts(shared / "data" / "athletes_sport" / "sports.csv")
    assert (athletes.format, len(athletes.rows), len(athletes.problems)) == (
        "athlete,sport",
        1559,
        7,
    )
    assert athletes.rows[0].prompt.endswith("golf\nFact: DeForest Buckner plays the sport of")
    assert athletes.rows[1].where == "sports.csv line 4"


def test_rows_a_model_cannot_run_are_problems(tiny: fp.Model):
    rows = [
        FactRow("the cat sat on", " the", where="line 2"),
        FactRow("the cat sat on", "\ud800", where="line 3"),
        FactRow("the " * 40, " cat", where="line 4"),
        FactRow("the" + " cat" * 26, " dog ran", where="line 5"),
    ]
    scores = fp.score(tiny, rows)
    assert len(scores) == 1
    found = dict(zip(scores.problems["where"], scores.problems["problem"], strict=True))
    assert "characters this vocabulary cannot write" in found["line 3"]
    assert "has 29 positions" in found["line 4"]
    assert "and the answer 3" in found["line 5"]
    assert scores.title.endswith("of 1, 3 left out")


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"prompt_templates": 5}, "prompt_templates is 5; it must be a list."),
        ({"prompt_templates": None}, "prompt_templates is None; it must be a list."),
        ({"prompt_templates": [["{}"]]}, "among its templates is ['{}']; a template is text."),
        ({"prompt_templates": ["{} has", 7]}, "among its templates is 7; a template is text."),
        ({"prompt_templates_zs": {"a": 1}}, "prompt_templates_zs is {'a': 1}; it must be a list."),
        ({"samples": "ab"}, "samples is 'ab'; it must be a list."),
    ],
)
def test_json_of_a_wrong_shape_is_named(tmp_path, odd, words):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(LRE | odd))
    with pytest.raises(DataRefused) as refusal:
        read_facts(path)
    assert refusal.value.what == f"odd.json: {words}"


def test_json_that_cannot_be_parsed_is_said_in_a_line(tmp_path):
    for text, words in {
        "[" * 100_000: "x.json is nested too deeply to be read.",
        '{"a": %s}' % ("9" * 5000): "x.json is not JSON: a number in it has thousands of digits.",
    }.items():
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(DataRefused) as refusal:
            read_facts(tmp_path / "x.json")
        assert refusal.value.what == words
    lines = [
        "[" * 100_000,
        '{"sub_label": %s}' % ("9" * 5000),
        '{"sub_label": [1], "obj_label": "b"}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    said = [problem.problem for problem in read_facts(tmp_path / "x.jsonl").problems]
    assert said == ["not a JSON object", "not a JSON object", "no subject"]


def test_facts_are_read_from_regular_files(tmp_path):
    for suffix in ("csv", "json", "jsonl"):
        os.mkfifo(tmp_path / f"x.{suffix}")
        with pytest.raises(DataRefused, match=f"x.{suffix} is a pipe; ffnprobe reads regular"):
            read_facts(tmp_path / f"x.{suffix}")
