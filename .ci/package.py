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
BESIDE = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
WRITTEN = {"PKG-INFO", "setup.cfg"}


def main() -> None:
    """Compare both files with what is under version control."""
    folder = Path(sys.argv[1])
    listed = ["git", "ls-files", "ffnprobe"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    package = set(tracked.stdout.split())
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    check("the wheel", inside, package)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as source:
        names = {member.name.partition("/")[2] for member in source if member.isfile()}
    inside = {name for name in names if not name.startswith("ffnprobe.egg-info/")} - WRITTEN
    check("the source distribution", inside, package | BESIDE)
    print(f"the wheel and the source distribution hold all {len(package)} files of the package")


def check(what: str, inside: set[str], wanted: set[str]) -> None:
    """Say what is missing or too much, and fail."""
    for found, word in ((wanted - inside, "lacks"), (inside - wanted, "should not hold")):
        if found:
            sys.exit(f"{what} {word} {', '.join(sorted(found))}")


if __name__ == "__main__":
    main()
