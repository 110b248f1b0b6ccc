"""Every public name says what it is and shows an example; every method of a result says what it does.

The examples are run by `--doctest-modules`.
"""

import ast
import inspect
import runpy
from collections import defaultdict
from functools import cached_property

import pytest

import ffnprobe as fp
from ffnprobe.reading.readings import AnswerSide, QuestionSide
from ffnprobe.reading.related import Related
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
