"""The tables of docs/evidence.md are written from stores of evidence_compared, between two marks."""

import json
import runpy
from itertools import product

import pytest

from tests.whole.pages import ROOT


@pytest.fixture
def script():
    return runpy.run_path(str(ROOT / "docs" / "scripts" / "evidence_tables.py"))


@pytest.fixture
def store(tmp_path):
    """Ours flips the first fact from k = 5 on and spares contrast answers; the gradient hurts them."""
    rows = []
    for number, method, k in product(range(4), ("contrast with paths", "gradient × difference"), (1, 5, 10, 20, 50)):  # fmt: skip
        is_ours = method.startswith("contrast")
        flips = number == 0 and is_ours and k >= 5
        row = {"prompt": f"p{number}", "method": method, "k": k, "seconds": [1, 2, 3, 900][number]}
        for removed in ("contrast", "usual"):
            row |= {
                f"{removed}_flipped": flips, f"{removed}_flipped_there": 0.5,
                f"{removed}_fall": 2.0, f"{removed}_fall_there": 0.1 if is_ours else 0.3,
            }  # fmt: skip
        rows.append(row)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_tables_stand_between_the_marks(script, store, tmp_path):
    page = tmp_path / "evidence.md"
    page.write_text(f"above\n{script['BEGIN']}\nold\n{script['END']}\nbelow\n", encoding="utf-8")
    script["main"].__globals__["PAGE"] = page
    script["main"]([f"Some model={store}"])
    first = page.read_text(encoding="utf-8")
    assert first.startswith(f"above\n{script['BEGIN']}\n**Some model**, 4 facts.")
    assert first.endswith(f"{script['END']}\nbelow\n")
    assert "old" not in first
    assert "| contrast with paths | 0% | 25% | 25% | 25% | 25% | 50% | 2.00 | 0.10 | 25% | 2.5 |" in first  # fmt: skip
    assert (
        "| gradient × difference | 0% | 0% | 0% | 0% | 0% | 50% | 2.00 | 0.30 | – | 2.5 |" in first
    )
    assert "at k = 20, only by contrast with paths 1, only by gradient × difference 0." in first
    script["main"]([f"Some model={store}"])
    assert page.read_text(encoding="utf-8") == first


def test_the_page_has_the_marks(script):
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert page.count(script["BEGIN"]) == page.count(script["END"]) == 1
