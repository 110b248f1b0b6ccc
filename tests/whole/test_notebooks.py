"""Every notebook keeps the rules and runs to its end; what it claims, it asserts itself."""

import json
import os
import runpy
from copy import deepcopy
from importlib.util import find_spec

import nbformat
import pytest
from nbclient import NotebookClient
from plotly.offline import get_plotlyjs

from tests.whole.notebooks import find_faults, find_notebooks, is_plotting

NOTEBOOKS = find_notebooks()
SCRIPT = NOTEBOOKS[0].parents[1] / "docs" / "scripts" / "notebooks.py"
FIGURE, DRAWN = "application/vnd.plotly.v1+json", "Plotly.newPlot("


def code(source, **more):
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [],
            "execution_count": None} | more  # fmt: skip


def words(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source}


GOOD = {
    "metadata": {"kernelspec": {}, "language_info": {}},
    "cells": [
        words("# Title"), code('MODEL = "pocket"\nCOUNT = 3'), words("Look for this."),
        code("fp.plot(result)\nassert 1 < 2"), words("## Try this\n1. one\n2. two"),
    ],
}  # fmt: skip


def test_there_are_six_notebooks_numbered_from_one():
    assert [path.name[:3] for path in NOTEBOOKS] == [f"0{number}_" for number in range(1, 7)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_the_rules(path):
    text = path.read_text(encoding="utf-8")
    assert find_faults(path.name, json.loads(text)) == []
    nbformat.validate(json.loads(text))


def break_rule(change, name="01_good.ipynb"):
    notebook = deepcopy(GOOD)
    change(notebook["cells"], notebook)
    return find_faults(name, notebook)


def test_a_good_notebook_has_no_fault():
    assert find_faults("01_good.ipynb", GOOD) == []


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("more than 25", lambda cells, _: cells.extend([words("x")] * 21 + [cells.pop()])),
        ("first cell is not a title", lambda cells, _: cells.pop(0)),
        ("more than settings", lambda cells, _: cells[1].update(source="import os\nMODEL = 'x'")),
        ("more than settings", lambda cells, _: cells[1].update(source="model = 'pocket'")),
        ("more than settings", lambda cells, _: cells[1].update(source="MODEL = find()")),
        ("nothing is asserted", lambda cells, _: cells[3].update(source="fp.plot(x)")),
        ("without words before it", lambda cells, _: cells.pop(2)),
        ("without words before it", lambda cells, _: cells.insert(3, code("plot_curves()"))),
        ("defines a function", lambda cells, _: cells.insert(2, code("def f(): pass"))),
        ("defines a function", lambda cells, _: cells.insert(2, code("f = lambda x: x"))),
        ("defines a function", lambda cells, _: cells.insert(2, code("class A: pass"))),
        ("changes the path", lambda cells, _: cells.insert(2, code("sys.path.append('.')"))),
        ("not Python alone", lambda cells, _: cells.insert(2, code("!pip install x"))),
        ("not Python alone", lambda cells, _: cells.insert(2, code("%matplotlib inline"))),
        ("outputs are stored", lambda cells, _: cells[3].update(outputs=[{}])),
        ("execution counts", lambda cells, _: cells[3].update(execution_count=2)),
        ("metadata", lambda cells, _: cells[3].update(metadata={"tags": []})),
        ("metadata", lambda _, notebook: notebook["metadata"].update(widgets={})),
        ("things to try", lambda cells, _: cells.pop()),
        ("things to try", lambda cells, _: cells[-1].update(source="## Try\n1. one")),
    ],
)  # fmt: skip
def test_a_broken_rule_is_noticed(fault, change):
    faults = break_rule(change)
    assert len(faults) == 1
    assert fault in faults[0]


def test_a_name_without_a_number_is_noticed():
    assert find_faults("good.ipynb", GOOD) == ["the name is not numbered"]


def run(notebook, folder):
    """Run a notebook in a kernel of its own, in an empty folder, without a network to rely on."""
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute(env=os.environ | {"HF_HUB_OFFLINE": "1"})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path, tmp_path):
    done = run(nbformat.read(path, as_version=4), tmp_path)
    for number, cell in enumerate(done.cells):
        outputs = cell.get("outputs", [])
        said = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
        assert not said, f"cell {number} warns: {said}"
        if is_plotting(cell):
            assert any(FIGURE in o.get("data", {}) for o in outputs), f"cell {number}: no figure"
    assert not list(tmp_path.iterdir()), "a notebook leaves files behind"
    if find_spec("mkdocs") is not None:
        page = runpy.run_path(str(SCRIPT))["write_page"](done, path.stem)
        drawn = page.count(DRAWN) - get_plotlyjs().count(DRAWN)
        assert drawn >= sum(map(is_plotting, done.cells)) > 0, "its page on the site lacks figures"


def test_a_claim_that_fails_stops_the_notebook(tmp_path):
    from nbclient.exceptions import CellExecutionError

    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 > 2, 'not so'")])
    with pytest.raises(CellExecutionError, match="not so"):
        run(broken, tmp_path)
