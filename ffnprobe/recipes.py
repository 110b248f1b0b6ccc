"""How to get a result again: the command, and the same in Python, of every verb.

A result remembers what was asked (`Result.made_by`); how that is typed follows from the verb's signature.

>>> import ffnprobe as fp
>>> recipe = write_recipe(fp.search(fp.load("pocket"), " golf", rank="dot"))
>>> print(recipe.command)
ffnprobe search --model pocket --rank=dot -- ' golf'
>>> print(recipe.python)
import ffnprobe as fp
<BLANKLINE>
model = fp.load('pocket')
found = fp.search(model, ' golf', rank='dot')
print(found)
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ffnprobe.arguments import Argument
from ffnprobe.errors import TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.models.sources import PACKAGES
from ffnprobe.provenance import HOOKED, Provenance
from ffnprobe.results import Result
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.trace import Trace
from ffnprobe.verbs import REQUIRED, VERBS, Parameter, Verb

Values = Mapping[str, Any]
DATA = "…"  # stands for what cannot be written down


class Recipe(NamedTuple):
    """A command (None if only Python can ask for it) and Python that give the same result."""

    command: str | None
    python: str


def has_recipe(result: Result) -> bool:
    """Whether a result remembers what was asked; one that was read from a file does not."""
    return result.made_by is not None and result.made_by[0] in VERBS


def write_recipe(
    result: Result, *, shown: Values | None = None, kind: str | None = None, page: bool = False
) -> Recipe:
    """Tell how to get a result again; `page` as a page, `shown` what of its tables, `kind` of a search."""
    assert result.made_by is not None
    name, given = result.made_by
    verb, provenance = VERBS[name], result.provenance
    spelled = {each.name: _spell(each, given) for each in verb.parameters if not each.is_shown}
    hooks = ", hooks=True" * (provenance.run_by == HOOKED)
    lines = [f"model = fp.load({name_model(provenance)!r}{hooks})"]
    if (lens := _find_lens(provenance)) is not None:
        lines.append(f"model = fp.use_lens(model, {lens if lens == DATA else repr(lens)})")
    traces = {p.name: given[p.name] for p in verb.parameters if p.role == "Trace"}
    for each, trace in traces.items():
        is_usual = trace.has_bos == trace.model.vocab.puts_bos(None)  # as the model's files say
        spelled["bos"] = None if is_usual else trace.has_bos
        bos = "" if is_usual else f", bos={trace.has_bos}"
        lines.append(f"{each} = fp.run(model, {_prompt(trace)!r}{bos})")
    if kind is not None:
        lines.append(f"names = fp.survey(model).of_kind({kind!r})")
    lines.append(f"found = fp.{name}({', '.join(_call(verb, given, spelled, kind))})")
    usual = {each.name: each.default for each in verb.parameters}
    more = {n: v for n, v in (shown or {}).items() if v != usual[n]}
    if page:
        lines.append(f"fp.save(found, '{name}.html')")
    elif more:
        listed = ", ".join(f"{n}={v!r}" for n, v in more.items())
        lines.append(f"for table in found.tables({listed}).values():\n    print(table)")
    else:
        lines.append("print(found)")
    python = "import ffnprobe as fp\n\n" + "\n".join(lines)
    typed = _type(verb, provenance, spelled | more | ({"among": kind} if kind else {}), page)
    return Recipe(typed, python)


def _call(verb: Verb, given: Values, spelled: Values, kind: str | None) -> Iterable[str]:
    """Write the arguments of the call, those that are as by default left out."""
    is_placed = True
    for each in verb.parameters:
        value = spelled.get(each.name)
        if each.is_shown or each.role == "Progress" or each.name not in given:
            continue
        if each.default is not REQUIRED and value == each.default:
            is_placed = False  # what comes after it is named
            continue
        if each.name == "among" and kind is not None:
            text = "names"
        elif each.role == "Model":
            text = "model" if each.option is None else f"fp.load({value!r})"
        elif each.role == "Trace":
            text = each.name
        elif each.role in ("Scan", "Sequence[Scan]"):
            text = _open(value)
        else:
            text = value if value == DATA else repr(value)
        yield text if is_placed and not each.is_keyword else f"{each.name}={text}"


def _find_lens(provenance: Provenance) -> str | None:
    """Name the lens that lists were read through; one that was fitted and not kept cannot be named."""
    lens: Any = provenance.settings.get("lens")
    return None if lens is None else lens["from"] or DATA


def _open(value: Any) -> str:
    if DATA in value:
        return DATA
    folders = [f"fp.Scan.open({folder!r})" for folder in ([value] if isinstance(value, str) else value)]  # fmt: skip
    return folders[0] if isinstance(value, str) else f"[{', '.join(folders)}]"


def _type(verb: Verb, provenance: Provenance, values: Values, page: bool) -> str | None:
    """Write the command, or nothing where a value cannot be typed."""
    flags = ["--hooks"] if provenance.run_by == HOOKED else []
    words: list[str] = []
    for each in verb.options:
        value = values.get(each.name, each.default)
        if value is None or value == each.default or each.option is None:
            continue
        typed = _write(each, value)
        if typed is None:
            return None
        if isinstance(each.option, Argument):
            words += typed
        elif isinstance(value, bool):
            flags.append(f"--{'' if value else 'no-'}{each.front.replace('_', '-')}")
        else:
            long = each.option.flag.startswith("--")
            flag = each.option.flag if long else f"--{each.front.replace('_', '-')}"
            flags += [f"{flag}={word}" for word in typed]
    store = values.get("scan")
    if store == DATA:
        return None
    flags += [] if store is None else [f"--store={store}"]
    lens = _find_lens(provenance)
    if lens == DATA:
        return None
    flags += [] if lens is None else [f"--lens={lens}"]
    flags += ["--html", f"{verb.name}.html"] if page else []
    # After `--` a prompt may begin with a dash.
    rest = ["--", *words] if words else []
    start = ["ffnprobe", verb.name.replace("_", "-"), "--model", name_model(provenance)]
    return shlex.join([*start, *flags, *rest])


def _write(parameter: Parameter, value: Any) -> list[str] | None:
    """Write a value as words of a command; None where that cannot be done."""
    if value == DATA or (parameter.typed in (str, str | None) and not isinstance(value, str)):
        return None
    if isinstance(value, Mapping):
        if not all(isinstance(number, int | float) for number in value.values()):
            return None
        return [f"{name}={number:g}" for name, number in value.items()]
    if isinstance(value, list | tuple):
        if parameter.front == "position":
            return [",".join(map(str, value))]
        return [",".join(each) if isinstance(each, list | tuple) else str(each) for each in value]
    return [f"{value:g}" if isinstance(value, float) else str(value)]


def _spell(parameter: Parameter, given: Values) -> Any:
    """Return what was given as something to write down: texts, numbers, lists of them; else dots."""
    value, name = given.get(parameter.name, parameter.default), parameter.name
    traces = (each for each in given.values() if isinstance(each, Trace))
    model = given.get("model") or next(traces).model
    if isinstance(value, Trace):
        return _prompt(value)
    if isinstance(value, Model):
        return name_model(value.provenance())
    if parameter.role in ("Scan", "Sequence[Scan]") and value is not None:
        each = value if isinstance(value, list | tuple) else [value]
        folders = [str(getattr(one, "folder", one) or DATA) for one in each]
        return folders if isinstance(value, list | tuple) else folders[0]
    if name in ("answer", "versus", "other_answer") and isinstance(value, int):
        return spell_token(model, value)
    if isinstance(value, Contrast):
        return [each.prompt for each in value.others]
    if name == "contrast" and isinstance(value, list | tuple):
        return [each if isinstance(each, str) else each.prompt for each in value]
    return value if _is_plain(value) else DATA


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(each) for each in value.values())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


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
