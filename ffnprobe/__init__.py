"""ffnprobe: which question each FFN neuron of a GPT-2 asks, which answer it gives, what it pushed.

>>> import ffnprobe as fp
>>> model = fp.load("pocket")

Every public name is imported when first used, so that `import ffnprobe` loads no torch. The names and their
homes are in `__init__.pyi`. `dir` lists the verbs and what is handed to them; types of results are in
`fp.results`.
"""

from functools import cache
from typing import Any

from ffnprobe.version import VERSION as __version__  # noqa: F401

# Types that are written in calls, with the one exception; all others are of what verbs return.
_HANDED_IN = ("FactRow", "FfnProbeError", "Model", "NeuronId", "Scan", "Thresholds")


@cache
def _find_homes() -> dict[str, str]:
    """Read which module each public name is from."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    homes = {each.name: str(line.module) for line in lines for each in line.names}
    del homes["results"]  # a module, not a name of one
    return homes


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__all__":
        value: Any = sorted([*_find_homes(), "__version__"])
    elif name == "results":
        value = import_module("ffnprobe.results")
    elif name.startswith("__") or (home := _find_homes().get(name)) is None:
        raise AttributeError(f"module 'ffnprobe' has no attribute '{name}'")
    else:
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    verbs = [name for name in _find_homes() if name.islower()]
    return sorted([*verbs, *_HANDED_IN, "results", "__version__"])
