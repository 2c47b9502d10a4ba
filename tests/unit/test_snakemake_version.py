"""The oldest Snakemake that the workflow accepts is the first with all that it uses; the locked one is no older."""

import re
from importlib import metadata

from packaging.version import Version
from project import ROOT

# Which release brought what we use: the first wheel that has it, of the releases on either side of the change.
BROUGHT = {
    "pathvars": "9.12.0",  # 9.11.9 has no snakemake/pathvars.py, and no such keyword
    "profile.yaml": "9.19.0",  # 9.18.2 looks for config.yaml alone in a profile's folder, and ends there
}


def asked_for() -> Version:
    (found,) = re.findall(r'^min_version\("([0-9.]+)"\)', (ROOT / "Snakefile").read_text(), re.MULTILINE)
    return Version(found)


def test_the_workflow_uses_what_is_listed():
    assert re.search(r"^pathvars:$", (ROOT / "Snakefile").read_text(), re.MULTILINE)
    assert [path.name for path in (ROOT / "profiles/default").iterdir()] == ["profile.yaml"]


def test_the_oldest_snakemake_is_the_one_that_brought_the_last_of_it():
    assert asked_for() == max(map(Version, BROUGHT.values()))


def test_the_locked_snakemake_is_no_older():
    (found,) = re.findall(r"^snakemake==(\S+)", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE)
    assert Version(found) >= asked_for()


def test_the_installed_snakemake_is_no_older():
    assert Version(metadata.version("snakemake")) >= asked_for()
