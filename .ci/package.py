"""Check what was built: the wheel holds the package, all of it and nothing else; the sdist no junk.

python .ci/package.py dist/
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What a source distribution holds beside the package.
BESIDE = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "pyproject.toml",
    "setup.py",
}
WRITTEN = {"PKG-INFO", "setup.cfg"}


def main() -> None:
    """Compare both files with what is under version control."""
    folder = Path(sys.argv[1])
    package, docs = list_files("ffnprobe"), list_files(":(glob)docs/*.md")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    check("the wheel", inside, package | {f"ffnprobe/{page}" for page in docs})
    with tarfile.open(next(folder.glob("*.tar.gz"))) as source:
        names = {member.name.partition("/")[2] for member in source if member.isfile()}
    inside = {name for name in names if not name.startswith("ffnprobe.egg-info/")} - WRITTEN
    check("the source distribution", inside, package | docs | BESIDE)
    print(f"the wheel and the source distribution hold all {len(package)} files of the package")


def list_files(pattern: str) -> set[str]:
    """List the files under version control that a pattern names."""
    listed = ["git", "ls-files", pattern]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def check(what: str, inside: set[str], wanted: set[str]) -> None:
    """Say what is missing or too much, and fail."""
    for found, word in ((wanted - inside, "lacks"), (inside - wanted, "should not hold")):
        if found:
            sys.exit(f"{what} {word} {', '.join(sorted(found))}")


if __name__ == "__main__":
    main()
