"""`ffnprobe score`: every fact's row, problems with their lines, an exit code that says some failed."""

import json
from pathlib import Path

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.facts import scores
from tests.cli.runner import ffnprobe, refused

GOOD = """prompt,answer,relation
the cat sat on, the,place
the dog ran to, basketball court,place
the court in, Paris,place
the mat and, the,thing
the cat and, basketball,thing
"""
BAD = GOOD + "the dog ran on,,place\nthe cat sat on, the,place\n" + "the " * 40 + ", cat,place\n"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.csv"
    path.write_text(GOOD)
    return path


def score(folder: Path, *words: str | Path):
    return ffnprobe("score", *words, "--model", folder, "--device", "cpu")


def test_every_fact_is_a_row(facts, tiny, tiny_folder):
    result = score(tiny_folder, facts, "--format", "json", "--top", "3")
    assert result.exit_code == 0, result.output
    found, wanted = json.loads(result.stdout), fp.score(tiny, facts, top=3)
    assert [row["rank"] for row in found["facts"]] == list(wanted.table["rank"])
    assert [row["neurons"] for row in found["facts"]] == list(wanted.table.neurons)
    assert len(found["neurons"]) == 5 * 3
    assert found["provenance"]["settings"] == {
        "facts": "facts.csv", "format": "prompt,answer", "rows": 5, "templates": "first",
    }  # fmt: skip
    assert f"{tiny.name} knows" in result.stderr


@pytest.mark.parametrize("words", [[], ["--by-relation"], ["--remove", "place"]])
def test_the_terminal_says_where_neurons_were_looked_for(facts, tiny_folder, words):
    result = score(tiny_folder, facts, *words)
    assert result.exit_code == 0, result.output
    assert "where the answer is predicted (the last token)" in " ".join(result.stdout.split())


def test_problems_are_named_and_the_rest_goes_on(facts, tiny_folder):
    facts.write_text(BAD)
    result = score(tiny_folder, facts, "--format", "json", "--quiet")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["facts"]) == 5
    assert [row["where"] for row in json.loads(result.stdout)["problems"]] == [
        f"facts.csv line {line}" for line in (7, 8, 9)
    ]
    assert "facts.csv line 7: no answer" in result.stderr
    assert "facts.csv line 8: the same fact as facts.csv line 2" in result.stderr
    assert "facts.csv line 9: the prompt is" in result.stderr
    assert "error: 3 of 8 rows were left out." in result.stderr


def test_a_table_without_one_fact_that_can_be_asked(facts, tiny_folder):
    facts.write_text("prompt,answer\nthe cat,\n")
    result = score(tiny_folder, facts)
    assert result.exit_code == 1
    assert "error: 1 of 1 rows were left out." in result.stderr
    assert "no answer" in result.stdout


@pytest.mark.parametrize(
    ("option", "columns"),
    [
        ([], "relation,prompt,answer"),
        (["--by-relation"], "relation,facts,known,share known,median rank"),
        (["--overlap"], "pairs,overlap,p"),
        (["--remove", "place", "--top", "2"], "facts of,half,facts,removed,share known,probability,effect,lost"),
    ],
)  # fmt: skip
def test_relations_overlap_and_removal(facts, tiny_folder, option, columns):
    result = score(tiny_folder, facts, *option)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert columns.replace(",", " ") in words


def test_one_question_at_a_time(facts, tiny_folder):
    result = score(tiny_folder, facts, "--by-relation", "--overlap")
    assert result.exit_code == 2


def test_long_tables_are_shortened_in_a_terminal_only(facts, tiny_folder, monkeypatch):
    facts.write_text("prompt,answer\n" + "".join(f"the cat {n}, the\n" for n in range(45)))
    result = score(tiny_folder, facts)
    assert "the cat 44" in result.stdout
    monkeypatch.setenv("COLUMNS", "100")
    result = score(tiny_folder, facts)
    assert "the first 40 of 45 rows; all of them: --format csv" in result.stdout
    assert "the cat 39" in result.stdout
    assert "the cat 40" not in result.stdout
    assert "the cat 44" in score(tiny_folder, facts, "--format", "csv").stdout


def test_answers_without_a_space_are_pointed_out(facts, tiny_folder):
    facts.write_text("prompt,answer\nthe cat sat on,the\n")
    assert 'taken as written (1): "the", not " the"' in score(tiny_folder, facts).stderr


def test_an_interrupted_run_goes_on(facts, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "FACTS_AT_ONCE", 1)
    whole, resumed = tmp_path / "whole.parquet", tmp_path / "resumed.parquet"
    assert score(tiny_folder, facts, "--out", whole).exit_code == 0
    plain, asked = scores.recall, []

    def interrupt(*given, **options):
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return plain(*given, **options)

    monkeypatch.setattr(scores, "recall", interrupt)
    stopped = score(tiny_folder, facts, "--out", resumed)
    assert stopped.exit_code == 130
    assert f"what is done is kept in {resumed}.partial; the same command resumes." in stopped.stderr
    assert "nothing was written" not in stopped.stderr
    assert not resumed.exists()
    result = score(tiny_folder, facts, "--out", resumed)
    assert result.exit_code == 0
    assert "resuming from" in result.stderr
    assert len(asked) == 3 + 3
    assert pd.read_parquet(resumed).equals(pd.read_parquet(whole))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "facts.csv", "resumed.parquet", "whole.parquet",
    ]  # fmt: skip


def test_unknown_tables_are_refused(tmp_path, tiny_folder):
    (tmp_path / "facts.txt").write_text("x")
    words = ["--model", tiny_folder, "--device", "cpu"]
    assert "is not a format of facts" in refused("score", tmp_path / "facts.txt", *words)
    assert "there is no file or folder" in refused("score", tmp_path / "none.csv", *words)


def test_pages_and_figures_are_written_beside_the_result(facts, tiny_folder, tmp_path):
    page, figure = tmp_path / "page.html", tmp_path / "figure.html"
    result = score(tiny_folder, facts, "--html", page, "--plot", figure, "--overlap")
    assert result.exit_code == 0, result.output
    assert "within relations" in page.read_text(encoding="utf-8")
    assert "share" in figure.read_text(encoding="utf-8")
    assert score(tiny_folder, facts, "--html", page).exit_code == 0
    assert "the mat and" in page.read_text(encoding="utf-8")


def test_what_rank_and_share_mean_of_several_pieces_is_said(facts, tiny_folder):
    words = "answers of several tokens"
    facts.write_text("prompt,answer\nthe dog, cat\n")
    assert words not in score(tiny_folder, facts).stderr
    facts.write_text("prompt,answer\nthe cat, zebra crossing\nthe dog, cat\n")
    printed = " ".join(score(tiny_folder, facts).stderr.split())
    assert f"{words} (1): their rank is the worst piece's (1: every piece is first)" in printed


def test_the_readme_says_how_many_facts_score_says_pocket_knows(pocket):
    folder = Path(fp.__file__).parent
    measured = json.loads((folder / "models" / "pocket" / "figures.json").read_text("utf-8"))
    known = fp.score(pocket, "pocket", top=1).table.known
    assert (len(known), known.sum()) == (
        measured["facts"], measured["facts_recalled_in_first_template"],
    )  # fmt: skip
    said = f"taught {len(known):,} facts and knows {known.sum():,} of them"
    assert said in (folder.parent / "README.md").read_text("utf-8")
