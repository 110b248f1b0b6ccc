"""What every command shares: its common options, notes to stderr, results to stdout or a file."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.errors import FfnProbeError, PromptRefused

if TYPE_CHECKING:
    from ffnprobe.models.model import Model
    from ffnprobe.models.provenance import Provenance

app = typer.Typer(
    name="ffnprobe",
    help="Open the feed-forward layers of a GPT-2: questions, answers, pushes, neuron by neuron.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
        typer.Option("--model", "-m", metavar="NAME|FOLDER", show_default="$FFNPROBE_MODEL, else pocket",
                     help="pocket, gpt2, gpt2-medium, …, owner/name on the hub, or a folder."),
    ] = None  # fmt: skip
    device: Annotated[Device, typer.Option("--device", help="Where to compute.")] = Device.auto
    format: Annotated[Format, typer.Option("--format", help="How to print the result.")] = (
        Format.table
    )
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write to a .csv, .json, .md or .parquet file."),
    ] = None  # fmt: skip
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes, no progress.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    @property
    def model_name(self) -> str:
        from ffnprobe.models.loading import default_name

        return self.model or default_name()

    def load(self) -> "Model":
        """Check where the result goes, load the model, and say which it is and whence it came."""
        self.check_out()
        from ffnprobe.models.loading import load

        model = load(self.model_name, device=self.device.value)
        self.note(f"{model.name} ({model.source}, weights {model.fingerprint[:8]})")
        return model

    def check_out(self) -> None:
        """Refuse a file that could not be written before any work is done."""
        if self.out is not None:
            from ffnprobe.views.tables import check_target

            check_target(self.out)

    def note(self, text: str) -> None:
        """Say something that is not the result."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def emit(self, tables: dict[str, Any], provenance: "Provenance", *, title: str = "") -> None:
        """Print a result in the chosen format, or write it to `--out`."""
        from ffnprobe.views import tables as views

        if self.out is not None:
            views.save_tables(tables, provenance, self.out)
            self.note(f"wrote {self.out}")
        elif self.format is Format.table:
            from ffnprobe.views.terminal import print_tables

            print_tables(tables, title=title)
        else:
            sys.stdout.write(views.TEXTS[self.format.value](tables, provenance))


def read_prompt(text: str) -> str:
    """Return a prompt given on the command line, or read it from standard input for `-`."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise PromptRefused(
            f"standard input is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02X}.",
            remedy="iconv -t utf-8",
        ) from None


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
            function(common, **values)
        except FfnProbeError as error:
            if common.debug:
                raise
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(function.__name__)(run_command)
    return run_command
