"""The pages of a report as a site: the overview of all studies, the page to print, strings from outside."""

import html
import re
from dataclasses import replace

import builders
import hostile
import pytest
from markupsafe import escape
from pages import draw, visible

from tare.core.files import write_text
from tare.report import build, pages

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
HEAD = '<meta name="description" content="{}">\n<meta name="study" content="{}">\n'


@pytest.fixture(scope="module")
def found(results, evidence):
    """Every page of a study in which an environment's reason, and the error of a notebook, hold markup."""
    podman = evidence.probes["podman"].replace(reason=HOSTILE)
    changed = replace(evidence, probes={**evidence.probes, "podman": podman})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages.notebooks, "failed", lambda folder: {"roofline": f"KeyError: {HOSTILE}"})
        return pages.render(changed, results / "report")


def test_every_page_names_the_notebooks_that_failed(found):
    for file, page in found.items():
        assert "The notebook <code>roofline</code> failed (KeyError: &lt;img" in page, file


def test_strings_from_outside_are_text_on_every_page(found):
    assert html.escape(HOSTILE) in found["environments.html"]
    for file, page in found.items():
        assert HOSTILE not in page, file
        assert not re.search(r"<[^>]*\son[a-z]+=", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)), file


def test_every_page_has_a_policy_that_allows_no_script_but_its_own(found):
    for file, page in found.items():
        [policy] = POLICY.findall(page)
        assert policy.startswith("default-src 'none';") and "http" not in policy, file
        scripts = re.search(r"script-src ([^;]*);", policy)[1]
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/=]+'", html.unescape(scripts)), file
        assert page.count("<script") == 1, file


def test_texts_of_every_record_and_table_stay_text(tmp_path):
    """A name of a study or an environment can't hold any; reasons, packages, versions and licences can."""
    folder = builders.build_results(tmp_path / "results")
    assert hostile.infest(folder) > 100
    draw(folder)
    build(folder, folder, builders.STUDY, folder / "report/index.html")
    texts = {path.name: path.read_text() for path in sorted((folder / "report").glob("*.html"))}
    assert sum(text.count(str(escape(hostile.MARKUP))) for text in texts.values()) > 50
    for file, text in texts.items():
        own = re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)
        assert hostile.MARKUP not in text and "<script" not in own and "<style>@import" not in own, file
        assert not re.search(r"<(img|meta|svg)\b[^>]*(evil\.example|\son\w+=)", own), file


def test_the_page_to_print_has_every_section_unfolded(found):
    printed = found[pages.PRINT]
    sections = {
        name
        for file, page in found.items()
        if file != pages.PRINT
        for name in re.findall(r'<section id="([a-z_]+)"', page)
    }
    beside = {"where", "pages"}  # of the answer's page: both stand in other sections too, or are links
    assert sections - beside <= set(re.findall(r'<section id="([a-z_]+)"', printed))
    assert {"advice", "paper", "profiles", "roofline"} <= sections
    assert "<details>" not in printed and "<details open>" in printed
    assert not re.search(r'href="[a-z0-9-]+\.html#', printed)


def test_the_pages_are_those_that_the_navigation_names(found):
    named = {page.file for page in pages.pages_of(("nyu2022",))}
    assert set(found) - {pages.PRINT} <= named
    for page in found.values():
        linked = set(re.findall(r'<li><a href="([a-z0-9-]+\.html)"', page))
        assert linked == set(found) - {pages.PRINT}


def test_the_overview_links_every_study_the_default_first(tmp_path):
    for folder, study in (("", "nyu2022"), ("alpha/", "alpha"), ("beta/", "beta")):
        write_text(tmp_path / f"{folder}report/index.html", HEAD.format(html.escape(HOSTILE), study))
    (tmp_path / "campaigns/report").mkdir(parents=True)  # a folder without a page
    page = pages.write_overview(tmp_path).read_text()
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', page)
    assert links == [
        ("report/index.html", "nyu2022"), ("alpha/report/index.html", "alpha"), ("beta/report/index.html", "beta"),
    ]  # fmt: skip
    assert HOSTILE not in page and page.count(html.escape(HOSTILE)) == 3
    assert "script-src" not in POLICY.findall(page)[0] and "default-src 'none'" in POLICY.findall(page)[0]


def test_no_study_yet_is_said(tmp_path):
    assert "No study has a report so far." in visible(pages.write_overview(tmp_path).read_text())
