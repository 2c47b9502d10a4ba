"""The picture of README and site, docs/report.png: the top of a report's first page, as Chromium shows it.

.venv/bin/python tests/pictures.py [results/report/index.html]
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/report.png"
SIZE = {"width": 1280, "height": 900}


def take(page: Path, out: Path) -> None:
    """Write the picture; raises SystemExit: there is no page or no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("pictures: no Chromium on this machine (apt-get install --yes chromium)")
    if not page.is_file():
        sys.exit(f"pictures: there is no page {page}: make report")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport=SIZE, color_scheme="light")
        view.goto(page.absolute().as_uri())
        view.screenshot(path=out, animations="disabled")
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, default=ROOT / "results/report/index.html")
    take(parser.parse_args().page, PICTURE)
