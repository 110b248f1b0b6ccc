"""`ffnprobe edit FACT…`: write facts into a model, and prove what else changed."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import HooksOption, note_spelling

if TYPE_CHECKING:
    from ffnprobe.editing.key_moments import KeyMoments
    from ffnprobe.facts.rows import FactRow
    from ffnprobe.models.model import Model

SHOWN = ("edits", "certificate", "changed", "norms")
ROWS = 20


class EditMethod(StrEnum):
    rome = "rome"
    memit = "memit"
    alphaedit = "alphaedit"


@command
def edit(
    common: Common,
    fact: Annotated[
        list[str],
        typer.Argument(
            metavar="FACT…",
            help='A prompt and its new answer ("… plays the sport of" " tennis"), several such pairs, '
            "or a table of facts to write (.csv, .tsv, .json, .jsonl).",
        ),
    ],
    subject: Annotated[
        str | None,
        typer.Option(
            help="The words of the prompt that the fact is about.",
            show_default="as pocket's own table says",
        ),
    ] = None,
    method: Annotated[
        EditMethod, typer.Option(help="How the weights are changed.")
    ] = EditMethod.rome,
    layer: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The layer to change.", show_default="by the map of effects"
        ),
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            metavar="FACTS",
            help="The table of facts to check before and after the edit.",
            show_default="pocket's own, for pocket",
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A text to measure the drift of predictions on.",
            show_default="sentences of the table",
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILES",
            help="Texts to measure the second moments of keys over "
            "(repeatable); kept for the next edit.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder the second moments are kept in.",
            show_default="the user's cache",
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the edited model to a new folder.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only make the certificate; write no model.")
    ] = False,
    hooks: HooksOption = False,
) -> None:
    """Edit facts in a model (ROME, MEMIT, AlphaEdit), with a certificate of what else changed.

    The certificate: whether the new answer holds in the prompt and in other words, whether other
    subjects keep theirs, and every other fact of a table that changed.
    """
    if (save is None) != dry_run:
        raise typer.BadParameter("--save FOLDER, or --dry-run")
    from ffnprobe.models.folders import check_folder

    if save is not None:
        check_folder(save)
    told = None if text is None else _read_text(text)
    rows = _read_rows(fact, subject)
    if facts is not None:
        _check_facts(facts)
    model = common.load(hooks=hooks)
    if not isinstance(rows, str):
        for row in rows:
            note_spelling(common, model.vocab, row.answer)
    from ffnprobe.editing.certifying import certify
    from ffnprobe.editing.edits import edit as edit_facts
    from ffnprobe.editing.exporting import export

    scan = keys if texts is None else _scan(common, model, texts, keys)
    edited = edit_facts(model, rows, layer=layer, method=method.value, scan=scan)
    common.note(edited.title)
    certificate = certify(edited, facts, text=told)
    if save is not None:
        export(edited, save, certificate=certificate)
        common.note(f"wrote {save}: {edited.model.fingerprint[:8]}")
    tables = certificate.tables()
    shown = tuple(name for name in SHOWN if len(tables[name]))
    common.emit(
        tables, certificate.provenance, title=certificate.title, result=certificate,
        shown=shown, most=ROWS,
    )  # fmt: skip


def _read_rows(words: list[str], subject: str | None) -> "str | list[FactRow]":
    """Take pairs of prompt and answer, or the name of a table."""
    from ffnprobe.facts.formats import SUFFIXES

    is_table = len(words) == 1 and (words[0].endswith(SUFFIXES) or Path(words[0]).exists())
    if is_table and subject is not None:
        raise typer.BadParameter("--subject is for a prompt; a table has a column subject")
    if is_table:
        return words[0]
    if len(words) % 2:
        raise typer.BadParameter("each prompt needs its new answer, or name one table of facts")
    from ffnprobe.facts.rows import FactRow

    pairs = zip(words[::2], words[1::2], strict=True)
    return [FactRow(prompt, answer, subject=subject or "") for prompt, answer in pairs]


def _check_facts(facts: str) -> None:
    """Refuse a table that cannot be read before the work begins."""
    from ffnprobe.facts.formats import read_facts

    read_facts(facts)


def _read_text(path: Path) -> str:
    from ffnprobe.errors import DataRefused
    from ffnprobe.inputs import read_input

    try:
        told = read_input(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataRefused(f"{path} is not UTF-8: byte {error.start}.") from None
    if not told.strip():
        raise DataRefused(f"{path} is empty.", remedy="some text to compare predictions on")
    return told


def _scan(common: Common, model: "Model", texts: list[str], folder: Path | None) -> "KeyMoments":
    """Measure second moments over texts, or read them if that was done before."""
    from ffnprobe.editing.key_scans import name_store, scan_keys

    store = name_store(model, texts) if folder is None else folder
    common.note(f"second moments of keys in {store}")
    return scan_keys(model, texts, store=store)
