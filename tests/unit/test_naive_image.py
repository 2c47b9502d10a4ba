"""Naive images: arguments of their builds, what a failed one says, record to table and page; when building pays."""

import contextlib
import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace

import builders
import image_cost_builders
import pytest
from campaign_builders import MACHINE
from pages import visible

from envs import apptainer
from tare.analysis import image_costs
from tare.analysis.choice import of_rounds
from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root, write_json
from tare.core.process import Finished
from tare.experiments import naive_image as making
from tare.model.environment import Probe
from tare.model.records.images import NaiveImageRecord
from tare.model.schema import read
from tare.model.studies.checks import check
from tare.model.studies.loading import load_checked
from tare.report import evidence, images
from tare.stats.costs import NEVER, runs_until_paid

STACK = image_cost_builders.STACK
NAMES = ("host", "docker", "apptainer")


def table_of(folder, names=NAMES, **reasons):
    image_cost_builders.image_records(folder, names, {})
    path = folder / STACK / "naive/box/record.json"
    write_json(path, image_cost_builders.naive_record(**reasons))
    return image_costs.build("nyu2022", MACHINE, [image_costs.read_forms(folder, STACK, names, path)], None)


def shown(costs):
    """Rows of the page's table, each as texts, and its note."""
    found = images.naive_table(SimpleNamespace(image_costs=costs, study=SimpleNamespace(stack=STACK)))
    return {row[0]: tuple(getattr(cell, "text", cell) for cell in row[1:]) for row in found.rows}, found.note


# --- building


def test_no_build_has_a_network_or_a_cache(tmp_path):
    docker = making.docker_arguments(tmp_path)
    assert docker[docker.index("--network") + 1] == "none" and "--no-cache" in docker and "--pull=false" in docker
    assert docker[-1] == str(tmp_path)
    argv = making.apptainer_command(Path("/bin/apptainer"), Path("o.sif"), tmp_path, 2)
    squash = (
        f"{' '.join(apptainer.COMPRESSION)} -processors 2"  # as Tare's own .sif, or sizes could not be compared
    )
    assert argv == [
        *("unshare", "--user", "--map-root-user", "--net", "--", "/bin/apptainer", "build", "--disable-cache"),
        *("--mksquashfs-args", squash, "o.sif", str(tmp_path / "apptainer.def")),
    ]


def test_the_context_has_what_both_recipes_copy(tmp_path):
    """The interpreter without its packages, pip in their place, the lock by hash, our code."""
    root = tmp_path / "tree"
    entries = []
    for name in ("bin/python3.11", "lib/python3.11/os.py", "lib/python3.11/site-packages/numpy/__init__.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
        entries.append({"path": name, "mode": 0o755 if name.startswith("bin") else 0o644})
    entries.append({"path": "bin/python3", "link": "python3.11"})
    wheel = tmp_path / "numpy-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    wheels = [SimpleNamespace(name="numpy", version="1.0", sha256="a" * 64, path=wheel)]
    context = tmp_path / "context"
    making.write_context(context, SimpleNamespace(path=root, entries=entries), wheels)
    packages = context / "python/lib/python3.11/site-packages"
    assert [path.name for path in packages.iterdir()] == ["pip"]
    assert (context / "python/bin/python3").readlink().name == "python3.11"
    assert (context / "python/bin/python3.11").stat().st_mode & 0o111
    assert (context / "requirements.txt").read_text() == f"numpy==1.0 --hash=sha256:{'a' * 64}\n"
    assert (context / "wheels" / wheel.name).read_bytes() == b"wheel"
    copied = {line.split()[1] for line in (context / "Dockerfile").read_text().splitlines() if "COPY " in line[:5]}
    assert copied == {path.name for path in context.iterdir()} - {"Dockerfile", "apptainer.def"}


@pytest.mark.parametrize("found", [None, SimpleNamespace(origin=None)])
def test_a_python_without_pip_has_no_context(tmp_path, monkeypatch, found):
    monkeypatch.setattr(making.importlib.util, "find_spec", lambda name: found)
    with pytest.raises(UnavailableError, match="no pip"):
        making.write_context(tmp_path / "context", SimpleNamespace(path=tmp_path, entries=[]), [])
    assert not (tmp_path / "context").exists()


def test_the_definition_has_the_dockerfiles_steps():
    dockerfile, definition = (project_root() / name for name in (making.DOCKERFILE, making.DEFINITION))
    steps = [line.split(maxsplit=1) for line in dockerfile.read_text().splitlines() if line[:1].isupper()]
    lines = [line.strip() for line in definition.read_text().splitlines()]
    assert [rest for name, rest in steps if name == "RUN"] == [line for line in lines if " -m pip " in line]
    copied = {rest.split()[0] for name, rest in steps if name == "COPY"}
    files = lines[lines.index("%files") + 1 : lines.index("%post")]
    assert {line.split()[0].removesuffix("/*") for line in files if line} == copied
    assert [rest for name, rest in steps if name == "FROM"] == [making.BASE]
    assert f"From: ../{making.BASE_ARCHIVE}" in lines


POST = "FATAL:   While performing build: while running engine: while running %post section: exit status 1"
OTHER = "FATAL:   While performing build: conveyor failed to get: open b.tar: no such file"
# As Apptainer 1.4.5 prints it, and what is told of it.
PRINTED = {
    f"INFO:    Running post scriptlet\n+ cat /none\ncat: /none: No such file\n{POST}": "cat: /none: No such file",
    OTHER: OTHER,
    "unshare: unshare failed: Operation not permitted": "unshare: unshare failed: Operation not permitted",
}


@pytest.mark.parametrize(("printed", "told"), PRINTED.items())
def test_a_definition_that_fails_is_told_by_the_last_words_of_its_step(printed, told):
    ended = Finished(
        argv=("unshare",), returncode=255, stdout="", stderr=printed, started_ns=0, ended_ns=1, user_s=0.0,
        system_s=0.0, timed_out=False,
    )  # fmt: skip
    assert making.explain(ended) == f"apptainer build ended with status 255: {told}"


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Runs the command with builders of a test's own; the record."""

    def measure(**replaced):
        monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
        monkeypatch.setattr(making, "with_interpreter", lambda stack: (stack, None))
        monkeypatch.setattr(making, "fetch_fitting", lambda stack: (stack, SimpleNamespace(wheels=())))
        for name, value in replaced.items():
            monkeypatch.setattr(making, name, value)
        out = tmp_path / "naive/record.json"
        assert main(["naive-image", "--stack", STACK, "--variant", "cpu", "--out", str(out)]) == 0
        return {one.builder: one for one in read(NaiveImageRecord, out).builds}

    return measure


@pytest.mark.parametrize("step", ["fetch_fitting", "build_both"])
def test_without_packages_or_a_base_both_have_the_reason(measured, step):
    def refuse(*arguments):
        raise UnavailableError("no wheels here")

    found = measured(**{step: refuse})
    assert set(found) == {"docker", "apptainer"}
    assert {(one.status, one.reason, one.seconds) for one in found.values()} == {
        ("unavailable", "no wheels here", None)
    }


def test_a_builder_that_lacks_here_or_fails_stops_not_the_other(measured, monkeypatch):
    """And an image that does not import the stack does not count."""
    probes = {
        "docker": Probe(available=False, reason="no daemon", remedy="start it"),
        "apptainer": Probe(available=True, version="1.4.5"),
    }
    ways = {
        name: SimpleNamespace(title=name, probe=lambda p=p: p, session=contextlib.nullcontext)
        for name, p in probes.items()
    }
    image = making.Built(reference="o.sif", seconds=1.23456, bytes=512)
    monkeypatch.setattr(making, "environment", ways.__getitem__)
    monkeypatch.setattr(making, "_check", lambda adapter, reference, code: None)
    monkeypatch.setattr(
        making, "BUILDERS", dict.fromkeys(ways, lambda adapter, parts: contextlib.nullcontext(image))
    )

    def both(*arguments):
        return tuple(making._tried(name, SimpleNamespace(code="")) for name in ways)

    found = measured(build_both=both)
    assert found["docker"].reason == "no daemon (to fix it: start it)"
    assert (found["apptainer"].seconds, found["apptainer"].bytes, found["apptainer"].version) == (
        1.235,
        512,
        "1.4.5",
    )

    def useless(adapter, reference, code):
        raise UnavailableError(f"{reference} does not import the stack")

    monkeypatch.setattr(making, "_check", useless)
    assert measured(build_both=both)["apptainer"].reason == "o.sif does not import the stack"


def ended(status, seconds=2.0):
    return Finished(
        argv=("it",), returncode=status, stdout="", stderr="", started_ns=0, ended_ns=int(seconds * 1e9),
        user_s=0.0, system_s=0.0, timed_out=False,
    )  # fmt: skip


def test_a_sif_is_built_beside_its_parts_and_weighed_by_what_it_takes_on_disk(tmp_path, monkeypatch):
    calls = []

    def built(argv, *, timeout_s, env, cwd):
        calls.append((argv, env, cwd))
        (tmp_path / "naive.sif").write_bytes(bytes(range(256)) * 400)
        return ended(0)

    parts = SimpleNamespace(folder=tmp_path, context=tmp_path / "context")
    monkeypatch.setattr(making, "find_apptainer", lambda: Path("/opt/apptainer"))
    monkeypatch.setattr(making, "launcher_environment", lambda adapter: {"PATH": "/bin"})
    monkeypatch.setattr(making.os, "sched_getaffinity", {0: {1, 5, 7}}.__getitem__)
    monkeypatch.setattr(making, "run", built)
    with making._apptainer(None, parts) as found:
        taken = (tmp_path / "naive.sif").stat().st_blocks * 512
        assert (found.reference, found.seconds, found.bytes) == (str(tmp_path / "naive.sif"), 2.0, taken)
    ((argv, env, cwd),) = calls
    assert cwd == parts.context and str(tmp_path / "naive.sif") in argv
    assert f"{making.COMPRESSION} -processors 3" in argv
    assert env == {"PATH": "/bin", "APPTAINER_TMPDIR": str(tmp_path), "SINGULARITY_TMPDIR": str(tmp_path)}
    monkeypatch.setattr(making, "run", lambda *given, **named: ended(1))
    with (
        pytest.raises(UnavailableError, match="apptainer build ended with status 1"),
        making._apptainer(None, parts),
    ):
        pass
    monkeypatch.setattr(making, "find_apptainer", lambda: None)
    with pytest.raises(UnavailableError, match="is installed"), making._apptainer(None, parts):
        pass


@pytest.mark.parametrize("fails", [None, "load", "build"])
def test_docker_builds_by_the_classic_builder_and_keeps_nothing(tmp_path, monkeypatch, fails):
    calls, guarded = [], []

    def run(argv, *, timeout_s, env, check=False):
        calls.append(tuple(argv[1:3]))
        assert env == {"PATH": "/bin", "DOCKER_BUILDKIT": "0"}
        if check and argv[1] == fails:
            raise UnavailableError(f"docker {fails} failed")
        return dataclasses.replace(ended(0, 3.0), stdout="sha256:5f 12345\n")

    def at_death(what, *, commands, env):
        guarded.extend(commands)
        return contextlib.nullcontext()

    monkeypatch.setattr(making, "run", run)
    monkeypatch.setattr(making, "at_death", at_death)
    monkeypatch.setattr(making, "launcher_environment", lambda adapter: {"PATH": "/bin"})
    parts = SimpleNamespace(folder=tmp_path, context=tmp_path / "context", tag="tare:torch")
    removed = [("image", "rm"), ("image", "prune")]
    with (
        pytest.raises(UnavailableError) if fails else contextlib.nullcontext(),
        making._docker(None, parts) as found,
    ):
        assert (found.reference, found.seconds, found.bytes) == ("sha256:5f", 3.0, 12345)
        assert calls[2][0] == "build" and calls[3:] == [("image", "inspect")]
        calls.clear()
    assert calls[-2:] == removed and (fails or len(calls) == 2)
    assert [tuple(words[1:3]) for words in guarded] == removed, "so they are where this process is killed"


@pytest.mark.parametrize("status", [0, 1])
def test_an_image_counts_where_a_launch_of_it_imports_the_stack(tmp_path, monkeypatch, status):
    launches = []
    monkeypatch.setattr(making, "own_folder", lambda: contextlib.nullcontext(("one", tmp_path)))
    monkeypatch.setattr(making, "ended_with_us", lambda *given: contextlib.nullcontext())
    monkeypatch.setattr(making, "launcher_environment", lambda adapter: {})
    monkeypatch.setattr(making, "run", lambda *given, **named: ended(status))
    monkeypatch.setattr(making.os, "sched_getaffinity", {0: {7, 5}}.__getitem__)
    monkeypatch.setattr(making.resource, "getrlimit", lambda which: (1024, 4096))
    adapter = SimpleNamespace(command=launches.append)
    with pytest.raises(UnavailableError, match="import the stack") if status else contextlib.nullcontext():
        making._check(adapter, "o.sif", "import torch")
    (launch,) = launches
    assert (launch.reference, launch.argv[1:], launch.binds) == ("o.sif", ("-c", "import torch"), ())
    assert (launch.cpus, launch.nofile) == ((5, 7), 1024)


def test_both_builds_begin_with_one_base_in_one_folder_that_is_gone_afterwards(tmp_path, monkeypatch):
    seen = []

    def assemble(layers, *, config, labels, name, folder):
        (folder / making.ARCHIVE).write_text(f"{layers} {config} {labels} {name}")
        return {"tag": "naive:base"}

    def tried(builder, parts):
        seen.append((builder, parts, (parts.folder / making.BASE_ARCHIVE).read_text(), parts.context.exists()))
        return builder

    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    monkeypatch.setattr(making, "at_death", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(making, "load_recipe", lambda: {"config": "c"})
    monkeypatch.setattr(making, "build_tree", lambda *given: "a tree")
    monkeypatch.setattr(making.build, "base_for", lambda tree, recipe: SimpleNamespace(layers="l"))
    monkeypatch.setattr(making, "assemble", assemble)
    monkeypatch.setattr(making, "import_code", lambda stack: "import torch")
    monkeypatch.setattr(making, "write_context", lambda folder, tree, wheels: folder.mkdir())
    monkeypatch.setattr(making, "_tried", tried)
    assert making.build_both(None, (), None) == tuple(making.BUILDERS)
    for _, parts, archive, has_context in seen:
        assert (parts.tag, parts.code, has_context) == ("naive:base", "import torch", True)
        assert archive == f"l c {{'{making.LABEL}': '1'}} {making.BASE}" and not parts.folder.exists()


def test_an_unknown_stack_is_one_line(tmp_path, capsys):
    assert main(["naive-image", "--stack", "torch", "--out", str(tmp_path / "record.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_study_asks_for_it_and_the_default_does_not():
    assert not load_checked("config/config.yaml").naive_image
    study = load_checked("config/full.yaml")
    assert study.naive_image
    with pytest.raises(UserError, match="naive_image: it needs packages that are locked"):
        check(
            {
                **study.to_json(),
                "stack": "bound",
                "stacks": [],
                "arms": {"workloads": [], "rounds": []},
            }
        )


# --- the table and the page


def test_the_table_has_both_builds_each_number_measured_or_with_its_reason(tmp_path):
    costs = table_of(tmp_path, docker="no Docker daemon")
    rows = costs[costs["campaign"] == image_costs.NAIVE].set_index(["launch", "item"])
    assert rows["kind"].to_dict() == {
        ("docker", "naive_build_s"): "unavailable", ("docker", "naive_bytes"): "unavailable",
        ("apptainer", "naive_build_s"): "measured", ("apptainer", "naive_bytes"): "measured",
    }  # fmt: skip
    assert rows["value"].dropna().to_dict() == {
        ("apptainer", "naive_build_s"): 79.0, ("apptainer", "naive_bytes"): 651_000_000
    }  # fmt: skip
    assert set(rows.loc["docker", "reason"]) == {"no Docker daemon"}
    assert "1.4.5" in rows.loc[("apptainer", "naive_build_s"), "source"]
    assert image_costs.environments_of(costs, STACK) == list(NAMES)


def test_the_page_has_each_image_beside_ours_and_what_papers_printed(tmp_path):
    rows, note = shown(table_of(tmp_path))
    assert rows["Docker: naive Dockerfile"] == ("90.0 s", "1.60 GB")
    assert rows["Docker: Tare's image"] == ("31.0 s", "850 MB")  # tree 15 s, image 6 s, load 10 s
    assert rows["Apptainer: naive definition file"] == ("79.0 s", "651 MB")
    assert rows["Apptainer: Tare's image"] == ("39.0 s", "250 MB")
    assert rows["columbia2025: its image"] == ("199.7 s", "4.91 GB")
    assert "PyTorch built for CUDA" in note and "unavailable" not in note.lower()


def test_what_can_not_be_built_has_its_reason_under_the_table_and_what_a_study_lacks_no_row(tmp_path):
    rows, note = shown(table_of(tmp_path, ("host", "apptainer"), docker="no Docker daemon"))
    assert (
        rows["Docker: naive Dockerfile"] == ("unavailable", "unavailable") and "Docker: no Docker daemon." in note
    )
    assert "Docker: Tare's image" not in rows and rows["Apptainer: Tare's image"][0] == "39.0 s"
    image_cost_builders.image_records(tmp_path / "plain", NAMES, {})
    plain = image_costs.build("nyu2022", MACHINE, [image_costs.read_forms(tmp_path / "plain", STACK, NAMES)], None)
    assert images.naive_table(SimpleNamespace(image_costs=plain, study=SimpleNamespace(stack=STACK))) is None


def test_the_page_shows_it(page):
    text = " ".join(visible(page).split())
    assert "Apptainer: naive definition file" in text and "79.0 s" in text


@pytest.mark.parametrize("text", ["{", '{"schema": 9}', '{"schema": 2, "statsu": "ok"}'])
def test_a_damaged_record_is_refused(tmp_path, text):
    image_cost_builders.image_records(tmp_path, NAMES, {})
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match="run again"):
        image_costs.read_forms(tmp_path, STACK, NAMES, path)


# --- when it pays


@pytest.mark.parametrize(
    ("once", "low", "high", "fewest", "most"),
    [
        (100.0, 1.0, 2.0, 50, 100),
        (100.0, 3.0, 3.0, 34, 34),  # a run that is begun is whole
        (100.0, -1.0, 2.0, 50, NEVER),
        (100.0, 0.0, 2.0, 50, NEVER),
        (100.0, -2.0, -1.0, NEVER, NEVER),
        (0.0, 0.5, 1.0, 0, 0),
        (0.0, 0.0, 0.5, 0, 0),
        (0.0, -2.0, -1.0, NEVER, NEVER),
    ],
)
def test_runs_until_it_is_paid(once, low, high, fewest, most):
    found = runs_until_paid(once, low, high)
    assert (found.fewest, found.most) == (fewest, most)
    if 0 < most < math.inf:  # the formula, from the other side
        assert most * low >= once > (most - 1) * low


def test_a_cost_below_zero_and_ends_that_are_the_wrong_way_round_are_refused():
    for arguments in ((-1.0, 1.0, 2.0), (1.0, 2.0, 1.0)):
        with pytest.raises(ValueError, match="no cost and interval"):
            runs_until_paid(*arguments)


def test_a_link_moves_bits():
    assert images.Choice("image", 1.0, 125.0, 0.0, 1.0).pull_s == 10.0


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-0.744, -0.562, "Never: a run takes 0.562 to 0.744 s longer than without the image."),
        (0.0, 0.0, "Never: a run takes 0.000 s longer than without the image."),
        (-0.1, 0.5, "After 200 runs (20 days) at the earliest, perhaps never: a run saves −0.100 s to 0.500 s."),
        (0.5, 2.0, "After 50 to 200 runs (5.0 days to 20 days)."),
        (0.1, 0.1, "After 1,000 runs (100 days)."),
    ],
)  # fmt: skip
def test_the_answer_in_words(low, high, says):
    assert images.break_even_text(runs_until_paid(100.0, low, high), low, high, 10.0) == says


def test_the_defaults_are_the_verdicts_and_no_interval_gives_no_answer(tmp_path):
    root = builders.build_results(tmp_path / "results")
    found = evidence.gather(root, root, builders.STUDY)
    one = next(choice for choice in images.choices(found) if choice.title == "Docker, CNN on MNIST")
    rows = of_rounds(found.verdicts, "mnist_cnn")
    (own,) = rows[(rows["launch"] == "docker") & (rows["metric"] == "real_s")].to_dict("records")
    runs = of_rounds(found.metrics, "mnist_cnn")
    host_s = runs[(runs["launch"] == "host") & (runs["metric"] == "real_s")]["value"].median()
    assert one.low_s == pytest.approx(host_s * (1 - own["ci_high"]), abs=1e-3)
    assert one.high_s == pytest.approx(host_s * (1 - own["ci_low"]), abs=1e-3)
    assert (one.build_s, one.megabytes) == (40.0, 860.0)
    naive = {choice.title: choice for choice in images.choices(found) if "CNN on MNIST, naive" in choice.title}
    wanted = {
        "Docker, CNN on MNIST, naive image": (90.0, 1600.0),
        "Apptainer, CNN on MNIST, naive image": (79.0, 651.0),
    }
    assert {title: (choice.build_s, choice.megabytes) for title, choice in naive.items()} == wanted
    none = dataclasses.replace(found, verdicts=found.verdicts.assign(ci_low=None))
    assert images.break_even(none) is None
