"""What pyproject.toml cannot say: the pages of docs/ lie in the wheel too, where `serve` reads them."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithDocs(build_py):
    """Build the package, and copy the docs into it; an editable install reads them where they are."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "ffnprobe" / "docs"
            target.mkdir(parents=True, exist_ok=True)
            for page in sorted(Path("docs").glob("*.md")):
                shutil.copyfile(page, target / page.name)


setup(cmdclass={"build_py": BuildWithDocs})
