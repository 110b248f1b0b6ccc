"""A time budget: work is stopped when it is used up, between two operations of torch.

A thread cannot be ended from outside, so the work itself asks how much time is left: verbs that report
their progress ask whenever they do, the others whenever torch is called.

>>> budget = Budget(0.0)
>>> try:
...     budget.check()
... except BudgetExceeded as error:
...     print(error.what)
the time budget of 0 seconds is used up.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ffnprobe.errors import FfnProbeError

# What `torch.no_grad` ends with: stopped there, gradients would stay off in this thread.
_NEVER_STOPPED = (torch._C._set_grad_enabled,)


class BudgetExceeded(FfnProbeError):
    """The time allowed for a question is over."""


class Cancelled(Exception):
    """Raised to stop work that nobody waits for."""


class Budget(TorchFunctionMode):
    """How long a question may take; entered as a context, it is checked whenever torch is called."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.share = 0.0
        self.is_unwanted = False
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Stop the work if its time is over or nobody waits for it."""
        if self.is_unwanted:
            raise Cancelled
        if self.left == 0:
            raise self.exceeded()

    def exceeded(self, why: str = "") -> BudgetExceeded:
        """Say that the time is over, how far the work is, and what to do."""
        done = why or (f" with {self.share:.0%} done" if self.share else "")
        return BudgetExceeded(
            f"the time budget of {self.seconds:g} seconds is used up{done}.",
            remedy=f"seconds={max(10, round(4 * self.seconds))}, or a smaller question",
        )

    def count(self, done: int, total: int | None) -> None:
        """Note progress; what a verb takes as its `progress`."""
        self.share = done / total if total else 0.0
        self.check()

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if function not in _NEVER_STOPPED:
            self.check()
        return function(*args, **(kwargs or {}))
