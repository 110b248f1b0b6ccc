"""A result's report, which works offline: one self-contained page, or a widget in a notebook.

A page contains plotly, compressed; the browser unpacks it. The content security policy allows only the page's
own scripts (by hash, plotly's too) and loads nothing else. Figures that are folded are drawn when they are
opened. The widget (anywidget, the extra `widget`) is for Jupyter, VS Code and marimo; everything comes from the
kernel. Without the package, and where no kernel is, it is the result's card.
"""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_json
from plotly.offline import get_plotlyjs

from ffnprobe.arguments import verb
from ffnprobe.documents.blocks import Code, Figure, Section, Terms, Words
from ffnprobe.documents.html import write_html
from ffnprobe.provenance import Provenance
from ffnprobe.recipes import has_recipe, write_recipe
from ffnprobe.results import Result, Tables, as_result
from ffnprobe.views.figures import plot, plot_all
from ffnprobe.views.theme import fit

# What pages and the widget share, and what only a page does.
SHARED = ("explorer/assets/tables.js", "live.js")
STYLES = ("explorer/assets/blocks.css", "style.css")
SCRIPTS = (*SHARED, "explorer/assets/tables_on_page.js", "script.js")
# What the words and marks on a page mean, for a reader who has never seen the tool.
TERMS = {
    "␣ ⏎ ⇥": "a space, a line break, a tab in a token; ⟨E2⟩ is a byte that is only part of a character",
    "token": "what the model reads and writes: a word, a part of a word, or a character; ␣basketball has a leading space",
    "<|endoftext|>": "the BOS token before the text, as in the model's training; it is position 0",
    "L3N12@5": "neuron 12 of layer 3, both counted from 0, at position 5",
    "question": "what a neuron looks for; question tokens are those whose embedding matches it best; above layer 0 they are only a hint",
    "activation": "how strongly the neuron answers at a token; most neurons are a little below zero most of the time",
    "answer": "what the neuron adds, scaled by its activation; answer tokens are those it makes likelier, negated where the activation is negative",
    "logit": "the model's score for a next token; one more unit multiplies its odds by e",
    "push": "what a neuron adds to the answer's logit directly, above the mean over all tokens (or above the rival's logit); a neuron before the last token adds nothing directly",
    "push through attention": "what attention heads carry of it to the answer, however many of them one after the other, with their patterns as they were",
    "through": "the attention head that carried most of a push from an earlier token to the answer",
    "effect": "what the answer's logit loses when the neuron is ablated and the rest of the model runs again, so that all later layers can react",
    "ablated": "its activation is replaced by its mean over the same sentence about others; without these by its mean over a corpus if that is known, else by zero",
    "z": "how much this neuron's answer favours the token over all tokens, in standard deviations, with the sign the neuron acted with here; from the weights alone",
    "grade": "how many of three tests the neuron passes: weights (z), push, effect, each above a bar that is not passed by chance however many neurons are looked at. A is all three, with an effect of at least 2 % of what all neurons are worth here; B two, C one; a question mark: near its bar. A grade counts evidence for the neuron; it does not mean that the fact is stored in it",
}
TYPED = (
    "This needs Python: an option or token cannot be typed as a command. … stands for your data."
)
# Characters in a token that would end a script or a line of it.
_IN_SCRIPTS = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})
# A style sheet's selectors of a page's own elements; a widget has a shadow root instead.
_PAGE = re.compile(r"^( *)(?:body|html) \{", re.MULTILINE)
_STYLE = "\n:host { all: initial; display: block; }\n.page { max-width: none; padding: .5rem; }\nh1 { font-size: 1.3rem; }\n"


def write_page(result: Result, tables: Tables, provenance: Provenance) -> str:
    return wrap(result.heading, write_body(result, tables, provenance))


def write_body(result: Result, tables: Tables, provenance: Provenance) -> str:
    words = Section("What the words mean", lambda: [Terms(TERMS)], is_folded=True)
    blocks = [*result.document(tables), words]
    if has_recipe(result):
        recipe = write_recipe(result, page=True)
        command = Words(TYPED) if recipe.command is None else Code(recipe.command)
        again = [command, Code(recipe.python)]
        blocks.append(Section("How to get this page again", lambda: again))
    lines = (line.partition(": ") for line in provenance.as_lines())
    source = Terms({name: value for name, _, value in lines})
    blocks.append(Section("Where the numbers come from", lambda: [source]))
    return write_html(blocks, _draw)


def _draw(block: Figure) -> str:
    figures = plot_all(block.result) if block.name is None else [plot(block.result, block.name)]
    return "".join(map(figure_html, figures))


def figure_html(figure: go.Figure) -> str:
    """Write a figure: its title and note as text above it, its data as JSON."""
    # As text, the title can be selected and read by a screen reader.
    screen = fit(figure)
    caption = f"<b>{escape(screen.title)}</b><span>{escape(screen.note)}</span>"
    # Six digits are more than a screen shows.
    short = json.loads(
        to_json(screen.figure, validate=False), parse_float=lambda n: float(f"{float(n):.6g}")
    )
    data = safe_json(short)
    return (
        f'<figure><figcaption>{caption}</figcaption><div class="plot" style="height:{screen.height}px">'
        f'</div><script type="application/json">{data}</script></figure>'
    )


def safe_json(value: object) -> str:
    """Write JSON that is safe within a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_IN_SCRIPTS)


def wrap(title: str, body: str) -> str:
    scripts = [read_asset(name) for name in SCRIPTS]
    packed, hashes = "", [_hash(script) for script in scripts]
    if 'class="plot"' in body:
        packed, plotly = _pack_plotly()
        hashes.append(plotly)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )
    needed = "".join(f"<script>{script}</script>\n" for script in scripts)
    style = "".join(map(read_asset, STYLES))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n{packed}{needed}</body></html>\n"
    )


@cache
def _pack_plotly() -> tuple[str, str]:
    """Write plotly compressed, as an element that no browser executes, and the hash of what is in it."""
    code = get_plotlyjs()
    packed = base64.b64encode(gzip.compress(code.encode(), 9, mtime=0)).decode()
    return f'<script type="application/gzip" id="plotly">{packed}</script>\n', _hash(code)


def read_asset(name: str) -> str:
    return files("ffnprobe.views").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


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
    result = as_result(result)
    return StaticView(result) if find_spec("anywidget") is None else _load_widget()(result)


@cache
def _load_widget() -> Any:
    """Define the widget once it is asked for: anywidget is an extra."""
    import anywidget
    import traitlets

    style = "".join(map(read_asset, STYLES)).replace(":root", ":host")
    style = _PAGE.sub(r"\1.page {", style)

    class ReportWidget(anywidget.AnyWidget):
        _esm = "\n".join(map(read_asset, (*SHARED, "widget.js")))
        html = traitlets.Unicode().tag(sync=True)
        look = traitlets.Unicode().tag(sync=True)  # `style` is a widget of Jupyter's own

        def __init__(self, result: Result) -> None:
            self._card = result._repr_html_()
            body = write_body(result, result.tables(), result.provenance)
            super().__init__(html=f"<h1>{escape(result.heading)}</h1>{body}", look=style + _STYLE)
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
