"""How to get a page again: the command, and the same in Python."""

import shlex
from collections.abc import Callable
from typing import Any

from ffnprobe.errors import TokenNotFound
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Provenance
from ffnprobe.models.sources import GGUF, PACKAGES
from ffnprobe.views.report.blocks import code, section, words

_DEFAULTS = {"top": 10, "bos": None, "effects": True, "seed": 0}


def reproduce_story(story: Explanation) -> str:
    """Write the command and the Python that give an explanation again."""
    model, known = story.trace.model, story.provenance
    ids = list(story.trace.ids[1:] if story.trace.has_bos else story.trace.ids)
    is_text = _reads_back(model.vocab.ids, story.trace.prompt, ids)
    prompt: str | list[int] = story.trace.prompt if is_text else ids
    answer = _token(model, story.pushes.answer)
    rival = None if story.pushes.versus is None else _token(model, story.pushes.versus)
    options = {n: v for n, v in story.options.items() if v is not None and v != _DEFAULTS.get(n)}
    parts = [f"{prompt!r}, {answer!r}", *([] if rival is None else [f"versus={rival!r}"])]
    parts += [f"{name}={_spell(value)}" for name, value in options.items()]
    python = (
        f"import ffnprobe as fp\n\nmodel = fp.load({name_model(known)!r})\n"
        f"story = fp.explain(model, {', '.join(parts)})\nfp.save(story, 'story.html')"
    )
    typed = [prompt, answer, *([] if rival is None else [rival])]
    if options.keys() - _DEFAULTS or not all(isinstance(text, str) for text in typed):
        note = words(
            "Asked for with options or tokens that only Python can give; … is what was given."
        )
        return section("How to get this page again", note, code(python))
    command = _command(known, str(prompt), str(answer), rival, options)
    return section("How to get this page again", code(command), code(python))


def reproduce_survey(provenance: Provenance, layers: list[int]) -> str:
    """Write the command and the Python that give a survey again."""
    named, chosen = name_model(provenance), ",".join(map(str, layers))
    command = f"ffnprobe survey --model {shlex.quote(named)} --layers {chosen} --html survey.html"
    python = (
        f"import ffnprobe as fp\n\nneurons = fp.survey(fp.load({named!r}), layers={chosen!r})\n"
        "fp.save(neurons, 'survey.html')"
    )
    return section("How to get this page again", code(command), code(python))


def name_model(provenance: Provenance) -> str:
    """Return what the model is loaded by: its name, or the folder or file it came from."""
    kind, _, where = provenance.source.partition(" ")
    if kind == "gguf" and provenance.model not in PACKAGES:
        # Behind the file stands its quantisation.
        return where[: where.rindex(GGUF) + len(GGUF)]
    return where if kind == "folder" else provenance.model


def _command(
    known: Provenance, prompt: str, answer: str, rival: object, options: dict[str, Any]
) -> str:
    typed = ["ffnprobe", "explain", "--model", name_model(known)]
    typed += [] if rival is None else [f"--versus={rival}"]
    for name, value in options.items():
        if isinstance(value, bool):
            typed.append(f"--{'' if value else 'no-'}{name}")
        else:
            typed += [f"--{name}", str(value)]
    # After `--` a prompt may begin with a dash.
    typed += ["--html", "story.html", "--", prompt, answer]
    return shlex.join(typed)


def _spell(value: object) -> str:
    """Write an option's value, or dots where it is data that cannot be typed."""
    return repr(value) if isinstance(value, (bool, int, str)) else "…"


def _token(model: Model, token: int) -> str | int:
    """Return a token as its text, or as its id where it is no text of its own."""
    text = model.vocab.text([token])
    return text if _reads_back(model.vocab.pieces, text, [token]) else token


def _reads_back(split: Callable[[str], list[int]], text: str, ids: list[int]) -> bool:
    try:
        return bool(text) and "\ufffd" not in text and split(text) == ids
    except TokenNotFound:
        return False
