"""Has a wheel hold what commands read of the checkout and no package has: studies, stacks, published numbers.

They are in tare/checkout/ there, where tare.core.places.data_root finds them. A checkout has no such folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

PACKED = (
    "config", "containers/libraries", "containers/stacks", "notebooks",
    "papers/findings.csv", "papers/findings.sha256",
)  # fmt: skip
FOLDER = "tare/checkout"


class WithFiles(build_py):
    """Copies them after the packages; an installation that is a link to the checkout needs no copy."""

    def run(self) -> None:
        """Build the packages, then copy."""
        super().run()
        if not self.editable_mode:
            copy(Path.cwd(), Path(self.build_lib, FOLDER))


def copy(checkout: Path, folder: Path) -> None:
    """Copy what is packed into a folder, which holds nothing else afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in PACKED:
        source, target = checkout / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        else:
            shutil.copyfile(source, target)
