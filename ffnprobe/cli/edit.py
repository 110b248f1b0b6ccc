"""`ffnprobe edit FACT…`: write facts into a model, and prove what else changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.arguments import HOOKS, Argument, Option
from ffnprobe.cli.command import command
from ffnprobe.cli.invocation import Common

if TYPE_CHECKING:
    from ffnprobe.facts.rows import FactRow

SHOWN = ("edits", "certificate", "changed", "norms")
ROWS = 20
METHOD = Option("How the weights are changed.", choices=("rome", "memit", "alphaedit"))
LAYER = Option("The layer to change.", metavar="N", default="by the map of effects")
SAVE = Option("Write the edited model to a new folder.", metavar="FOLDER")


@command
def edit(
    common: Common,
    fact: Annotated[list[str], Argument(
        'A prompt and its new answer ("… plays the sport of" " tennis"), several such pairs, '
        "or a table of facts to write (.csv, .tsv, .json, .jsonl).", metavar="FACT…",
    )],
    subject: Annotated[str | None, Option(
        "The words of the prompt that the fact is about.", default="as pocket's own table says",
    )] = None,
    method: Annotated[str, METHOD] = "rome",
    layer: Annotated[int | None, LAYER] = None,
    facts: Annotated[str | None, Option(
        "The table of facts to check before and after the edit.",
        metavar="FACTS", default="pocket's own, for pocket",
    )] = None,
    text: Annotated[Path | None, Option(
        "A text to measure the drift of predictions on.",
        metavar="FILE", default="sentences of the table",
    )] = None,
    texts: Annotated[list[str] | None, Option(
        "Texts to measure the second moments of keys over; kept for the next edit.",
        metavar="FILES",
    )] = None,
    keys: Annotated[Path | None, Option(
        "The folder the second moments are kept in.", metavar="DIR", default="the user's cache",
    )] = None,
    save: Annotated[Path | None, SAVE] = None,
    dry_run: Annotated[bool, Option("Only make the certificate; write no model.")] = False,
    hooks: Annotated[bool, HOOKS] = False,
) -> None:  # fmt: skip
    """Edit facts in a model (ROME, MEMIT, AlphaEdit), with a certificate of what else changed.

    The certificate: whether the new answer holds in the prompt and in other words, whether other
    subjects keep theirs, and every other fact of a table that changed.
    """
    if (save is None) != dry_run:
        raise typer.BadParameter("--save FOLDER, or --dry-run")
    from ffnprobe.editing.exporting import check_folder, export

    if save is not None:
        check_folder(save)
    drift_text = None if text is None else _read_text(text)
    rows = _read_rows(fact, subject)
    if facts is not None:
        from ffnprobe.facts.formats import read_facts

        read_facts(facts)  # a table that cannot be read is refused before the work begins
    model = common.load(hooks=hooks)
    from ffnprobe.editing.certificates import certify
    from ffnprobe.editing.edits import edit as edit_facts
    from ffnprobe.tracing.trace import describe_spelling

    for row in rows if isinstance(rows, list) else []:
        for note in describe_spelling(model.vocab, row.answer):
            common.note(note)
    scan: Any = keys
    if texts is not None:
        from ffnprobe.editing.key_moments import name_store, scan_keys

        store = name_store(model, texts) if keys is None else keys
        common.note(f"second moments of keys in {store}")
        scan = scan_keys(model, texts, store=store)
    edited = edit_facts(model, rows, layer=layer, method=method, scan=scan)
    common.note(edited.title)
    certificate = certify(edited, facts, text=drift_text)
    if save is not None:
        export(edited, save, certificate=certificate)
        common.note(f"wrote {save}: {edited.model.fingerprint[:8]}")
    tables = certificate.tables()
    printed = {name: tables[name].head(ROWS) for name in SHOWN if len(tables[name])}
    common.emit(certificate, tables, printed=printed)


def _read_rows(words: list[str], subject: str | None) -> "str | list[FactRow]":
    """Take pairs of prompt and answer, or the name of a table."""
    from ffnprobe.facts.formats import SUFFIXES
    from ffnprobe.facts.rows import FactRow

    is_table = len(words) == 1 and (words[0].endswith(SUFFIXES) or Path(words[0]).exists())
    if is_table and subject is not None:
        raise typer.BadParameter("--subject is for a prompt; a table has a column subject")
    if is_table:
        return words[0]
    if len(words) % 2:
        raise typer.BadParameter("each prompt needs its new answer, or name one table of facts")
    pairs = zip(words[::2], words[1::2], strict=True)
    return [FactRow(prompt, answer, subject=subject or "") for prompt, answer in pairs]


def _read_text(path: Path) -> str:
    from ffnprobe.errors import DataRefused
    from ffnprobe.files import safe_read

    try:
        text = safe_read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataRefused(f"{path} is not UTF-8: byte {error.start}.") from None
    if not text.strip():
        raise DataRefused(f"{path} is empty.", remedy="some text to compare predictions on")
    return text
