"""Workflows that run: in whichever folder."""

import json
import subprocess

import pytest

from tare.core.errors import UnavailableError
from tare.machine import workflows
from tare.runtimes import remove


def test_a_workflow_that_runs_is_found_in_its_folder_as_long_as_it_lives(tmp_path):
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as process:
        try:
            assert (process.pid, tmp_path) not in workflows.running()
            workflows.note(tmp_path)
            assert (process.pid, tmp_path) not in workflows.running(), "the note is of this process"
            (tmp_path / workflows.NOTE).write_text(json.dumps({"pid": process.pid}))
            assert (process.pid, tmp_path) in workflows.running()
            with pytest.raises(UnavailableError, match=rf"a study runs: process {process.pid} in {tmp_path}; wait"):
                remove.refuse_running(tmp_path)
        finally:
            process.kill()
    assert (process.pid, tmp_path) not in workflows.running()
    remove.refuse_running(tmp_path)
