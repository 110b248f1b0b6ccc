"""Publish the notebooks executed: one HTML page each, figures inside, nothing loaded from outside.

A MkDocs hook, which adds the pages to the site and leads links to notebooks to them. The sources keep no
outputs. A notebook holds a figure as plotly's own JSON, which nbconvert has no way to draw and drops, so
each figure is given as HTML as well. FFNPROBE_NOTEBOOKS names the notebooks that the site's pages execute
(all without it; 0 for none).
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import plotly.io
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parents[2]
FIGURE = "application/vnd.plotly.v1+json"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
.jp-Cell, .cell { margin: 1rem 0; }
pre { overflow-x: auto; font-size: 13px; line-height: 1.4; }
.highlight pre, .jp-InputArea pre { background: #f6f8fa; padding: .7rem; border-radius: 4px; }
.prompt, .jp-InputPrompt, .jp-OutputPrompt, .anchor-link { display: none; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
"""


def run_notebook(path: Path) -> Any:
    """Execute a notebook in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute(env=os.environ | {"HF_HUB_OFFLINE": "1"})
    return notebook


def draw(figure: dict[str, Any]) -> str:
    """Return a figure as HTML, for a page that has plotly's script."""
    shown = {name: figure[name] for name in ("data", "layout") if name in figure}
    html: str = plotly.io.to_html(shown, include_plotlyjs=False, full_html=False, validate=False)
    return html


def write_page(notebook: Any, title: str) -> str:
    """Return a notebook as one page that loads nothing, each of its figures drawn."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if figure := output.get("data", {}).get(FIGURE):
                output.data["text/html"] = draw(figure)
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    colours = HtmlFormatter().get_style_defs(".highlight")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}{colours}</style><script>{get_plotlyjs()}</script></head>"
        f"<body>{body}</body></html>"
    )


def find_notebooks() -> list[Path]:
    """List the sources, in their order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def on_files(files: Files, *, config: Any) -> Files:
    """Add a page for each notebook to the site."""
    asked = os.environ.get("FFNPROBE_NOTEBOOKS")
    for path in find_notebooks():
        is_run = asked is None or path.stem in asked.split()
        notebook = run_notebook(path) if is_run else nbformat.read(path, as_version=4)
        page = write_page(notebook, path.stem.replace("_", " "))
        files.append(File.generated(config, f"notebooks/{path.stem}.html", content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to notebooks to their pages."""
    return re.sub(r"(?<=\]\()(notebooks/\w+)\.ipynb", r"\1.html", markdown)
