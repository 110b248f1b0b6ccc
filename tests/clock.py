"""How much processor time each test takes, as a property of its report, which `--junitxml` writes down.

Of the call, not of its fixtures, which others share; processes that it started and waited for included.
TransformerLens, which takes seconds to import, is imported before the first of many tests, so that it
is not counted as the time of whoever asks first; a few tests wait for it only if they need it.
"""

import importlib
import os
from collections.abc import Generator

import pytest

PROPERTY = "processor_seconds"
# Of a test that is not long; `.ci/budget.py` holds it to that: so many seconds, or on a machine on which all
# of them take long the same share of the whole run (5 s of 200 s, as it was when this was set).
BUDGET, SHARE = 5.0, 0.025
MANY = 500


def pytest_runtestloop(session: pytest.Session) -> None:
    """Import what many tests wait for."""
    if len(session.items) > MANY and not session.config.option.collectonly:
        importlib.import_module("transformer_lens.model_bridge")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Time the call of a test, whether it passes or not."""
    began = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, round(sum(os.times()[:4]) - began, 2)))
