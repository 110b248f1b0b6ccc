"""docs/tables.md is a contract: it names every table and every column, in order."""

import re
from pathlib import Path

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.reading.neuron_tables import order_columns
from ffnprobe.results import as_result
from tests.families.builders import write_family

DOCS = Path(__file__).parents[2] / "docs" / "tables.md"
FACTS = [
    fp.FactRow("Michael Jordan plays the sport of", " basketball", relation="sport"),
    fp.FactRow("Tiger Woods plays the sport of", " golf", relation="sport"),
    fp.FactRow("The capital of France is", " Paris", relation="capital"),
]
OF_GATES = {
    ("Drivers", "gate_neurons"), ("Drivers", "gate_heads"), ("Related", "opens"),
    ("Related", "opened_by"),
}  # fmt: skip
ROW = re.compile(r"\| `(\w+)` \| `(\w+)` \| (.+) \|")


def read_contract() -> dict[tuple[str, str], list[str]]:
    """Read `| result | table | columns |` rows; a column in brackets is not always there."""
    return {
        (found[1], found[2]): re.findall(r"\[?`[^`]+`\]?", found[3])
        for found in map(ROW.fullmatch, DOCS.read_text(encoding="utf-8").splitlines())
        if found
    }


def check(columns: list[str], promised: list[str], where: tuple[str, str]) -> None:
    always = [name.strip("`") for name in promised if not name.startswith("[")]
    names = [name.strip("[]`") for name in promised]
    if where == ("Batch", "rows"):
        columns = columns[: len(names)]  # then those of the verb's own table
    if "z of …" in names:
        columns = list(dict.fromkeys("z of …" if c.startswith("z of ") else c for c in columns))
    assert columns == [name for name in names if name in columns], where
    assert set(always) <= set(columns), where


def test_every_table_has_the_columns_promised(results, pocket, jordan):
    contract = read_contract()
    seen = set()
    explanation = fp.explain(
        pocket, jordan.prompt, " basketball and", top=2, contrast="Tiger Woods plays the sport of"
    )
    others = {
        "Explanation": explanation, "Search": fp.search(pocket, " basketball", top=2),
        "Paths": fp.paths(jordan, " basketball and"),
        "Effects": fp.ablate(jordan, " basketball", versus=" football", neurons=["L5N1-L5N9"]),
    }  # fmt: skip
    scores = fp.score(pocket, [*FACTS, fp.FactRow("", " x", relation="sport")], effects=True)
    others |= {
        "Scores": scores, "Relations": scores.by_relation(), "Overlap": scores.overlap(),
        "Specificity": scores.specificity("sport", 2),
    }  # fmt: skip
    for name, result in [*results.items(), *others.items()]:
        first = next(iter(as_result(result).tables().values()))
        pd.testing.assert_frame_equal(first, as_result(result).table, obj=name)
        for table, frame in as_result(result).tables().items():
            where = (name, table)
            assert where in contract, f"{where} is not documented"
            check(list(frame.columns), contract[where], where)
            seen.add(where)
    documented = {where for where in contract if where[0] in {*results, *others}}
    assert seen == documented - OF_GATES


def test_the_tables_of_gated_neurons_keep_the_contract(tmp_path):
    model = fp.load(write_family(tmp_path, "llama"), device="cpu")
    trace = fp.run(model, "the cat sat on the basketball court")
    contract, seen = read_contract(), set()
    results = {
        "Drivers": fp.drivers(trace, "L2N7"), "Stages": fp.stages(trace, 1), "Reading": fp.read(model, "L1N3"),
        "Readings": fp.read(model, "L1N3-L1N5"), "Related": fp.read(model, "L1N3").related(3),
        "Pushes": fp.attribute(trace, " basketball"), "Paths": fp.paths(trace, " basketball"),
        "Effects": fp.ablate(trace, " basketball"),
        "Explanation": fp.explain(model, trace.prompt, " basketball", top=2),
        "Survey": fp.survey(model, top=2), "Match": fp.match(model, model, top=2), "Search": fp.search(model, " basketball", by="gate", top=2),
    }  # fmt: skip
    gated = set()
    for name, result in results.items():
        for table, frame in as_result(result).tables().items():
            check(list(frame.columns), contract[name, table], (name, table))
            seen.add((name, table))
            gated |= {column for column in frame if "gate" in column}
    assert seen >= OF_GATES
    promised = {name.strip("[]`") for names in contract.values() for name in names}
    assert gated == {name for name in promised if "gate" in name}


def test_a_column_that_is_missing_is_noticed():
    with pytest.raises(AssertionError):
        check(["a", "c"], ["`a`", "`b`", "[`c`]"], ("x", "y"))
    with pytest.raises(AssertionError):
        check(["b", "a"], ["`a`", "`b`"], ("x", "y"))
    check(["a", "b"], ["`a`", "`b`", "[`c`]"], ("x", "y"))


def test_tables_of_neurons_have_one_order_of_columns(results):
    seen = set()
    for kind, result in results.items():
        for name, table in result.tables().items():
            # A survey's rows begin with words; lists, nodes, batches and labels have others.
            is_other = {"list", "reads_writes", "node", "prompt", "opens"} & set(table.columns)
            if {"name", "layer", "neuron"} <= set(table.columns) and not is_other:
                assert list(table.columns) == list(order_columns(table).columns), (kind, name)
                seen.add(kind)
    assert len(seen) > 12
