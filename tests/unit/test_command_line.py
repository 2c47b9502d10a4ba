"""The command line as a whole: what it may load before it knows what is wanted."""

import subprocess
import sys
import time

from tare.core.files import project_root

HEAVY = {"pydantic", "numpy", "pandas", "scipy", "yaml", "torch", "jinja2", "matplotlib", "fastjsonschema"}


def test_help_loads_nothing_heavy_and_comes_at_once():
    code = "import sys; from tare.cli.main import build_parser; build_parser().format_help(); print(*sys.modules)"
    seconds = []
    for _ in range(5):
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project_root())
        seconds.append(time.monotonic() - started)
        assert done.returncode == 0, done.stderr
        assert not HEAVY & {name.split(".")[0] for name in done.stdout.split()}
    assert min(seconds) < 0.5, "0.06 s where nothing else runs"
