"""Twenty questions with known answers through the tools: all are answered right."""

import runpy
from pathlib import Path

import anyio
import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

SCRIPT = Path(__file__).parents[2] / "analyses" / "measured" / "twenty_questions.py"


def test_twenty_of_twenty_are_answered_right():
    asked = anyio.run(runpy.run_path(str(SCRIPT))["ask_all"])
    wrong = asked[~asked.is_right]
    assert wrong.empty, wrong.to_string()
    assert len(asked) == 20
    assert set(asked.tool) >= {"run", "score", "explain", "attribute", "paths", "search", "read"}
