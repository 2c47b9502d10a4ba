"""The standard streams where they are closed, full, or lack characters; names of processes that are no text."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.core import guard
from tare.core.files import project_root, sha256_text
from tare.launch.slicing import freezing

CODE = """
import sys
from tare.core import streams
streams.prepare()
{}
sys.exit(streams.finish(0))
"""


def said(code, **streams_of):
    argv = [sys.executable, "-c", CODE.format(code)]
    return subprocess.run(argv, cwd=project_root(), check=False, timeout=60, **streams_of)


def test_the_next_file_does_not_get_the_number_of_a_stream_that_is_closed(tmp_path):
    code = f"print('lost')\nprint(open({str(tmp_path / 'kept')!r}, 'w').fileno() > 2, file=sys.stderr)"
    argv = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", CODE.format(code)]
    done = subprocess.run(argv, cwd=project_root(), stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr, (tmp_path / "kept").read_bytes()) == (0, b"True\n", b"")


def test_a_full_stream_is_told_by_its_name():
    with Path("/dev/full").open("wb") as full:
        done = said("print('much')", stdout=full, stderr=subprocess.PIPE, env={})
    told = b"tare: standard output can't be written: No space left on device; lead it to "
    assert (done.returncode, done.stderr) == (2, told + b"a file or a terminal that can\n")


def test_unbuffered_streams_stay_so():
    done = said("print('a', end=''); import os; os._exit(0)", stdout=subprocess.PIPE, env={"PYTHONUNBUFFERED": "1"})
    assert (done.returncode, done.stdout) == (0, b"a")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "±1% … ü".encode() + b" \xff"),
        ("ascii", b"+-1% ... \\xfc \xff"),
        ("latin-1", b"\xb11% ... \xfc \xff"),
    ],
)
def test_what_an_encoding_lacks_is_told_in_ascii(encoding, shown):
    text = "±1% … ü \udcff"
    done = said(f"print({text!r}, end='')", stdout=subprocess.PIPE, env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stdout) == (0, shown)


def test_a_text_that_is_no_unicode_has_a_hash():
    assert (
        sha256_text("a\udcff")
        != sha256_text("a")
        == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    )


def test_a_process_whose_name_is_no_text_is_read_as_any(tmp_path):
    program = tmp_path / os.fsdecode(b"sl\xffp")
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        try:
            deadline = time.monotonic() + 10
            while b"\xff" not in Path(f"/proc/{process.pid}/comm").read_bytes() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert guard.started_at(process.pid) is not None
            while freezing.thread_states(process.pid) == ["R"] and time.monotonic() < deadline:
                time.sleep(0.01)
            assert freezing.thread_states(process.pid) == ["S"]
        finally:
            process.kill()
