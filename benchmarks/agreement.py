"""How often is what `tare rerun` says of a claim false? Writes the second table of docs/reruns.md.

    .venv/bin/python benchmarks/agreement.py [--studies 2000]

Pairs of studies are simulated whose claims differ by what is known: by none, or by as much as the margin. The seed
is fixed: the same table each time.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from agreeing import EDGE, false_rates  # noqa: E402

from tare.core.files import write_text  # noqa: E402

PAGE = ROOT / "docs/reruns.md"
HEAD = "| true differences | sd of a round | rounds | false *different* | false *compatible* |"
TRUTHS = {
    "none": [0.0] * 6,
    "the margin": [EDGE] * 6,
    "four none, one the margin, one 20%": [0.0] * 4 + [EDGE, math.log(1.2)],
}
SPREADS = {"1.2% and 1.2%": (0.012, 0.012), "3% and 0.8%": (0.03, 0.008), "6% and 6%": (0.06, 0.06)}
UNITS = ((6, 6), (12, 8), (30, 30))


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    rows = []
    for what, truths in TRUTHS.items():
        for said, spreads in SPREADS.items():
            for units in UNITS:
                apart, inside = false_rates(truths, spreads, units, studies)
                shown = (
                    f"{100 * rate:.1f}%" if possible else "–"
                    for rate, possible in ((apart, 0.0 in truths), (inside, EDGE in truths))
                )
                cells = [what, said, " and ".join(map(str, units)), *shown]
                rows.append(f"| {' | '.join(map(str, cells))} |")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    _, _, after = rest.partition("\n\n")
    rule = "| --- | --- | --- | --- | --- |"
    write_text(PAGE, "\n".join([f"{before}{HEAD}", rule, *rows]) + f"\n\n{after}")


if __name__ == "__main__":
    main()
