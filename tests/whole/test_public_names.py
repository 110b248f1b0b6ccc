"""Every public name says what it is and shows an example; every method of a result says what it does.

The examples are run by `--doctest-modules`.
"""

import ast
import inspect
import runpy
import subprocess
import sys
from collections import defaultdict
from functools import cached_property

import pytest

import ffnprobe as fp
from ffnprobe.reading.readings import AnswerSide, QuestionSide
from ffnprobe.reading.searches import Related
from tests.whole.pages import ROOT

NAMES = [name for name in fp.__all__ if not name.startswith("__")]
CLASSES = {getattr(fp, name) for name in NAMES if inspect.isclass(getattr(fp, name))}
RESULTS = sorted(CLASSES | {Related, QuestionSide, AnswerSide}, key=lambda c: c.__name__)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_in_its_own_words(name):
    words = getattr(fp, name).__doc__ or ""
    assert not words.startswith(f"{name}("), "this is the signature dataclass writes"
    assert words.strip().partition("\n")[0].endswith((".", ":", ",", "?")), words
    assert ">>> " in words, f"{name} has no example"


def test_a_newcomer_sees_verbs_and_finds_results_in_one_place():
    shown = [name for name in dir(fp) if not name.startswith("__")]
    verbs = {name for name in NAMES if inspect.isfunction(getattr(fp, name))}
    assert verbs < set(shown)
    assert set(shown) - verbs == {
        "results", "FactRow", "FfnProbeError", "Model", "NeuronId", "Scan", "Thresholds",
    }  # fmt: skip
    assert {*shown, *dir(fp.results)} == {*NAMES, "results"}
    assert set(dir(fp.results)).isdisjoint(shown)
    for name in dir(fp.results):
        assert getattr(fp.results, name) is getattr(fp, name)
    with pytest.raises(AttributeError, match=r"'ffnprobe\.results' has no attribute 'Model'"):
        fp.results.Model  # noqa: B018


def test_listing_names_loads_no_torch():
    code = "import sys, ffnprobe as fp; dir(fp); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_what_a_result_offers_is_described(result):
    silent = [name for name, member in offered(result) if not inspect.getdoc(member)]
    assert silent == []


def offered(kind: type) -> list[tuple[str, object]]:
    """List the public methods and properties that a class itself defines."""
    kinds = (property, cached_property, classmethod, staticmethod)
    return [
        (name, member)
        for name, member in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds))
    ]


def test_a_method_without_words_is_noticed():
    class Silent:
        def top(self): ...

        @property
        def values(self): ...

    assert [n for n, member in offered(Silent) if not inspect.getdoc(member)] == ["top", "values"]


def test_the_page_of_public_names_is_written_from_the_docstrings():
    made = runpy.run_path(str(ROOT / "docs" / "scripts" / "api.py"))["write_page"]()
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert made == page, "python docs/scripts/api.py writes it again"
    assert all(f"### {name}\n" in page for name in NAMES)


def test_no_two_classes_share_a_name():
    homes = defaultdict(list)
    for file in sorted((ROOT / "ffnprobe").rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(file.relative_to(ROOT).as_posix())
    assert len(homes) > 200
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
