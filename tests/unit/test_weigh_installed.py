"""What the package requires is all that `tare weigh` needs: everything else may be missing."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

from tare.cli import doctor
from tare.core.files import project_root

PROJECT = tomllib.loads((project_root() / "pyproject.toml").read_text())["project"]
ONLY = """
import importlib, sys
missing = set(sys.argv[1].split(","))

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import spython.main  # by which `tare doctor` builds a trial image
for name in ("session", "compare", "gate", "words", "page"):
    importlib.import_module(f"tare.weigh.{name}")
from tare.model.choices import read_choices
from tare.weigh.runtimes import runtime_of

for one in read_choices(["host", "docker=a", "podman=a", "apptainer=a.sif", "charliecloud=/a", "venv=/a"], None):
    runtime_of(one, {})
"""


def with_theirs(requirements):
    """Names of these requirements, and of what they require."""
    named, waiting = set(), [re.split(r"[\s\[<>=;!~]", one)[0] for one in requirements]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name not in named:
            named.add(name)
            waiting += [
                re.split(r"[\s\[(<>=;!~]", one)[0] for one in metadata.requires(name) or () if "extra ==" not in one
            ]
    return named


def others(requirements):
    """Modules that are installed here, and come neither with these requirements nor with what they require."""
    named = with_theirs(requirements)
    owners = metadata.packages_distributions()
    return {
        module for module, found in owners.items() if not {one.lower().replace("_", "-") for one in found} & named
    }


def test_what_is_declared_is_enough():
    missing = others(PROJECT["dependencies"]) - {"tare", "envs"}
    assert {"pandas", "snakemake"} <= missing and "pydantic_core" not in missing
    words = [sys.executable, "-c", ONLY, ",".join(missing)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=project_root(), check=False)
    assert done.returncode == 0, done.stderr[-800:]


def test_the_doctor_does_not_look_for_a_checkout_that_is_not_there(tmp_path, monkeypatch):
    def sections():
        return {section for section, *_ in doctor._tasks()}

    assert {"data", "stacks"} <= sections()
    monkeypatch.setattr(doctor, "project_root", lambda: tmp_path)
    assert not {"data", "stacks"} & sections() and "environments" in sections()
