"""Workflows that run: in whichever folder, and beside a dry run."""

import json
import platform
import subprocess

from tare.machine import workflow_lock


def locked_folder(folder, pid, host=None):
    (folder / ".snakemake/locks").mkdir(parents=True)
    (folder / ".snakemake/locks/0.output.lock").write_text("results/machine.json\n")
    (folder / workflow_lock.HOLDER).write_text(json.dumps({"host": host or platform.node(), "pid": pid}))


def test_a_workflow_that_runs_is_found_in_its_folder_as_long_as_it_lives(tmp_path, monkeypatch):
    with subprocess.Popen(["bash", "-c", "exec -a snakemake sleep 60"], cwd=tmp_path) as process:
        try:
            assert (process.pid, tmp_path) not in workflow_lock.running()
            locked_folder(tmp_path, process.pid)
            assert (process.pid, tmp_path) in workflow_lock.running()
            monkeypatch.setattr(workflow_lock, "_at_work", lambda _: [process.pid])  # it would have begun before us
            told = workflow_lock.release_stale(tmp_path, dry=True)
            assert told == f"process {process.pid} runs the workflow in {tmp_path}: {workflow_lock.TOLD}"
            assert "wait for it, or end it with `kill" in workflow_lock.release_stale(tmp_path)
        finally:
            process.kill()
    assert (process.pid, tmp_path) not in workflow_lock.running()


def test_a_dry_run_beside_a_lock_of_another_machine_says_what_that_means(tmp_path):
    locked_folder(tmp_path, 1, "elsewhere")
    told = f"the lock in {tmp_path} is of elsewhere: {workflow_lock.TOLD}"
    assert workflow_lock.release_stale(tmp_path, dry=True) == told
    assert "end its workflow there" in workflow_lock.release_stale(tmp_path)
