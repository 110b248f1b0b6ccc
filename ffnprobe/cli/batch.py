"""`ffnprobe batch VERB FILE`: many prompts, one tidy table; the options are the verb's."""

from pathlib import Path
from typing import Any

from ffnprobe.arguments import Argument, Option
from ffnprobe.cli.command import Common, HelpGroup, take
from ffnprobe.cli.invocation import show_progress
from ffnprobe.cli.verb_commands import build, list_commands, list_options
from ffnprobe.verbs import VERBS, Verb

WORDS = """Run a verb on many prompts, and list all rows in one table.

Without an answer, the model's prediction is taken. A prompt that is refused does not stop the others."""
FILE = Argument(
    "A .txt with one prompt per line, or a .csv or .jsonl with prompt and answer.", Path, metavar="FILE"
)  # fmt: skip
STORE = Option(
    "Keep finished prompts in this folder; the same command resumes.", Path | None, metavar="DIR"
)


def make_batch(verb: Verb) -> Any:
    """Make the command that asks a verb about each prompt of a file."""
    own = [p for p in list_options(verb) if p.name not in ("prompt", "answer")]
    more = take("file", FILE), take("store", STORE, None)
    return build(verb.name, verb.words, _ask(verb), [more[0], *own, more[1]])


def _ask(verb: Verb) -> Any:
    def ask(common: Common, *, file: Path, store: Path | None, **given: Any) -> None:
        common.check_out()
        from ffnprobe.batches import batch, read_prompts

        table: Any = read_prompts(file)
        model = common.load(hooks=given.pop("hooks"))
        options = {each.front: each.default for each in verb.options}
        given = {name: value for name, value in given.items() if value != options[name]}
        try:
            with show_progress(common, "prompts") as progress:
                found = batch(model, table, verb=verb.name, store=store, progress=progress, **given)
        except KeyboardInterrupt:
            if store is None or not store.is_dir():
                raise
            raise KeyboardInterrupt(
                f"finished prompts are kept in {store}; the same command resumes."
            ) from None
        for row in found.problems.itertuples():
            common.note(f"{row.prompt!r} was refused: {row.problem}")
        common.emit(found, printed={"rows": found.table})

    return ask


class BatchGroup(HelpGroup):
    """The verbs that ask about one prompt, as commands that ask about many."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name what is typed as the commands' page does."""
        return ["VERB", "FILE", "[OPTIONS]"]


def make_group() -> BatchGroup:
    """Make the command `batch`."""
    asked = [verb for verb in VERBS.values() if verb.takes_prompt]
    BatchGroup.derived = list_commands(make_batch, asked)
    return BatchGroup(name="batch", help=WORDS, rich_markup_mode=None, no_args_is_help=True)


HelpGroup.derived["batch"] = make_group
