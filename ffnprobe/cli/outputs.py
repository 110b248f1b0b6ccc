"""No result is written over another, or over a file the command reads."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ffnprobe.errors import OptionRefused

# What is read of a folder, by the argument that names it.
READ_IN_FOLDERS = {
    "texts": (".txt", ".jsonl", ".parquet"),
    "facts": (".csv", ".tsv", ".json", ".jsonl"),
    "store": (".json",),
    "model": (".json",),
}


def check_apart(targets: Mapping[str, Path | None], read: Mapping[str, object]) -> None:
    """Refuse two options that name one file, and one that names a file among the arguments."""
    named = {option: path for option, path in targets.items() if path is not None}
    seen: dict[Path, str] = {}
    for option, path in named.items():
        with suppress(OSError, RuntimeError):  # such a path is refused when it is checked
            target = path.expanduser().resolve()
            if target in seen:
                raise OptionRefused(
                    f"{seen[target]} and {option} name the same file, {path}.", remedy="two names"
                )
            seen[target] = option
    existing = {target: option for target, option in seen.items() if os.path.isfile(target)}
    if not existing:
        return
    for name, word in _words(read):
        for target, option in existing.items():
            if _reads(word, target, READ_IN_FOLDERS.get(name, ())):
                raise OptionRefused(
                    f"{option} {named[option]} would overwrite what is read ({word}).",
                    remedy="another name",
                )


def _words(read: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Take the texts and paths out of a command's arguments, each with the argument's name."""
    for name, value in read.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, (str, Path)):
                yield name, str(each)


def _reads(word: str, target: Path, suffixes: Iterable[str]) -> bool:
    """Whether a word, taken for a file, a folder or a glob, stands for a file."""
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(word).expanduser()
        if path.is_dir():
            return path.resolve() in target.parents and target.suffix.lower() in suffixes
        if path.exists():
            return path.samefile(target)
        if glob.has_magic(word):
            found = glob.iglob(str(path), recursive=True)
            return any(Path(each).resolve() == target for each in found)
    return False
