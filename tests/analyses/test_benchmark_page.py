"""The table of docs/performance.md is what runs of the benchmark measured."""

from pathlib import Path

from analyses.benchmark import ROOMS
from analyses.measured.benchmarks.page import END, START, write_page

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_a_run_replaces_the_rows_of_its_rooms_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n{START}\n{END}\nafter\n", encoding="utf-8")
    write_page(
        page, [("reading", "a survey", 2.0, "at most 3"), ("facts", "a score", 1.0, "shown")]
    )
    write_page(page, [("reading", "a survey", 2.5, "at most 3")])
    text = page.read_text(encoding="utf-8")
    assert "| reading | a survey | 2.5 | at most 3 |" in text
    assert "| facts | a score | 1 | shown |" in text
    assert text.count("| reading |") == 1
    assert text.startswith("# Title\n")
    assert text.endswith("\nafter\n")
    assert "torch" in text


def test_the_rows_of_the_page_are_of_the_benchmarks_rooms():
    lines = PAGE.read_text(encoding="utf-8").partition(START)[2].splitlines()
    rooms = {line.split("|")[1].strip() for line in lines if line.startswith("| ")} - {"part"}
    assert rooms <= set(ROOMS)
    assert len(rooms) > len(ROOMS) // 2
