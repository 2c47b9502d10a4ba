"""A definition file, built for real by each way to be root: %post runs, its failure is told, nothing is left."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from matrix import REQUIRED

from envs.apptainer import root_lacks_capabilities
from tare.core.files import cache_dir, project_root
from tare.experiments import definition_image
from tare.images.definition import ways
from tare.images.interpreter import with_interpreter
from tare.images.trial_image import trial_image
from tare.images.wheels import fetch_wheels
from tare.model.registry import environment
from tare.model.studies.stacks import load_stack

pytestmark = pytest.mark.runtime
ROOT = os.getuid() == 0
PACKAGE = "markupsafe"
POST = """
    stat -c "user %u" /proc/self > /usr/made
    cat /proc/self/uid_map > /usr/map
"""
# What %post has written must be there, and say that root ran it; of further ids there are many, or none.
AS_ROOT = """set -e; test "$(cat /usr/made)" = "user 0"
while read -r inside outside count; do ids=$count; done < /usr/map"""
PROGRAMS = {
    "namespace": ("/bin/sh", "-c", f'{AS_ROOT}\ntest "$ids" = 1'),
    "fakeroot": ("/bin/sh", "-c", f'{AS_ROOT}\ntest "$ids" -ge 65535'),
}
# A process of its own, so that it may have a mount namespace of its own, and be killed.
BUILDING = """
import json, sys
from pathlib import Path
from tare.experiments.definition_image import build_by
from tare.model.registry import environment
made = build_by(sys.argv[1], Path(sys.argv[2]), sys.argv[3:], environment("apptainer"))
print(json.dumps(made.to_json()))
"""
WITH_IDS = 'mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"'


@pytest.fixture
def definition(tmp_path):
    """Writes a definition upon the trial image, with sections behind its head."""

    def write(sections, context=None):
        context = context or tmp_path / "context"
        context.mkdir()
        (context / ways.BASE).symlink_to(trial_image().archive)
        path = context / "small.def"
        path.write_text(f"Bootstrap: docker-archive\nFrom: {ways.BASE}\n\n{sections}\n")
        return path

    return write


def build(way, path, program=("/bin/true",)):
    return definition_image.build_by(way, path, program, environment("apptainer"))


def test_post_runs_as_root_in_a_users_own_namespace(definition, tmp_path):
    path = definition(f"%files\n    small.def /usr/copied\n%post{POST}    cat /usr/copied >> /usr/made.too")
    made = build("namespace", path, PROGRAMS["namespace"])
    assert "apptainer" in REQUIRED and made.status == "ok", made.reason
    assert made.seconds > 0 and made.bytes > 0 and made.disk_bytes % 512 == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["context"]


def test_post_runs_as_root_with_further_ids_where_a_line_gives_them(definition, tmp_path):
    """Root has none in most images of machines: a line is put over the files, in a mount namespace of its own."""
    if not ROOT:
        pytest.skip("only root can give ids")
    path = definition(f"%post{POST}")
    given = tmp_path / "subuid"
    given.write_text("root:100000:65536\n")
    argv = ["unshare", "--mount", "sh", "-c", WITH_IDS, str(given), sys.executable, "-c", BUILDING, "fakeroot"]
    done = subprocess.run(
        [*argv, str(path), *PROGRAMS["fakeroot"]], cwd=project_root(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.splitlines()[-1])
    assert made["status"] == "ok", made["reason"]
    # The same program tells that a namespace without further ids is none of these.
    assert "was built, and does not run" in build("namespace", path, PROGRAMS["fakeroot"]).reason


def test_what_a_way_lacks_here_is_one_line(definition):
    path = definition(f"%post{POST}")
    user = definition_image.user_name()
    listed = any(line.split(":")[0] in (user, str(os.getuid())) for line in ways.subuid().splitlines())
    fakeroot = build("fakeroot", path)
    assert fakeroot.status == ("ok" if listed else "unavailable"), fakeroot.reason
    if not listed:
        assert "/etc/subuid" in fakeroot.reason and "usermod --add-subuids " in fakeroot.reason
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    whole = ROOT and not root_lacks_capabilities(Path("/proc/self/status").read_text(), last)
    root = build("root", path)
    assert root.status == ("ok" if whole else "unavailable"), root.reason
    assert whole or ("Requesting capability set" if ROOT else "only root builds so") in root.reason
    assert "\n" not in f"{root.reason}{fakeroot.reason}"


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            "%post\n    echo first\n    cat /no/such/file\n    echo later",
            "%post failed: cat: /no/such/file: No such file",
        ),
        ("%post\n    exit 3", "%post failed: + exit 3"),
        ("%files\n    nothing /usr/x", "%files failed: "),
        ("%test\n    exit 3", "%test failed: exit status 3"),
    ],
)
def test_a_step_that_fails_is_named_with_its_last_words(definition, tmp_path, sections, told):
    made = build("namespace", definition(sections))
    assert made.status == "unavailable" and made.reason.startswith(told) and "\n" not in made.reason, made.reason
    assert [entry.name for entry in tmp_path.iterdir()] == ["context"]


def test_nothing_is_left_of_a_build_that_was_killed():
    harness = subprocess.Popen(
        [sys.executable, "-c", "from tare.experiments.definition_image import scratch\n"
         "with scratch() as folder:\n    print(folder, flush=True); path = input()\n"
         "    import sys; sys.argv[1:] = ['namespace', path, '/bin/true']\n"
         f"    exec({BUILDING!r})"],
        cwd=project_root(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    folder = Path(harness.stdout.readline().strip())
    assert folder.parent == cache_dir("naive")
    path = folder / "context/small.def"
    path.parent.mkdir()
    (path.parent / ways.BASE).symlink_to(trial_image().archive)
    path.write_text(f"Bootstrap: docker-archive\nFrom: {ways.BASE}\n\n%post\n    sleep 86399\n")
    print(path, file=harness.stdin, flush=True)
    assert holds(sleepers) and holds(lambda: list(folder.glob("namespace-*/*/rootfs/usr")))
    harness.kill()
    harness.wait()
    assert holds(lambda: not folder.exists() and not sleepers())


def holds(condition, seconds=20.0):
    """Whether a condition comes to hold in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(found)


def sleepers():
    """The sleeping %post of the build that is killed."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            if b"86399" in words and b"python" not in words:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_the_stack_is_installed_by_the_definition_as_people_write_it():
    """The file of the checkout, with a stack of one package, which is in the lock of the current one."""
    stack, interpreter = with_interpreter(load_stack("torch-2.13", "cpu"))
    wheels = [wheel for wheel in fetch_wheels(stack).wheels if wheel.name == PACKAGE]
    small = replace(stack, name="one-package", imports=(PACKAGE,), before_imports="", keep=())
    before = set(cache_dir("naive").iterdir())
    found = definition_image.build_definitions(small, wheels, interpreter)
    assert found.builder.startswith("Apptainer ") or shutil.which("apptainer") is None
    namespace = {one.way: one for one in found.builds}["namespace"]
    assert namespace.status == "ok", namespace.reason
    lacking = definition_image.build_definitions(replace(small, imports=("torch",)), wheels, interpreter)
    namespace = {one.way: one for one in lacking.builds}["namespace"]
    assert namespace.status == "unavailable" and "No module named 'torch'" in namespace.reason
    assert set(cache_dir("naive").iterdir()) == before
