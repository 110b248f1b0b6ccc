"""The form every page of a prompt begins with: the prompt, the answer, what it is compared with.

Forms are turned into addresses in the browser (`assets/script.js`): what is asked is then in the address.
"""

from dash import dcc, html

from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer.blocks import Component, field, link
from ffnprobe.views.explorer.desk import PROMPT_BYTES, Desk
from ffnprobe.views.explorer.places import Place
from ffnprobe.views.recipes import spell_token

SUGGESTED = 20


def prompt_form(place: Place, trace: Trace | None, *, has_answer: bool = True) -> Component:
    """Ask for a prompt and, where there is one, for an answer and its rival."""
    prompt = dcc.Textarea(
        id="prompt", value=place.text("prompt"), rows=2, maxLength=PROMPT_BYTES, spellCheck=False,
        placeholder="Michael Jordan plays the sport of",
    )  # fmt: skip
    parts = [field("Prompt", prompt, hint="Enter runs it, Shift+Enter begins a new line.")]
    answers = [
        field(label, _token_box(name, place, placeholder))
        for name, label, placeholder in (
            ("answer", "Answer", "one token, mind its space"),
            ("versus", "rather than", "optional"),
        )
    ]
    row = [*answers] if has_answer else []
    if not has_answer:
        # The boxes stay, unseen, so that what they hold is carried on.
        parts.append(html.Div(answers, hidden=True))
    row.append(html.Button("Run", id="run", className="main"))
    parts += [html.Div(row, className="row"), _suggestions(trace)]
    return html.Div(parts, className="form", role="search", **{"aria-label": "prompt"})


def _token_box(name: str, place: Place, placeholder: str) -> Component:
    return dcc.Input(
        id=name, value=place.text(name), list="suggested", placeholder=placeholder,
        spellCheck=False, autoComplete="off",
    )  # fmt: skip


def _suggestions(trace: Trace | None) -> Component:
    """Offer the likeliest tokens to the boxes for answers."""
    options = []
    if trace is not None:
        ids = trace.predictions(min(SUGGESTED, len(trace.model.vocab))).id.tolist()
        texts = [spell_token(trace.model, token) for token in ids]
        options = [html.Option(value=text) for text in texts if isinstance(text, str)]
    return html.Datalist(options, id="suggested")


def spelling_note(desk: Desk, place: Place) -> list[Component]:
    """Say that an answer may have been meant with a space in front."""
    answer, vocab = place.text("answer"), desk.model.vocab
    if not answer or answer.startswith(" ") or len(vocab.pieces(f" {answer}")) != 1:
        return []
    spaced = link(html.Code(f'" {answer}"'), place.here(answer=f" {answer}"), is_near=True)
    return [html.P(["With a space in front it is another token: ", spaced], className="soft")]
