"""The documents: links and anchors lead somewhere, the site has every page, and what is to be short stays short."""

from __future__ import annotations

import math
import re
import subprocess
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import yaml
from answers import ANSWER, LIBRARY
from project import code_blocks

from tare.core.files import project_root
from tare.weigh.answer import Ratio, Seconds, Weighed
from tare.weigh.words import terminal

ROOT = project_root()
FENCE = re.compile(r"^( *)(```+|~~~+).*?^ *\2[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.*?)[ #]*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")  # https:, mailto:
MENTION = re.compile(r"\bdocs/([a-z0-9-]+\.md)(?:#([\w-]+))?")
# Makefile and its like end with "file".
NAMING = (".py", ".j2", ".yaml", ".yml", ".smk", ".csv", ".rst", ".sh", ".md", ".toml", ".in", ".ipynb", "file")
ITEM = re.compile(r" *([-*+]|\d+[.)]) ")


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def anchors(text: str) -> set[str]:
    """Anchors of headings as GitHub makes them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def dead_links(path: Path) -> list[str]:
    """Relative links of a page that lead to no file, or to no heading of it."""
    text = path.read_text(encoding="utf-8")
    found = []
    for link in LINK.findall(SPAN.sub("code", FENCE.sub("", text))):
        if ELSEWHERE.match(link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            found.append(f"{path.name}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            found.append(f"{path.name}: {link}: no such heading")
    return found


def test_every_link_leads_somewhere():
    pages = tracked("*.md")
    assert len(pages) > 30
    assert [line for path in pages for line in dead_links(path)] == []


def test_dead_links_are_found(tmp_path):
    (tmp_path / "b.md").write_text("# One `two`: [three](x)\n\n## Twice\n\n```\n# no heading\n```\n\n## Twice\n")
    alive = ("b.md", "b.md#one-two-three", "b.md#twice-1", "#here", "https://x.y/z")
    links = [f"[`a`]({link})" for link in (*alive, "b.md#no-heading", "c.md", "#not")]
    page = tmp_path / "a.md"
    page.write_text("\n".join(["# Here", "", *links, "`[a](d.md)`", "", "```", "[a](e.md)", "```", ""]))
    assert dead_links(page) == [
        "a.md: b.md#no-heading: no such heading",
        "a.md: c.md: no such file",
        "a.md: #not: no such heading",
    ]


def test_pages_that_files_name_are_there():
    """In code, messages and configuration, where no link is."""
    known = {path.name: anchors(path.read_text(encoding="utf-8")) for path in (ROOT / "docs").glob("*.md")}
    files = [path for path in tracked() if path.name.endswith(NAMING)]
    found = [
        f"{path.relative_to(ROOT)}: {name}#{anchor}"
        for path in files
        for name, anchor in MENTION.findall(path.read_text(encoding="utf-8", errors="replace"))
        if name not in known or (anchor and anchor not in known[name])
    ]
    assert found == []


def pages_of(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for one in inner for page in pages_of(one)]


def test_the_site_has_every_page_once():
    nav = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(nav) == sorted(path.name for path in tracked("docs/*.md"))


def lines_taken_for_text(text: str) -> list[str]:
    """Items of lists in a block that begins as running text: MkDocs takes them for a part of it."""
    blocks = [block.splitlines() for block in re.split(r"\n[ ]*\n", FENCE.sub(r"\1fence", text).strip("\n"))]
    return [line for lines in blocks if lines and not ITEM.match(lines[0]) for line in lines if ITEM.match(line)]


def test_a_list_begins_after_an_empty_line():
    assert lines_taken_for_text("a\n\n- b\n- c\n\n   d\n2. e\n") == ["2. e"]
    pages = {path.name: lines_taken_for_text(path.read_text(encoding="utf-8")) for path in tracked("docs/*.md")}
    assert {name: lines for name, lines in pages.items() if lines} == {}


def test_readme_and_changelog_are_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 450
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 150


EXAMPLE = ANSWER.replace(
    command=("python", "train.py", "--epochs", "1"),
    reference_s={"start": 0.01, "body": 8.1, "exit": 0.0},
    control_step=Ratio(ratio=1.0004, low=0.9984, high=1.0024, rounds=8),
    environments=(
        Weighed(
            name="docker",
            text="docker=a",
            status="weighed",
            verdict="different within margin",
            run=Ratio(ratio=1.016, low=1.013, high=1.019, rounds=8),
            parts={"start": Seconds(seconds=0.12, low=0.11, high=0.13)},
            step=Ratio(ratio=1.001, low=0.997, high=1.005, rounds=8),
        ),
        Weighed(
            name="new",
            text="docker=b",
            status="weighed",
            verdict="different",
            run=Ratio(ratio=1.069, low=1.064, high=1.074, rounds=8),
            parts={"start": Seconds(seconds=0.12, low=0.11, high=0.13)},
            step=Ratio(ratio=1.059, low=1.054, high=1.064, rounds=8),
            causes=(
                LIBRARY.replace(
                    share=math.log(1.05) / math.log(1.069),
                    gained=Ratio(ratio=1 / 1.05, low=0.948, high=0.957, rounds=8),
                    part="steps",
                    command="docker run --env OPENBLAS_CORETYPE=SkylakeX new:latest COMMAND",
                ),
            ),
        ),
    ),
)


def test_the_tutorial_shows_an_answer_as_it_is_printed():
    [shown] = code_blocks("tutorial.md", "text")
    assert shown == terminal(EXAMPLE) + "\n"


def test_nothing_installs_the_tare_of_pypi():
    """There, another project has the name."""
    other = re.compile(r"pipx? install (?:-\S+ )*['\"]?tare(?![\w./-])")
    assert other.search(f"pipx install {'tare'}[workflow]") and not other.search("pipx install ./tare-1.0.0.whl")
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in tracked()}
    assert [str(path) for path, text in texts.items() if other.search(text)] == []
