"""What every command shares: its common options, notes to stderr, results to stdout or a file."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.cli.failures import flush_output, restate
from ffnprobe.cli.help import HelpCommand, HelpGroup, name_values
from ffnprobe.errors import FfnProbeError
from ffnprobe.version import VERSION

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.models.model import Model
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.results import Result

app = typer.Typer(
    name="ffnprobe",
    cls=HelpGroup,
    rich_markup_mode=None,
    help="Read the MLP layers of a language model neuron by neuron: questions, answers, pushes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"ffnprobe {VERSION}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Read the MLP layers of a language model neuron by neuron: questions, answers, pushes."""


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    md = "md"


@dataclass(frozen=True)
class Common:
    """The options every command has."""

    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME|FOLDER|FILE", show_default="$FFNPROBE_MODEL, else pocket",
                     help="pocket, gpt2, gpt2-medium, …, smollm2, gemma3-270m, owner/name on the hub, a folder or a .gguf file."),
    ] = None  # fmt: skip
    device: Annotated[Device, typer.Option("--device", help="The device to compute on.")] = (
        Device.auto
    )
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", help="How many threads to compute with.",
                     show_default="$FFNPROBE_THREADS, else as many as help a model of this size"),
    ] = None  # fmt: skip
    format: Annotated[
        Format, typer.Option("--format", help="The format of the printed result.")
    ] = Format.table
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the result to a .csv, .json, .jsonl, .parquet, .md or .html file."),
    ] = None  # fmt: skip
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a self-contained page."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Also write its figure to a .html or .png file."
        ),
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no notes and no progress bar.")
    ] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    @property
    def model_name(self) -> str:
        from ffnprobe.models.loading import default_name

        return self.model or default_name()

    def load(self, *, hooks: bool | None = None, has_own_threads: bool = False) -> "Model":
        """Check the output files, load the model, and note its name, source and fingerprint.

        `hooks` is the option of commands that run prompts; the note then says who runs them. Threads
        are set to what pays for the model, unless the command chooses its own.
        """
        self.check_out()
        from ffnprobe.cli.threads import choose_threads, count_threads, read_threads, set_threads

        asked = read_threads(self.threads)
        from ffnprobe.models.loading import load

        model = load(self.model_name, device=self.device.value, hooks=hooks is not False)
        if asked is not None:
            set_threads(asked)
        elif not has_own_threads:
            set_threads(choose_threads(model.config.parameters(), count_threads()))
        known = f"{model.name} ({model.source}, weights {model.fingerprint[:8]}"
        self.note(f"{known})" if hooks is None else f"{known}, run by {model.run_by})")
        return model

    def check_out(self) -> None:
        """Refuse files that cannot be written before any work is done."""
        if self.out is not None or self.html is not None:
            from ffnprobe.views.files.formats import SUFFIXES, check_target

            if self.out is not None:
                check_target(self.out, SUFFIXES)
            if self.html is not None:
                check_target(self.html, (".html",))
        if self.plot is not None:
            from ffnprobe.views.files.pictures import check_picture

            check_picture(self.plot)

    def check_apart(self, read: Mapping[str, object]) -> None:
        """Refuse to write two results to one file, or one over what is read."""
        from ffnprobe.cli.outputs import check_apart

        check_apart({"--out": self.out, "--html": self.html, "--plot": self.plot}, read)

    def note(self, text: str) -> None:
        """Print a note to stderr; it is not part of the result."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @property
    def is_for_terminal(self) -> bool:
        """Whether the result is printed as text for people."""
        return self.out is None and self.format is Format.table

    def emit(
        self,
        tables: "dict[str, pd.DataFrame]",
        provenance: "Provenance",
        *,
        title: str = "",
        result: "Result | None" = None,
        shown: tuple[str, ...] | None = None,
        most: int | None = None,
    ) -> None:
        """Print tables in the chosen format, or write `--out`.

        As text, only those `shown`; in a terminal their first `most` rows.
        `result` is what the tables belong to; `--html` and `--plot` show it.
        """
        from ffnprobe.results import TableSet
        from ffnprobe.views.files.formats import TEXTS, name_unwritten
        from ffnprobe.views.files.saving import gather_tables, save_result

        whole = TableSet(title, tables, provenance) if result is None else result
        self.write(whole, tables)
        if not self.is_for_terminal and whole.caption:  # a table has it underneath
            self.note(whole.caption)
        if self.out is not None:
            save_result(whole, self.out, tables=tables, provenance=provenance)
            self.note(f"wrote {self.out}{name_unwritten(tables, self.out)}")
        elif self.format is Format.table:
            from ffnprobe.views.terminal.printing import print_tables

            chosen = tables if shown is None else {name: tables[name] for name in shown}
            print_tables(chosen, title=title, most=most, note=whole.caption)
        else:
            if "utf" not in (sys.stdout.encoding or "utf-8").lower():
                self.note(
                    f"standard output is {sys.stdout.encoding}: what it lacks is written as ?"
                )
            written = gather_tables(whole, tables, provenance)
            sys.stdout.write(TEXTS[self.format.value](written))

    def write(self, result: "Result", tables: "dict[str, pd.DataFrame] | None" = None) -> None:
        """Write the page of `--html` and the figure of `--plot`, if asked for."""
        if self.html is not None:
            from ffnprobe.views.files.saving import save_result

            save_result(result, self.html, tables=tables)
            self.note(f"wrote {self.html}")
        if self.plot is not None:
            from ffnprobe.views.files.pictures import save_figure
            from ffnprobe.views.plots import plot

            save_figure(plot(result), self.plot)
            self.note(f"wrote {self.plot}")


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command whose first parameter, `common`, collects the common options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            p.name, inspect.Parameter.KEYWORD_ONLY, default=p.default, annotation=p.annotation
        )
        for p in inspect.signature(Common, eval_str=True).parameters.values()
    ]

    @wraps(function)
    def run_command(**values: Any) -> None:
        common = Common(**{p.name: values.pop(p.name) for p in shared})
        try:
            common.check_apart({"model": common.model, **values})
            function(common, **values)
            if error := flush_output():
                raise error
        except Exception as error:
            stated = error if isinstance(error, FfnProbeError) else restate(error)
            if common.debug or stated is None:
                raise
            print(f"error: {stated}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as stopped:
            # Caught here, because typer would end the command silently. Some say what they kept.
            print(f"interrupted: {str(stopped) or 'nothing was written.'}", file=sys.stderr)
            raise typer.Exit(130) from None

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
    name_values(parameters)
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(function.__name__, cls=HelpCommand)(run_command)
    return run_command
