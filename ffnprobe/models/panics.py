"""Errors of libraries written in Rust, which end a program where Python would raise.

A panic (a regular expression that gives up, a table that does not fit) comes as pyo3's PanicException,
which is not an Exception, so that `except Exception` lets it through.
"""

from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


class LibraryPanic(Exception):
    """A library of Rust code gave up; the text is its reason."""


def guard(call: Callable[[], Made]) -> Made:
    """Call a library and turn its panic into an exception."""
    try:
        return call()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise LibraryPanic(str(error)) from None
