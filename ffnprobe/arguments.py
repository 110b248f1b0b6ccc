"""Arguments of a wrong type or out of bounds, said in one line where they are handed in.

`@verb` checks what a public function is given against its own annotations and options, before anything
is computed. What they do not tell (a shape, a name that exists) the function checks itself.

>>> import ffnprobe as fp
>>> try:
...     fp.survey(fp.load("pocket"), top=None)
... except fp.FfnProbeError as error:
...     print(error)
top = None: survey takes a whole number.

Whatever ends a verb, torch's gradients are on or off as they were before: Ctrl-C can come at the moment
`torch.no_grad` switches them off, which then never switches them on again.
"""

import difflib
import inspect
import numbers
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache, wraps
from itertools import islice
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from ffnprobe.errors import OptionRefused
from ffnprobe.options import Option

P = ParamSpec("P")
R = TypeVar("R")
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Longer lists are looked at no further: who hands in so many has made them by a program.
MOST_LOOKED_AT = 1000
REMEDIES = {"Model": 'fp.load("pocket")', "Trace": 'fp.run(model, "a prompt")'}
_CALLABLE: Any = Callable
# One, and several in a list.
_WORDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"), float: ("a number", "numbers"), str: ("text", "texts"),
    bool: ("True or False", "truths"), NoneType: ("None", "None"), os.PathLike: ("a path", "paths"),
    _CALLABLE: ("a function", "functions"),
}  # fmt: skip


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Check a function's arguments against its annotations at every call."""
    signature = inspect.signature(function)
    wanted = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not parameter.empty and parameter.kind not in _MANY
    }

    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        given = bound.arguments
        for name, value in given.items():
            if name in wanted:
                check(function.__name__, name, value, wanted[name])
                given[name] = _settle(value, wanted[name])
        with _keep_gradients():
            result = function(*bound.args, **bound.kwargs)
        if hasattr(type(result), "made_by"):
            # What was asked, by which a result can be had again; its fields are frozen.
            vars(result).setdefault("made_by", (function.__name__, dict(given)))
        return result

    return checked


def _settle(value: Any, annotation: Any) -> Any:
    """Make Python's own of numpy's numbers, and a list of an array where a list is meant."""
    if annotation is Any or not hasattr(value, "tolist"):
        return value
    if type(value).__module__ == "numpy" and value.ndim == 0:
        return value.tolist()
    if getattr(value, "ndim", 0) != 1:
        return value
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if any(hasattr(each, "array_type") for each in _alternatives(annotation)):
        return value
    listed = value.tolist()
    return listed if _matches(listed, annotation) else value


@contextmanager
def _keep_gradients() -> Iterator[None]:
    """Switch gradients back if an error leaves them otherwise."""
    before = _has_gradients()
    try:
        yield
    except BaseException:
        if _has_gradients() != before:
            sys.modules["torch"].set_grad_enabled(before)
        raise


def _has_gradients() -> bool:
    """Whether torch computes gradients in this thread; it does until told otherwise, so it is not loaded."""
    is_enabled = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
    return is_enabled is None or bool(is_enabled())


def show(value: object) -> str:
    """Write a value in an error, not all of one that is very long."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return f"{'-' * (value < 0)}(more than 2^64)"
    try:
        shown = " ".join(repr(value).split())
    except Exception:  # whatever another class's repr raises
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def check(function: str, name: str, value: object, annotation: Any) -> None:
    """Refuse a value that is not what an annotation says, or beyond what its option allows."""
    if get_origin(annotation) is Annotated:
        annotation, *said = get_args(annotation)
    else:
        said = []
    if not _matches(value, annotation):
        kinds = [_name(one) for one in _alternatives(annotation)]
        raise OptionRefused(
            f"{name} = {show(value)}: {function} takes {_join(_words(annotation))}.",
            remedy=next((REMEDIES[kind] for kind in kinds if kind in REMEDIES), None),
        )
    for option in said:
        if isinstance(option, Option):
            check_option(name, value, option)
    if isinstance(value, int) and abs(value) >= 2**64:
        raise OptionRefused(f"{name} = {show(value)}: {function} takes no number so large.")


def check_option(name: str, value: Any, option: Option) -> None:
    """Refuse a value out of an option's bounds, or another than its choices."""
    if isinstance(value, str) and option.choices and value not in option.choices:
        near = difflib.get_close_matches(value, option.choices, 1)
        raise OptionRefused(
            f"{name} = {show(value)}: it must be {_join(list(option.choices))}.",
            remedy=near[0] if near else option.choices[0],
        )
    if _matches(value, float):
        low, high = option.least, option.most
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            bounds = f"at least {low:,}" if high is None else f"from {low or 0:,} to {_large(high)}"
            raise OptionRefused(f"{name} = {show(value)}: it must be {bounds}.")


def _large(number: float) -> str:
    return "2^63 - 1" if number == 2**63 - 1 else f"{number:,}"


def _matches(value: Any, annotation: Any) -> bool:
    """Say whether a value can be what an annotation says; what is not known here can be."""
    if annotation is Any:
        return True
    if get_origin(annotation) is Annotated:
        return _matches(value, get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if isinstance(annotation, str | ForwardRef):
        return _is_named(value, annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return any(_matches(value, one) for one in inner)
    if annotation in (None, NoneType):
        return value is None
    if annotation is bool:
        return type(value).__name__ in ("bool", "bool_")  # numpy's too
    if annotation in (int, float):
        wanted = numbers.Integral if annotation is int else numbers.Real
        return isinstance(value, wanted) and not isinstance(value, bool)
    if origin is not None and isinstance(origin, type):
        return _is_collection(value, origin, inner)
    if hasattr(annotation, "array_type"):  # a tensor with its shape, of jaxtyping
        return isinstance(value, annotation.array_type)
    if getattr(annotation, "_is_protocol", False):
        return all(hasattr(value, name) for name in _members(annotation))
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _is_collection(value: Any, origin: type, inner: tuple[Any, ...]) -> bool:
    """Check a list, a mapping, a path or a function, and some of what is in it."""
    if origin is _CALLABLE:
        return callable(value)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _matches(k, inner[0]) and _matches(v, inner[1])
            for k, v in list(value.items())[:MOST_LOOKED_AT]
        )
    if not issubclass(origin, Iterable):
        return isinstance(value, origin)
    if isinstance(value, str):  # a list of its letters, or one name where several could be
        return _matches(value, inner[0])
    if hasattr(value, "columns"):  # to go through a table is to go through its columns' names
        return False
    if hasattr(value, "tolist"):  # a column, an array, a tensor
        value = value[:MOST_LOOKED_AT].tolist() if getattr(value, "ndim", 1) == 1 else None
    if isinstance(value, Mapping | bytes):
        return False
    if issubclass(origin, Sequence) and (isinstance(value, Set) or not hasattr(value, "__len__")):
        return False  # it has no order, or can be gone through but once
    if isinstance(value, Collection):
        return all(_matches(one, inner[0]) for one in islice(value, MOST_LOOKED_AT))
    return hasattr(value, "__iter__")


@cache
def _members(protocol: Any) -> tuple[str, ...]:
    """Name what a protocol asks for."""
    own = {*vars(protocol), *inspect.get_annotations(protocol)}
    return tuple(name for name in own if not name.startswith("_"))


def _is_named(value: object, annotation: str | ForwardRef) -> bool:
    """Check a type that is named and not imported here; a longer text than a name is not read."""
    text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
    name = text.rpartition(".")[2]
    return not name.isidentifier() or name in (each.__name__ for each in type(value).__mro__)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _name(annotation: Any) -> str:
    if isinstance(annotation, str | ForwardRef):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        return text.rpartition(".")[2]
    if hasattr(annotation, "array_type"):
        return str(annotation.array_type.__name__)
    return str(getattr(annotation, "__name__", annotation))


def _words(annotation: Any, *, many: bool = False) -> list[str]:
    """Say in words what an annotation allows."""
    words: list[str] = []
    for one in _alternatives(annotation):
        origin, inner = get_origin(one), get_args(one)
        if origin is Literal:
            words += [f'"{each}"' for each in inner]
            continue
        known = _WORDS.get(one) or _WORDS.get(origin)
        if known is not None:
            words.append(known[many])
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            of, to = (_join(_words(each, many=True)) for each in inner)
            words.append(f"a mapping of {of} to {to}")
        elif isinstance(origin, type) and issubclass(origin, Iterable):
            words.append(f"a list of {_join(_words(inner[0], many=True))}")
        else:
            words.append(f"{_name(one)} objects" if many else f"a {_name(one)}")
    return list(dict.fromkeys(words))


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
