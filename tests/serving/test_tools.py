"""The tools without a protocol: what they take, what they answer, what they refuse in words."""

import inspect
import json
import threading
from enum import Enum
from importlib import import_module
from typing import Any

import pytest
import torch

import ffnprobe as fp
from ffnprobe.cli.command import Common
from ffnprobe.errors import FfnProbeError, ModelNotLoaded, OptionRefused
from ffnprobe.serving.budgets import Budget, BudgetExceeded, Cancelled
from ffnprobe.serving.models import ServedModels
from ffnprobe.serving.service import Service, put_in_words
from ffnprobe.serving.table import TOOLS
from tests.builders import write_model
from tests.conftest import JORDAN

GOLF = "Tiger Woods plays the sport of"
ANSWER = " basketball"
# A call of every tool that must be answered.
CALLS: dict[str, dict[str, Any]] = {
    "run": {"prompt": JORDAN, "lens": True},
    "explain": {"prompt": JORDAN, "answer": ANSWER, "top": 3},
    "attribute": {"prompt": JORDAN},
    "paths": {"prompt": JORDAN, "answer": ANSWER},
    "circuit": {"prompt": JORDAN, "answer": ANSWER, "keep": 5, "test": True},
    "compare": {"prompt": JORDAN, "other": GOLF},
    "read": {"neurons": ["L0N1", "L1"]},
    "search": {"tokens": [ANSWER], "top": 3},
    "label": {"neurons": ["L0N1-L0N9", "L3N361"]},
    "match": {"other": "pocket", "top": 3},
    "ablate": {"prompt": JORDAN, "answer": ANSWER, "neuron": ["L0N1-L0N9"]},
    "steer": {"prompt": JORDAN, "scale": {"L0": 0.0}, "generate": 3},
    "score": {"facts": [{"prompt": JORDAN, "answer": ANSWER, "relation": "sport"}]},
}  # fmt: skip


def ask(service: Service, tool: str, **arguments: Any) -> dict[str, Any]:
    return service.answer(service.read(tool, arguments))


def test_every_tool_is_called_here():
    assert set(CALLS) == set(TOOLS)


@pytest.mark.parametrize("name", CALLS)
def test_every_tool_answers_with_rows_grade_and_provenance(service, name, pocket):
    answer = ask(service, name, **CALLS[name], rows=2)
    assert answer["rows"]
    assert len(answer["rows"]) <= 2
    assert all(len(row) == len(answer["columns"]) for row in answer["rows"])
    assert answer["grade"]
    known = fp.Provenance.from_dict(answer["provenance"])
    assert (known.identity, known.version) == (pocket.identity, fp.__version__)
    json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "compare"])
def test_arguments_have_the_defaults_of_the_command(name):
    command = inspect.signature(getattr(import_module(f"ffnprobe.cli.{name}"), name))
    common = set(inspect.signature(Common).parameters)
    theirs = {
        p.name: p.default.value if isinstance(p.default, Enum) else p.default
        for p in command.parameters.values() if p.name not in common
    }  # fmt: skip
    ours = {n: f.get_default() for n, f in TOOLS[name].arguments.model_fields.items()}
    same = {
        n for n in ours if n in theirs and ours[n] is not None and theirs[n] is not inspect._empty
    }
    for argument in same - {"prompt", "answer", "facts", "neurons", "tokens", "other"}:
        assert str(ours[argument]) == str(theirs[argument]), argument
    # What a tool does not take: how the command loads, where it writes, how much of a whole it prints.
    printed = {"circuit": {"top"}, "explain": {"full"}}
    left = set(theirs) - set(ours) - printed.get(name, set())
    assert left <= {"hooks", "store", "other_store", "graph"}


def test_an_answer_of_several_tokens_has_its_pieces_behind_a_cursor(service):
    whole = ask(service, "explain", prompt="Michael Jordan plays", answer=" the sport of", top=2)
    pieces = service.more({"cursor": whole["more_tables"]["pieces"]["cursor"]})
    assert pieces["table"] == "pieces"
    piece = pieces["columns"].index("piece")
    assert {row[piece] for row in pieces["rows"]} == {"␣the", "␣sport", "␣of"}


def test_every_argument_and_tool_has_words():
    for tool in TOOLS.values():
        assert tool.description.splitlines()[0].endswith("."), tool.name
        for argument, schema in tool.schema()["properties"].items():
            assert schema.get("description"), f"{tool.name}: {argument}"


def test_an_explanation_has_the_same_numbers_as_the_verb(service, pocket):
    answer = ask(service, "explain", prompt=JORDAN, answer=ANSWER)
    found = fp.explain(fp.load("pocket", hooks=False, device="cpu"), JORDAN, ANSWER)
    names = [row[answer["columns"].index("name")] for row in answer["rows"]]
    pushes = [row[answer["columns"].index("push")] for row in answer["rows"]]
    assert names == found.neurons.name.tolist()
    assert pushes == pytest.approx(found.neurons.push.tolist(), rel=1e-4)
    counts = found.neurons.grade.str[:1].value_counts()
    assert all(
        f"{letter} {counts[letter]}" in answer["grade"] for letter in "AB" if letter in counts
    )
    assert any("rank 1 of" in note for note in answer["notes"])
    assert answer["title"].startswith("␣basketball after ")
    assert answer["title"].endswith(" ".join(found.verdict))


def test_a_cursor_leads_to_the_other_rows_and_tables(service):
    whole = ask(service, "search", tokens=[ANSWER], top=30, rows=200)
    first = ask(service, "search", tokens=[ANSWER], top=30, rows=12)
    rows, answer = list(first["rows"]), first
    while answer["cursor"] is not None:
        answer = service.more({"cursor": answer["cursor"], "rows": 7})
        assert answer["grade"] == first["grade"]
        assert answer["provenance"] == first["provenance"]
        rows += answer["rows"]
    assert (rows, whole["cursor"]) == (whole["rows"], None)
    paths = ask(service, "paths", prompt=JORDAN, answer=ANSWER)
    heads = service.more({"cursor": paths["more_tables"]["heads"]["cursor"]})
    assert (heads["table"], heads["rows_in_all"]) == (
        "heads",
        paths["more_tables"]["heads"]["rows"],
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("expain", {}, 'there is no tool "expain".\n  try: explain'),
        ("run", {}, "run needs prompt."),
        ("run", {"promt": JORDAN}, 'run has no argument "promt".\n  try: prompt'),
        ("explain", {"prompt": JORDAN, "top": "ten"}, "top = 'ten': input should be a valid integer"),
        ("explain", {"prompt": JORDAN, "top": 0}, "top = 0: input should be greater than or equal"),
        ("run", {"prompt": JORDAN, "seconds": 0}, "seconds = 0: input should be greater than 0"),
        ("run", {"prompt": JORDAN, "rows": 9999}, "rows = 9999: input should be less than"),
        ("run", {"prompt": "x" * 20_001}, "string should have at most 20000 characters"),
        ("search", {"tokens": [" basket ball"]}, "tokens here"),
        ("search", {"tokens": []}, "tokens = []: list should have at least 1 item"),
        ("read", {"neurons": ["L99N1"]}, "L99N1: pocket has layers L0"),
        ("score", {"facts": [{"prompt": "x"}]}, "facts.0 needs answer."),
        ("score", {"facts": "/etc/passwd"}, "is not a table of facts that is served"),
        ("explain", {"prompt": JORDAN, "contrast_from": "../x"}, "is not a table of facts that is served"),
        ("run", {"prompt": JORDAN, "model": "gpt2"}, '"gpt2" is not served; served are pocket.'),
        ("match", {"other": "pokcet"}, "try: pocket"),
        ("circuit", {"prompt": JORDAN, "keep": 0}, "keep = 0: input should be greater than or equal"),
        ("circuit", {"prompt": JORDAN, "sign": "up"}, "sign = 'up': input should be 'both' or 'toward'"),
        ("label", {"neurons": ["L0N9999"]}, "L0N9999"),
        ("label", {"least": 2}, "least = 2: input should be less than or equal to 1"),
        ("label", {"least": 0.5}, "no labels of all neurons are kept with these settings"),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_words(service, tool, arguments, words):
    with pytest.raises(FfnProbeError) as error:
        ask(service, tool, **arguments)
    assert words in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


def test_a_text_that_looks_like_json_stays_text(service):
    # Some servers read a text such as "null" as JSON.
    with pytest.raises(FfnProbeError):
        ask(service, "search", tokens='["a"]')
    answer = ask(service, "attribute", prompt=JORDAN, answer=" null")
    assert answer["provenance"]["answer"] != "␣basketball"


@pytest.mark.parametrize("cursor", ["", "x", "x.y.0", "a.b.-1", 3])
def test_a_cursor_that_leads_nowhere_is_refused(service, cursor):
    with pytest.raises(OptionRefused):
        service.more({"cursor": cursor})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ablate", {"prompt": JORDAN, "answer": ANSWER}),
        ("steer", {"prompt": JORDAN, "scale": {"L0": 0.0}, "generate": 50}),
        ("explain", {"prompt": JORDAN}),
        ("score", {"facts": "pocket"}),
        ("match", {"other": "pocket"}),
        ("circuit", {"prompt": JORDAN, "answer": ANSWER, "test": True}),
        ("label", {"neurons": ["L0"], "least": 0.5}),
    ],
)
def test_work_is_stopped_when_its_time_is_over(service, tool, arguments):
    ask(service, "run", prompt=JORDAN)  # the model is loaded
    with pytest.raises(
        BudgetExceeded, match=r"the time budget of 0\.03 seconds is used up"
    ) as error:
        ask(service, tool, **arguments, seconds=0.03)
    assert error.value.remedy == "seconds=10, or a smaller question"
    assert ask(service, "run", prompt=JORDAN)["rows"]  # and the next question is answered


def test_work_that_is_stopped_leaves_gradients_on(tiny_trace):
    """Every call of torch can be the one at which the time is over."""

    class CountedBudget(Budget):
        def check(self) -> None:
            self.calls += 1
            if self.calls > self.most:
                raise self.exceeded()

    for most in (1, 5, 20, 60):
        budget = CountedBudget(5)
        budget.calls, budget.most = 0, most
        with pytest.raises(BudgetExceeded), budget.watch():
            fp.attribute(tiny_trace, " the")
        assert torch.is_grad_enabled(), most


def test_waiting_for_others_is_part_of_the_budget(service):
    with service.turn, pytest.raises(BudgetExceeded, match="waiting for other questions"):
        ask(service, "run", prompt=JORDAN, seconds=0.05)


def test_work_that_nobody_waits_for_is_stopped(service):
    question = service.read("ablate", {"prompt": JORDAN, "answer": ANSWER})
    threading.Timer(0.1, lambda: setattr(question.budget, "is_unwanted", True)).start()
    with pytest.raises(Cancelled):
        service.answer(question)
    budget = Budget(5)
    budget.is_unwanted = True
    with pytest.raises(Cancelled):
        budget.count(1, 2)


def test_models_are_served_by_name_and_dropped_beyond_the_bound(tmp_path):
    one, other = (
        write_model(tmp_path / name, seed=seed) for name, seed in (("one", 1), ("two", 2))
    )
    models = ServedModels([str(one), str(other)], device="cpu", most_bytes=1)
    assert list(models.sources) == ["one", "two"]
    assert models.get(None) is models.get("one")
    first = models.get("one")
    assert models.get("two").fingerprint != first.fingerprint
    assert models.get("one") is not first  # it was dropped and loaded again
    assert models.get("one").fingerprint == first.fingerprint
    with pytest.raises(ModelNotLoaded, match=r'"three" is not served; served are one, two\.'):
        models.get("three")
    twin = write_model(tmp_path / "elsewhere" / "one", seed=3)
    with pytest.raises(OptionRefused, match="two models have the name one"):
        ServedModels([str(one), str(twin)], most_bytes=1)


def test_an_error_of_ours_is_logged_and_not_shown(caplog):
    assert "secret" not in put_in_words(RuntimeError("secret"))
    assert "secret" in caplog.text
    assert put_in_words(MemoryError()).startswith("error: there is not enough memory.")
