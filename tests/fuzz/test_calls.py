"""Python calls with arguments that nobody means: every one is answered, or refused in words.

Values are drawn by a fixed seed, for every argument of every public verb, from what people have at hand:
arrays, tables, sets, numbers of another kind, texts that are empty or odd.
"""

import inspect
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError
from tests.builders import TEXT

CALLS = int(os.environ.get("FFNPROBE_CALLS", 2_400))
VERBS = sorted(name for name in dir(fp) if inspect.isfunction(getattr(fp, name)))
# What takes minutes, writes where it is told to, or starts a cluster is asked elsewhere.
LEFT = {("survey", "engine"), ("scan", "engine"), ("survey", "address"), ("scan", "address")}
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 10**9, 2**70, 0.5, -3.5, float("nan"), float("inf"), "", " ", "all",
    "zero", "mean", "none", "L0N1", "L0N1@2", "L9N9", "L0-L1", " the", " cat", "\ud800", "\x00", "é" * 50,
    b"the", [], (), {}, set(), frozenset({1, 2}), {"a"}, ["L0N1"], ["L0N1", "L1"], [[]], [["L0N1"], "L1"],
    [1, 2], [1.5], ["the cat", 3], [None], {"L0N1": 1.0}, {"L0N1": "x"}, {1: 2}, range(3), iter([1, 2]),
    np.array([1, 2]), np.array([]), np.array([[1, 2]]), np.array(["the"]), np.float32(2), np.int64(3),
    np.bool_(True), np.nan, torch.tensor([1, 2]), torch.tensor(3), torch.zeros(2, 2), torch.zeros(3, 52),
    torch.full((3, 52), float("nan")), pd.Series([1, 2]), pd.Series(["the cat"]), pd.DataFrame(),
    pd.DataFrame({"prompt": ["the dog sat"], "answer": [" on"]}), pd.DataFrame({"x": [1]}), pd.NA,
    Path("gone"), Path("gone/x.csv"), object(), lambda *given: None, 1j, ["the dog sat"], "the dog sat", ["the cat sat"],
]  # fmt: skip


@pytest.fixture(scope="module")
def right(tiny, tiny_trace, tmp_path_factory):
    """A right value for every argument that has no default."""
    place = tmp_path_factory.mktemp("fuzz")
    store = place / "scan"
    texts = {str(n): " ".join(random.Random(n).choices(TEXT.split(), k=12)) for n in range(30)}
    fp.scan(tiny, texts, store=store, top=2, workers=1)
    keys = fp.scan_keys(tiny, texts, layers="1")
    edited = fp.edit(tiny, "the cat", " sat", subject="the cat", layer=1, scan=keys)
    traces = dict.fromkeys(("trace", "first", "source"), tiny_trace)
    other = fp.run(tiny, "the sat sat on the basketball court")
    return traces | {
        "second": other, "target": other, "model": tiny, "other": tiny, "edited": edited,
        "circuit": fp.circuit(tiny, "the cat", " sat", keep=3), "folder": place / "out",
        "results": [tiny_trace], "answer": " the", "other_answer": " cat", "prompt": "the cat",
        "layer": 0, "neurons": "L0N1", "neuron": "L0N1", "tokens": " the", "texts": {"a": "the cat"},
        "facts": [fp.FactRow("the cat", " sat")], "prompts": ["the dog sat"], "scan": store,
        "result": tiny_trace, "path": place / "x.csv", "name": tiny.source.where, "lens": None,
    }  # fmt: skip


def test_no_call_ends_in_an_error_that_is_not_ours(right, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    drawn, answered, raw = random.Random(20261118), Counter(), []
    for number in range(CALLS):
        verb = VERBS[number % len(VERBS)]
        function = getattr(fp, verb)
        parameters = inspect.signature(function).parameters
        given = {n: right[n] for n, p in parameters.items() if p.default is p.empty and n in right}
        named = [n for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
        for name in drawn.sample(named, k=min(len(named), drawn.choice([1, 1, 2]))):
            if (verb, name) not in LEFT:
                # As often as not something of the right kind, so that more than the border is tried.
                like = type(given.get(name, parameters[name].default))
                alike = [value for value in VALUES if type(value) is like]
                given[name] = drawn.choice(alike if alike and drawn.random() < 0.5 else VALUES)
        try:
            function(**given)
            answered[verb] += 1
        except FfnProbeError as error:
            if len(str(error).splitlines()) > 3:
                raw.append(f"{verb}: an error of more than three lines: {error}")
        except Exception as error:  # what this test is about
            odd = {n: repr(v)[:40] for n, v in given.items() if v is not right.get(n)}
            raw.append(f"{verb}({odd}): {type(error).__name__}: {str(error)[:80]}")
    with capsys.disabled():
        print(f"\n{CALLS:,} calls, {sum(answered.values()):,} answered, {len(raw)} raw errors")
    assert raw == [], "\n" + "\n".join(raw)
    assert len(answered) > 20, "most verbs were also asked something that they take"


ACCEPTED = Path(__file__).parent / "accepted.txt"


def test_what_is_accepted_has_been_read(right, tmp_path, monkeypatch, capsys):
    """Each value for each argument of each verb, alone; what is accepted is listed in a file that people read.

    `FFNPROBE_ACCEPT=1` writes the file: read what has changed in it before you commit it.
    """
    monkeypatch.chdir(tmp_path)
    lines, raw, calls = [], [], 0
    own = right | {"path": tmp_path / "x.csv"}
    fp.save(right["result"], own["path"])
    for verb in VERBS:
        function = getattr(fp, verb)
        parameters = inspect.signature(function).parameters
        given = {n: own[n] for n, p in parameters.items() if p.default is p.empty and n in own}
        for name, parameter in parameters.items():
            if (verb, name) in LEFT or parameter.kind is parameter.VAR_KEYWORD:
                continue
            accepted = []
            for value in VALUES:
                calls += 1
                if "folder" in given:
                    given["folder"] = tmp_path / f"new{calls}"
                try:
                    function(**given | {name: value})
                    accepted.append(_show(value))
                except FfnProbeError:
                    pass
                except Exception as error:  # what this test is about
                    raw.append(f"{verb}({name}={_show(value)}): {type(error).__name__}: {error}")
            lines.append(f"{verb} {name}: {', '.join(accepted)}".rstrip())
    with capsys.disabled():
        print(f"\n{calls:,} calls, {len(raw)} raw errors")
    assert raw == [], "\n" + "\n".join(raw)
    if os.environ.get("FFNPROBE_ACCEPT"):
        ACCEPTED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == ACCEPTED.read_text(encoding="utf-8").splitlines()


def _show(value: Any) -> str:
    """Write a value in a word or two, the same in every process."""
    if isinstance(value, torch.Tensor | np.ndarray | pd.DataFrame):
        return f"{type(value).__name__}{list(value.shape)}"
    if callable(value) or type(value) in (object, type(iter([]))):
        return type(value).__name__
    return ascii(value.tolist() if isinstance(value, pd.Series) else value)[:24]
