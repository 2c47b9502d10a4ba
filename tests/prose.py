"""Words of the documents: how long their sentences are, and what tests/style.yaml bans.

    python tests/prose.py                            counts by page
    python tests/prose.py --findings docs/gpu.md     each place, with what to say instead
    python tests/prose.py --root FOLDER              of another checkout

Looked at is running text. Code, headings and addresses of links are not; sentences of tables are not counted, and
their words are looked at. Of the program's code, its names, comments and docstrings are.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CODE = "`code`"  # stands for what is between backticks: one word
_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^\s*(#{1,6} |={3,}\s*$|-{3,}\s*$|!!! |\?\?\? |:::|\[[^\]]+\]: )")
_ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])\s+")
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|etc|approx|incl|resp|al|No|Fig|Sec|Eq)|(?:^|[\s(])[A-Z])\.$")
_END = re.compile(r"[.!?][\"'”’)\]*_]*\s+(?=[\"'“‘(\[*_]*[A-Z0-9`±])")
_WORD = re.compile(r"[\w`±%][\w'’`.,%/×+:±-]*")
_CODE_SPAN = re.compile(r"`[^`]*`")
_MARKUP = (
    (re.compile(r"<!--.*?-->", re.DOTALL), " "),
    (re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL), CODE),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),
    (re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])"), r"\1"),
    (re.compile(r"<https?://[^>]*>|https?://\S+"), CODE),
    (re.compile(r"</?[a-zA-Z][^>]*>"), " "),
    (re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)"), ""),
)


@dataclass
class Text:
    """A paragraph, an item of a list or a row of a table: its first line, and what it says without markup."""

    line: int
    text: str
    is_table: bool = False


@dataclass
class Sentence:
    """A sentence of running text, and the line on which its paragraph begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """How many it has; what is between backticks is one."""
        return len(words_of(self.text))


@dataclass
class Finding:
    """A place that a rule bans, or a sentence that is too long."""

    line: int
    rule: str
    text: str
    say: str


@dataclass
class Page:
    """What is found on a page."""

    words: int
    sentences: list[Sentence]
    banned: list[Finding] = field(default_factory=list)

    def longer(self, than: int) -> list[Sentence]:
        """Sentences with more words than so many."""
        return [one for one in self.sentences if one.words > than]


def words_of(text: str) -> list[str]:
    """The words of a text without markup."""
    return [word for word in _WORD.findall(text) if any(letter.isalnum() for letter in word)]


def texts(page: str) -> Iterator[Text]:
    """Paragraphs, items and rows of a page of Markdown, in order, without code and headings."""
    lines, number = page.splitlines(), 0
    if lines[:1] == ["---"] and "---" in lines[1:]:  # front matter
        number = lines.index("---", 1) + 1
    fence: str | None = None
    held: list[str] = []
    began = 0
    in_list, in_comment = False, False
    for at, line in enumerate(lines[number:], start=number + 1):
        opens = _FENCE.match(line)
        if fence is not None or opens:
            if held:
                yield _text(began, held)
                held = []
            mark = opens.group(1) if opens else None
            fence = mark if fence is None else None if mark == fence else fence
            continue
        if in_comment or line.lstrip().startswith("<!--"):
            in_comment = "-->" not in line
            continue
        item, blank = _ITEM.match(line), not line.strip()
        is_row = line.lstrip().startswith("|")
        is_code = not held and not in_list and not item and line.startswith(("    ", "\t"))
        if held and (blank or item or is_row or _HEADING.match(line)):
            yield _text(began, held)
            held = []
        if item:
            in_list = True
        elif not blank and not line.startswith(" "):
            in_list = in_list and bool(held)
        if blank or is_code or _HEADING.match(line):
            continue
        if is_row:
            if set(line) - set("|-: "):
                cells = _plain(line.replace("\\|", "/")).strip().strip("|").split("|")
                yield from (Text(at, cell.strip(), is_table=True) for cell in cells if cell.strip())
            continue
        if not held:
            began = at
        held.append(_ITEM.sub("", line, count=1).lstrip("> ").strip())
    if held:
        yield _text(began, held)


def _text(line: int, held: Sequence[str]) -> Text:
    return Text(line, _plain(" ".join(held)))


def _plain(text: str) -> str:
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    return " ".join(text.split())


def sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph without markup."""
    begin = 0
    for end in _END.finditer(text):
        if not _ABBREVIATED.search(text[begin : end.start() + 1]):
            yield text[begin : end.end()].strip()
            begin = end.end()
    if words_of(text[begin:]):
        yield text[begin:].strip()


@cache
def style() -> Mapping[str, Any]:
    """tests/style.yaml."""
    return yaml.safe_load((HERE / "style.yaml").read_text(encoding="utf-8"))


@cache
def rules() -> Mapping[str, re.Pattern[str]]:
    """Name of each rule -> what it finds."""
    return {name: re.compile(rule["find"], re.IGNORECASE) for name, rule in style()["banned"].items()}


def banned(text: str) -> Iterator[tuple[str, str]]:
    """(rule, what it found) in a sentence or a cell."""
    for name, pattern in rules().items():
        yield from ((name, found.group(0)) for found in pattern.finditer(text))


def look(page: str) -> Page:
    """What is on a page of Markdown."""
    found = Page(words=sum(any(map(str.isalnum, word)) for word in page.split()), sentences=[])
    for text in texts(page):
        parts = [text.text] if text.is_table else list(sentences(text.text))
        if not text.is_table:
            found.sentences += [Sentence(text.line, part) for part in parts]
        for part in parts:
            for name, where in banned(part):
                found.banned.append(Finding(text.line, name, f"{where}: {part}", style()["banned"][name]["say"]))
    return found


def pages(root: Path = ROOT) -> dict[str, Path]:
    """Name of each page that is looked at -> its file."""
    found = [path for place in style()["pages"] for path in sorted(root.glob(place))]
    return {str(path.relative_to(root)): path for path in found}


def is_generated(name: str) -> bool:
    """Whether a program writes a page."""
    return name in style()["generated"]


def written_words(root: Path = ROOT) -> int:
    """Words of all pages that people write and read as text: without those that a program writes, and lists."""
    told = [path for name, path in pages(root).items() if not is_generated(name) and name not in style()["lists"]]
    return sum(look(path.read_text(encoding="utf-8")).words for path in told)


def code_findings(source: str) -> Iterator[Finding]:
    """What a file of Python or Snakemake says in names, comments and docstrings that the style bans in code."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = ""
        if token.type == tokenize.NAME:
            text = token.string.replace("_", " ").strip()
        elif token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        ):
            text = _CODE_SPAN.sub(CODE, token.string)
        for name in style()["code"]["rules"]:
            for found in rules()[name].finditer(" ".join(text.split()).rstrip(".") + "."):
                yield Finding(
                    token.start[0], name, f"{found.group(0)}: {text[:120]}", style()["banned"][name]["say"]
                )
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def code_files(root: Path = ROOT) -> list[Path]:
    """Files of the program that the style's rules for code hold for."""
    return sorted(path for place in style()["code"]["files"] for path in root.glob(place))


def spoken_files(root: Path = ROOT) -> list[Path]:
    """Files with texts that users meet, in which the style's rules hold."""
    return sorted({path for place in style()["spoken"]["files"] for path in root.glob(place)})


def spoken(path: Path) -> list[str]:
    """Texts of three words or more of one file.

    They are strings of a module without its docstrings, cells of a table, text of a template or of a notebook, and
    paragraphs of a page. Of YAML they are values and comments, of a Makefile or script comments and quoted strings.
    """
    source = path.read_text(encoding="utf-8")
    texts_of = {
        ".py": _strings, ".csv": _cells, ".j2": _template, ".ipynb": _cells_of_notebook, ".md": _paragraphs,
        ".rst": _paragraphs, ".yaml": _values_and_comments, ".cff": _values_and_comments,
    }.get(path.suffix, _comments_and_quoted)  # fmt: skip
    found = [_CODE_SPAN.sub(CODE, " ".join(one.split())) for one in texts_of(source)]
    return [one for one in found if len(one.split()) > 2]


def _strings(source: str) -> Iterator[str]:
    """Those of a module; an f-string is one, with 0 for each value."""
    tree = ast.parse(source)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            left_out |= {id(part) for part in parts}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _cells(source: str) -> Iterator[str]:
    yield from (cell for row in csv.reader(source.splitlines()) for cell in row)


def _template(source: str) -> Iterator[str]:
    yield from re.split(
        r"\{[{%#].*?[}%#]\}|<[^>]*>", re.sub(r"<style>.*?</style>", "", source, flags=re.DOTALL), flags=re.DOTALL
    )


def _cells_of_notebook(source: str) -> Iterator[str]:
    for cell in json.loads(source)["cells"]:
        if cell["cell_type"] == "markdown":
            yield from _paragraphs("".join(cell["source"]))


def _paragraphs(source: str) -> Iterator[str]:
    for text in texts(source):
        yield from [text.text] if text.is_table else sentences(text.text)


def _values_and_comments(source: str) -> Iterator[str]:
    held = [yaml.safe_load(source)]
    while held:
        one = held.pop()
        held += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
        if isinstance(one, str):
            yield one
    yield from _comments(source)


def _comments_and_quoted(source: str) -> Iterator[str]:
    yield from _comments(source)
    for line in source.splitlines():
        code = line.partition("#")[0]
        yield from (text for two in re.findall(r"\"([^\"]*)\"|'([^']*)'", code) for text in two)


def _comments(source: str) -> Iterator[str]:
    """Comments: those of neighbouring lines as one."""
    held: list[str] = []
    for line in [*source.splitlines(), ""]:
        found = re.search(r"(?:^|\s)##?\s+(.*)", line)
        alone = found is not None and not line[: found.start()].strip()
        if held and not alone:
            yield " ".join(held)
            held = []
        if found:
            held.append(found.group(1))
        if held and not alone:
            yield held.pop()


def limits(name: str) -> Mapping[str, Any]:
    """Of the sentences of a page, and rules that do not hold there."""
    return {"allowed": [], **style()["sentences"], **style()["exceptions"].get(name, {})}


def excesses(name: str, page: Page) -> list[str]:
    """What of a page is not as the style has it, each in a line that an author understands."""
    limit = limits(name)
    found = [
        f"{name}:{one.line}: {one.rule!r}, say {one.say}: {one.text[:160]}"
        for one in page.banned
        if one.rule not in limit["allowed"]
    ]
    longest = page.longer(limit["longest"])
    found += [f"{name}:{one.line}: {one.words} words, {limit['longest']} at most: {one.text}" for one in longest]
    long = page.longer(limit["words"])
    may = 1 if len(page.sentences) < limit["few"] else limit["share"] * len(page.sentences)
    if len(long) > may:
        found.append(
            f"{name}: {len(long)} of {len(page.sentences)} sentences have more than {limit['words']} words, "
            f"{limit['share']:.0%} may: lines {', '.join(str(one.line) for one in long)}"
        )
    return found


def report(root: Path) -> Iterator[str]:
    """Counts by page, as a table of Markdown, and their sums."""
    limit = style()["sentences"]
    yield f"| page | words | sentences | over {limit['words']} words | longest | banned |"
    yield "| --- | --- | --- | --- | --- | --- |"
    sums = [0, 0, 0, 0, 0]
    for name, path in pages(root).items():
        page = look(path.read_text(encoding="utf-8"))
        most = max((one.words for one in page.sentences), default=0)
        row = [page.words, len(page.sentences), len(page.longer(limit["words"])), most, len(page.banned)]
        sums = [max(a, b) if place == 3 else a + b for place, (a, b) in enumerate(zip(sums, row, strict=True))]
        yield f"| {name}{' (generated)' if is_generated(name) else ''} | {' | '.join(map(str, row))} |"
    yield f"| all | {' | '.join(map(str, sums))} |"
    yield f"| written by hand, without lists | {written_words(root)} |"


def main() -> None:
    """Print what is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout whose pages are counted")
    parser.add_argument(
        "--findings", nargs="*", metavar="PAGE", help="print each place of these pages (default: all)"
    )
    arguments = parser.parse_args()
    if arguments.findings is None:
        print("\n".join(report(arguments.root)))
        return
    known = pages(arguments.root)
    if unknown := [name for name in arguments.findings if name not in known]:
        sys.exit(f"no page {', '.join(unknown)}: there are {' '.join(known)}")
    for name in arguments.findings or [name for name in known if not is_generated(name)]:
        print("\n".join(excesses(name, look(known[name].read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
