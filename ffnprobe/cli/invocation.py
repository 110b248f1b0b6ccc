"""One call of a command: its common options, the model and threads they ask for, where its result goes.

Notes go to stderr, a result to stdout or to files. No result is written over another, or over what is read.

Threads: as many as pay for a model of its size. They wait for each other after every product; in a small
model a product takes less time than the wait, and on a busy machine the wait can be many times longer
(`python analyses/benchmark.py --only threads` measures it by shape). The process is the command's own, so
its setting is ours to change; in Python torch's setting is left as it was.
"""

import glob
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ffnprobe.arguments import Option
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.files import LARGEST_PROMPT, MB

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.corpora.scans import Scan
    from ffnprobe.models.model import Model
    from ffnprobe.provenance import Provenance
    from ffnprobe.results import Result

# What is read of a folder, by the argument that names it.
READ_IN_FOLDERS = {
    "texts": (".txt", ".jsonl", ".parquet"),
    "facts": (".csv", ".tsv", ".json", ".jsonl"),
    "store": (".json",),
    "model": (".json",),
}


MODEL = Option(
    "pocket, gpt2, gpt2-medium, …, smollm2, gemma3-270m, owner/name on the hub, a folder or a .gguf file.",
    flag="-m", metavar="NAME|FOLDER|FILE", default="$FFNPROBE_MODEL, else pocket",
)  # fmt: skip
LENS = Option(
    "Read token lists through a Jacobian lens: a folder of fit-lens, a .pt file, own (pocket's), or on-demand.",
    str | None, metavar="LENS",
)  # fmt: skip
DEVICE = Option("The device to compute on.", choices=("auto", "cpu", "cuda", "mps"))
THREADS = Option(
    "How many threads to compute with.",
    default="$FFNPROBE_THREADS, else as many as help a model of this size",
)
FORMAT = Option("The format of the printed result.", choices=("table", "csv", "json", "md"))
OUT = Option(
    "Write the result to a .csv, .json, .jsonl, .parquet, .md or .html file.", flag="-o", metavar="FILE"
)  # fmt: skip
PLOT = Option("Also write its figure to a .html or .png file.", metavar="FILE")


@dataclass(frozen=True)
class Common:
    model: Annotated[str | None, MODEL] = None
    lens: Annotated[str | None, LENS] = None
    device: Annotated[str, DEVICE] = "auto"
    threads: Annotated[int | None, THREADS] = None
    format: Annotated[str, FORMAT] = "table"
    out: Annotated[Path | None, OUT] = None
    html: Annotated[Path | None, Option("Also write a self-contained page.", metavar="FILE")] = None
    plot: Annotated[Path | None, PLOT] = None
    quiet: Annotated[bool, Option("Print no notes and no progress bar.", flag="-q")] = False
    debug: Annotated[bool, Option("Show the traceback of an error.")] = False

    @property
    def model_name(self) -> str:
        from ffnprobe.models.loading import default_name

        return self.model or default_name()

    def load(self, *, hooks: bool | None = None, has_own_threads: bool = False) -> "Model":
        """Check the output files, load the model, and let torch use the threads that pay for it.

        A command that chooses threads itself has `has_own_threads`.
        """
        self.check_out()
        asked = read_threads(self.threads)
        model = self.load_named(self.model_name, hooks=hooks)
        if asked is not None or not has_own_threads:
            use_threads(asked, model.config.parameters())
        if self.lens is None:
            return model
        from ffnprobe.reading.jacobian import use_lens

        return use_lens(model, self.lens)

    def load_named(self, name: str, *, hooks: bool | None = None) -> "Model":
        """Load a model, and note its name, source and fingerprint; of a command with `hooks`, who runs it."""
        from ffnprobe.models.loading import load

        model = load(name, device=self.device, hooks=bool(hooks))
        run_by = "" if hooks is None else f", run by {model.run_by}"
        self.note(f"{model.name} ({model.source}, weights {model.fingerprint[:8]}{run_by})")
        return model

    def check_out(self) -> None:
        """Refuse files that cannot be written before any work is done."""
        for path, suffixes in ((self.out, ()), (self.html, ((".html",),))):
            if path is not None:
                from ffnprobe.views.saving import check_target

                check_target(path, *suffixes)
        if self.plot is not None:
            from ffnprobe.views.saving import check_picture

            check_picture(self.plot)

    def check_apart(self, read: Mapping[str, object]) -> None:
        """Refuse to write two results to one file, or one over a file among the arguments."""
        written: dict[Path, tuple[str, Path]] = {}
        for option, path in (("--out", self.out), ("--html", self.html), ("--plot", self.plot)):
            if path is None:
                continue
            with suppress(OSError, RuntimeError):  # such a path is refused when it is checked
                target = path.expanduser().resolve()
                if target in written:
                    why = f"{written[target][0]} and {option} name the same file, {path}."
                    raise OptionRefused(why, remedy="two names")
                written[target] = option, path
        existing = {target: named for target, named in written.items() if os.path.isfile(target)}
        for name, value in read.items() if existing else ():
            for word in value if isinstance(value, list) else [value]:
                for target, (option, path) in existing.items():
                    if isinstance(word, str | Path) and _reads(name, str(word), target):
                        why = f"{option} {path} would overwrite what is read ({word})."
                        raise OptionRefused(why, remedy="another name")

    def note(self, text: str) -> None:
        """Print a note to stderr; it is not part of the result."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @property
    def is_for_terminal(self) -> bool:
        """Whether the result is printed as text for people."""
        return self.out is None and self.format == "table"

    def emit(
        self,
        result: "Result",
        tables: "dict[str, pd.DataFrame] | None" = None,
        *,
        provenance: "Provenance | None" = None,
        printed: "dict[str, pd.DataFrame] | None" = None,
    ) -> None:
        """Print tables in the chosen format, or write `--out`; as text, only those `printed`."""
        from ffnprobe.views.saving import TEXTS, gather_tables, name_unwritten, save_result

        tables = result.tables() if tables is None else tables
        provenance = result.provenance if provenance is None else provenance
        self.write(result, tables)
        if not self.is_for_terminal and result.caption:  # a table has it underneath
            self.note(result.caption)
        if self.out is not None:
            save_result(result, self.out, tables=tables, provenance=provenance)
            self.note(f"wrote {self.out}{name_unwritten(tables, self.out)}")
        elif self.format == "table":
            from ffnprobe.documents.blocks import ROWS
            from ffnprobe.views.terminal import print_document

            shown = tables if printed is None else printed
            print_document(result.headline, result.document(shown), most=ROWS)
        else:
            encoding = sys.stdout.encoding or "utf-8"
            if "utf" not in encoding.lower():
                self.note(f"standard output is {encoding}: what it lacks is written as ?")
            written = gather_tables(result, tables, provenance, is_told=self.format == "md")
            sys.stdout.write(TEXTS[self.format](written))

    def refuse_output(self, words: str, remedy: str) -> None:
        if self.out or self.html or self.plot or self.format != "table":
            raise OptionRefused(words, remedy=remedy)

    def write(self, result: "Result", tables: "dict[str, pd.DataFrame] | None" = None) -> None:
        """Write the page of `--html` and the figure of `--plot`, if asked for."""
        if self.html is not None:
            from ffnprobe.views.saving import save_result

            save_result(result, self.html, tables=tables)
            self.note(f"wrote {self.html}")
        if self.plot is not None:
            from ffnprobe.views.figures import plot
            from ffnprobe.views.saving import save_figure

            save_figure(plot(result), self.plot)
            self.note(f"wrote {self.plot}")


def _reads(name: str, word: str, target: Path) -> bool:
    """Whether a word, taken for a file, a folder or a glob, stands for a file that is read."""
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(word).expanduser()
        if path.is_dir():
            is_read = target.suffix.lower() in READ_IN_FOLDERS.get(name, ())
            return is_read and path.resolve() in target.parents
        if path.exists():
            return path.samefile(target)
        if glob.has_magic(word):
            matching = glob.iglob(str(path), recursive=True)
            return any(Path(each).resolve() == target for each in matching)
    return False


VARIABLE = "FFNPROBE_THREADS"
# More than any machine has: torch would start them all, or end the process.
MOST = 1024
# Up to so many parameters, at most so many threads; beyond, as many as torch has.
PAYING = ((20_000_000, 1), (200_000_000, 4))


def choose_threads(parameters: int, available: int) -> int:
    most = next((threads for size, threads in PAYING if parameters <= size), available)
    return min(most, available)


def read_threads(given: int | None) -> int | None:
    """Return the number asked for: `--threads`, else `$FFNPROBE_THREADS`; None if neither is set."""
    named = VARIABLE if given is None else "--threads"
    text = os.environ.get(VARIABLE, "") if given is None else str(given)
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(MOST)) or not 1 <= int(text) <= MOST:
        why = f'{named} is "{text}", which is not a number of threads.'
        raise OptionRefused(why, remedy=f"1 to {MOST}")
    return int(text)


def use_threads(asked: int | None, parameters: int) -> None:
    """Let torch compute in this process with the threads asked for, else with what pays for the model."""
    import torch

    torch.set_num_threads(asked or choose_threads(parameters, torch.get_num_threads()))


def open_store(model: "Model", store: str | Path | None) -> "Scan | None":
    if store is None:
        return None
    from ffnprobe.corpora.scans import Scan

    return Scan.open(store).check(model)


def read_prompt(text: str) -> str:
    """Return a prompt given on the command line, or read it from standard input for `-`."""
    if text != "-":
        return text
    data = sys.stdin.buffer.read(LARGEST_PROMPT + 1)
    if len(data) > LARGEST_PROMPT:
        raise PromptRefused(
            f"standard input is longer than {LARGEST_PROMPT // MB} MB, the most ffnprobe reads of a prompt.",
            remedy="ffnprobe scan, for texts of any length",
        )
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise PromptRefused(
            f"standard input is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02X}.",
            remedy="iconv -t utf-8",
        ) from None


@contextmanager
def say_kept(work: str, folder: Path | None) -> Iterator[None]:
    """Say on Ctrl-C which work a folder keeps, if there is one."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is None or not folder.is_dir():
            raise
        words = f"{work} kept in {folder}; the same command resumes."
        raise KeyboardInterrupt(words) from None


@contextmanager
def show_progress(common: Common, text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a callback (done, total) that draws a progress bar, or None without a terminal."""
    if common.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
