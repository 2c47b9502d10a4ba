"""The report in a real browser: drawn, quiet, offline, usable by keyboard, on a phone and in the dark."""

from __future__ import annotations

import shutil

import builders
import pytest
from playwright.sync_api import sync_playwright

from tare import figures, tables
from tare.files import read_json
from tare.published import load
from tare.report import build

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Path of a whole report, figures included, of a synthetic study."""
    results = builders.build_results(tmp_path_factory.mktemp("browser") / "results")
    folder = results / "tables"
    metrics, verdicts = (tables.read(name, folder / f"{name}.csv") for name in ("metrics", "verdicts"))
    samples, operators = (tables.read(name, folder / f"{name}.csv") for name in ("samples", "operators"))
    own, headline = figures.joint(metrics), figures.joint(verdicts)
    families, ceilings = tables.read("families", folder / "families.csv"), read_json(results / "ceilings.json")
    drawings = {"roofline": figures.roofline(metrics, ceilings)}
    drawings["prices"] = figures.image_prices(tables.read("prices", folder / "prices.csv"))
    drawings |= {
        f"arms_{workload}": figures.arms(verdicts, workload) for workload in figures.arm_workloads(metrics)
    }
    for workload in builders.WORKLOADS:
        drawings |= {
            f"batch_size_{workload}": figures.batch_size(metrics, workload),
            f"intervals_{workload}": figures.intervals(headline, workload),
            f"units_{workload}": figures.units(own, workload),
            f"split_{workload}": figures.split(own, workload),
            f"utilisation_{workload}": figures.utilisation(samples, workload),
            f"operators_{workload}": figures.operator_times(operators, workload),
            f"roofline_{workload}": figures.families_roofline(families, metrics, ceilings, workload),
            f"why_{workload}": figures.why(metrics, verdicts, workload),
            f"stacks_{workload}": figures.stacks(verdicts, workload),
        }
    study, published = load("nyu2022"), tables.read("published", folder / "published.csv")
    drawings |= {
        figures.file_name(study.paper, number): figures.paper_figure(study, published, metrics, number)
        for number in figures.figure_names(study)
        if number != "4"
    }
    drawings[figures.file_name(study.paper, "4")] = figures.paper_roofline(study, metrics, ceilings)
    for name, drawing in drawings.items():
        figures.write(drawing, results / f"figures/{name}.svg")
    return build(results, results, builders.STUDY, results / "report/index.html")


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    assert chromium, "no Chromium on this machine (mend it: apt-get install --yes chromium)"
    with sync_playwright() as running:
        started = running.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield started
        started.close()


@pytest.fixture
def open_page(browser, report):
    """Opens the report; the page carries what it logged and what it asked for."""
    contexts = []

    def opener(width=1280, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.logged, page.requests = [], []
        page.on("console", lambda message: page.logged.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.logged.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(report.as_uri(), wait_until="networkidle")
        return page

    yield opener
    for context in contexts:
        context.close()


def test_it_logs_nothing_and_asks_for_nothing(open_page, report):
    page = open_page()
    assert page.logged == []
    assert [url for url in page.requests if not url.startswith("data:")] == [report.as_uri()]


def test_every_figure_is_drawn(open_page, report):
    page = open_page()
    sizes = page.eval_on_selector_all(
        "figure svg", "nodes => nodes.map(n => { const b = n.getBoundingClientRect(); return [b.width, b.height] })"
    )
    assert len(sizes) == len(list(report.parents[1].glob("figures/*.svg")))
    assert all(width > 200 and height > 100 for width, height in sizes)
    words = page.eval_on_selector_all("figure svg", "nodes => nodes.map(n => n.querySelectorAll('text').length)")
    assert min(words) >= 5
    assert page.locator("figure svg > title").count() == len(sizes)


@pytest.mark.parametrize(("width", "height"), [(390, 1000), (1280, 900)])
def test_the_answer_is_on_the_first_screen(open_page, width, height):
    page = open_page(width)
    boxes = page.eval_on_selector_all(
        ".glance", "nodes => nodes.map(n => { const b = n.getBoundingClientRect(); return [b.right, b.bottom] })"
    )
    assert len(boxes) == len(builders.WORKLOADS)
    assert all(right <= width and bottom <= height for right, bottom in boxes)


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(open_page, width):
    page = open_page(width)
    page.eval_on_selector_all("details", "nodes => nodes.forEach(node => node.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.eval_on_selector_all(
        "main table", "nodes => nodes.filter(n => n.scrollWidth > innerWidth && !n.closest('.scroll')).length"
    )
    assert wide == 0


def test_letters_in_figures_stay_readable_on_a_phone(open_page):
    page = open_page(390)
    heights = page.eval_on_selector_all(
        "figure svg text",
        "nodes => nodes.map(n => {"
        " const m = n.getScreenCTM(); return parseFloat(getComputedStyle(n).fontSize) * Math.hypot(m.a, m.b) })",
    )
    assert min(heights) >= 8


def test_the_keyboard_reaches_the_answer_and_the_contents(open_page):
    page = open_page(reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#answer"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    reached = []
    for _ in range(page.locator("nav a").count()):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getAttribute('href')"))
    assert {"#paper", "#time", "#arms", "#batch", "#roofline", "#machine", "#provenance"} <= set(reached)
    page.locator("nav a[href='#machine']").press("Enter")
    page.wait_for_function("Math.abs(document.querySelector('#machine').getBoundingClientRect().top) < 200")


def test_details_open_by_keyboard_and_tables_can_be_scrolled_by_it(open_page):
    page = open_page(390)
    summary = page.locator("details:has(.scroll) > summary").first
    summary.focus()
    page.keyboard.press("Enter")
    region = page.locator("details[open] .scroll").first
    region.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_violation(open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    page.eval_on_selector_all("details", "nodes => nodes.forEach(node => node.open = true)")
    found = axe.Axe().run(page).response["violations"]
    serious = {v["id"]: [node["html"][:160] for node in v["nodes"]][:3] for v in found if v["impact"] in SERIOUS}
    assert serious == {}


def test_links_to_other_results_are_relative_and_there(open_page, report):
    page = open_page()
    links = page.eval_on_selector_all("#provenance a", "nodes => nodes.map(n => n.getAttribute('href'))")
    assert "../tables/metrics.csv" in links
    assert all((report.parent / link).exists() for link in links)


def test_a_dark_page_recolours_its_figures(open_page):
    def paper(page):
        return page.eval_on_selector("figure svg path", "node => getComputedStyle(node).fill")

    assert paper(open_page(color_scheme="light")) != paper(open_page(color_scheme="dark"))
