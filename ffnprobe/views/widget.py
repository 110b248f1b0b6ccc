"""Show a result in a notebook: the report's figures and tables, to sort, search and hover over.

It works offline: everything comes from the kernel. It is a widget (anywidget, the extra `widget`) in
Jupyter, VS Code and marimo. Without the package, and where no kernel is, it is the result's card.
"""

from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.util import find_spec
from typing import Any

from plotly.offline import get_plotlyjs

from ffnprobe.arguments import verb
from ffnprobe.results import Result, as_result
from ffnprobe.views.page import SHARED, read_asset, write_body, write_style

# What a style sheet says of a page's root and body, for a part of a page with a shadow root of its own.
_PARTS = {
    ":root": ":host",
    "\nbody {": "\n.page {",
    "  body {": "  .page {",
    "  html {": "  .page {",
}
_STYLE = "\n:host { all: initial; display: block; }\n.page { max-width: none; padding: .5rem; }\nh1 { font-size: 1.3rem; }\n"


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
    return StaticView(found) if find_spec("anywidget") is None else _load_widget()(found)


@cache
def _load_widget() -> Any:
    """Define the widget once it is asked for: anywidget is an extra."""
    import anywidget
    import traitlets

    look = write_style()
    for name, own in _PARTS.items():
        look = look.replace(name, own)

    class ReportWidget(anywidget.AnyWidget):
        """A result's report in a notebook; where no kernel is, its card as HTML."""

        _esm = "\n".join(map(read_asset, (*SHARED, "widget.js")))
        html = traitlets.Unicode().tag(sync=True)
        look = traitlets.Unicode().tag(sync=True)  # `style` is a widget of Jupyter's own

        def __init__(self, result: Result) -> None:
            self._card = result._repr_html_()
            body = write_body(result, result.tables(), result.provenance)
            super().__init__(html=f"<h1>{escape(result.heading)}</h1>{body}", look=look + _STYLE)
            self.on_msg(self._answer)

        def _answer(self, _: object, content: Any, buffers: object) -> None:
            """Send plotly to the first widget of a page, which asks for it."""
            if content == {"ask": "plotly"}:
                self.send({"plotly": True}, [get_plotlyjs().encode()])

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """Show the widget; the card is for notebooks that are only read."""
            bundle = super()._repr_mimebundle_(**options)
            data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
            shown = {**(data or {}), "text/html": self._card}
            return (shown, *rest) if rest else shown

    return ReportWidget
