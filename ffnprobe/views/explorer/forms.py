"""The form at the top of a prompt's page: the prompt, the answer, its rival, what to compare with.

Forms are turned into addresses in the browser (`assets/script.js`): what is asked is then in the address.
"""

from dash import dcc, html

from ffnprobe.recipes import spell_token
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.components import Component, field, link
from ffnprobe.views.explorer.session import PROMPT_BYTES, Session

SUGGESTED = 20


def prompt_form(
    session: Session, address: Address, trace: Trace | None, *, has_answer: bool = True
) -> Component:
    """Ask for a prompt and, where there is one, for an answer, its rival and what to compare with."""
    prompt = dcc.Textarea(
        id="prompt", value=address.text("prompt"), rows=2, maxLength=PROMPT_BYTES, spellCheck=False,
        placeholder="Michael Jordan plays the sport of",
    )  # fmt: skip
    parts = [field("Prompt", prompt, hint="Enter runs it, Shift+Enter begins a new line.")]
    answers = [
        field(
            label,
            dcc.Input(
                id=name, value=address.text(name), list="suggested", placeholder=placeholder,
                spellCheck=False, autoComplete="off",
            ),
        )
        for name, label, placeholder in (
            ("answer", "Answer", "the next text, with its leading space"),
            ("versus", "rather than", "optional"),
        )
    ]  # fmt: skip
    contrast = _contrast(session, address)
    run = [*_bos(session, address), html.Button("Run", id="run", className="main")]
    if has_answer:
        parts += [html.Div([*answers, *run], className="row"), contrast]
    else:  # the inputs stay, hidden, so that their values are kept
        parts += [html.Div([*answers, contrast], hidden=True), html.Div(run, className="row")]
    parts.append(_suggestions(trace))
    return html.Div(parts, className="form", role="search", **{"aria-label": "prompt"})


def _bos(session: Session, address: Address) -> list[Component]:
    """Offer a switch for BOS, if the model has one."""
    vocab = session.model.vocab
    if vocab.bos is None:
        return []
    usual = vocab.puts_bos(None)
    is_on = usual if address.bos is None else address.bos
    return [_switch("bos", f"{vocab.show(vocab.bos)} first", is_on=is_on, usual=usual)]


def _contrast(session: Session, address: Address) -> Component:
    """Ask for the same sentence about other subjects."""
    typed = dcc.Textarea(
        id="contrast", value="\n".join(address.texts("contrast")), rows=3, maxLength=PROMPT_BYTES,
        spellCheck=False, placeholder="Tiger Woods plays the sport of",
    )  # fmt: skip
    parts = [field("Contrast prompts", typed, hint="The same sentence about other subjects, one a line.")]  # fmt: skip
    is_on = address.has("related")
    if session.has_relations:
        parts.append(_switch("related", "contrast with other facts of the relation", is_on=is_on))
    summary = html.Summary("Why this subject, not this kind of sentence?")
    return html.Details([summary, *parts], open=is_on or address.has("contrast"))


def _switch(name: str, label: str, *, is_on: bool, usual: bool = False) -> Component:
    """Offer a switch; the address names it only if it is not as usual."""
    box = dcc.Checklist([{"label": label, "value": "1"}], ["1"] if is_on else [], id=name)
    return html.Div(box, className="switch", **{"data-usual": "1" if usual else "0"})


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
