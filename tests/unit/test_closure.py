"""What a measurement depends on, in both directions: what must make it old, and what must not."""

import shutil
import subprocess
import sys

import pytest
from project import ROOT

from tare.core.files import sha256_text
from tare.model import closure
from tare.model.registry import environment_module, environment_names, module_names

HEADLINE = ("rounds", "mnist_cnn", ("host", "docker"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the code, which can be edited."""
    for name in ("tare", "envs", "workloads"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(closure, "project_root", lambda: tmp_path)
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path
    forget()


def forget():
    kept = (closure._followed, closure._path, closure._answers, closure._source_sha256)
    for cached in (*kept, closure._tree, closure._imported, closure._program_sha256):
        cached.cache_clear()


def edited(path, text="\nedited = 1\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + text)
    forget()


def modes():
    """The modes that main.py knows, found as the closure finds them."""
    known = {mode for kind in closure.KINDS.values() for mode in kind[0]}
    return sorted({*known, "device", closure.CO_RUNNER})


@pytest.mark.parametrize("mode", modes())
def test_each_mode_brings_its_own_module_and_no_other_modes(mode):
    own = set(closure.inside(mode, "mnist_cnn")) - set(closure.inside("no such mode", "mnist_cnn"))
    common = set.intersection(*(set(closure.inside(other, "mnist_cnn")) for other in modes()))
    assert own or mode == "train", "main.py has another form: this mode's module is not found"
    assert "tare/worker/main.py" in common and "tare/worker/memory.py" in common
    assert "tare/worker/ceilings.py" not in common and "workloads/sentiment_rnn.py" not in own | common


@pytest.mark.parametrize("mode", modes())
def test_what_is_staged_is_all_that_a_launch_imports(mode, tmp_path):
    """Every module of ours that is imported in the copy is there: nothing comes from the checkout."""
    names = closure.inside(mode, "mnist_cnn")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\nfor n in {modules!r}: __import__(n)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", closure.KINDS)
def test_every_kind_of_measurement_has_its_design_and_its_launching(kind):
    inside, design = closure.KINDS[kind]
    found = closure.measurement(kind, "mnist_cnn", ["host"])
    assert design.replace(".", "/") + ".py" in found
    assert {"tare/launch/run.py", "envs/host.py"} <= set(found)
    assert ("tare/worker/main.py" in found) == bool(inside), "a command runs nothing of the worker"
    assert not [
        name for name in found if name.startswith(("tare/report", "tare/analysis", "tare/model", "tare/stats"))
    ]


def test_an_edit_that_a_measurement_runs_makes_it_old(checkout):
    before = closure.code_sha256(*HEADLINE)
    for name in ("workloads/mnist_cnn.py", "envs/docker.py", "tare/worker/train.py", "tare/launch/run.py"):
        edited(checkout / name)
        after = closure.code_sha256(*HEADLINE)
        assert after != before, name
        before = after


def test_an_edit_elsewhere_makes_nothing_old(checkout):
    before = {kind: closure.code_sha256(kind, *HEADLINE[1:]) for kind in closure.KINDS}
    edited(checkout / "workloads/sentiment_rnn.py")
    edited(checkout / "workloads/_reviews.py")
    edited(checkout / "envs/charliecloud.py")
    for name in (
        "model/studies/arms.py",
        "report/words/labels.py",
        "stats/intervals.py",
        "datasets/prepare.py",
        "core/files.py",
    ):
        edited(checkout / "tare" / name)
    assert before == {kind: closure.code_sha256(kind, *HEADLINE[1:]) for kind in closure.KINDS}


def test_a_workloads_helper_and_an_adapters_helper_count_once_they_are_imported(checkout):
    edited(checkout / "workloads/common.py", "ONE = 1\n")
    edited(checkout / "envs/_more.py", "ONE = 1\n")
    plain = closure.code_sha256(*HEADLINE)
    edited(checkout / "workloads/common.py")
    assert closure.code_sha256(*HEADLINE) == plain
    edited(
        checkout / "workloads/mnist_cnn.py",
        "\ndef later():\n    from workloads.common import ONE\n    return ONE\n",
    )
    edited(checkout / "envs/docker.py", "\nfrom ._more import ONE\n")
    before = closure.code_sha256(*HEADLINE)
    edited(checkout / "workloads/common.py")
    between = closure.code_sha256(*HEADLINE)
    edited(checkout / "envs/_more.py")
    assert len({before, between, closure.code_sha256(*HEADLINE)}) == 3


def test_a_comment_a_docstring_a_version_or_a_touch_changes_no_program(checkout):
    before = closure.code_sha256(*HEADLINE)
    edited(checkout / "tare/worker/train.py", "\n\n# a comment\n")
    main = checkout / "tare/worker/main.py"
    main.write_text(main.read_text().replace('"""Run the launch that', '"""Run, as ever, the launch that'))
    edited(checkout / "tare/__init__.py", '__version__ = "9"\n')
    assert closure.code_sha256(*HEADLINE) == before


def test_a_module_whose_name_is_computed_is_followed_as_chosen(checkout):
    headline = closure.inside("train", "mnist_cnn")
    with_amp = closure.inside("train", "mnist_cnn", settings=["amp"])
    assert set(with_amp) - set(headline) == {"tare/worker/settings/amp.py"}
    before = closure.code_sha256(*HEADLINE)
    edited(checkout / "tare/worker/settings/layout.py")
    assert closure.code_sha256(*HEADLINE) == before
    assert closure.code_sha256(*HEADLINE, settings=["layout"]) != before


def test_a_module_that_is_no_python_is_one_line(checkout):
    (checkout / "workloads/mnist_cnn.py").write_text("def broken(:\n")
    forget()
    with pytest.raises(Exception, match=r"mnist_cnn.py line 1 is not Python"):
        closure.code_sha256(*HEADLINE)


def test_what_a_source_says_is_remembered_by_its_content(checkout, monkeypatch):
    fresh = closure.code_sha256(*HEADLINE)
    (file,) = (checkout / "cache/closure").glob("*.json")

    def parsed():
        raise AssertionError("it was parsed again")

    forget()
    with monkeypatch.context() as patched:
        patched.setattr(closure.ast, "parse", lambda *args, **kwargs: parsed())
        assert closure.code_sha256(*HEADLINE) == fresh
        edited(checkout / "tare/worker/train.py")
        with pytest.raises(AssertionError, match="parsed again"):
            closure.code_sha256(*HEADLINE)
    forget()
    after = closure.code_sha256(*HEADLINE)
    assert after != fresh
    for damaged in (file.read_bytes()[:-9], file.read_bytes().replace(b"tare.", b"tore.", 1), b"\xff", b""):
        file.write_bytes(damaged)
        forget()
        assert closure.code_sha256(*HEADLINE) == after
    digest, text = file.read_text().split("\n")
    assert sha256_text(text) == digest


def test_without_a_cache_that_may_be_written_the_hash_is_the_same(checkout, monkeypatch):
    before = closure.code_sha256(*HEADLINE)
    monkeypatch.setenv("TARE_CACHE", "/proc/nowhere")
    forget()
    assert closure.code_sha256(*HEADLINE) == before


def test_every_workload_and_environment_has_a_closure():
    for workload in module_names("workloads"):
        assert f"workloads/{workload}.py" in closure.inside("train", workload)
    on_reviews = {name for name in module_names("workloads") if "_reviews.py" in str(closure.inside("train", name))}
    assert on_reviews == {"sentiment_rnn", "sentiment_lstm", "transformer_lm"}
    for env in environment_names():
        assert f"envs/{environment_module(env)}.py" in closure.around("rounds", [env])


def test_sources_of_another_checkout_are_read_for_their_hashes_and_never_run(tmp_path):
    for name in ("tare", "envs", "workloads"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "workloads/mnist_cnn.py").open("a") as source:
        source.write("\nraise SystemExit(1)\n")
    own = closure.programs(closure.measurement("rounds", "mnist_cnn", ["host"]))
    with closure.of_checkout(tmp_path):
        other = closure.programs(closure.measurement("rounds", "mnist_cnn", ["host"]))
    assert {path for path in own if own[path] != other[path]} == {"workloads/mnist_cnn.py"}
    assert closure.programs(list(own)) == own
