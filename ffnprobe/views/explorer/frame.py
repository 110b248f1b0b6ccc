"""The frame around every page: its name, the way to the other pages, the model, and what lives in the browser."""

from typing import Any

from dash import dcc, html

from ffnprobe.version import VERSION
from ffnprobe.views.explorer.blocks import Component, link
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.places import Place

TITLES = {"/": "Prompt", "/neuron": "Neuron", "/search": "Search", "/facts": "Facts"}
# Dash's own page says no language, and shows a reader nothing while its scripts load.
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body><noscript>The explorer needs JavaScript, which is switched off.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def frame(desk: Desk) -> Component:
    """Lay out what stays while pages change."""
    model = desk.model
    c = model.config
    return html.Div(
        [
            dcc.Location(id="place", refresh="callback-nav"),
            # screen: dark or not, phone or not; live: what sliders say; job: what is being computed.
            *(dcc.Store(id=name) for name in ("screen", "live", "job", "address", "window", "cell", "point")),
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
            html.Main(id="page", tabIndex="-1"),
            html.Footer(f"ffnprobe {VERSION}; everything is computed on this machine.", className="soft"),
        ],
        className="frame",
    )  # fmt: skip


def navigation(place: Place) -> list[Component]:
    """Lead to every page, the question carried along; say which one this is."""
    here = "/neuron" if place.neuron else place.path
    marks: dict[str, Any] = {here: {"aria-current": "page"}}
    return [link(title, place.to(path), **marks.get(path, {})) for path, title in TITLES.items()]
