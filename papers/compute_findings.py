"""Computes what follows about each published study from its own numbers, and writes papers/findings.csv.

    .venv/bin/python papers/compute_findings.py

One row for each finding: what was published, what recomputing it gives, whether they agree, and a note from which a
reader can redo it. Papers do not change, and nothing here looks at a machine: so Tare reads the table, and joins
what it measured. papers/findings.sha256 (for `sha256sum -c`) holds the hashes of the table and of the files that it
was computed from; Tare refuses a table, or a paper's file, that is another.

Run it again where a file of config/published was added or put right.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "papers"), str(ROOT)]

import pandas as pd  # noqa: E402
from checks import (  # noqa: E402
    claims,
    figure_values,
    formulas,
    kernel_sums,
    limits,
    log_checks,
    recordings,
    roofline,
    sources,
    statements,
)
from checks.finding import Finding  # noqa: E402

from tare.core.errors import TareError  # noqa: E402
from tare.core.files import sha256_file, write_text  # noqa: E402
from tare.model import tables  # noqa: E402
from tare.model.studies import papers  # noqa: E402


def findings(study: sources.Sources) -> list[Finding]:
    """Every finding about one study, in the order of its page."""
    left = limits.findings(study)
    return [
        *figure_values.findings(study),
        *figure_values.whereabouts(study),
        *kernel_sums.findings(study),
        *log_checks.findings(study),
        *statements.findings(study),
        *formulas.findings(study),
        *recordings.findings(study),
        *roofline.findings(study),
        *recordings.specifications(study),
        *left,
        *claims.verdicts(study, has_limits=bool(left)),
    ]


def table(studies: list[sources.Sources]) -> pd.DataFrame:
    """The table `findings` of these studies."""
    rows = []
    for study in studies:
        seen: Counter[str] = Counter()
        for one in findings(study):
            seen[one.name] += 1
            number = f"/{seen[one.name]}" if seen[one.name] > 1 else ""
            rows.append({"paper": study.paper, "id": f"{one.name}{number}", **asdict(one)})
    return tables.make("findings", rows)


def write(out: Path) -> pd.DataFrame:
    """Write the table of every paper, and next to it the hashes of it and of its sources."""
    names = papers.paper_names()
    found = table([sources.load(name) for name in names])
    tables.write("findings", found, out)
    files = [out, *sorted(path for name in names for path in papers.files(name))]
    lines = [f"{sha256_file(path)}  {os.path.relpath(path, ROOT)}\n" for path in files]
    write_text(papers.sums_of(out), "".join(lines))
    return found


def main() -> int:
    """Write the table where Tare reads it."""
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.parse_args()
    try:
        found = write(papers.findings_file())
    except TareError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for paper, count in found["paper"].value_counts(sort=False).items():
        print(f"{paper}: {count} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
