"""`ffnprobe batch VERB FILE`: many prompts, one tidy table."""

import io
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    BosOption,
    Convention,
    HooksOption,
    Replace,
    VersusOption,
    show_progress,
)
from ffnprobe.errors import DataRefused
from ffnprobe.inputs import parse_json, read_input


class Verb(StrEnum):
    run = "run"
    attribute = "attribute"
    ablate = "ablate"
    explain = "explain"


@command
def batch(
    common: Common,
    verb: Annotated[Verb, typer.Argument(help="What to do with each prompt.")],
    prompts: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .txt with one prompt per line, or a .csv or .jsonl with prompt and answer.",
        ),
    ],
    top: Annotated[int, typer.Option("--top", "-k", help="How many rows for each prompt.")] = 10,
    versus: VersusOption = None,
    replace: Annotated[
        Replace | None,
        typer.Option(
            help="What an ablated activation is replaced by (ablate, explain).",
            show_default="mean where it is known, else zero",
        ),
    ] = None,
    convention: Annotated[
        Convention | None,
        typer.Option(
            help="Logits above the vocabulary's mean (centred), or the model's own (folded).",
            show_default="centred",
        ),
    ] = None,
    effects: Annotated[
        bool, typer.Option(help="Measure ablation effects in explain; faster without.")
    ] = True,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Keep finished prompts in this folder; the same command resumes.",
        ),
    ] = None,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Run, attribute, ablate or explain many prompts, and list all rows in one table.

    Without an answer, the model's prediction is taken. A prompt that is refused does not stop the others.
    """
    table = read_prompts(prompts)
    options: dict[str, Any] = {"versus": versus, "replace": replace, "convention": convention}
    given: dict[str, Any] = {
        name: str(value) for name, value in options.items() if value is not None
    }
    if not effects:
        given["effects"] = False
    model = common.load(hooks=hooks)
    from ffnprobe.batches import batch as run_batch

    try:
        with show_progress(common, "prompts") as progress:
            found = run_batch(
                model, table, verb=verb.value, top=top, bos=bos, store=store, progress=progress,
                **given,
            )  # fmt: skip
    except KeyboardInterrupt:
        if store is None or not any(store.glob("*.parquet")):
            raise
        raise KeyboardInterrupt(
            f"finished prompts are kept in {store}; the same command resumes."
        ) from None
    for row in found.problems.itertuples():
        common.note(f"{row.prompt!r} was refused: {row.problem}")
    common.emit(
        found.tables(), found.provenance, title=found.title, result=found, shown=("rows",), most=40
    )


def read_prompts(path: Path) -> Any:
    """Read a file of prompts as a table."""
    import pandas as pd

    suffix = path.suffix.lower()
    try:
        data = read_input(path)
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
    raise DataRefused(
        f'prompts are not read from "{suffix}" ({path}).', remedy=".txt, .csv, .jsonl"
    )


def _read_lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Read an object a line; empty lines are skipped."""
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            row = parse_json(line, where=f"{path}, line {number},")
            if not isinstance(row, dict):
                raise DataRefused(
                    f"{path}, line {number}, is not an object.", remedy='{"prompt": …, "answer": …}'
                )
            rows.append(row)
    return rows
