"""The report in a real browser: drawn, quiet, offline, usable by keyboard, on a phone and in the dark."""

from __future__ import annotations

import shutil

import builders
import device_builders
import pytest
from pages import draw_all
from playwright.sync_api import sync_playwright

from tare.report import build

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Path of a whole report, figures included, of a synthetic study."""
    results = builders.build_results(tmp_path_factory.mktemp("browser") / "results")
    draw_all(results)
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


# A study on a CUDA device, with a recorded reference machine beside it.

DEVICE_SECTIONS = ("choices", "roofline", "profiles", "reference", "machine")


@pytest.fixture(scope="module")
def device_report(tmp_path_factory):
    results = builders.build_results(tmp_path_factory.mktemp("device") / "results", device="cuda")
    device_builders.reference(results, results)
    draw_all(results, device="cuda")
    return build(results, results, builders.CUDA_STUDY, results / "report/index.html")


@pytest.fixture
def open_device_page(browser, device_report):
    def opened(width, **options):
        page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
        page.goto(device_report.as_uri())
        page.eval_on_selector_all("details", "nodes => nodes.forEach(node => node.open = true)")
        return page

    yield opened
    for context in browser.contexts:
        context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_of_a_device_fits_its_width_and_draws_everything(open_device_page, width):
    page = open_device_page(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in DEVICE_SECTIONS:
        right = page.eval_on_selector_all(
            f"#{name} p, #{name} li, #{name} h3, #{name} h4, #{name} .chip, #{name} figure svg",
            "nodes => Math.max(...nodes.map(n => n.getBoundingClientRect().right))",
        )
        assert right <= width, name
    for name in ("device_time", "device_samples", "choices"):
        assert page.locator(f"figure svg[aria-labelledby^='{name}_mnist_cnn']").count() >= 1, name
    assert page.locator("#reference figure svg").count() == 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_a_device_has_no_serious_accessibility_violation(open_device_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_device_page(1280, color_scheme=scheme, reduced_motion="reduce")
    found = axe.Axe().run(page).response["violations"]
    serious = {v["id"]: [node["html"][:160] for node in v["nodes"]][:3] for v in found if v["impact"] in SERIOUS}
    assert serious == {}


def test_letters_in_figures_of_a_device_stay_readable_on_a_phone(open_device_page):
    heights = open_device_page(390).eval_on_selector_all(
        "figure svg text",
        "nodes => nodes.map(n => {"
        " const m = n.getScreenCTM(); return parseFloat(getComputedStyle(n).fontSize) * Math.hypot(m.a, m.b) })",
    )
    assert min(heights) >= 8
