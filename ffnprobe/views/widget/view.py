"""The widget itself (anywidget): the report's body as text, its scripts, plotly on request."""

from html import escape
from typing import Any

import anywidget
import traitlets
from plotly.offline import get_plotlyjs

from ffnprobe.results import Result
from ffnprobe.views.files.saving import gather_tables
from ffnprobe.views.page import SHARED, read_asset, write_body
from ffnprobe.views.page import write_style as write_page_style

SCRIPTS = (*SHARED, "widget/widget.js")
# Beside what a page looks like: a widget is a part of one, with a shadow root of its own.
_STYLE = "\n:host { all: initial; display: block; }\n.page { max-width: none; padding: .5rem; }\nh1 { font-size: 1.3rem; }\n"


class ReportWidget(anywidget.AnyWidget):
    """A result's report in a notebook; where no kernel is, its card as HTML."""

    _esm = "\n".join(map(read_asset, SCRIPTS))
    html = traitlets.Unicode().tag(sync=True)
    look = traitlets.Unicode().tag(sync=True)  # `style` is a widget of Jupyter's own

    def __init__(self, result: Result) -> None:
        held = gather_tables(result)
        body = write_body(result, held.named, held.provenance)
        self._card = result._repr_html_()
        super().__init__(html=f"<h1>{escape(result.heading)}</h1>{body}", look=write_style())
        self.on_msg(self._answer)

    def _answer(self, _: object, content: Any, buffers: object) -> None:
        """Send plotly to the first widget of a page, which asks for it."""
        if content == {"ask": "plotly"}:
            self.send({"plotly": True}, [get_plotlyjs().encode()])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Show the widget; the card is for notebooks that are only read."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return {"text/html": self._card}
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        return (
            ({**data, "text/html": self._card}, *rest)
            if rest
            else {**data, "text/html": self._card}
        )


def write_style() -> str:
    """Write the page's style for a part of a page: what is said of the root and the body, of its own."""
    style = write_page_style()
    return style.replace(":root", ":host").replace("\nbody {", "\n.page {").replace("  body {", "  .page {").replace("  html {", "  .page {") + _STYLE  # fmt: skip
