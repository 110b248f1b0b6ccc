"""What verbs take: the options they share, each once, and the check of every argument.

A verb's signature says which options it takes; the check here, the command, the tool, the batch and the
recipe follow from it (`verbs`). An option that only one verb has is written in its signature:

    keep: Annotated[int, Option("How many neurons to keep, each at one position.", least=1)] = 100

`@verb` checks what a public function is given against its annotations and options, before anything is
computed. What they do not tell (a shape, a name that exists) the function checks itself.
"""

import difflib
import inspect
import numbers
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, wraps
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, cast, get_args, get_origin

from ffnprobe.errors import OptionRefused

# How many are done, of how many (None: not known).
Progress = Callable[[int, Any], None]


@dataclass(frozen=True)
class Option:
    """What every front says of an option."""

    words: str
    typed: Any = None  # where Python takes more than can be typed
    choices: tuple[str, ...] = ()
    default: str = ""  # what happens where it is not given, if the default does not say so
    metavar: str = ""
    name: str = ""  # in commands and tools, if it is not the parameter's
    flag: str = ""  # on the command line, if it is not the name: "-k", "--map"
    least: float | None = None
    most: float | None = None
    longest: int | None = None  # what agents may send: characters of a text, items of a list
    is_local: bool = False  # it names files, so that agents are not offered it
    read: Callable[[str], Any] | None = None  # how a word of the command line is read

    def but(self, words: str, **changes: Any) -> "Option":
        """Say the same option of another verb in other words."""
        return replace(self, words=words, **changes)


class Argument(Option):
    """An option that is given by its place on the command line."""


def read_positions(text: str) -> int | list[int] | str:
    """Read `-1`, `3,5` or `all`."""
    if text == "all":
        return text
    try:
        return [int(part) for part in text.split(",")] if "," in text else int(text)
    except ValueError:
        remedy = "-1 (the last), 3, 3,5 or all"
        raise OptionRefused(f'"{text}" is not a position.', remedy=remedy) from None


def read_group(text: str) -> list[str]:
    """Read `L3N1,L3N5`."""
    return text.split(",")


def read_change(text: str) -> tuple[str, float]:
    """Read a change such as `L3N12=4.0`; the number itself is checked where it is used."""
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        remedy = f"{name or 'L3N12'}=4.0"
        raise OptionRefused(f'"{text}" does not set a neuron to a number.', remedy=remedy) from None


TEMPLATES = Option("Ask each fact in its first template, or in all.", choices=("first", "all"))
# Types that a room has are written in the signature: `contrast: Annotated[Contrast | Prompts | None, CONTRAST]`.
PROMPT = Argument("The prompt, without a space at its end.", str, longest=20_000)
ANSWER = Argument(
    'The next text, with its leading space: " basketball".', str | None, longest=200,
    default="the model's prediction",
)  # fmt: skip
CONTRAST = Option(
    "The same sentence about another subject.", list[str] | None, metavar="TEXT", longest=50
)  # fmt: skip
CONTRAST_FROM = Option(
    "Take contrast prompts from a table of facts; pocket names its own table.", str | None, metavar="FACTS"
)  # fmt: skip
REPLACE = Option(
    "What an ablated activation is replaced by.", str | None, choices=("zero", "mean"),
    default="mean where it is known, else zero",
)  # fmt: skip
POSITIONS = Option(
    "Positions to ablate at: -1, 3, 3,5 (together) or all.", int | list[int] | Literal["all"],
    metavar="TEXT", read=read_positions,
)  # fmt: skip
NEURONS = Option(
    "Only these neurons: L3N12, L3N12@2 (at position 2), L3, L3N5-L3N9.",
    list[str] | None, name="neuron", longest=1000,
)  # fmt: skip
NAMES = Argument(
    "A neuron L3N12, a layer L3, a range L3N5-L3N9.", list[str], metavar="NEURON…", longest=1000
)
CHANGES = Option(
    "Multiply a neuron's activation.", dict[str, float] | None,
    metavar="NEURON=NUMBER", read=read_change, longest=1000,
)  # fmt: skip
SOURCE = Argument("The prompt to take activations from.", str, longest=20_000)
TARGET = Argument("The prompt to put them into, with as many tokens.", str, longest=20_000)
SOURCE_ANSWER = Argument('The source\'s answer: " basketball".', str, longest=200)
TARGET_ANSWER = Argument('The target\'s answer: " golf".', str, longest=200)
STORE = Option("Use the scan in this folder: examples, labels, means.", str | None, metavar="DIR")
HOOKS = Option(
    "Run the model with TransformerLens hooks, not with ffnprobe's own forward pass; starts slower.", bool
)  # fmt: skip
BY_RELATION = Option("Summarise each relation, with the neurons specific to it.", bool)
OVERLAP = Option("Measure whether facts of one relation share neurons.", bool)
REMOVE = Option("Ablate the neurons of this relation together.", str | None, metavar="RELATION")
HUBS = Option("Include hub neurons, which push every fact.", bool)
TOP = Option("How many neurons to show.", flag="-k")

RANKS, SIDES = ("z", "cosine", "dot"), ("answer", "question", "gate")

Prompt = Annotated[str | Sequence[int], PROMPT]
Answer = Annotated[str | int | None, ANSWER]
VERSUS = Option("The answer's logit minus that of this token.", str | None, metavar="TOKEN", longest=200)  # fmt: skip
Versus = Annotated[str | int | None, VERSUS]
Convention = Annotated[str, Option(
    "Logits above the vocabulary's mean (centred), or the model's own (folded).",
    choices=("centred", "folded"),
)]  # fmt: skip
Position = Annotated[int, Option("The position that predicts it; -1 is the last.")]
Bos = Annotated[
    bool | None, Option("Prepend the BOS token, or not.", default="if the model has one")
]
Seed = Annotated[int, Option("Seed of what is drawn at random.", least=0, most=2**63 - 1)]
Layers = Annotated[
    str | Sequence[int] | None,
    Option("Only these layers: 3, 3-5 or 0,3-5.", str | None, metavar="LAYERS"),
]
# Of a table that a result is shown by: where it is not given, ten or as many as there are.
Shown = Annotated[int | None, TOP.but(TOP.words, default="10")]
LogProbability = Annotated[bool, Option("Also show the effect on the log-probability.")]
Engine = Annotated[
    str, Option("Compute in this process or on a Ray cluster.", choices=("local", "ray"))
]
Workers = Annotated[
    int | None, Option("How many workers.", default="one for each core", metavar="N")
]
ADDRESS = Option("Address of a Ray cluster.", metavar="HOST:PORT", default="a new one on this machine")  # fmt: skip
Address = Annotated[str | None, ADDRESS]

Verb = TypeVar("Verb", bound=Callable[..., Any])
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


def verb(function: Verb) -> Verb:
    """Check a function's arguments against its annotations at every call.

    Whatever ends it, torch's gradients are on or off as they were before: Ctrl-C can come at the moment
    `torch.no_grad` switches them off, which then never switches them on again.
    """
    signature = inspect.signature(function)
    annotations = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not parameter.empty and parameter.kind not in _MANY
    }

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        values = bound.arguments
        for name, annotation in annotations.items():
            if name in values:
                check(function.__name__, name, values[name], annotation)
                values[name] = _settle(values[name], annotation)
        had_gradients = _has_gradients()
        try:
            result = function(*bound.args, **bound.kwargs)
        except BaseException:
            if _has_gradients() != had_gradients:
                sys.modules["torch"].set_grad_enabled(had_gradients)
            raise
        if hasattr(type(result), "made_by"):
            # What was asked, by which a result can be had again; its fields are frozen.
            vars(result).setdefault("made_by", (function.__name__, dict(values)))
        return result

    return cast(Verb, checked)


def _has_gradients() -> bool:
    """Whether torch computes gradients in this thread; it does until told otherwise, so it is not loaded."""
    is_enabled = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
    return is_enabled is None or bool(is_enabled())


def _settle(value: Any, annotation: Any) -> Any:
    """Make Python's own of numpy's numbers, and a list of an array where a list is meant."""
    if annotation is Any or not hasattr(value, "tolist"):
        return value
    if type(value).__module__ == "numpy" and value.ndim == 0:
        return value.tolist()
    is_tensor = any(hasattr(each, "array_type") for each in _alternatives(annotation))
    if is_tensor or getattr(value, "ndim", 0) != 1:
        return value
    listed = value.tolist()
    return listed if _matches(listed, annotation) else value


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
    if not _matches(value, annotation):
        kinds = [_name(each) for each in _alternatives(annotation)]
        raise OptionRefused(
            f"{name} = {show(value)}: {function} takes {_join(_words(annotation))}.",
            remedy=next((REMEDIES[kind] for kind in kinds if kind in REMEDIES), None),
        )
    for option in getattr(annotation, "__metadata__", ()):
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
            shown = "2^63 - 1" if high == 2**63 - 1 else f"{high or 0:,}"
            bounds = f"at least {low:,}" if high is None else f"from {low or 0:,} to {shown}"
            raise OptionRefused(f"{name} = {show(value)}: it must be {bounds}.")


def _matches(value: Any, annotation: Any) -> bool:
    """Say whether a value can be what an annotation says; what is not known here can be."""
    if annotation is Any:
        return True
    if get_origin(annotation) is Annotated:
        return _matches(value, get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if isinstance(annotation, str | ForwardRef):  # a type that is not imported here
        name = _name(annotation)
        return not name.isidentifier() or name in (each.__name__ for each in type(value).__mro__)
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
            for k, v in islice(value.items(), MOST_LOOKED_AT)
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
    own = {*vars(protocol), *inspect.get_annotations(protocol)}
    return tuple(name for name in own if not name.startswith("_"))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _name(annotation: Any) -> str:
    if isinstance(annotation, str | ForwardRef):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        return text.rpartition(".")[2]
    annotation = getattr(annotation, "array_type", annotation)
    return str(getattr(annotation, "__name__", annotation))


def _words(annotation: Any, *, many: bool = False) -> list[str]:
    """Say in words what an annotation allows."""
    words: list[str] = []
    for one in _alternatives(annotation):
        origin, inner = get_origin(one), get_args(one)
        if origin is Literal:
            words += [f'"{each}"' for each in inner]
            continue
        words_of_type = _WORDS.get(one) or _WORDS.get(origin)
        if words_of_type is not None:
            words.append(words_of_type[many])
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
