"""ffnprobe: which question each FFN neuron of a GPT-2 asks, which answer it gives, what it pushed.

>>> import ffnprobe as fp
>>> model = fp.load("pocket")

Every public name is imported when first used, so that `import ffnprobe` loads no torch. The names and their
homes are in `__init__.pyi`.
"""

from typing import Any

from ffnprobe.version import VERSION as __version__  # noqa: F401


def _find_homes() -> dict[str, str]:
    """Read which module each public name is from."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {each.name: str(line.module) for line in lines for each in line.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = sorted([*_find_homes(), "__version__"])
    elif name.startswith("__") or (home := _find_homes().get(name)) is None:
        raise AttributeError(f"module 'ffnprobe' has no attribute '{name}'")
    else:
        from importlib import import_module

        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
