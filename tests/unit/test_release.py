"""What a release consists of: wheel, source distribution, recipes, citation, versions. Where `tare` can't run."""

import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from project import ROOT, copy_checkout
from test_optimise import grid_cells, record, written
from test_syntax import pythons
from test_weigh_installed import with_theirs

import tare
from tare.archive import members
from tare.cli import doctor, optimise, verify
from tare.machine import facts
from tare.weigh.answer import Answer

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = PROJECT["dependencies"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
ZENODO = json.loads((ROOT / ".zenodo.json").read_text())
RECIPE = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
CONTAINERFILE = (ROOT / "containers/tare/Containerfile").read_text()
JOB = yaml.safe_load((ROOT / "containers/tare/job.yaml").read_text())
PACKED = runpy.run_path(str(ROOT / "wheel_files.py"))["PACKED"]
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
PACKAGES = ("tare", "envs", "workloads", "snakemake_logger_plugin_tare")


def build(what, source, folder):
    """A distribution that setuptools builds from a folder."""
    words = [sys.executable, "-c", BUILD, what, str(folder)]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    (found,) = folder.glob("*.whl" if what == "build_wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution of the checkout, and the wheel that is built from what that unpacks to."""
    folder = tmp_path_factory.mktemp("built")
    checkout = copy_checkout(folder / "checkout")
    tracked = {path.relative_to(checkout).as_posix() for path in checkout.rglob("*") if path.is_file()}
    sdist = build("build_sdist", checkout, folder)
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    wheel = build("build_wheel", source, folder)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return SimpleNamespace(tracked=tracked, sdist=sdist, wheel=wheel, site=folder / "site", checkout=checkout)


def names_in(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def installed(built, folder, *words, script="import sys; from tare.__main__ import main; sys.exit(main())"):
    """A command of the wheel, in a folder, with the packages of this Python."""
    environment = {**os.environ, "PYTHONPATH": str(built.site), "TARE_LOCKS": str(folder)}
    command = [sys.executable, "-P", "-c", script, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_version_is_the_same_everywhere():
    told = (PROJECT["version"], CITATION["version"], ZENODO["version"], RECIPE["context"]["version"])
    assert set(told) == {tare.__version__}
    assert f"\n## [{tare.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_a_release_is_of_the_tag_that_its_version_says():
    words = [ROOT / ".ci/release", "v0.9"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"release: the tag is 'v0.9', and tare/__init__.py has {tare.__version__}: "
        f"call .ci/release v{tare.__version__}\n"
    )


def test_a_tag_releases_what_was_tried():
    pipeline = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert pipeline[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true
    (job,) = pipeline["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    tried, published = (
        next(k for k, one in enumerate(commands) if word in one) for word in (".ci/release", "dist/*")
    )
    assert tried < published and "pypi" not in "".join(commands)


def test_a_source_distribution_is_the_checkout(built):
    with tarfile.open(built.sdist) as packed:
        files = {one.name.partition("/")[2]: one for one in packed if one.isfile()}
    made = {name for name in files if name in ("PKG-INFO", "setup.cfg") or name.startswith("tare.egg-info/")}
    assert set(files) - made == built.tracked
    assert {"Snakefile", "rules/runs.smk", "requirements/run.txt", "profiles/default/profile.yaml"} <= set(files)
    assert files[".ci/run"].mode & 0o100 and files[".ci/release"].mode & 0o100


def test_a_wheel_has_the_packages_and_what_they_read_of_the_checkout(built):
    names = {name for name in names_in(built.wheel) if ".dist-info/" not in name}
    packed = {name for name in built.tracked if any(name == one or name.startswith(f"{one}/") for one in PACKED)}
    assert {name.removeprefix("tare/checkout/") for name in names if name.startswith("tare/checkout/")} == packed
    packages = {name for name in built.tracked if name.startswith(tuple(f"{one}/" for one in PACKAGES))}
    assert {name for name in names if not name.startswith("tare/checkout/")} == packages
    assert "py3-none-any" in built.wheel.name


def test_metadata_name_systems_and_pythons_and_no_made_up_address(built):
    with zipfile.ZipFile(built.wheel) as packed:
        (place,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        told = message_from_bytes(packed.read(place))
        scripts = packed.read(place.replace("METADATA", "entry_points.txt")).decode()
    assert sorted(told["Requires-Python"].split(",")) == ["<3.14", ">=3.11"]
    assert "Operating System :: POSIX :: Linux" in told.get_all("Classifier")
    assert (told["License-Expression"], told["License-File"]) == ("MIT", "LICENSE")
    assert told["Summary"] and "Tare weighs the container" in told.get_payload()
    assert "tare = tare.__main__:main" in scripts
    assert told.get_all("Project-URL") is None and "repository-code" not in CITATION  # both come with the address
    minors = {word.rpartition(".")[2] for word in told.get_all("Classifier") if "Python :: 3." in word}
    assert minors == {"11", "12", "13"}


def test_the_wheel_weighs_a_job_elsewhere(built, tmp_path):
    done = installed(built, tmp_path, "weigh", "--env", "host", "--no-causes", "--minutes", "0.01", "--", "true")
    assert done.returncode == 0 and "host again" in done.stdout, done.stderr[-800:]
    kept = {path.name for path in (tmp_path / "results/weigh/job").iterdir()}
    assert {"answer.json", "campaign", "index.html"} <= kept


def test_the_wheel_plans_and_predicts_without_a_checkout(built, tmp_path):
    done = installed(built, tmp_path, "plan")
    assert done.returncode == 0 and "mnist_cnn rounds." in done.stdout, done.stderr[-800:]
    here = {"processor": facts.processor_name("cpu")}
    record().replace(**here).write(tmp_path / "target.json")
    for number, one in enumerate(grid_cells()):
        one.replace(**here).write(tmp_path / "grid" / f"{number}.json")
    request = written(tmp_path, "{workload: mnist_cnn}")
    places = ("--target", "target.json", "--grid", "grid")
    done = installed(built, tmp_path, "optimise", str(request), *places, "--json")
    assert done.returncode == 0, done.stderr[-800:]
    found = json.loads(done.stdout)
    assert found["schema"] == optimise.SCHEMA and found["ranked"][0]["candidate"]["env"] == "host"


# What `tare verify` reads besides the archive.
READ = """
from tare.model import datasheet
from tare.model.studies import loading, papers, stacks
from tare.report import notebooks

assert papers.refuse_stale(papers.paper_names()).is_file() and len(papers.paper_names()) == 4
assert stacks.load_stack("torch-2.13").requirements and loading.load_checked("config/smoke.yaml").study == "smoke"
assert datasheet.load() and "why" in notebooks.names()
"""


def test_the_wheel_has_what_a_check_of_an_archive_reads(built, tmp_path):
    done = installed(built, tmp_path, script=READ)
    assert done.returncode == 0, done.stderr[-800:]


def test_a_study_that_is_not_there_is_refused_as_in_a_checkout(built, tmp_path):
    done = installed(built, tmp_path, "plan", "--study", "config/smok.yaml")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("tare: there is no study file config/smok.yaml: there are ")


def test_a_package_that_is_missing_is_named_with_the_extra(built, tmp_path):
    script = "import sys; sys.modules['numpy'] = None; from tare.__main__ import main; sys.exit(main())"
    done = installed(built, tmp_path, "plan", script=script)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "has no numpy: install Tare with its extra `workflow`" in done.stderr


# --- recipes


def test_the_conda_recipe_requires_what_the_package_does():
    wanted = {Requirement(one) for one in REQUIRED}
    run = RECIPE["requirements"]["run"]
    python = f"python {','.join(sorted(PROJECT['requires-python'].split(','), reverse=True))}"
    assert python in run and python in RECIPE["requirements"]["host"] and "__linux" in run
    assert {Requirement(one) for one in run if one not in (python, "__linux")} == wanted
    assert RECIPE["build"]["noarch"] == "python"
    own = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == own
    assert RECIPE["about"]["summary"] == PROJECT["description"] and RECIPE["about"]["license"] == PROJECT["license"]
    assert (ROOT / "conda" / RECIPE["source"]["path"]).resolve() == ROOT


def test_the_image_of_tare_has_the_pinned_base_and_no_root():
    base = yaml.safe_load((ROOT / "containers/recipe.yaml").read_text())["base"]["registry"]
    lines = CONTAINERFILE.splitlines()
    assert f"ARG BASE=python:{base['tag']}@{base['digest']}" in lines
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    assert 'ENTRYPOINT ["tare"]' in lines
    assert "--require-hashes --requirement /install/lock.txt" in CONTAINERFILE


def test_the_image_of_tare_has_the_locked_packages_that_it_takes():
    names = re.search(r'^ARG PACKAGES="(.*)"$', CONTAINERFILE, re.M)[1]
    assert set(names.split()) == with_theirs(REQUIRED)
    program = re.search(r"^RUN (awk .*) > /lock\.txt$", CONTAINERFILE, re.M)[1]
    words = ["sh", "-c", program]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PACKAGES": names}, capture_output=True, text=True)
    whole = (ROOT / "requirements/run.txt").read_text()
    assert [line.partition("==")[0] for line in done.stdout.splitlines() if "==" in line] == names.split()
    entries = [entry for entry in re.split(r"\n(?=\S)", done.stdout.rstrip("\n"))]
    assert all(entry in whole and "--hash=sha256:" in entry and not entry.endswith("\\") for entry in entries)


def test_what_the_image_copies_is_enough_for_the_same_wheel(built, tmp_path):
    """The first stage, by its instructions, without a runtime."""
    stage = CONTAINERFILE.partition("AS build\n")[2].partition("\nFROM ")[0]
    source = tmp_path / "source"
    for line in re.findall(r"^COPY (.*)$", stage, re.M):
        *names, target = line.split()
        for name in names:
            place = source / target / Path(name).name if target.endswith("/") else source / target
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(built.checkout / name)
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-rL", str(source), str(copied)], check=True)
    assert names_in(build("build_wheel", copied, tmp_path)) == names_in(built.wheel)


def test_the_job_of_kubernetes_is_guaranteed_and_has_no_root():
    kubernetes_validate.validate(JOB, "1.25", strict=True)
    pod = JOB["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert "WORKDIR /job" in CONTAINERFILE and {"name": "work", "mountPath": "/job"} in container["volumeMounts"]


# --- citation, catalogue, compatibility


def test_zenodo_and_the_citation_say_the_same():
    assert ZENODO["title"] == CITATION["title"] and ZENODO["description"] == CITATION["abstract"].strip()
    assert ZENODO["creators"] == CITATION["authors"] == PROJECT["authors"]
    assert ZENODO["keywords"] == CITATION["keywords"] == PROJECT["keywords"]
    assert ZENODO["license"] == CITATION["license"] == PROJECT["license"]
    assert ZENODO["upload_type"] == CITATION["type"] == "software"


def test_the_catalogue_of_workflows_lists_it_as_a_generic_one():
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme and "workflow" in readme
    assert (ROOT / "Snakefile").is_file() and any((ROOT / "rules").glob("*.smk"))
    assert (ROOT / "config/README.md").is_file()
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    # When this is there, say so in CONTRIBUTING.md and in the catalogue's file.
    assert not (ROOT / "workflow").exists()


def test_the_page_on_compatibility_names_the_versions_of_the_code():
    page = (ROOT / "docs/compatibility.md").read_text()
    rows = re.findall(r"^\| `([^`]+)`.*\| `(schema|format)` (\d+) \|$", page, re.M)
    assert {name: (key, int(number)) for name, key, number in rows} == {
        "answer.json": ("schema", Answer.VERSION),
        "archive.json": ("format", members.FORMAT),
        "tare verify --json": ("format", verify.FORMAT),
        "tare optimise --json": ("schema", optimise.SCHEMA),
        "tare doctor --json": ("schema", doctor.SCHEMA),
    }


# --- where it can't run


ELSEWHERE = """
import sys
sys.platform = {platform!r}
sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "resource", "tare.cli", "tare.core")))
from tare.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(("platform", "name"), [("win32", "Windows"), ("darwin", "macOS"), ("sunos5", "sunos5")])
def test_on_another_system_it_is_one_line(platform, name):
    """Windows has none of these modules."""
    words = [sys.executable, "-c", ELSEWHERE.format(platform=platform)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith(f"tare: Tare runs on Linux, and this is {name}: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10"])
def test_an_older_python_that_is_here_says_one_line(version):
    python = pythons((version,)).get(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    ended = subprocess.run([python, "-m", "tare", "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "needs CPython 3.11 to 3.13, and" in ended.stderr and ended.stderr.count("\n") == 1


def test_help_loads_none_of_what_commands_take():
    script = "import sys; from tare.cli.main import build_parser; build_parser().format_help(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "pandas", "pydantic", "yaml", "scipy", "jinja2", "asyncio", "email", "subprocess"}
