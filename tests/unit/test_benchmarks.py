"""The programs in benchmarks/: each can be loaded, and the proof writes its page. Nothing is measured here."""

from __future__ import annotations

import importlib.util
import json
import random
import sys

import campaign_builders as builders
import pytest

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model.schema import parse
from tare.model.studies.layout import campaign_name

BENCHMARKS = project_root() / "benchmarks"


def load(name, patch):
    """A program as a module, which finds the other programs as it does when it is run."""
    patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_program_can_be_loaded_and_says_what_it_does(name, monkeypatch):
    assert load(name, monkeypatch).__doc__


def test_the_proof_writes_the_sections_and_tables_of_its_page(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["proof.py", "--campaigns", "2", "--out", str(tmp_path / "proof.md")])
    load("proof", monkeypatch).main()
    page, written = (path.read_text() for path in (project_root() / "docs/proof.md", tmp_path / "proof.md"))
    assert outline(written) == outline(page)
    section = "## Sliced rounds, simulated"  # of recorded simulations: it is the same each time
    assert written[written.index(section) :] == page[page.index(section) :]


EPOCHS = 10


def write_rounds(folder, *, epochs=1, more=1.0, units=8):
    """A sealed campaign of the host and Docker, where the epochs take `more` times as long; returns its parent."""
    factors = {
        "host": {"epoch_rest": epochs},
        "docker": builders.FACTORS["docker"] | {"epoch_rest": epochs * more},
    }
    own = random.Random(epochs)
    plan, rows = builders.rounds_campaign("nyu2022", "mnist_cnn", list(factors), {}, units, own, factors)
    plan["spec"]["epochs"] = epochs
    path = folder / builders.MACHINE / "mnist_cnn" / campaign_name("rounds", factors)
    path.mkdir(parents=True)
    builders.write_campaign(path, plan, rows)
    return path.parent


@pytest.mark.parametrize(("more", "agrees"), [(builders.FACTORS["docker"]["step"], True), (1.4, False)])
def test_what_a_long_job_costs_is_held_against_its_forecast(more, agrees, monkeypatch, tmp_path, capsys):
    program = load("job_length", monkeypatch)
    options = ["--environments", "docker", "--out", str(tmp_path / "long")]
    options += ["--campaigns", str(write_rounds(tmp_path / "short"))]
    write_rounds(tmp_path / "long", epochs=EPOCHS, more=more)
    monkeypatch.setattr(sys, "argv", ["job_length.py", *options])
    assert program.main() == (0 if agrees else 1)
    told = capsys.readouterr().out
    assert "| mnist_cnn, docker | 10 epochs, 8 rounds | 14.0 s |" in told
    assert told.endswith(f"| {'yes' if agrees else 'no'} |\n")


def test_long_runs_of_other_epochs_or_too_few_are_refused(monkeypatch, tmp_path):
    program = load("job_length", monkeypatch)
    options = ["--environments", "docker", "--out", str(tmp_path / "long")]
    options += ["--campaigns", str(write_rounds(tmp_path / "short"))]
    write_rounds(tmp_path / "long", epochs=EPOCHS, units=1)
    for more, said in (["--epochs", "3"], "has runs of 10 epochs"), ([], "too few complete rounds"):
        monkeypatch.setattr(sys, "argv", ["job_length.py", *options, *more])
        with pytest.raises(UserError, match=said):
            program.main()


def test_a_sliced_launch_is_alive_until_the_clock_says_that_it_ended(monkeypatch):
    _, rows = builders.rounds_campaign("s", "mnist_cnn", ["host", "docker"], {}, 1, random.Random(1))
    launches = list(builders.in_slices(rows[0])["launches"].values())
    spans_s = load("harness", monkeypatch).spans_s
    ends = max(one["slices"]["end_ns"] for one in launches) - launches[0]["spawn_ns"]
    own_s = max(one["end_ns"] for one in launches) - launches[0]["spawn_ns"]
    assert spans_s([*launches, {"status": "skipped"}]) == pytest.approx(ends / 1e9) and ends > 1.5 * own_s


def outline(page):
    """Headings, heads of tables, and how a row begins."""
    lines = page.splitlines()
    heads = {number - 1 for number, line in enumerate(lines) if line.startswith("| --- ")}
    rows = (line if number in heads else line.split("|")[1] for number, line in enumerate(lines) if "|" in line[:1])
    return [line for line in lines if line.startswith("#")], list(rows)


ALL = {"ratio": 1 / 1.1, "low": 1 / 1.12, "high": 1 / 1.08, "rounds": 6}
HALF = {"ratio": 0.95, "low": 0.94, "high": 0.96, "rounds": 6}


@pytest.mark.parametrize(
    ("planted", "confirmed", "gained", "passed"),
    [
        ("threads", ["threads"], ALL, True),
        ("threads", ["threads"], HALF, False),
        ("threads", ["threads", "affinity"], ALL, False),
        ("threads", ["affinity"], ALL, False),
        ("threads", [], ALL, False),
        (None, [], ALL, True),
        (None, ["threads"], ALL, False),
    ],
)
def test_a_planted_cause_has_to_be_the_one_that_is_confirmed(planted, confirmed, gained, passed, monkeypatch):
    program = load("weigh_planted", monkeypatch)
    causes = [
        {"cause": name, "title": "", "finding": "confirmed", "gained": gained, "share": 0.9} for name in confirmed
    ]
    run = {"ratio": 1.1, "low": 1.08, "high": 1.12, "rounds": 6}
    weighed = {"name": "b", "text": "", "status": "weighed", "verdict": "different", "run": run, "causes": causes}
    given = {name: "" for name in ("tare", "at", "workdir", "machine", "reference", "reference_text")}
    given |= {"command": ["a"], "confidence": 0.95, "margin": 0.02, "rounds": 6, "minutes": 1, "budget_minutes": 1}
    answer = {**given, "reference_s": {}, "control": None, "environments": [weighed]}
    case = program.Planted(cause=planted, job="plain", reference="", environment="")
    assert program.judged(case, parse(program.Answer, answer, "an answer"))["passed"] is passed


@pytest.mark.parametrize(
    ("a", "b", "printed", "welch"),
    [
        ([1.0, 1.01, 1.02], [1.05, 1.06, 1.07], 1, 1),
        ([1.05, 1.06, 1.07], [1.0, 1.01, 1.02], -1, -1),
        ([1.0, 1.03, 1.06], [1.05, 1.08, 1.11], 0, 0),
    ],
)
def test_what_hyperfine_exports_is_read_with_its_direction(a, b, printed, welch, monkeypatch, tmp_path):
    program = load("weigh_comparison", monkeypatch)
    runs = [[{"time_wall_clock": {"value": value, "unit": "second"}} for value in each] for each in (a, b)]
    (tmp_path / "times.json").write_text(json.dumps({"results": [{"measurements": each} for each in runs]}))
    monkeypatch.setattr(program, "called", lambda words, folder: "")
    bench = program.Bench(hyperfine="", pyperf="", seconds=60.0, run_s=1.0, job=tmp_path / "job.py")
    said = bench.hyperfine_(0.03, tmp_path)
    assert (said["hyperfine printed"].claim, said["hyperfine welch"].claim) == (printed, welch)
    assert (said["hyperfine printed"].ratio > 1) == (sum(b) > sum(a))
    assert said["hyperfine welch"].low < said["hyperfine welch"].ratio < said["hyperfine welch"].high


@pytest.mark.parametrize(
    ("told", "claim"), [("Mean +- std dev: 1.06x slower", 1), ("1.02x faster", -1), ("not significant!", 0)]
)
def test_what_pyperf_says_is_read(told, claim, monkeypatch, tmp_path):
    program = load("weigh_comparison", monkeypatch)
    for name, values in (("a", [1.0, 1.1]), ("b", [2.0, 2.2])):
        runs = [{"metadata": {}}, {"values": values}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"benchmarks": [{"runs": runs}]}))
    monkeypatch.setattr(program, "called", lambda words, folder: told)
    bench = program.Bench(hyperfine="", pyperf="", seconds=60.0, run_s=1.0, job=tmp_path / "job.py")
    assert bench.pyperf_(0.03, tmp_path)["pyperf"] == program.Said(
        ratio=pytest.approx(2.0), low=None, high=None, claim=claim
    )


def test_measurements_that_are_there_are_not_made_again(monkeypatch):
    program = load("weigh_comparison", monkeypatch)
    every = list(program.missing([], 2))
    assert len(every) == len(set(every)) == 2 * len(program.TOOLS) * len(program.TRUTHS)
    rows = [dict(zip(("repetition", "tool", "truth"), one, strict=True)) for one in every[:5]]
    assert list(program.missing(rows, 2)) == every[5:]


def test_the_picture_of_past_runs_has_every_command(monkeypatch, tmp_path):
    history = load("history", monkeypatch)
    found = history.observed()
    assert {"make report", "make test"} <= set(found) and min(map(len, found.values())) > 1
    drawn = history.style.write(history.drawing(found), tmp_path / "history.svg").read_text()
    kept = (project_root() / "docs/history.svg").read_text()
    for name in found:
        assert f">{name}<" in drawn and f">{name}<" in kept, "run benchmarks/history.py"
