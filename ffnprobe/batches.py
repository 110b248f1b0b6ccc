"""Many prompts, one tidy table: `explain`, `attribute` or any other verb of a prompt, one after the other.

Each row of the table is a row of the verb's own table, with its prompt and answer in front, as texts that
another batch takes. A prompt that is refused does not stop the others; it is in `problems`. With a store,
what is done is kept prompt by prompt, and the same call continues where it was stopped.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import pandas as pd
import torch
import xxhash

from ffnprobe.arguments import Bos, Progress, show
from ffnprobe.arguments import verb as checked
from ffnprobe.asking import answer
from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten, OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.files import parse_json, safe_read
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.store import Store, describe, hold_store
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.trace import Trace, predicted
from ffnprobe.verbs import VERBS

BATCH = "batch"


@dataclass(frozen=True, eq=False, repr=False)
class Batch(Result):
    """The tables of many prompts as one, and the prompts that were refused.

    >>> import ffnprobe as fp
    >>> found = fp.batch(fp.load("pocket"), ["", "Tiger Woods plays the sport of"], verb="run")
    >>> found.problems.problem[0]
    'the prompt is empty.'
    """

    verb: str
    table: pd.DataFrame
    problems: pd.DataFrame
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say what was done with how many prompts."""
        many = self.table.prompt.nunique() if len(self.table) else 0
        refused = f", {len(self.problems):,} refused" if len(self.problems) else ""
        return f"{self.verb} of {many:,} prompts{refused}"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables: all rows, and the prompts that were refused if there are any."""
        return {"rows": self.table} | ({"problems": self.problems} if len(self.problems) else {})


@checked
def batch(
    model: Model,
    prompts: Union[Iterable[str | tuple[str, str]], "pd.DataFrame"],
    *,
    verb: str = "explain",
    top: int | None = 10,
    bos: Bos = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Batch:
    """Run a verb on many prompts and return one tidy table.

    Prompts are texts, pairs of prompt and answer, or a table with the columns `prompt` and, if you like,
    `answer`. Without an answer, the model's prediction is taken. Other options are those of the verb.

    >>> import ffnprobe as fp
    >>> pairs = [("Michael Jordan plays the sport of", " basketball")]
    >>> found = fp.batch(fp.load("pocket"), pairs, verb="attribute", top=3, versus=" football")
    >>> list(found.table.columns[:3]), len(found.table)
    (['prompt', 'answer', 'name'], 3)
    """
    allowed = _find_options(verb)
    for name, value in options.items():
        if name not in allowed:
            why = f"{name} = {value!r}: {verb} takes no such option."
            raise OptionRefused(why, remedy=", ".join(allowed))
    if store is not None and not os.fspath(store):
        raise OptionRefused(f"store = {show(store)}: it is not a folder.", remedy="a folder's name")
    asked = list(_read(prompts))
    if not asked:
        why = "there is no prompt."
        raise DataRefused(why, remedy="a list of texts, or a table with a column prompt")
    given = {"top": top, "bos": bos, **options}
    manifest = describe(BATCH, model, verb=verb, options=_plain(given))
    tables: list[pd.DataFrame] = []
    problems: list[dict[str, str | None]] = []
    with nullcontext() if store is None else hold_store(Path(store), manifest) as held:
        for number, (prompt, given_answer) in enumerate(asked, start=1):
            table = None if held is None else _read_table(held, prompt, given_answer)
            try:
                if table is None:
                    table = _ask(model, verb, prompt, given_answer, given)
                    if held is not None:
                        _write_table(held, prompt, given_answer, table)
                tables.append(table)
            except (OptionRefused, DataRefused, FileNotWritten):
                raise  # what does not fit does not fit any prompt
            except FfnProbeError as error:
                problems.append({"prompt": prompt, "answer": given_answer, "problem": error.what})
            if progress is not None:
                progress(number, len(asked))
    settings = {"verb": verb, "prompts": len(asked), "top": top} | _plain(options)
    provenance = model.provenance(settings=settings)
    rows = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"prompt": []})
    failed = pd.DataFrame(problems, columns=["prompt", "answer", "problem"])
    return Batch(verb, provenance.note(rows), provenance.note(failed), provenance)


def read_prompts(path: Path) -> pd.DataFrame:
    suffix = path.suffix.lower()
    try:
        data = safe_read(path)
        if suffix == ".txt":
            lines = data.decode().splitlines()
            return pd.DataFrame({"prompt": [line for line in lines if line.strip()]})
        if suffix == ".csv":
            return pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False, na_values=[""])
        if suffix == ".jsonl":
            return pd.DataFrame(_read_lines(data, path))
    except FileNotFoundError:
        raise DataRefused(f"there is no file {path}.") from None
    except ValueError as error:
        raise DataRefused(f"{path} cannot be read: {error}.") from None
    why = f'prompts are not read from "{suffix}" ({path}).'
    raise DataRefused(why, remedy=".txt, .csv, .jsonl")


def _read_lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Read an object a line; empty lines are skipped."""
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            row = parse_json(line, where=f"{path}, line {number},")
            if not isinstance(row, dict):
                why = f"{path}, line {number}, is not an object."
                raise DataRefused(why, remedy='{"prompt": …, "answer": …}')
            rows.append(row)
    return rows


def _read(prompts: Iterable[Any]) -> Iterator[tuple[str, str | None]]:
    if isinstance(prompts, str):
        raise DataRefused("a batch takes several prompts, not one text.", remedy=f"[{prompts!r}]")
    if isinstance(prompts, pd.DataFrame):
        if "prompt" not in prompts:
            why = 'the table has no column "prompt".'
            raise DataRefused(why, remedy="columns prompt and, if you like, answer")
        answers = prompts["answer"] if "answer" in prompts else [None] * len(prompts)
        for row, (prompt, answer) in enumerate(zip(prompts["prompt"], answers, strict=True), 1):
            if not isinstance(prompt, str):
                raise DataRefused(f"row {row} has no prompt: {show(prompt)} is not text.")
            yield prompt, answer if isinstance(answer, str) else None
        return
    for each in prompts:
        if not isinstance(each, str) and (not hasattr(each, "__len__") or len(each) != 2):
            raise DataRefused(f"{show(each)} is no pair of a prompt and its answer.")
        yield (each, None) if isinstance(each, str) else (each[0], each[1])


def _find_options(verb: str) -> dict[str, str]:
    """Return the options of a verb that asks about a prompt, each with what fronts call it."""
    if verb not in VERBS or not VERBS[verb].takes_prompt:
        every = (name for name, each in VERBS.items() if each.takes_prompt)
        raise OptionRefused(f'"{verb}" does not take many prompts.', remedy=", ".join(every))
    options = [each for each in VERBS[verb].options if each.front not in ("prompt", "answer")]
    fronts = {each.name: each.front for each in options} | {p.front: p.front for p in options}
    scan = VERBS[verb].find_role("Scan")
    return fronts | ({} if scan is None else {"scan": "scan"})


def _ask(
    model: Model, verb: str, prompt: str, given_answer: str | None, options: Mapping[str, Any]
) -> pd.DataFrame:
    """Make the table of one prompt, its prompt and answer in front."""
    names, text = _find_options(verb), given_answer
    asked = {names[name]: value for name, value in options.items() if name in names}
    scan = asked.pop("scan", None)
    if any(each.front == "answer" for each in VERBS[verb].options):
        asked["answer"] = text
        if text is None:
            asked["answer"] = predicted(run(model, prompt, bos=options["bos"], patterns=False))
            text = model.vocab.text([asked["answer"]])
    answered = answer(VERBS[verb], model, {"prompt": prompt, **asked}, scan=scan)
    result = answered.result
    rows = next(iter(answered.tables.values())).copy()
    if isinstance(result, Explanation) and result.curve is not None:
        # How many neurons carry the answer, the same in each of its rows; none where no few do.
        rows.insert(0, "carried_by", pd.Series([result.curve.least] * len(rows), dtype="Int64"))
    if text is None and isinstance(result, Trace):
        text = model.vocab.text([predicted(result)])
    rows.insert(0, "prompt", prompt)
    rows.insert(1, "answer", text)
    return rows


def _name_part(prompt: str, answer: str | None) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps([prompt, answer]).encode())


def _read_table(store: Store, prompt: str, answer: str | None) -> pd.DataFrame | None:
    """Read what a store holds of a prompt, None where it is not done yet."""
    part = store.read(_name_part(prompt, answer))
    if part is None:
        return None
    return pd.read_parquet(io.BytesIO(part.tensors["table"].numpy().tobytes()))


def _write_table(store: Store, prompt: str, answer: str | None, table: pd.DataFrame) -> None:
    plain = table.copy()
    plain.attrs.clear()
    data = torch.frombuffer(bytearray(plain.to_parquet(index=False)), dtype=torch.uint8)
    store.write(_name_part(prompt, answer), {"prompt": prompt, "answer": answer}, {"table": data})


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Write options as plain data: what is not, by all that it is."""
    plain: dict[str, Any] = {}
    for name, value in options.items():
        is_plain = value is None or isinstance(value, str | int | float)
        plain[name] = value if is_plain else repr(value)
        if isinstance(value, Result):  # two scans of one size are not the same
            plain[name] += f" {value.provenance.as_dict()}"
    return plain
