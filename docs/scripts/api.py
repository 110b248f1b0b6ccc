"""Write docs/api.md from the docstrings of every public name.

    python docs/scripts/api.py

A test fails where the page and the code differ, or where a public name has no section.
"""

import ast
import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import ffnprobe
from ffnprobe import arguments

PAGE = Path(__file__).parents[1] / "api.md"
OPENING = """# Python

Written from the docstrings by [scripts/api.py](scripts/api.py).

Everything public is a name of `ffnprobe`, imported when first used: `import ffnprobe as fp` loads no
torch. `dir(fp)` lists the verbs; the types of what they return are in `fp.results`, too. Verbs return results. A result is plain data (tensors on the CPU, pandas tables) with a `title`,
a `table`, `tables()` and a `provenance`; it shows itself in a notebook, and `fp.save` and `fp.plot`
take it. Mistakes end in one exception, `FfnProbeError`, with a `remedy`.
"""
SECTIONS = {
    "Models": ["load", "Model"],
    "Results": ["Result", "Provenance", "TableSet", "FfnProbeError"],
    "What the weights say": [
        "read", "Reading", "Readings", "related", "Related", "survey", "Survey", "search", "Search", "match",
        "Match", "check_lists", "ListChecks", "use_lens", "JacobianLens", "Thresholds", "NeuronId",
    ],
    "One prompt": [
        "run", "Trace", "attribute", "Pushes", "PushesByPiece", "paths", "Paths", "contrast_with",
        "Contrast", "ContrastPushes", "find_contrast_rows", "lens", "Lens",
        "stages", "Stages", "drivers", "Drivers", "similarity", "Similarity", "compare",
        "Comparison",
    ],
    "What changes if": [
        "ablate", "Effects", "ablate_layers", "LayerEffects", "GroupEffects",
        "estimate", "Estimates", "patch", "Patches", "patch_layers", "LayerPatches", "steer",
        "Steering",
    ],
    "Evidence": ["explain", "Explanation", "batch", "Batch"],
    "Circuits": ["circuit", "Circuit", "check_circuit", "Recovery", "save_graph"],
    "Editing": ["edit", "Edited", "certify", "Certificate", "scan_keys", "KeyMoments", "export"],
    "Many texts, many facts": [
        "scan", "Scan", "fit_lens", "examples", "Examples", "label", "Labels", "score", "Scores", "Relations", "Overlap",
        "Specificity", "FactRow",
    ],
    "Files and figures": ["save", "open_result", "plot", "show", "publish"],
}  # fmt: skip


def write_page() -> str:
    """Write the page."""
    listed = [name for names in SECTIONS.values() for name in names]
    public = set(ffnprobe.__all__) - {"__version__"}
    if sorted(listed) != sorted(public):
        differ = set(listed) ^ public
        raise SystemExit(f"SECTIONS and the public names differ: {', '.join(sorted(differ))}")
    parts = [OPENING]
    for title, names in SECTIONS.items():
        parts += [f"## {title}", *map(_describe, names)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _describe(name: str) -> str:
    thing = getattr(ffnprobe, name)
    node = _find(thing)
    if isinstance(node, ast.ClassDef):
        rows = [
            f"| {_member(member)} | {_cell(_first_line(member))} |"
            for member in node.body
            if isinstance(member, ast.FunctionDef)
            and not member.name.startswith("_")
            and ast.get_docstring(member)
        ]
        fields = [
            f"`{member.target.id}`"
            for member in node.body
            if isinstance(member, ast.AnnAssign)
            and isinstance(member.target, ast.Name)
            and not ast.unparse(member.annotation).startswith("ClassVar")
        ]
        held = [f"Fields: {', '.join(fields)}."] if fields else []
        table = ["| member | what it is |\n|---|---|\n" + "\n".join(rows)] if rows else []
        return "\n\n".join([f"### {name}", _words(node), *held, *_example(node), *table])
    code = f"```text\nfp.{name}({_arguments(node)}) -> {_plain(node.returns)}\n```"
    return "\n\n".join([f"### {name}", code, _words(node), *_example(node)])


def _find(thing: Any) -> ast.ClassDef | ast.FunctionDef:
    """Find the definition in its module's source; of overloads, the last."""
    inner = inspect.unwrap(thing)
    name, module = inner.__name__, import_module(inner.__module__)
    tree = ast.parse(inspect.getsource(module))
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
    ]
    return found[-1]


def _arguments(node: ast.FunctionDef) -> str:
    """Write the arguments, one a line."""
    args = node.args
    texts = []
    count = len(args.args) - len(args.defaults)
    for order, arg in enumerate(args.args):
        default = None if order < count else args.defaults[order - count]
        texts.append(_argument(arg, default))
    if args.kwonlyargs:
        texts.append("*" if args.vararg is None else f"*{args.vararg.arg}")
    texts += [_argument(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg is not None:
        texts.append(f"**{args.kwarg.arg}")
    return "\n    " + ",\n    ".join(texts) + ",\n"


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    value = "" if default is None else f" = {ast.unparse(default)}"
    return f"{arg.arg}: {_plain(arg.annotation)}{value}"


def _plain(annotation: ast.expr | None) -> str:
    """Write a type; of an option, its type in Python alone."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation = annotation.slice.elts[0]
    text = "" if annotation is None else ast.unparse(annotation).strip("'\"")
    alias = getattr(arguments, text, None)
    if get_origin(alias) is not Annotated:
        return text
    kind = get_args(alias)[0]
    return str(getattr(kind, "__name__", kind)).replace("collections.abc.", "")


def _member(node: ast.FunctionDef) -> str:
    names = {ast.unparse(decorator) for decorator in node.decorator_list}
    if names & {"property", "cached_property"}:
        return f"`.{node.name}`"
    given = [
        arg.arg
        for arg in (*node.args.args, *node.args.kwonlyargs)
        if arg.arg not in ("self", "cls")
    ]
    return f"`.{node.name}({', '.join(given)})`"


def _first_line(node: ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def _words(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return a docstring up to its example."""
    text = (ast.get_docstring(node) or "").partition(">>>")[0].strip()
    return "\n\n".join(
        f"```text\n{part}\n```" if "   " in part else part.replace("\n", " ")
        for part in text.split("\n\n")
    )


def _example(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """Return a docstring's example as code."""
    _, prompt, text = (ast.get_docstring(node) or "").partition(">>>")
    return [f"```pycon\n{prompt} {text.strip()}\n```"] if prompt else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
