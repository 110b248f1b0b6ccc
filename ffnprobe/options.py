"""The options that verbs share, each once: its type in Python, its one sentence, its bounds.

A verb's signature says which it takes. The check of arguments (`arguments`), the command, the tool, the batch
and the recipe follow from it (`verbs`). An option that only one verb has is written in its signature:

    keep: Annotated[int, Option("How many neurons to keep, each at one position.", least=1)] = 100

What Python takes may be more than can be typed: `typed` is then the type in commands and tools.

>>> from typing import get_args
>>> get_args(Convention)[1].choices
('centred', 'folded')
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

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
        raise OptionRefused(
            f'"{text}" is not a position.', remedy="-1 (the last), 3, 3,5 or all"
        ) from None


def read_group(text: str) -> list[str]:
    """Read `L3N1,L3N5`."""
    return text.split(",")


def read_change(text: str) -> tuple[str, float]:
    """Read a change such as `L3N12=4.0`; the number itself is checked where it is used."""
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise OptionRefused(
            f'"{text}" does not set a neuron to a number.', remedy=f"{name or 'L3N12'}=4.0"
        ) from None


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
Versus = Annotated[
    str | int | None,
    Option(
        "The answer's logit minus that of this token.", str | None, metavar="TOKEN", longest=200
    ),
]
Convention = Annotated[
    str,
    Option(
        "Logits above the vocabulary's mean (centred), or the model's own (folded).",
        choices=("centred", "folded"),
    ),
]
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
Address = Annotated[
    str | None,
    Option(
        "Address of a Ray cluster.", metavar="HOST:PORT", default="a new one on this machine"
    ),
]  # fmt: skip
