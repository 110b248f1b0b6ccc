"""Classes of tokens, read off their shown form: what a rule can speak of besides single tokens.

    start of a word      a space, then a letter or digit
    number               digits, no letters
    punctuation          no letters and no digits
    capitalised          the first letter is upper case

Each token also has one class as the token before another: the first of `BEFORE` that fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPACE, NEWLINE = "␣", "⏎"
ENDS = (".", "!", "?", NEWLINE)
# The classes a previous token may have, in the order they are tried; none: nothing is before.
BEFORE = ("nothing", "number", "punctuation", "capital", "word", "piece")


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """For every token of a vocabulary, which classes it is in, `[vocab]`."""

    starts_word: np.ndarray
    number: np.ndarray
    punctuation: np.ndarray
    capitalised: np.ndarray
    ends_sentence: np.ndarray
    before: np.ndarray


def classify(shown: Sequence[str]) -> TokenClasses:
    """Find the classes of every token.

    >>> found = classify(["␣Paris", "42", "ing", "."])
    >>> [BEFORE[each] for each in found.before]
    ['capital', 'number', 'piece', 'punctuation']
    """
    bare = [text.lstrip(SPACE) for text in shown]
    has_letter = np.array([any(c.isalpha() for c in text) for text in bare])
    has_digit = np.array([any(c.isdigit() for c in text) for text in bare])
    starts = [
        text.startswith(SPACE) and rest[:1].isalnum()
        for text, rest in zip(shown, bare, strict=True)
    ]
    found = {
        "starts_word": np.array(starts),
        "number": has_digit & ~has_letter,
        "punctuation": ~has_digit & ~has_letter,
        "capitalised": np.array([rest[:1].isupper() for rest in bare]),
        "ends_sentence": np.array([rest.endswith(ENDS) for rest in bare]),
    }
    order = (found["number"], found["punctuation"], found["capitalised"], found["starts_word"])
    before = np.select(order, range(1, 5), default=BEFORE.index("piece")).astype(np.int8)
    return TokenClasses(**found, before=before)
