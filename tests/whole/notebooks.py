"""The rules of a notebook, checked by reading it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CELLS = 25
KNOWN_METADATA = {"kernelspec", "language_info"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def find_faults(name: str, notebook: dict[str, Any]) -> list[str]:
    """Say everything in which a notebook breaks the rules; nothing if it keeps them."""
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    faults = [*_cell_faults(cells), *_stored_faults(notebook, code)]
    if not re.fullmatch(r"\d\d_[a-z_]+\.ipynb", name):
        faults.append("the name is not numbered")
    if len(cells) > CELLS:
        faults.append(f"{len(cells)} cells, more than {CELLS}")
    if not (cells and cells[0]["cell_type"] == "markdown" and text(cells[0]).startswith("# ")):
        faults.append("the first cell is not a title")
    if not (code and _is_settings(text(code[0]))):
        faults.append("the first code cell holds more than settings")
    if not any(isinstance(n, ast.Assert) for cell in code for n in _nodes(cell)):
        faults.append("nothing is asserted")
    last = text(cells[-1]) if cells else ""
    if not (last.startswith("## Try") and 2 <= len(re.findall(r"^\d\. ", last, re.M)) <= 3):
        faults.append("the last cell is not two or three things to try")
    return faults


def text(cell: dict[str, Any]) -> str:
    """Return a cell's source."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def is_plotting(cell: dict[str, Any]) -> bool:
    """Say whether a code cell draws: it calls `plot` or something named `plot_…`."""
    return cell["cell_type"] == "code" and any(
        re.fullmatch(r"plot(_\w+)?", _called(node)) for node in _nodes(cell)
    )


def _cell_faults(cells: list[dict[str, Any]]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        if text(cell).strip() and not _nodes(cell):
            yield f"cell {number}: not Python alone (no %magic, no !shell)"
            continue
        if any(isinstance(node, _DEFINITIONS) for node in _nodes(cell)):
            yield f"cell {number}: defines a function"
        if re.search(r"sys\.path|\bpip\b|\binstall\b|subprocess", text(cell)):
            yield f"cell {number}: changes the path or installs"
        if is_plotting(cell) and not (number and cells[number - 1]["cell_type"] == "markdown"):
            yield f"cell {number}: a picture without words before it"


def _stored_faults(notebook: dict[str, Any], code: list[dict[str, Any]]) -> Iterator[str]:
    if any(cell.get("outputs") for cell in code):
        yield "outputs are stored"
    if any(cell.get("execution_count") is not None for cell in code):
        yield "execution counts are stored"
    if set(notebook["metadata"]) - KNOWN_METADATA or any(c["metadata"] for c in notebook["cells"]):
        yield "metadata that says nothing"


def _is_settings(source: str) -> bool:
    """Say whether code only gives capital names to plain values, MODEL among them."""
    names = set()
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            return False
        try:
            ast.literal_eval(node.value)
        except ValueError:
            return False
        names.add(node.targets[0].id)
    return "MODEL" in names and all(name.isupper() for name in names)


def _nodes(cell: dict[str, Any]) -> list[ast.AST]:
    """List all that a cell's code is made of; nothing if it is no Python."""
    try:
        return list(ast.walk(ast.parse(text(cell))))
    except SyntaxError:
        return []


def _called(node: ast.AST) -> str:
    """Name what a call calls; nothing if the node is none."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return getattr(function, "attr", "") or getattr(function, "id", "")


def find_notebooks() -> list[Path]:
    """List the notebooks in order."""
    return sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
