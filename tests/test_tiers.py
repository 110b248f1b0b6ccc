"""Which tests are long: every place is one, both parts are everything, and the short ones keep their budget."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement

import pytest

from tests import clock, tiers
from tests.families.builders import CASES

ROOT = Path(__file__).parents[1]
SPENDING = """
import subprocess, sys, time

SPEND = "import time; began = time.process_time()\\nwhile time.process_time() - began < 0.4: pass"

def test_waits():
    time.sleep(0.4)

def test_starts_a_process():
    subprocess.run([sys.executable, "-c", SPEND], check=True)
"""


def collect(*words):
    """List the ids of the tests that `pytest WORDS` would run."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-q", *words]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return Counter(line for line in found.splitlines() if "::" in line)


def test_both_parts_are_everything():
    short, long, everything = collect(), collect("-m", "long"), collect("-m", "")
    assert short + long == everything
    assert max(everything.values()) == 1
    assert len(short) > 2000
    for place in tiers.PLACES:
        assert any(test.startswith(place) for test in long), f"{place} is no place"
        assert not any(test.startswith(place) for test in short)
    for family in tiers.FAMILIES:
        assert f"tests/families/test_step.py::test_both_are_of_one_identity[{family}]" in short
    assert set(tiers.FAMILIES) < set(CASES)


@pytest.mark.parametrize("marker", tiers.MARKERS)
def test_a_marker_makes_a_test_long(marker, request):
    assert not tiers.is_long(request.node)
    request.node.add_marker(marker)
    assert tiers.is_long(request.node)


def budget(folder, *seconds):
    """Run `.ci/budget.py` on a record of tests that took so long."""
    suite = Element("testsuite")
    for number, spent in enumerate(seconds):
        test = SubElement(suite, "testcase", classname="tests.test_it", name=f"test_{number}")
        kept = SubElement(test, "properties")
        SubElement(kept, "property", name=clock.PROPERTY, value=str(spent))
    ElementTree(suite).write(folder / "short.xml")
    command = [sys.executable, ROOT / ".ci" / "budget.py", folder / "short.xml"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_test_over_its_budget_is_named(tmp_path):
    kept = budget(tmp_path, 0.1, clock.BUDGET)
    assert kept.returncode == 0, kept.stderr
    assert "2 tests, 5 s of processor time" in kept.stdout
    over = budget(tmp_path, *[0.1] * 11, clock.BUDGET + 0.1)
    assert over.returncode == 1
    assert len(over.stdout.splitlines()) == 11
    assert over.stderr.startswith("over 5 s: tests.test_it::test_11: make it cheaper")
    assert budget(tmp_path).returncode == 1, "a record that times nothing proves nothing"


def test_on_a_slow_machine_a_test_keeps_its_share(tmp_path):
    others = [0.4] * 1000
    assert budget(tmp_path, *others, 10.2).returncode == 0
    over = budget(tmp_path, *others, 10.4)
    assert over.returncode == 1
    assert over.stderr.startswith("over 10.3 s: tests.test_it::test_1000: make it cheaper")


def test_processor_time_is_that_of_the_call_and_of_what_it_started(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.clock import *\n")
    (tmp_path / "test_it.py").write_text(SPENDING)
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml", tmp_path / "it.xml", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    timed = {
        test.get("name"): float(next(test.iter("property")).get("value"))
        for test in ElementTree(file=tmp_path / "it.xml").iter("testcase")
    }
    assert timed["test_waits"] < 0.2
    assert timed["test_starts_a_process"] > 0.3
