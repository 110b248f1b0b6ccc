"""The frame around every page: navigation, the model, and what is stored in the browser."""

from typing import Any

from dash import dcc, html

from ffnprobe.version import VERSION
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.blocks import Component, link
from ffnprobe.views.explorer.session import Session

TITLES = {
    "/": "Prompt",
    "/circuit": "Circuit",
    "/neuron": "Neuron",
    "/search": "Search",
    "/facts": "Facts",
}
# Dash's own page names no language and shows nothing without JavaScript.
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body><noscript>The explorer needs JavaScript, which is switched off.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def frame(session: Session) -> Component:
    """Lay out what all pages share."""
    model = session.model
    c = model.config
    return html.Div(
        [
            dcc.Location(id="location", refresh="callback-nav"),
            # screen: dark mode and width; live: the sliders; job: the work in the background.
            *(dcc.Store(id=name) for name in ("screen", "live", "job", "address", "window", "cell", "point", "node")),
            dcc.Download(id="download"),
            html.A("to the page", href="#page", className="skip"),
            html.Header(
                [
                    html.A("ffnprobe", href="/", className="brand"),
                    html.Nav(id="navigation", **{"aria-label": "pages"}),
                    html.Span(
                        f"{model.name}: {c.layers} layers × {c.d_mlp:,} neurons",
                        className="soft model", title=f"weights {model.fingerprint}",
                    ),
                ]
            ),
            html.P("The explorer is busy with other pages. This one follows.", id="busy", role="status"),
            html.Main(id="page", tabIndex="-1"),
            html.Footer(f"ffnprobe {VERSION}; everything is computed on this machine.", className="soft"),
        ],
        className="frame",
    )  # fmt: skip


def navigation(address: Address) -> list[Component]:
    """Link to every page, keep the question, and mark the current one."""
    here = "/neuron" if address.neuron else address.path
    marks: dict[str, Any] = {here: {"aria-current": "page"}}
    return [link(title, address.to(path), **marks.get(path, {})) for path, title in TITLES.items()]
