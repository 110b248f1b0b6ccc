"""The tools without a protocol: what they take, what they answer, what they refuse in words."""

import json
import threading
from typing import Any

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, ModelNotLoaded, OptionRefused
from ffnprobe.serving.budgets import Budget, BudgetExceeded, Cancelled
from ffnprobe.serving.protocol import SKILL, read_docs
from ffnprobe.serving.service import ServedModels, Service, put_in_words
from ffnprobe.serving.tools import TOOLS, write_schema
from ffnprobe.verbs import REQUIRED, VERBS
from tests.builders import write_model
from tests.conftest import JORDAN

GOLF = "Tiger Woods plays the sport of"
ANSWER = " basketball"
# A call of every tool that must be answered.
CALLS: dict[str, dict[str, Any]] = {
    "run": {"prompt": JORDAN},
    "explain": {"prompt": JORDAN, "answer": ANSWER, "top": 3},
    "attribute": {"prompt": JORDAN},
    "paths": {"prompt": JORDAN, "answer": ANSWER},
    "circuit": {"prompt": JORDAN, "answer": ANSWER, "keep": 5, "test": True},
    "compare": {"prompt": JORDAN, "other": GOLF},
    "drivers": {"prompt": JORDAN, "neuron": "L3N361"},
    "lens": {"prompt": JORDAN},
    "stages": {"prompt": JORDAN, "layer": 1},
    "similarity": {"prompt": JORDAN},
    "read": {"neurons": ["L0N1", "L1"]},
    "related": {"neuron": "L3N361", "top": 3},
    "check_lists": {"neurons": ["L3N361"], "top": 5},
    "search": {"tokens": [ANSWER], "top": 3},
    "label": {"neurons": ["L0N1-L0N9", "L3N361"]},
    "match": {"other": "pocket", "top": 3},
    "ablate": {"prompt": JORDAN, "answer": ANSWER, "neuron": ["L0N1-L0N9"]},
    "ablate_layers": {"prompt": JORDAN, "answer": ANSWER},
    "estimate": {"prompt": JORDAN, "answer": ANSWER, "position": "all"},
    "patch": {"source": JORDAN, "target": GOLF, "answer": ANSWER, "other_answer": " golf", "neuron": ["L0"]},
    "patch_layers": {"source": JORDAN, "target": GOLF, "answer": ANSWER, "other_answer": " golf"},
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


def test_the_tools_are_the_verbs_with_a_grade():
    graded = {name for name, verb in VERBS.items() if verb.grade}
    assert set(TOOLS) == {*graded, "label", "score"}
    page = read_docs()[SKILL].partition("## How to ask")[2].partition("\n## ")[0]
    for name in (*TOOLS, "more"):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize("name", TOOLS)
def test_arguments_are_the_verbs_options_with_their_defaults_and_bounds(name):
    schema = write_schema(TOOLS[name].parameters)
    options = {p.front: p for p in VERBS[name].options if not p.option.is_local}
    taken = schema["properties"]
    added = {"score": {"by_relation", "overlap", "remove", "hubs", "seed"}}.get(name, set())
    assert set(taken) == {*options, *added, "model", "seconds", "rows"}
    assert schema["required"] == [n for n, p in options.items() if p.default is REQUIRED]
    assert schema["additionalProperties"] is False
    for argument, parameter in options.items():
        said, option = taken[argument], parameter.option
        kinds = {kind["type"]: kind for kind in said.get("anyOf", [said])}
        assert "default" in said or parameter.default is REQUIRED
        assert said.get("default", REQUIRED) == parameter.default
        assert option.default in said["description"]
        if option.choices:
            assert kinds["string"]["enum"] == list(option.choices)
        number = kinds.get("integer") or kinds.get("number")
        if option.least is not None:
            assert number["minimum"] == option.least
        if option.most is not None:
            assert number["maximum"] == option.most
        if option.longest is not None and argument != "facts":
            held = [kinds[k] for k in ("string", "array", "object") if k in kinds]
            bounds = ("maxLength", "maxItems", "maxProperties")
            assert [each[b] for each in held for b in bounds if b in each] == [option.longest]


def test_no_argument_names_files():
    for tool in TOOLS.values():
        assert not {"store", "out", "partial", "graph", "scan"} & set(
            write_schema(tool.parameters)["properties"]
        )


def test_an_answer_of_several_tokens_has_its_pieces_behind_a_cursor(service):
    whole = ask(service, "explain", prompt="Michael Jordan plays", answer=" the sport of", top=2)
    pieces = service.more({"cursor": whole["more_tables"]["pieces"]["cursor"]})
    assert pieces["table"] == "pieces"
    piece = pieces["columns"].index("piece")
    assert {row[piece] for row in pieces["rows"]} == {"␣the", "␣sport", "␣of"}


def test_every_argument_and_tool_has_words():
    for name, tool in TOOLS.items():
        assert tool.words.splitlines()[0].endswith("."), name
        for argument, schema in write_schema(tool.parameters)["properties"].items():
            assert schema.get("description"), f"{name}: {argument}"
            for word in ("--", "repeatable", "standard input", "folder"):  # of the command line
                assert word not in schema["description"], f"{name}: {argument}"


def test_an_explanation_has_the_same_numbers_as_the_verb(service, pocket):
    answer = ask(service, "explain", prompt=JORDAN, answer=ANSWER)
    found = fp.explain(fp.load("pocket", device="cpu"), JORDAN, ANSWER)
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
        ("explain", {"prompt": JORDAN, "top": "ten"}, "top = 'ten': explain takes a whole number."),
        ("explain", {"prompt": JORDAN, "top": 0}, "top = 0: there are 5376 neurons."),
        ("run", {"prompt": JORDAN, "seconds": 0}, "seconds = 0: it must be more than 0"),
        ("run", {"prompt": JORDAN, "rows": 9999}, "rows = 9999: it must be from 1 to 200."),
        ("run", {"prompt": "x" * 20_001}, "it has more than 20,000 characters."),
        ("run", {"prompt": JORDAN, "seconds": -1}, "seconds = -1: it must be from 0 to 3,600."),
        ("run", {"prompt": JORDAN, "seconds": 9999}, "seconds = 9999: it must be from 0 to 3,600."),
        ("run", {"prompt": JORDAN, "model": 3}, "model = 3: run takes text or None."),
        ("run", {"prompt": None}, "prompt = None: run takes text."),
        ("attribute", {"prompt": JORDAN, "contrast": [GOLF] * 51}, "it has more than 50 items."),
        ("attribute", {"prompt": JORDAN, "contrast": ["x" * 20_001]}, "it has more than 20,000 characters."),
        ("steer", {"prompt": JORDAN, "scale": {f"L0N{n}": 0 for n in range(1001)}}, "it has more than 1,000 items."),
        ("steer", {"prompt": JORDAN, "generate": 201}, "generate = 201: it must be from 0 to 200."),
        ("ablate", {"prompt": JORDAN, "neuron": "L3N1"}, "ablate takes a list.\n  try: [\"L3N1\"]"),
        ("ablate", {"prompt": JORDAN, "neuron": []}, "no neuron is named."),
        ("read", {"neurons": []}, "no neuron is named."),
        ("search", {"tokens": [ANSWER], "kind": "large"}, "kind = 'large': search takes \"entropy\""),
        ("search", {"tokens": [" basket ball"]}, "tokens here"),
        ("search", {"tokens": []}, "no token is named."),
        ("read", {"neurons": ["L99N1"]}, "L99N1: pocket has layers L0"),
        ("score", {"facts": [{"prompt": "x"}]}, "facts.0 needs answer."),
        ("score", {"facts": [{"prompt": "x", "answer": "y", "no": "z"}]}, 'facts.0 has no argument "no"'),
        ("score", {"facts": [{"prompt": "x", "answer": 3}]}, "answer = 3: facts.0 takes text."),
        ("score", {"facts": []}, "there is no fact to score."),
        ("score", {"facts": "/etc/passwd"}, "is not a table of facts that is served"),
        ("explain", {"prompt": JORDAN, "contrast_from": "../x"}, "is not a table of facts that is served"),
        ("run", {"prompt": JORDAN, "model": "gpt2"}, '"gpt2" is not served; served are pocket.'),
        ("match", {"other": "pokcet"}, "try: pocket"),
        ("circuit", {"prompt": JORDAN, "keep": 10**6}, "keep = 1000000: it must be from 1 to 1,000."),
        ("circuit", {"prompt": JORDAN, "keep": 0}, "keep = 0: it must be from 1 to 1,000."),
        ("circuit", {"prompt": JORDAN, "sign": "up"}, "sign = 'up': it must be both or toward."),
        ("label", {"neurons": ["L0N9999"]}, "L0N9999"),
        ("label", {"least": 2}, "least = 2: it must be from 0 to 1."),
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
        with pytest.raises(BudgetExceeded), budget:
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
    with pytest.raises(OptionRefused, match="two models have the name pocket"):
        ServedModels(["pocket", "pocket"], most_bytes=1)
    twin = write_model(tmp_path / "elsewhere" / "one", seed=3)
    with pytest.raises(OptionRefused, match="two models have the name one"):
        ServedModels([str(one), str(twin)], most_bytes=1)


def test_an_error_of_ours_is_logged_and_not_shown(caplog):
    assert "secret" not in put_in_words(RuntimeError("secret"))
    assert "secret" in caplog.text
    assert put_in_words(MemoryError()).startswith("error: there is not enough memory.")
