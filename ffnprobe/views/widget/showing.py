"""Show a result in a notebook: the report's figures and tables, to sort, search and hover over.

It works offline: everything comes from the kernel. It is a widget (anywidget, the extra `widget`) in
Jupyter, VS Code and marimo. Without the package, and where no kernel is, it is the result's card.
"""

import importlib.util
from dataclasses import dataclass
from typing import Any

from ffnprobe.arguments import verb
from ffnprobe.results import Result, as_result


@dataclass(frozen=True, eq=False)
class StaticView:
    """A result's card, as HTML that needs no script."""

    result: Result

    def __repr__(self) -> str:
        return f"StaticView({self.result.title})"

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


@verb
def show(result: Any) -> Any:
    """Show a result's report inside a notebook: a widget, or its card where there can be none.

    >>> import ffnprobe as fp
    >>> shown = fp.show(fp.search(fp.load("pocket"), " golf", top=3))
    >>> type(shown).__name__ in ("ReportWidget", "StaticView")
    True
    """
    found = as_result(result)
    if not has_anywidget():
        return StaticView(found)
    from ffnprobe.views.widget.view import ReportWidget

    return ReportWidget(found)


def has_anywidget() -> bool:
    """Say whether anywidget is installed."""
    return importlib.util.find_spec("anywidget") is not None
