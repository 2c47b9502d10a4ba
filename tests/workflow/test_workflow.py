"""The workflow itself: format, lint, plans, one broken environment, the documentation's own examples."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from project import ROOT, code_blocks, copy_checkout, snakemake, tare

pytestmark = pytest.mark.workflow

# Findings of `snakemake --lint` that we accept, with the reason.
ACCEPTED_LINTS = {
    "Specify a conda environment or container for each rule": "environments are measured: adapters launch them",
    "No log directive defined": "targets that run nothing",
    "Absolute path": "none is written; it is a slash in a message",
    "Mixed rules and functions in same snakefile": "common.smk holds the helpers; the loop makes one target each",
    "Path composed with '+'": "a plus sign in a name, not a path",
}

BROKEN = '''"""An environment that passes its probe and fails every launch, on purpose."""

from pathlib import Path

from tare.adapters import Environment, Launch, OciImage, Prepared, Probe
from tare.registry import register


@register("broken")
class Broken(Environment):
    """Fails."""

    title = "Broken on purpose"
    description = "Every launch ends with status 7."
    contained = False

    def probe(self) -> Probe:
        return Probe(available=True, version="0")

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        return Prepared(reference=str(image.tree), bytes=None)

    def command(self, launch: Launch) -> list[str]:
        return ["sh", "-c", "echo fatal: broken on purpose >&2; exit 7"]
'''

TINY = {
    "study": "tiny",
    "environments": ["host", "namespaces", "broken"],
    "rounds": {"units": 2, "discarded": 0},
    "profile": {"warmup_steps": 1, "steps": 2},
    "ceilings": {"working_sets_kib": [256], "gemm_sizes": [128], "repetitions": 1},
}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of the project in a path with a space."""
    return copy_checkout(tmp_path_factory.mktemp("with space") / "tare")


@pytest.fixture(scope="session")
def extended(tmp_path_factory):
    """A copy with the documentation's environment and workload, and a broken environment, run to its report."""
    folder = copy_checkout(tmp_path_factory.mktemp("extended") / "tare")
    (folder / "envs/namespaces.py").write_text(code_blocks("add-an-environment.md", "python")[0])
    (folder / "workloads/softmax_mnist.py").write_text(code_blocks("add-a-workload.md", "python")[0])
    (folder / "envs/broken.py").write_text(BROKEN)
    study = yaml.safe_load((folder / "config/config.yaml").read_text())
    study |= {key: {**study[key], **value} if isinstance(value, dict) else value for key, value in TINY.items()}
    study["workloads"] = yaml.safe_load(code_blocks("add-a-workload.md", "yaml")[0])["workloads"]
    (folder / "config/config.yaml").write_text(yaml.safe_dump(study))
    snakemake(folder, "--cores", "1", "all")
    return folder


def test_snakefiles_are_formatted():
    files = [str(ROOT / "Snakefile"), *map(str, sorted((ROOT / "rules").glob("*.smk")))]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("snakefmt")), "--check", *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_lint_finds_nothing_but_what_we_accept(checkout):
    done = snakemake(checkout, "--lint", "json", check=False)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    titles = {lint["title"] for part in found.values() for entry in part for lint in entry.get("lints", [])}
    assert not titles - set(ACCEPTED_LINTS), titles


@pytest.mark.parametrize("preset", ["config", "smoke", "thorough"])
def test_every_preset_plans(checkout, preset):
    done = snakemake(checkout, "-n", "--cores", "1", "all", "--configfile", f"config/{preset}.yaml")
    assert "run_rounds" in done.stdout + done.stderr


def test_one_environment_touches_nothing_of_the_others(checkout):
    done = snakemake(checkout, "-n", "--cores", "1", "--quiet", "rules", "docker")
    done = snakemake(checkout, "-n", "--cores", "1", "--summary", "docker")
    files = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert any("docker" in name for name in files)
    assert not [name for name in files if any(other in name for other in ("apptainer", "charliecloud", "podman"))]
    assert any("docker+host" in name for name in files)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "enviroments=[host]"], "did you mean 'environments'"),
        (["--config", "rounds={units: -1}"], "rounds: units: -1"),
        (["--config", "environments=[host, dokcer]"], "did you mean 'docker'"),
    ],
)
def test_bad_configuration_is_one_clear_line(checkout, arguments, says):
    done = snakemake(checkout, "-n", "--cores", "1", "all", *arguments, check=False)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert says in output
    assert "Traceback" not in output


def test_a_broken_environment_never_stops_the_others(extended):
    verdicts = pd.read_csv(extended / "results/tiny/tables/verdicts.csv")
    real = verdicts[verdicts["metric"] == "real_s"].set_index("env")
    assert real.loc["namespaces", "n_units"] == 2
    assert real.loc["broken", "n_units"] == 0
    assert real.loc["broken", "verdict"] == "inconclusive"
    metrics = pd.read_csv(extended / "results/tiny/tables/metrics.csv")
    broken = metrics[(metrics["env"] == "broken") & (metrics["metric"] == "real_s")]
    assert set(broken["kind"]) == {"unavailable"}
    assert broken["reason"].str.contains("broken on purpose").all()
    page = (extended / "results/tiny/report/index.html").read_text()
    assert "broken on purpose" in page


def test_the_documentations_environment_and_workload_reach_the_report(extended):
    page = (extended / "results/tiny/report/index.html").read_text()
    assert "Softmax regression on MNIST" in page
    assert "Namespaces" in page


def test_a_second_run_has_nothing_to_do_and_says_so_quickly(extended):
    started = time.monotonic()
    done = snakemake(extended, "-n", "--cores", "1", "all")
    assert time.monotonic() - started < 30  # 5 s on an idle machine: benchmarks/ measures it
    assert "nothing to be done" in (done.stdout + done.stderr).lower()


def test_editing_a_figure_reruns_no_measurement_and_editing_a_workload_does(extended, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(extended, folder, symlinks=True)
    for path in sorted((folder / "tare/figures").glob("*.py")):
        path.write_text(path.read_text() + "\n# edited\n")
    planned = snakemake(folder, "-n", "--cores", "1", "all").stdout
    assert "run_rounds" not in planned and "run_profile" not in planned
    workload = folder / "workloads/softmax_mnist.py"
    workload.write_text(workload.read_text() + "\n# edited\n")
    planned = snakemake(folder, "-n", "--cores", "1", "all")
    assert "run_rounds" in planned.stdout + planned.stderr


def test_an_unwritable_or_full_place_is_one_line(checkout, tmp_path):
    done = tare(checkout, "machine", "--out", "/proc/nowhere/machine.json")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("tare: ")
