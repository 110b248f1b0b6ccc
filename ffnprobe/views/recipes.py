"""How to get a result again: the command, and the same in Python.

>>> import ffnprobe as fp
>>> recipe = recipe_reading(fp.read(fp.load("pocket"), "L3N12"))
>>> print(recipe.command)
ffnprobe read --model pocket L3N12
>>> print(recipe.python)
import ffnprobe as fp
<BLANKLINE>
model = fp.load('pocket')
print(fp.read(model, 'L3N12'))
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ffnprobe.circuits.circuit import Circuit
from ffnprobe.errors import TokenNotFound
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.interventions.steering import Steering
from ffnprobe.models.model import Model
from ffnprobe.models.packages import PACKAGES
from ffnprobe.models.provenance import HOOKED, OWN, Provenance
from ffnprobe.reading.readings import Reading
from ffnprobe.reading.surveys import Survey
from ffnprobe.tracing.trace import Trace

_DEFAULTS = {
    "top": 10,
    "bos": None,
    "replace": None,
    "convention": "centred",
    "effects": True,
    "seed": 0,
}


@dataclass(frozen=True)
class Recipe:
    """A command (None if only Python can ask for it) and Python that give the same result."""

    command: str | None
    python: str


def recipe_explanation(explanation: Explanation) -> Recipe:
    """Tell how to get an explanation again, as a page."""
    model, known = explanation.trace.model, explanation.provenance
    prompt = _prompt(explanation.trace)
    pieces = explanation.pushes.pieces
    answer: str | int = (
        spell_token(model, pieces[0].answer)
        if len(pieces) == 1
        else model.vocab.text(piece.answer for piece in pieces)
    )
    versus = pieces[0].versus
    rival = None if versus is None else spell_token(model, versus)
    options = {
        n: v for n, v in vars(explanation.options).items() if v is not None and _differs(n, v)
    }
    parts = [f"{prompt!r}, {answer!r}", *([] if rival is None else [f"versus={rival!r}"])]
    parts += [f"{name}={_spell(value)}" for name, value in options.items()]
    python = f"explanation = fp.explain(model, {', '.join(parts)})\nfp.save(explanation, 'explanation.html')"
    typed = [prompt, answer, *([] if rival is None else [rival])]
    if not all(map(_is_typed, options.values())) or not all(
        isinstance(text, str) for text in typed
    ):
        return Recipe(None, _python(known, python))
    flags = [] if rival is None else [f"--versus={rival}"]
    for name, value in options.items():
        if name == "contrast":
            texts = [value] if isinstance(value, str) else value
            flags += [f"--contrast={text}" for text in texts]
        elif isinstance(value, bool):
            flags.append(f"--{'' if value else 'no-'}{name}")
        else:
            flags += [f"--{name}", str(value)]
    flags += ["--html", "explanation.html"]
    return Recipe(
        _command(known, "explain", flags, [str(text) for text in typed[:2]]), _python(known, python)
    )


def recipe_circuit(circuit: Circuit) -> Recipe:
    """Tell how to get a circuit again, as a page."""
    trace, known = circuit.question.pushes.trace, circuit.provenance
    model, pieces, prompt = trace.model, circuit.question.pushes.pieces, _prompt(trace)
    answer: str | int = (
        spell_token(model, pieces[0].answer)
        if len(pieces) == 1
        else model.vocab.text(piece.answer for piece in pieces)
    )
    rival = None if pieces[0].versus is None else spell_token(model, pieces[0].versus)
    others = (
        []
        if circuit.question.contrast is None
        else [one.prompt for one in circuit.question.contrast.others]
    )
    keep = int(str(known.settings["keep"]))
    parts = [f"{prompt!r}, {answer!r}", *([] if rival is None else [f"versus={rival!r}"])]
    parts += [f"contrast={others!r}"] if others else []
    bos = [] if _is_usual(trace) else [f"bos={trace.has_bos}"]
    asked = ", ".join([*parts, f"keep={keep}", *bos])
    python = f"circuit = fp.circuit(model, {asked})\nfp.save(circuit, 'circuit.html')"
    if not all(isinstance(text, str) for text in (prompt, answer, rival or "")):
        return Recipe(None, _python(known, python))
    flags = [] if rival is None else [f"--versus={rival}"]
    flags += [*(f"--contrast={text}" for text in others), "--keep", str(keep), *_bos_flags(trace)]
    command = _command(known, "circuit", [*flags, "--html", "circuit.html"], [str(prompt), str(answer)])  # fmt: skip
    return Recipe(command, _python(known, python))


def recipe_trace(trace: Trace, *, temperature: float = 1.0) -> Recipe:
    """Tell how to get a prompt's predictions again."""
    prompt, known = _prompt(trace), trace.provenance
    bos = "" if _is_usual(trace) else f", bos={trace.has_bos}"
    warm = "" if temperature == 1.0 else f"temperature={temperature:g}"
    python = f"trace = fp.run(model, {prompt!r}{bos})\nprint(trace.predictions({warm}))"
    flags = _bos_flags(trace)
    flags += [] if temperature == 1.0 else ["--temperature", f"{temperature:g}"]
    command = _command(known, "run", flags, [prompt]) if isinstance(prompt, str) else None
    return Recipe(command, _python(known, python))


def recipe_reading(reading: Reading) -> Recipe:
    """Tell how to get a neuron's card again."""
    known = reading.provenance
    python = f"print(fp.read(model, {reading.name!r}))"
    return Recipe(f"{_start(known, 'read')} {reading.name}", _python(known, python))


def recipe_steering(
    steering: Steering, activations: Mapping[str, float], *, generate: int = 0
) -> Recipe:
    """Tell how to get predictions with neurons set again."""
    prompt, known = _prompt(steering.trace), steering.provenance
    more = f", generate={generate}" if generate else ""
    more += "" if _is_usual(steering.trace) else f", bos={steering.trace.has_bos}"
    python = (
        f"steered = fp.steer(model, {prompt!r}, {dict(activations)!r}{more})\n"
        "print(steered.predictions())"
    )
    flags = [word for name, value in activations.items() for word in ("--set", f"{name}={value:g}")]
    flags += ["--generate", str(generate)] if generate else []
    flags += _bos_flags(steering.trace)
    command = _command(known, "steer", flags, [prompt]) if isinstance(prompt, str) else None
    return Recipe(command, _python(known, python))


def recipe_search(
    known: Provenance, tokens: Sequence[str], options: Mapping[str, Any], *, kind: str | None = None
) -> Recipe:
    """Tell how to get a search again; the options are those of `search` that were given."""
    flags = []
    for name, value in options.items():
        flag = f"--{name}"
        flags += [flag] if value is True else [flag, str(value)]
    flags += [] if kind is None else ["--kind", kind]
    parts = [repr(list(tokens))] + [f"{name}={value!r}" for name, value in options.items()]
    python = ""
    if kind is not None:
        python = f"names = fp.survey(model).of_kind({kind!r})\n"
        parts.append("among=names")
    python += f"print(fp.search(model, {', '.join(parts)}).table)"
    return Recipe(_command(known, "search", flags, tokens), _python(known, python))


def recipe_survey(survey: Survey) -> Recipe:
    """Tell how to get a survey again, as a page."""
    known, chosen = survey.provenance, ",".join(map(str, survey.layers))
    command = f"{_start(known, 'survey')} --layers {chosen} --html survey.html"
    python = (
        f"import ffnprobe as fp\n\nneurons = fp.survey(fp.load({name_model(known)!r}), layers={chosen!r})\n"
        "fp.save(neurons, 'survey.html')"
    )
    return Recipe(command, python)


def name_model(provenance: Provenance) -> str:
    """Return what the model is loaded by: its name, or the folder or file it came from."""
    source = provenance.source
    is_named = source.kind == "gguf" and provenance.model in PACKAGES
    return source.where if source.kind in ("folder", "gguf") and not is_named else provenance.model


def spell_token(model: Model, token: int) -> str | int:
    """Return a token as its text, or as its id if the text is not unique."""
    text = model.vocab.text([token])
    return text if _reads_back(model.vocab.pieces, text, [token]) else token


def _prompt(trace: Trace) -> str | list[int]:
    """Return a prompt as its text, or as its ids if the text would be split differently."""
    ids = list(trace.ids[1:] if trace.has_bos else trace.ids)
    return trace.prompt if _reads_back(trace.model.vocab.ids, trace.prompt, ids) else ids


def _reads_back(split: Callable[[str], list[int]], text: str, ids: list[int]) -> bool:
    try:
        return bool(text) and "\ufffd" not in text and split(text) == ids
    except TokenNotFound:
        return False


def _is_usual(trace: Trace) -> bool:
    """Say whether the prompt has a BOS as the model's files say."""
    return trace.has_bos == trace.model.vocab.puts_bos(None)


def _bos_flags(trace: Trace) -> list[str]:
    return [] if _is_usual(trace) else ["--bos" if trace.has_bos else "--no-bos"]


def _python(known: Provenance, lines: str) -> str:
    how = ", hooks=False" if known.run_by == OWN else ""
    return f"import ffnprobe as fp\n\nmodel = fp.load({name_model(known)!r}{how})\n{lines}"


def _start(known: Provenance, verb: str) -> str:
    return shlex.join(["ffnprobe", verb, "--model", name_model(known)])


def _command(known: Provenance, verb: str, flags: Sequence[str], given: Sequence[str]) -> str:
    hooks = ["--hooks"] if known.run_by == HOOKED else []
    # After `--` a prompt may begin with a dash.
    return f"{_start(known, verb)} {shlex.join([*hooks, *flags, '--', *given])}"


def _differs(name: str, value: object) -> bool:
    return not _is_typed(value) or value != _DEFAULTS.get(name)


def _is_typed(value: object) -> bool:
    """Say whether an option can be typed in a command."""
    return isinstance(value, (bool, int, str, tuple))


def _spell(value: object) -> str:
    """Write an option's value, or dots where it is data that cannot be typed."""
    return repr(value) if _is_typed(value) else "…"
