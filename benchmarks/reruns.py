"""What reruns cost: users who run a study again until a null differs. Writes the first table of docs/reruns.md.

    .venv/bin/python benchmarks/reruns.py [--users 20000] [--tries 30]

Normal launches, launches with the tails of Student's t with three degrees of freedom, and launches that vary as the
ratios of recorded host-host units do, drawn again. The seed is fixed: the same page each time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from proving import RECORDED, control_logs, read_recorded  # noqa: E402
from rerunning import ALPHA, Draw, fooled  # noqa: E402

from tare.core.files import write_text  # noqa: E402
from tare.model.journals.units import share_of  # noqa: E402

PAGE = ROOT / "docs/reruns.md"
BEGIN, END = "## One study, run again until something differs\n", "## Two studies, compared by `tare rerun`\n"
UNITS = (6, 12)
SHOWN = (1, 3, 5, 10, 30)


def worlds(generator: np.random.Generator) -> dict[str, Draw]:
    """Logs of launches in which nothing differs."""
    recorded = control_logs(read_recorded(RECORDED))
    return {
        "normal": lambda shape: generator.normal(0, 0.01, shape),
        "heavy tails (t, 3 degrees of freedom)": lambda shape: 0.01 * generator.standard_t(3, shape),
        "recorded": lambda shape: generator.choice(recorded, shape) * generator.choice((-1.0, 1.0), shape),
    }


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--tries", type=int, default=30)
    arguments = parser.parse_args()
    shown = [number for number in SHOWN if number <= arguments.tries]
    generator = np.random.default_rng(2022)
    error = 100 * (ALPHA * (1 - ALPHA) / arguments.users) ** 0.5
    lines = [
        "Nothing differs here. Each simulated user compares three environments with the host and runs the study "
        "again, with fresh units, until one differs. The table says how many of "
        f"{arguments.users} users have seen that by their k-th try (5% may; standard error {error:.2f} points). "
        "The k-th try spends 6 / (pi² k²) of alpha, or every try spends all of it.",
        "",
        f"| launches | units | alpha | {' | '.join(f'by try {number}' for number in shown)} |",
        f"| --- | --- | --- | {' | '.join('---' for _ in shown)} |",
    ]
    for name, draw in worlds(generator).items():
        for units in UNITS:
            for said, share in (("shared", share_of), ("whole", lambda number: 1.0)):
                found = fooled(arguments.tries, units, share, arguments.users, draw)
                cells = " | ".join(f"{100 * found[number - 1]:.1f}%" for number in shown)
                lines.append(f"| {name} | {units} | {said} | {cells} |")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    write_text(PAGE, "\n".join([f"{before}{BEGIN}", *lines, f"\n{END}{after}"]))


if __name__ == "__main__":
    main()
