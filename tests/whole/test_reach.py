"""What a verb offers can be reached: by a name of ffnprobe, by `top`, and whole."""

import importlib
import inspect
import pkgutil
import typing

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.results import Result

ROOMS = ("reading", "tracing", "interventions", "corpora", "labels", "facts", "evidence")
# How the others are reached: as a method of a result, or as an option of a verb.
REACHED = {
    "find_related": "Reading.related", "remove_neurons": "Scores.specificity",
    "summarise_relations": "Scores.by_relation", "compare_facts": "Relations.overlap",
    "join_survey": "survey(scan=…)",
    "choose_contrast": "contrast_with", "contrast_pushes": "attribute(contrast=…)", "extend": "run",
    "map_layers": "ablate_layers", "estimate_question": "estimate", "embedded_scan": "read", "embedded_labels": "read",
    "open_lens": "use_lens", "decode_lens": "use_lens",
    "find_labels": "read", "open_labels": "label", "run_before": "explain",
}  # fmt: skip


def functions():
    for room in ROOMS:
        package = importlib.import_module(f"ffnprobe.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"ffnprobe.{room}."):
            found = importlib.import_module(module.name)
            for name, value in vars(found).items():
                is_own = getattr(value, "__module__", "") == module.name
                if inspect.isfunction(value) and is_own and not name.startswith("_"):
                    yield name, inspect.unwrap(value)


def test_every_function_that_returns_a_result_is_a_name_of_ffnprobe():
    returning = set()
    for name, function in functions():
        told = function.__annotations__.get("return")
        kinds = [told, *typing.get_args(told)]
        if any(inspect.isclass(kind) and issubclass(kind, Result) for kind in kinds):
            returning.add(name)
    assert returning - set(fp.__all__) == set(REACHED)


def test_top_is_called_top_everywhere():
    for name in fp.__all__:
        value = getattr(fp, name)
        members = [value] if inspect.isfunction(value) else []
        if inspect.isclass(value):
            members = [m for n, m in vars(value).items() if inspect.isfunction(m) and n[0] != "_"]
        for member in members:
            assert "k" not in inspect.signature(member).parameters, f"{name}: {member.__name__}"


def test_top_none_is_everything(tiny, tiny_trace):
    pushes = fp.attribute(tiny_trace, " the")
    assert len(pushes.top(None)) == len(pushes.against(None)) == tiny.config.neurons
    assert len(fp.ablate(tiny_trace, " the", neurons=["L1"]).top(None)) == tiny.config.d_mlp
    assert len(tiny_trace.predictions(None)) == len(tiny.vocab)
    assert len(fp.survey(tiny).top(None)) == tiny.config.neurons
    assert len(fp.read(tiny, "L0N1").answer.promotes(None)) == len(tiny.vocab)
    assert len(fp.search(tiny, " the", top=7).top(None)) == 7


def test_a_survey_takes_a_scan(tiny):
    scan = fp.scan(tiny, {"one": "the cat sat on the mat"}, top=2, workers=1)
    found = fp.survey(tiny, layers="1", scan=scan).table
    assert found.set_index("name").mean_activation["L1N3"] == pytest.approx(
        float(scan.means.activations[1, 3])
    )


def test_any_table_is_saved_with_a_provenance(tiny_trace, tmp_path):
    pushes = fp.attribute(tiny_trace, " the")
    mine = pd.concat([pushes.top(2), pushes.against(2)]).assign(side=["up"] * 2 + ["down"] * 2)
    mine.attrs.clear()
    with pytest.raises(fp.FfnProbeError, match="does not say where its numbers come from"):
        fp.save(mine, tmp_path / "mine.csv")
    for given in (pushes, pushes.provenance):
        fp.save(mine, tmp_path / "mine.csv", provenance=given)
        back = fp.open_result(tmp_path / "mine.csv")
        assert back.provenance == pushes.provenance
        assert back.table.name.tolist() == mine.name.tolist()
    plain = pd.read_csv(tmp_path / "mine.csv")
    assert plain.push.tolist() == mine.push.tolist()
    assert plain.layer.dtype == "int64"
