"""What starts jobs in runtimes of the user's own: images, users, folders that are made for a change."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from asking import a_launch

from tare.core.errors import UnavailableError
from tare.core.process import Finished
from tare.launch.place import Site
from tare.model.choices import read_choice
from tare.model.environment import Bind
from tare.weigh import changes, places
from tare.weigh.job import COPY, JobProgram
from tare.weigh.places import look
from tare.weigh.request import Request
from tare.weigh.runtimes import Apptainer, Containers, Image, runtime_of

PULLS = """#!/bin/sh
for word; do last=$word target=$before before=$word; done
echo "$last" >> "$(dirname "$0")/pulled"
echo "$last" > "$target"
"""


@pytest.fixture
def apptainer(tmp_path, monkeypatch):
    """A program that writes what it pulls into the file that it is to make."""
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(PULLS)
    program.chmod(0o755)

    def made(text):
        adapter = Apptainer(read_choice(text), {"PATH": "/usr/bin:/bin"})
        own = {"PATH": "/usr/bin:/bin"}
        adapter.inner = SimpleNamespace(program=str(program), userns=False, environment_variables=lambda: own)
        return adapter

    return made


def test_each_source_is_pulled_once_under_whatever_name(apptainer, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    texts = ("apptainer=docker://a:1", "apptainer=docker://a:2", "other=apptainer=docker://a:1 --nv")
    found = [Path(apptainer(text).find(images).reference) for text in texts]
    assert [path.read_text() for path in found] == ["docker://a:1\n", "docker://a:2\n", "docker://a:1\n"]
    assert (tmp_path / "bin/pulled").read_text().split() == ["docker://a:1", "docker://a:2"]


@pytest.mark.parametrize(
    ("told", "text", "words"),
    [
        ({}, "docker=a", ["--user", "7:8"]),
        ({"rootless": True}, "docker=a", ["--user", "0:0"]),
        ({"remaps": True}, "docker=a", ["--user", "7:8", "--userns=host"]),
        ({"remaps": True}, "docker=a --userns host", ["--user", "7:8"]),
        ({"rootless": True}, "docker=a --user 5", []),
        (None, "podman=a", ["--user", "7:8", "--userns=keep-id"]),
    ],
)
def test_a_job_is_the_users_in_each_kind_of_daemon(told, text, words):
    """The root of a rootless daemon's containers is this user, who alone may use the folder of a launch."""
    adapter = Containers(read_choice(text), {})
    if told is not None:
        adapter.inner = SimpleNamespace(known_info=SimpleNamespace(**{"rootless": False, "remaps": False, **told}))
    command = adapter.command(a_launch("one", ("true",), reference="sha256:a", uid=7, gid=8))
    named = [adapter.choice.runtime, "run", "--rm", "--interactive", "--pull=never", "--name", "one"]
    assert command[: command.index("--workdir")] == [*named, "--network", "none", *words]


def test_the_hook_stays_where_a_job_is_not_to_have_a_path_of_modules(tmp_path):
    place = SimpleNamespace(inside=tmp_path, folder=tmp_path)
    job = JobProgram(
        ("python", "train.py"),
        workdir=tmp_path,
        variables={"PYTHONPATH": "/given"},
        without=("PYTHONPATH", "OMP_NUM_THREADS"),
        hooked=True,
        python_path="/of/the/image",
    )
    assert job.argv_at(place) == ("/usr/bin/env", "-u", "OMP_NUM_THREADS", "python", "train.py")
    assert job.variables_at(place)["PYTHONPATH"] == str(tmp_path / COPY)


def test_the_last_bind_to_a_target_counts(tmp_path):
    """What a change stages stands in for what a user has bound, and for the job's folder."""
    for name in ("work", "data", "copy"):
        (tmp_path / name).mkdir()
    own, data, copy = (Bind(source=tmp_path / name, target=tmp_path / "data") for name in ("work", "data", "copy"))
    job = JobProgram(("true",), workdir=tmp_path / "work", binds=(data, copy))
    assert [bind.source.name for bind in job.shown] == ["work", "copy"]
    over = JobProgram(("true",), workdir=tmp_path / "data", binds=(own,))
    assert [bind.source.name for bind in over.shown] == ["work"]


@pytest.mark.parametrize(
    ("told", "storage"),
    [({"GraphDriver": {"Name": "vfs"}}, "vfs"), ({"GraphDriver": None}, "overlayfs"), ({}, "overlayfs")],
)
def test_what_stores_an_image_is_known_from_it_or_from_the_daemon(told, storage, monkeypatch):
    adapter = Containers(read_choice("docker=a"), {})
    adapter.inner = SimpleNamespace(known_info=SimpleNamespace(driver="overlayfs"))
    said = json.dumps([{"Id": "sha256:a", "RepoDigests": ["a@sha256:b"], **told}])
    monkeypatch.setattr(adapter, "_call", lambda *words: SimpleNamespace(ok=True, stdout=said))
    assert adapter._inspect("a") == Image(reference="sha256:a", digest="sha256:b", storage=storage)


@pytest.fixture
def job_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    (folder / "results").mkdir(parents=True)
    (folder / "train.py").write_text("pass\n")
    return folder


def test_a_copy_of_the_jobs_folder_lies_in_the_cache_and_goes(job_folder, tmp_path):
    with contextlib.ExitStack() as stack:
        copy = changes.staged(job_folder, stack)
        assert copy.is_relative_to(tmp_path / "cache") and (copy / "train.py").exists()
    assert not copy.exists()


def test_copies_of_folders_of_one_name_are_two(job_folder, tmp_path):
    other = tmp_path / "elsewhere/work"
    other.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        first, second = changes.staged(job_folder, stack), changes.staged(other, stack)
        assert first != second and (first / "train.py").exists()


def test_a_folder_is_not_copied_into_itself(job_folder, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(job_folder / "cache"))
    with contextlib.ExitStack() as stack, pytest.raises(UnavailableError, match="TARE_CACHE"):
        changes.staged(job_folder, stack)


@pytest.mark.parametrize("options", ["", " --userns"])
@pytest.mark.parametrize("lacks", [True, False])
def test_root_without_every_capability_unpacks_in_a_user_namespace(tmp_path, monkeypatch, options, lacks):
    (tmp_path / "job.sif").touch()
    monkeypatch.setattr(changes.Apptainer, "lacks_capabilities", lacks)
    said = []

    def refuse(words, **_):
        said.append(words)
        raise UnavailableError("no")

    monkeypatch.setattr(changes, "run", refuse)
    with contextlib.ExitStack() as stack, pytest.raises(UnavailableError, match="no"):
        changes.unpacked(read_choice(f"apptainer={tmp_path}/job.sif{options}"), stack)
    assert (said[0][0] == "unshare") is lacks and "--userns" not in said[0]


def test_an_image_that_was_unpacked_goes_with_folders_that_nobody_may_write(job_folder, tmp_path, monkeypatch):
    """What a link in it leads to stays as it is."""
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    sif = tmp_path / "job.sif"
    sif.touch()

    def build(words, **_):
        target = Path(words[-2])
        (target / "etc/sealed").mkdir(parents=True)
        (target / "etc/sealed/file").touch()
        (target / "var").symlink_to(mine)
        (target / "etc/sealed").chmod(0o555)
        return Finished(
            argv=tuple(words), returncode=0, stdout="", stderr="", started_ns=0, ended_ns=1, user_s=0.0,
            system_s=0.0, timed_out=False,
        )  # fmt: skip

    monkeypatch.setattr(changes, "run", build)
    with contextlib.ExitStack() as stack:
        folder = changes.unpacked(read_choice(f"apptainer={sif}"), stack)
        assert (folder / "etc/sealed/file").exists()
    assert not folder.exists() and mine.stat().st_mode & 0o777 == 0o755


def test_a_folder_that_a_daemon_does_not_see_is_refused(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    hidden = (tmp_path / "data").__eq__
    adapter = SimpleNamespace(network=None, session=contextlib.nullcontext, hides=hidden)
    monkeypatch.setattr(places, "runtime_of", lambda choice, shell: adapter)
    shown = SimpleNamespace(shown=[Bind(source=tmp_path / "data", target=tmp_path / "in")], text="docker=a")
    request = SimpleNamespace(workdir=tmp_path, binds=(), shell={})
    with contextlib.ExitStack() as stack, pytest.raises(UnavailableError) as refused:
        places.open_place(request, tmp_path, shown, None, stack)
    assert str(tmp_path / "data") in refused.value.reason


def test_the_first_look_at_an_environment_has_the_binds_of_the_job(tmp_path, monkeypatch):
    """Else a mount of its data is not seen where causes are looked for."""
    asked = []

    def run_launches(orders, way):
        asked.extend(order.program for order in orders.values())
        raise UnavailableError("enough was seen")

    monkeypatch.setattr("tare.weigh.places.run_launches", run_launches)
    (tmp_path / "data").mkdir()
    choice = read_choice("docker=img").replace(binds=(f"{tmp_path / 'data'}:/data:ro",))
    request = Request(name="job", choices=(choice,), command=("true",), workdir=tmp_path)
    with pytest.raises(UnavailableError, match="enough was seen"):
        look(request, Site(environment=runtime_of(choice, {})), choice, tmp_path / "facts")
    assert {str(bind.target) for bind in asked[0].shown} == {"/data", str(tmp_path)}
