"""Any command in every environment that works here: its result, its own folder, its limit."""

import os
from pathlib import Path

import pytest
from asked import conditions
from matrix import tried

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir
from tare.launch.place import Site
from tare.launch.program import CommandProgram
from tare.launch.run import launch
from tare.launch.trial import trial_form
from tare.model.journals.units import real_s
from tare.model.registry import environment, environment_names

pytestmark = pytest.mark.runtime
CONDITIONS = conditions(launch_timeout_s=60.0)
LOOKS = """\
set -e
read -r number < read; echo $((number * 2)) > written
: > "$HOME/h"
: > "$TMPDIR/t"
echo "$OWN"
while read -r name value _; do if [ "$name" = Uid: ]; then echo "$value"; fi; done < /proc/self/status
pwd
"""


def sh(script, **more):
    return CommandProgram(["/bin/sh", "-c", script], **more)


@pytest.fixture(params=[name for name in tried() if environment(name).transport == "binds"])
def site(request, probes):
    """A site that names an image of a shell and its tools, and nothing else."""
    name = request.param
    adapter, probe = environment(name), probes(name)
    if not probe.available:
        pytest.skip(f"{name} is unavailable here: {probe.reason}")
    reference = None
    with adapter.session():
        if adapter.contained:
            reference = trial_form(adapter).reference
        yield Site(environment=adapter, reference=reference, isolates_network=probe.isolates_network)


def test_a_command_runs_and_its_exit_status_is_its_result(site):
    good = launch(site, sh("echo hello; exit 0"), CONDITIONS)
    assert good.ok, good.reason
    assert (good.stdout, good.exit_status, good.inside) == ("hello\n", 0, None)
    assert 0 < real_s(good) < 60
    bad = launch(site, sh("echo why >&2; exit 7"), CONDITIONS)
    assert (bad.status, bad.exit_status) == ("failed", 7)
    assert bad.reason.startswith("/bin/sh ended with status 7: ") and "why" in bad.reason


def test_a_command_sees_its_own_folder_and_ends_at_its_limit(site, tmp_path):
    (tmp_path / "read").write_text("12\n")
    found = launch(site, sh(LOOKS, workdir=tmp_path, variables={"OWN": "a b=c"}), CONDITIONS)
    assert found.ok, found.reason
    assert (tmp_path / "written").read_text() == "24\n" and (tmp_path / "written").stat().st_uid == os.getuid()
    assert found.stdout.splitlines() == ["a b=c", str(os.getuid()), str(tmp_path)]
    assert not Path(cache_dir("launches"), found.launch).exists()
    late = launch(site, sh("sleep 600", workdir=tmp_path), CONDITIONS.replace(launch_timeout_s=3.0))
    assert late.status == "timeout" and late.exit_status is None


def test_its_folder_may_hold_that_of_the_launch(site):
    workdir = cache_dir("launches")
    found = launch(site, sh('echo "$HOME"; : > "$HOME/h"', workdir=workdir), CONDITIONS)
    assert found.ok, found.reason
    assert found.stdout.splitlines()[0] == str(workdir / found.launch / "home")
    assert not (workdir / found.launch).exists()


@pytest.mark.parametrize("name", [name for name in environment_names() if environment(name).transport != "binds"])
def test_what_shares_no_files_refuses_a_command(name):
    with pytest.raises(UnavailableError, match="shares no files can't run a command") as caught:
        launch(Site(environment=environment(name)), sh("exit 0"), CONDITIONS)
    assert "\n" not in str(caught.value)
