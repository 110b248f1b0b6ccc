"""The form at the top of a prompt's page: the prompt, the answer, and its rival.

Forms are turned into addresses in the browser (`assets/script.js`): what is asked is then in the address.
"""

from dash import dcc, html

from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.blocks import Component, field, link
from ffnprobe.views.explorer.session import PROMPT_BYTES, Session
from ffnprobe.views.recipes import spell_token

SUGGESTED = 20


def prompt_form(address: Address, trace: Trace | None, *, has_answer: bool = True) -> Component:
    """Ask for a prompt and, where there is one, for an answer and its rival."""
    prompt = dcc.Textarea(
        id="prompt", value=address.text("prompt"), rows=2, maxLength=PROMPT_BYTES, spellCheck=False,
        placeholder="Michael Jordan plays the sport of",
    )  # fmt: skip
    parts = [field("Prompt", prompt, hint="Enter runs it, Shift+Enter begins a new line.")]
    answers = [
        field(label, _token_box(name, address, placeholder))
        for name, label, placeholder in (
            ("answer", "Answer", "the next text, with its leading space"),
            ("versus", "rather than", "optional"),
        )
    ]
    row = [*answers] if has_answer else []
    if not has_answer:
        # The inputs stay, hidden, so that their values are kept.
        parts.append(html.Div(answers, hidden=True))
    row.append(html.Button("Run", id="run", className="main"))
    parts += [html.Div(row, className="row"), _suggestions(trace)]
    return html.Div(parts, className="form", role="search", **{"aria-label": "prompt"})


def _token_box(name: str, address: Address, placeholder: str) -> Component:
    return dcc.Input(
        id=name, value=address.text(name), list="suggested", placeholder=placeholder,
        spellCheck=False, autoComplete="off",
    )  # fmt: skip


def _suggestions(trace: Trace | None) -> Component:
    """Suggest the likeliest tokens as answers."""
    options = []
    if trace is not None:
        ids = trace.predictions(min(SUGGESTED, len(trace.model.vocab))).id.tolist()
        texts = [spell_token(trace.model, token) for token in ids]
        options = [html.Option(value=text) for text in texts if isinstance(text, str)]
    return html.Datalist(options, id="suggested")


def spelling_note(session: Session, address: Address) -> list[Component]:
    """Note that the leading space of an answer may be missing."""
    answer, vocab = address.text("answer"), session.model.vocab
    if not answer or answer.startswith(" ") or len(vocab.pieces(f" {answer}")) != 1:
        return []
    spaced = link(html.Code(f'" {answer}"'), address.here(answer=f" {answer}"), is_near=True)
    return [html.P(["With a leading space it is a different token: ", spaced], className="soft")]
