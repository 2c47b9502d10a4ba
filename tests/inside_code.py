"""What runs inside, in a folder of its own with files of a test added, run without any launching around it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.core.files import project_root

SLOW_STEP = Path(__file__).with_name("inside") / "slow_step.py"
ANSWER_S = 120.0


def code_folder(target: Path, files: Mapping[str, str]) -> Path:
    """The worker and the workloads in `target`, with `files` (text by path) over them."""
    root = project_root()
    for name in ("tare/worker", "workloads"):
        shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(root / "tare/__init__.py", target / "tare/__init__.py")
    for name, text in files.items():
        (target / name).write_text(text)
    return target


def without_torch(folder: Path) -> tuple[str, dict[str, str]]:
    """An interpreter that has numpy and no other package, and the environment in which it is so."""
    import numpy

    packages = Path(numpy.__file__).parent.parent
    folder.mkdir()
    for path in packages.glob("numpy*"):
        (folder / path.name).symlink_to(path)
    python = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    return python, {"PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1", "PATH": os.defpath}


class Inside:
    """Launches of one code folder by one interpreter, each in a folder of its own."""

    def __init__(
        self, code: Path, folder: Path, python: str = sys.executable, variables: Mapping[str, str] | None = None
    ) -> None:
        self.code, self.folder, self.python = code, folder, python
        self.variables = {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1", **(variables or {})}
        self.defaults: dict[str, Any] = {
            "seed": 1, "device": "cpu", "threads": 1, "loader_workers": 0, "data": "/nowhere",
        }  # fmt: skip
        self.count = 0

    def prepare(self, spec: Mapping[str, Any]) -> list[str]:
        """Write a specification; returns the command."""
        self.count += 1
        self.own = self.folder / f"launch-{self.count}"
        self.own.mkdir(parents=True)
        paths = {"record": str(self.own / "record.json"), "trace": str(self.own / "trace.json")}
        (self.own / "spec.json").write_text(json.dumps({**self.defaults, **paths, **spec}))
        return [self.python, "-s", str(self.code / "tare/worker/main.py"), str(self.own / "spec.json")]

    def record(self) -> dict[str, Any]:
        """What the last launch wrote."""
        return json.loads((self.own / "record.json").read_text())

    def run(self, **spec: Any) -> dict[str, Any]:
        """A launch from its start to its end; returns its record."""
        argv = self.prepare(spec)
        done = subprocess.run(argv, env=self.variables, capture_output=True, text=True, timeout=ANSWER_S)
        assert (self.own / "record.json").exists(), done.stderr[-3000:]
        return self.record()
