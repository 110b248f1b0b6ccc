"""The comparison of three methods: its table, its page, and how it resumes."""

import json
import math

import pandas as pd
import pytest

from analyses.measured import edit_compared


def test_every_method_is_measured_and_a_second_run_reads_the_store(tmp_path, monkeypatch, capsys):
    store, page = tmp_path / "edits.jsonl", tmp_path / "edits.html"
    words = ["pocket", "--facts", "1", "--turns", "1", "--store", str(store)]
    edit_compared.main([*words, "--html", str(page)])
    rows = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    assert [(row["part"], row["method"]) for row in rows] == [
        (part, method) for part in ("alone", "turn") for method in edit_compared.METHODS
    ]
    assert all(row["passes"] > 0 for row in rows if row["part"] == "alone")
    assert "edits in a row" in page.read_text(encoding="utf-8")
    monkeypatch.setattr(edit_compared, "edit_alone", None)
    monkeypatch.setattr(edit_compared, "edit_in_turn", None)
    edit_compared.main(words)
    assert "alphaedit" in capsys.readouterr().out


def test_shares_are_taken_over_all_cases():
    rows = pd.DataFrame(
        [
            {"part": "alone", "method": "rome", "number": n, "passes": 1.0, "efficacy": 1,
             "efficacy_cases": 1, "paraphrases": n, "paraphrases_cases": 1 + n,
             "neighbourhood": 5, "neighbourhood_cases": 10}
            for n in (1, 2)
        ]
    )  # fmt: skip
    table = edit_compared.summarise(rows)["alone"].iloc[0]
    assert (table.efficacy, table.paraphrases, table.neighbourhood) == (1.0, 0.6, 0.5)
    assert table.score == pytest.approx(3 / (1 + 1 / 0.6 + 2))


def test_a_score_without_cases_is_not_a_number():
    own = {"efficacy": 1, "paraphrases": 2, "neighbourhood": 0}
    cases = {f"{name}_cases": number for name, number in own.items()}
    rows = pd.DataFrame([
        {"part": "turn", "method": "rome", "number": 1, "edits": 1, **own, **cases},
        {"part": "turn", "method": "memit", "number": 1, "edits": 1, **own, **cases}
        | {"neighbourhood_cases": 4},
        {"part": "turn", "method": "alphaedit", "number": 1, "edits": 1, **own, **cases}
        | {"neighbourhood": 1, "neighbourhood_cases": 2},
    ])  # fmt: skip
    table = edit_compared.summarise(rows)["in turn"].set_index("method")
    assert math.isnan(table.score["rome"])
    assert table.score["memit"] == 0
    assert table.score["alphaedit"] == pytest.approx(3 / (1 + 1 + 2))
