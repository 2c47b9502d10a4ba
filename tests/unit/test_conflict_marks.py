"""No file of the project holds the marks of a conflict that a merge has left."""

import re

from tare.core.files import project_root

MARKS = re.compile(r"^(<{7} |>{7} )", re.MULTILINE)
PLACES = ("*.md", "Makefile", "Snakefile", "*.toml", "docs/**/*.md", "config/**/*", "rules/*", "profiles/**/*",
          "requirements/*", "notebooks/*", "tare/**/*.py", "tare/**/*.j2", "envs/*.py", "workloads/*.py",
          "benchmarks/*", "papers/**/*", "tests/**/*.py")  # fmt: skip


def marked(root):
    files = [path for place in PLACES for path in root.glob(place) if path.is_file()]
    assert files
    return sorted(str(path.relative_to(root)) for path in files if MARKS.search(path.read_text(errors="replace")))


def test_no_conflict_is_left():
    assert marked(project_root()) == []


def test_a_conflict_is_found(tmp_path):
    (tmp_path / "CHANGELOG.md").write_text(
        "a\n" + "<" * 7 + " HEAD\nb\n" + "=" * 7 + "\nc\n" + ">" * 7 + " other\n"
    )
    (tmp_path / "README.md").write_text("a\n=======\n")
    assert marked(tmp_path) == ["CHANGELOG.md"]
