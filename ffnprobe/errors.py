"""What can go wrong, in words.

Every mistake a user can make ends in a `FfnProbeError`: one line that says what and why, and a
`remedy`, one line that says what to do now. The command line prints both and no traceback.
"""

import re

# An error is three lines at most: what a user typed is not repeated in full.
LONGEST = 700
_LONG_WORD = re.compile(r"\S{256,}")


class FfnProbeError(Exception):
    """A stated error: what happened and why, and what to do now.

    >>> import ffnprobe as fp
    >>> try:
    ...     fp.load("gtp2")
    ... except fp.FfnProbeError as error:
    ...     print(error.remedy)
    gpt2
    """

    def __init__(self, what: str, *, remedy: str | None = None) -> None:
        self.what = _shorten(what)
        self.remedy = None if remedy is None else _shorten(remedy)
        super().__init__(self.what)

    def __str__(self) -> str:
        return self.what if self.remedy is None else f"{self.what}\n  try: {self.remedy}"


def _shorten(text: str) -> str:
    """Write a text in one line, the middle of long words, and of the whole, left out."""
    line = "⏎".join(text.splitlines())
    line = _LONG_WORD.sub(lambda word: f"{word[0][:100]}…{word[0][-20:]}", line)
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"


class NameNotUnderstood(FfnProbeError):
    """A neuron's name is malformed or out of range."""


class TokenNotFound(FfnProbeError):
    """A text is not one token of the vocabulary."""


class ModelNotLoaded(FfnProbeError):
    """A model cannot be found, read or trusted."""


class PromptRefused(FfnProbeError):
    """A prompt cannot be run on this model."""


class OptionRefused(FfnProbeError):
    """An option has a value that cannot be used."""


class AccountNotClosed(FfnProbeError):
    """The parts of a number do not add up to it."""


class FileNotWritten(FfnProbeError):
    """A result could not be written; nothing was left behind."""


class DataRefused(FfnProbeError):
    """A file or table handed in does not hold what it must."""
