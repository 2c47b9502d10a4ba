"""What rules and logger take of Snakemake: what its manual has, and what docs/design.md gives a reason for."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

FILES = [ROOT / "Snakefile", *sorted((ROOT / "rules").glob("*.smk"))]
# `cores` stands in Snakemake's manual; docs/design.md says why the others are asked for.
OF_THE_WORKFLOW = {
    *("cores", "basedir", "configfiles", "execution_settings", "local_exec", "rules", "storage_settings"),
}
MODULES = {
    "snakemake.exceptions": {"WorkflowError"},
    "snakemake.io": {"report"},
    "snakemake.utils": {"min_version"},
    "snakemake_interface_logger_plugins.base": {"LogHandlerBase"},
    "snakemake_interface_logger_plugins.common": {"LogEvent"},
}
IMPORT = re.compile(
    r"^(?:from (snakemake(?!_logger_plugin_tare)[\w.]*) import (\w+)|import (snakemake\.[\w.]*|snakemake)$)",
    re.MULTILINE,
)


def lines_of(path: Path) -> str:
    """A file without its comments."""
    return "\n".join(line.partition("#")[0] for line in path.read_text().splitlines())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_rules_take_nothing_private(path):
    text = lines_of(path)
    assert set(re.findall(r"\bworkflow\.(\w+)", text)) <= OF_THE_WORKFLOW
    assert not re.findall(r"\bworkflow[,)]", text), "it is handed to nobody"
    for word in (".snakemake", "ruleorder", "getattr(workflow"):
        assert word not in text


def test_what_is_asked_for_has_its_reason():
    reasons = (ROOT / "docs/design.md").read_text()
    assert [name for name in sorted(OF_THE_WORKFLOW - {"cores"}) if f"`workflow.{name}`" not in reasons] == []


def test_modules_of_snakemake_are_those_of_its_manual():
    files = [
        *FILES,
        *(
            path
            for name in ("tare", "envs", "workloads", "snakemake_logger_plugin_tare")
            for path in (ROOT / name).rglob("*.py")
        ),
    ]
    for path in files:
        for module, name, whole in IMPORT.findall(path.read_text()):
            assert not whole and name in MODULES.get(module, ()), path


def test_nothing_looks_into_the_folder_of_snakemake():
    for name in ("tare", "envs", "snakemake_logger_plugin_tare"):
        for path in (ROOT / name).rglob("*.py"):
            strings = [
                node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
            ]
            found = [
                text for text in strings if isinstance(text, str) and ".snakemake/" in text and "\n" not in text
            ]
            assert not found, path


def test_the_logger_goes_by_events_and_names_of_exceptions():
    text = (ROOT / "snakemake_logger_plugin_tare/__init__.py").read_text()
    assert "import re\n" not in text and "sys.argv" not in text and ".startswith((" not in text


def test_make_names_the_page_that_it_has_made():
    found = re.search(r"^REPORT_PATH = (.*?[^\\\\])$", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    code = found[1].replace("\\\n\t", "")
    done = subprocess.run(
        [sys.executable, "-c", code, "config/config.yaml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{ROOT / 'results/report/index.html'}\n"
