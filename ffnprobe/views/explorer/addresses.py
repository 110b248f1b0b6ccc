"""Addresses of the explorer: what each one shows, and how to write one.

    /?prompt=…&answer=…&versus=…    a prompt, and why this answer rather than that one
      &contrast=…&related=1         … about this subject, not about others (or other facts)
    /circuit?prompt=…&node=…        the circuit of that answer, and one node of it
      &without=…&group=NAME:…       … without some nodes; nodes put together by hand
    /neuron/L3N12?prompt=…          a neuron, and what it does on the prompt
    /search?token=…&kind=…          tokens to neurons
    /facts?relation=…               facts to prompts

>>> address = read_address("/neuron/L3N12", "?prompt=Hello&set=4")
>>> address.neuron, address.text("prompt"), address.number("set", 0.0)
('L3N12', 'Hello', 4.0)
>>> address.to("/search", token=" basketball")
'/search?prompt=Hello&token=+basketball'
"""

import math
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from ffnprobe.errors import OptionRefused

# The question being asked goes with the user from page to page.
CARRIED = ("prompt", "answer", "answer_id", "versus", "versus_id", "contrast", "related", "bos")
FIELDS = 64
Option = str | int | list[str] | None


class Address(NamedTuple):
    path: str
    options: tuple[tuple[str, str], ...]

    @property
    def neuron(self) -> str:
        return self.path.removeprefix("/neuron/") if self.path.startswith("/neuron/") else ""

    @property
    def page(self) -> str:
        """The path of the page, the same for every neuron."""
        return "/neuron" if self.neuron else self.path

    def has(self, name: str) -> bool:
        """Say whether an option is given, even if it is empty."""
        return any(option == name for option, _ in self.options)

    def text(self, name: str, default: str = "") -> str:
        return next((value for option, value in self.options if option == name), default)

    def texts(self, name: str) -> list[str]:
        """Return the texts of an option that may be given more than once."""
        return [value for option, value in self.options if option == name and value]

    def number(self, name: str, default: float) -> float:
        """Return an option's number, or refuse text that is not a number."""
        text = self.text(name)
        try:
            number = float(text) if text else default
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise OptionRefused(f'{name} = "{text}" is not a number.', remedy=f"{name}={default:g}")
        return number

    def token(self, name: str) -> str | int | None:
        """Return a token by its text, or by its id if its text is not unique."""
        number = self.text(f"{name}_id")
        if not number:
            return self.text(name) or None
        if not number.isascii() or not number.isdecimal():
            raise OptionRefused(f'"{number}" is not a token id.', remedy=f"{name}_id=0")
        return int(number)

    @property
    def position(self) -> int:
        """The position of the prompt that is looked at; -1 is the last."""
        return int(self.number("position", -1))

    @property
    def bos(self) -> bool | None:
        """Whether BOS is prepended to the prompt; None is the model's default."""
        return {"0": False, "1": True}.get(self.text("bos"))

    def to(self, path: str, **changes: Option) -> str:
        """Return the address of another page with the same question and these changes."""
        question = tuple(pair for pair in self.options if pair[0] in CARRIED)
        return Address(path, question).here(**changes)

    def here(self, **changes: Option) -> str:
        """Return this address with options changed: None removes one, a list gives one more than once."""
        others = [pair for pair in self.options if pair[0] not in changes]
        changed = [(name, value) for name, value in changes.items() if value is not None]
        return write_address(self.path, [*others, *changed])


def read_address(path: str | None, search: str | None) -> Address:
    """Read an address; only the first options are read."""
    pairs = parse_qsl((search or "").removeprefix("?"), keep_blank_values=True)
    return Address(path or "/", tuple(pairs[:FIELDS]))


def name_token(name: str, token: str | int) -> dict[str, Option]:
    is_id = isinstance(token, int)
    return {name: None if is_id else token, f"{name}_id": token if is_id else None}


def write_address(path: str, options: Sequence[tuple[str, Option]]) -> str:
    query = urlencode(options, doseq=True)
    return quote(path) + (f"?{query}" if query else "")
