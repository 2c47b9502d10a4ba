"""The report in a real browser: drawn, quiet, offline, usable by keyboard, on a phone and in the dark.

A page takes seconds to load and to draw: tests that only look share one, whose width and colours they set.
"""

from __future__ import annotations

import functools
import itertools
import shutil

import builders
import device_builders
import hostile
import pytest
import test_agreement as agreement_of
import test_side_by_side as side_by_side_of
from answers import ANSWER, SLOW
from image_builders import data_record
from looking import LETTERS, OUTSIDE, TOUCHING, served, unfilled
from matrix import in_turn
from pages import STAND_IN, draw, draw_all, draw_device, draw_papers
from playwright.sync_api import sync_playwright

from tare.cli.main import main
from tare.core.files import write_text
from tare.report import build, notebooks, pages, side_by_side
from tare.weigh.page import write_page

pytestmark = pytest.mark.browser
SCHEMES = ("light", "dark")
MOST_SCREENS = {"index.html": 6, "print.html": 1e9}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Path of the answer of a whole report, figures included, of a synthetic study."""
    results = builders.build_results(tmp_path_factory.mktemp("browser") / "results")
    draw_all(results)
    return build(results, results, builders.STUDY, results / "report/index.html")


@pytest.fixture(scope="module")
def notebook_pages(tmp_path_factory):
    """The pages of all notebooks but those of papers of images and of a device, of the same study."""
    folder = tmp_path_factory.mktemp("notebooks")
    results = builders.build_results(folder / "results")
    own = [name for name in notebooks.names() if name not in (notebooks.OF_A_PAPER, "device")]
    notebooks.execute_all([*own, "nyu2022"], results, list(builders.WORKLOADS), folder / "pages")
    return sorted((folder / "pages").glob("*.html"))


@pytest.fixture(scope="module")
def image_report(tmp_path_factory):
    """The same of a study of two models of images, with the papers that trained them."""
    results = tmp_path_factory.mktemp("images") / "results"
    builders.write_results(
        results, study="imagery", environments=("host", "docker"), unavailable={}, units=3,
        no_stack=builders.NO_PYTHON, workloads=tuple(builders.IMAGE_MODELS), papers=builders.IMAGE_PAPERS,
    )  # fmt: skip
    data_record(name="tiny_imagenet").write(results / "data/tiny_imagenet.json")
    draw_papers(results, builders.IMAGE_PAPERS, builders.IMAGE_MODELS)
    return build(results, results, builders.IMAGE_STUDY, results / "report/index.html")


def screens(page):
    """How long a page is, in screens of 800 pixels."""
    return page.evaluate("document.documentElement.scrollHeight") / 800


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    assert chromium, "no Chromium on this machine (to fix it: apt-get install --yes chromium)"
    with sync_playwright() as running:
        started = running.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield started
        started.close()


def load(browser, path, width=1280, query=""):
    """A page with what it logged and what it asked for."""
    page = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce").new_page()
    page.logged, page.requests = [], []
    page.on("console", lambda message: page.logged.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: page.logged.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(path.as_uri() + query, wait_until="networkidle")
    return page


def reader(browser, path):
    """Gives a page to look at, with all details open or as it came."""

    @functools.cache
    def loaded(opened):
        page = load(browser, path)
        if opened:
            page.eval_on_selector_all("details", "nodes => nodes.forEach(node => node.open = true)")
        return page

    def give(width=1280, scheme="light", opened=False):
        page = loaded(opened)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        return page

    return give


@pytest.fixture(scope="module")
def read(browser, report):
    """All of the report, in one page."""
    return reader(browser, report.with_name("print.html"))


@pytest.fixture(scope="module")
def read_answer(browser, report):
    return reader(browser, report)


@pytest.fixture
def open_page(browser, report):
    """Opens one page of the report, for a test that changes it."""
    pages = []

    def opener(file, width=1280, query=""):
        pages.append(load(browser, report.with_name(file), width, query))
        return pages[-1]

    yield opener
    for page in pages:
        page.context.close()


def violations(page, *, within=None):
    """What axe finds, of any impact, with some of the elements."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    options = {"resultTypes": ["violations"], "preload": False}  # of what passes, no list of elements
    found = axe.Axe().run(page, context=within, options=options).response
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}
    return {rule["id"]: [node["html"][:160] for node in rule["nodes"]][:3] for rule in found["violations"]}


def test_pages_are_quiet_not_long_and_lead_to_each_other(open_page, report):
    """Each logs nothing, asks for nothing, has the same navigation, and every link of it has its target.

    The answer has six screens of 800 pixels at most, the others fifteen; the one to print is as long as it is.
    """
    files = sorted(path.name for path in report.parent.glob("*.html"))
    assert {"index.html", "print.html", "paper-nyu2022.html", "why.html"} <= set(files)
    hrefs, seen = "nodes => nodes.map(n => n.getAttribute('href'))", set()
    for file in files:
        page = open_page(file)
        assert page.logged == [], file
        assert [url for url in page.requests if not url.startswith("data:")] == [report.with_name(file).as_uri()]
        assert screens(page) <= MOST_SCREENS.get(file, 15), file
        seen.add(tuple(page.eval_on_selector_all("nav ol a", hrefs)))
        for link in page.eval_on_selector_all("a[href]", hrefs):
            target, _, anchor = link.partition("#")
            path = (report.parent / target).resolve() if target else report.with_name(file)
            assert path.exists(), (file, link)
            assert not anchor or f'id="{anchor}"' in path.read_text(), (file, link)
        page.context.close()
    [navigation] = seen
    assert set(navigation) == set(files) - {"print.html"}


def test_pages_of_two_papers_of_images_are_not_long_either(browser, image_report):
    """As drawn: the figures of both papers, the largest that there are."""
    files = {path.name for path in image_report.parent.glob("*.html")}
    assert {"paper-columbia2025.html", "paper-nthu2018.html"} <= files
    page = load(browser, image_report)
    for file in sorted(files):
        page.goto(image_report.with_name(file).as_uri())
        assert screens(page) <= MOST_SCREENS.get(file, 15), file
        scaled = page.locator(".scaled").inner_text()
        assert "scaled down for this machine, in the same way in every" in scaled
        assert "ResNet50: batch 64 (published 256), image_px 64 (published 224)" in scaled
    page.context.close()


def test_the_search_finds_from_any_page_on_disk(open_page):
    page = open_page("why.html")
    page.locator("nav input[name=q]").fill("ledger tries")
    page.keyboard.press("Enter")
    page.wait_for_url("**/print.html?q=*")
    shown = "main > section:not([hidden])"
    assert "provenance" in page.eval_on_selector_all(shown, "nodes => nodes.map(n => n.id)")
    assert "sections have these words" in page.locator("#said").inner_text()
    page.locator("#field").fill("nothingofthekind")
    assert page.locator(shown).count() == 0
    page.locator("#field").fill("")
    assert page.locator("main > section[hidden]").count() == 0 and page.logged == []


def test_when_building_pays_is_answered_from_the_readers_numbers(open_page, report):
    """The script starts from the study's numbers, says what the page says without it, and takes what is typed."""
    page = open_page("images.html")
    answer, image = page.locator("#break-even-answer"), page.locator("#break-even-image")
    rows = page.eval_on_selector_all(
        "#break_even tbody tr", "nodes => nodes.map(n => [n.cells[0].textContent, n.cells[4].textContent])"
    )
    assert len(rows) > len(builders.WORKLOADS)
    for title, told in rows:
        image.select_option(title)
        assert answer.inner_text().startswith(told.replace("\N{NO-BREAK SPACE}", " ")), title
    assert "this study's interval" in answer.inner_text()
    typed = {"runs": "20", "low": "1", "high": "4", "build": "100", "megabytes": "125", "megabits": "100"}
    for name, value in typed.items():
        page.locator(f"#break-even-{name}").fill(value)
    assert answer.inner_text().startswith("After 28 to 110 runs (1.4 days to 5.5 days). Paid once: 110.0 s, 10.0 s")
    assert answer.inner_text().endswith("Modelled from your numbers.")
    page.locator("#break-even-low").fill("-1")
    assert answer.inner_text().startswith("After 28 runs (1.4 days) at the earliest, perhaps never")
    page.locator("#break-even-high").fill("-0.5")
    assert answer.inner_text().startswith("Never: a run takes 0.500 to 1.000 s longer than without the image.")
    page.locator("#break-even-megabits").fill("0")
    assert answer.inner_text() == "Give a number above zero: Your link, Mbit/s."
    page.locator("#break-even-build").fill("")
    assert answer.inner_text() == "Give a number: Build, s."
    assert violations(page, within="#break_even") == {}
    assert page.logged == []


def test_without_scripts_the_answer_stands_in_the_text(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.with_name("images.html").as_uri())
    assert not page.locator("#break-even-form").is_visible()
    assert "runs a day" in page.locator("#break_even caption").text_content()
    assert "With this study's numbers (modelled)" in page.locator("#break_even").inner_text()
    context.close()


def test_strings_from_outside_stay_text(open_page):
    """What a search is asked for, and a script that got into a page, run nothing."""
    page = open_page("print.html", query="?q=<img src=x onerror=document.title='hit'>")
    assert page.title() != "hit" and page.locator("img").count() == 0
    refused = open_page("index.html").evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hit = 1';"
        " document.body.append(s); return window.hit === undefined }"
    )
    assert refused


def test_hostile_texts_in_every_record_run_nothing_and_ask_nobody(browser, tmp_path):
    """Whatever reasons, packages, versions, licences and tables hold; on every page, its details open."""
    results = builders.build_results(tmp_path / "results")
    assert hostile.infest(results) > 100
    draw(results)
    index = build(results, results, builders.STUDY, results / "report/index.html")
    shown = 0
    for path in sorted(index.parent.glob("*.html")):
        page = load(browser, path)
        page.on("dialog", lambda dialog: pytest.fail(f"it asks: {dialog.message}"))
        page.eval_on_selector_all("details", "nodes => nodes.forEach(node => node.open = true)")
        assert page.evaluate("window.hit === undefined"), path.name
        assert all(url.startswith(("file:", "data:")) for url in page.requests), (path.name, page.requests)
        assert page.url == path.as_uri() and page.logged == [], (path.name, page.url, page.logged)
        shown += page.content().count("evil.example/a")
        page.context.close()
    assert shown > 50


def test_a_card_and_a_figure_keep_their_measure_when_they_are_alone(open_page):
    for file, name in (("index.html", ".cards .card"), ("environments.html", ".pair figure")):
        page = open_page(file)
        width = f"document.querySelector('{name}').getBoundingClientRect().width"
        before = page.evaluate(width)
        page.evaluate(
            "document.querySelectorAll('.cards, .pair')"
            ".forEach(n => [...n.children].slice(1).forEach(c => c.remove()))"
        )
        assert page.evaluate(width) == pytest.approx(before, rel=0.02)


def test_twelve_cards_are_as_wide_as_two_and_stay_on_the_page(open_page):
    page = open_page("index.html")
    width = page.evaluate("document.querySelector('.cards .card').getBoundingClientRect().width")
    page.evaluate(
        "document.querySelectorAll('.cards').forEach(n => { while (n.children.length < 12)"
        " n.append(n.firstElementChild.cloneNode(true)) })"
    )
    widths = page.eval_on_selector_all(
        ".cards:first-of-type .card", "nodes => nodes.map(n => n.getBoundingClientRect().width)"
    )
    assert len(widths) >= 12 and widths == pytest.approx([width] * len(widths), rel=0.02)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_all_studies_are_linked_from_one_page(browser, report):
    results = report.parents[1]
    other = results / "other/report/index.html"
    write_text(other, report.read_text().replace('content="nyu2022"', 'content="other"'))
    pages.write_overview(results)
    page = load(browser, results / "studies.html")
    hrefs = page.eval_on_selector_all("main a", "nodes => nodes.map(n => n.getAttribute('href'))")
    assert hrefs == ["report/index.html", "other/report/index.html"] and page.logged == []
    assert page.eval_on_selector_all("main a", "nodes => nodes.map(n => n.innerText)") == ["nyu2022", "other"]
    assert violations(page) == {} and unfilled(page) == []
    page.locator("main a").last.click()
    page.wait_for_url("**/other/report/index.html")
    page.context.close()


def test_every_figure_is_drawn(read, report):
    page = read()
    sizes = page.eval_on_selector_all(
        "figure svg", "nodes => nodes.map(n => { const b = n.getBoundingClientRect(); return [b.width, b.height] })"
    )
    assert len(sizes) == len(list(report.parents[1].glob("figures/*.svg")))
    assert all(width > 200 and height > 100 for width, height in sizes)
    words = page.eval_on_selector_all(
        "figure svg", "nodes => nodes.map(n => [...n.querySelectorAll('text')].map(text => text.textContent))"
    )
    drawn = [texts for texts in words if STAND_IN not in texts]
    assert len(drawn) > len(words) / 2 and min(len(texts) for texts in drawn) >= 5
    assert page.locator("figure svg > title").count() == len(sizes)


@pytest.mark.parametrize(("width", "height"), [(390, 1000), (1280, 900)])
def test_the_answer_is_on_the_first_screen(read_answer, width, height):
    page = read_answer(width)
    assert page.locator(".glance").count() == len(builders.WORKLOADS)
    # On a phone, the environments of the first workload fill the screen; its A/A control follows.
    answers = ".glance" if width > 390 else ".glance:first-of-type tbody tr:not(.control)"
    boxes = page.eval_on_selector_all(
        f".lede, {answers}",
        "nodes => nodes.map(n => { const b = n.getBoundingClientRect(); return [b.right, b.bottom] })",
    )
    assert len(boxes) > len(builders.WORKLOADS)
    assert all(right <= width and bottom <= height for right, bottom in boxes), boxes


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_no_page_scrolls_sideways(read, read_answer, width):
    assert read_answer(width, opened=True).evaluate("document.documentElement.scrollWidth") <= width
    page = read(width, opened=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.eval_on_selector_all(
        "main table", "nodes => nodes.filter(n => n.scrollWidth > innerWidth && !n.closest('.scroll')).length"
    )
    assert wide == 0


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_a_third_question_at_a_glance_fits(open_page, width):
    """As where a study measures steps with the default allocator too."""
    page = open_page("index.html", width)
    page.evaluate(
        "document.querySelectorAll('.glance').forEach(table => { table.classList.add('many');"
        " for (const row of table.rows) row.append(row.lastElementChild.cloneNode(true));"
        " table.tHead.rows[0].lastElementChild.textContent = 'Training step, default allocator' })"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_letters_in_figures_stay_readable_on_a_phone(read):
    page = read(390)
    assert min(page.eval_on_selector_all("figure svg text", LETTERS)) >= 8


def test_the_keyboard_reaches_the_content_and_every_page(open_page):
    page = open_page("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    reached = []
    for _ in range(page.locator("nav a").count()):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getAttribute('href')"))
    assert {"index.html", "paper-nyu2022.html", "why.html", "machine.html", "provenance.html"} <= set(reached)
    page.locator("nav a[href='machine.html']").press("Enter")
    page.wait_for_url("**/machine.html")
    page.locator(".onpage a[href='#conditions']").press("Enter")
    page.wait_for_function("Math.abs(document.querySelector('#conditions').getBoundingClientRect().top) < 200")


def test_details_open_by_keyboard_and_tables_can_be_scrolled_by_it(open_page):
    page = open_page("paper-nyu2022.html", 390)
    summary = page.locator("details:has(.scroll) > summary").first
    summary.focus()
    page.keyboard.press("Enter")
    region = page.locator("details[open] .scroll").first
    region.wait_for(state="visible")
    for _ in range(40):  # a busy browser takes a key before it has laid the table out
        region.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(100)
        if region.evaluate("node => node.scrollLeft") > 0:
            return
    pytest.fail("the arrow keys do not scroll the table")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_accessibility_violation(read, read_answer, scheme):
    """Of the answer in both schemes, of all pages in one."""
    assert violations(read_answer(scheme=scheme)) == {}
    if scheme in in_turn(0, SCHEMES):
        assert violations(read(scheme=scheme, opened=True)) == {}


# What one looks at.


def test_every_placeholder_is_filled_in(read, read_answer):
    for page in (read_answer(opened=True), read(opened=True)):
        assert unfilled(page) == []


def test_placeholders_would_be_found(open_page):
    page = open_page("index.html")
    for text in ("{it.title}", "nan s", "takes NaN", "{{ title }}", "to inf", "None"):
        page.evaluate("text => { document.querySelector('h1').textContent = text }", text)
        assert unfilled(page) == [text]
    page.evaluate("document.querySelector('svg text').textContent = '{}'")
    assert "{}" in unfilled(page)


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_labels_of_a_figure_touch(read, width):
    assert read(width, opened=True).evaluate(TOUCHING) == []


@pytest.mark.parametrize("turn", [0, 38, 90])
def test_labels_that_touch_would_be_found(open_page, turn):
    """Two of one text, the second turned around the same place, and moved away to its right."""
    page = open_page("step.html")
    before = page.evaluate(TOUCHING)
    put = """([turn, by]) => {
      const first = document.querySelector('figure svg text'), own = first.cloneNode(true);
      const box = first.getBBox(), middle = [box.x + box.width / 2, box.y + box.height / 2];
      const made = document.createElementNS('http://www.w3.org/2000/svg', 'g');
      made.setAttribute('transform', `translate(${by} 0) rotate(${turn} ${middle[0]} ${middle[1]})`);
      first.after(made); made.append(own); return own.textContent }"""
    text = page.evaluate(put, [turn, 0])
    assert [one[1:] for one in page.evaluate(TOUCHING) if one not in before] == [[text, text]]
    page.evaluate("document.querySelector('figure svg g[transform^=translate] text').parentNode.remove()")
    page.evaluate(put, [turn, 2000])
    assert page.evaluate(TOUCHING) == before


@pytest.mark.parametrize("width", [768, 1280])
def test_tables_of_the_first_screen_are_apart_and_hold_their_cells(open_page, width):
    """Also where each asks three questions."""
    page = open_page("index.html", width)
    page.evaluate(
        "document.querySelectorAll('.glance:not(.many)').forEach(table => { table.classList.add('many');"
        " for (const row of table.rows) row.append(row.lastElementChild.cloneNode(true)) })"
    )
    boxes = page.eval_on_selector_all(
        ".glance",
        "nodes => nodes.map(n => { const b = n.getBoundingClientRect();"
        " const right = Math.max(...[...n.querySelectorAll('td, th')].map(c => c.getBoundingClientRect().right));"
        " return [b.left, b.top, Math.max(b.right, right), b.bottom] })",
    )
    assert len(boxes) == len(builders.WORKLOADS) and max(box[2] for box in boxes) <= width
    for one, other in itertools.combinations(sorted(boxes), 2):
        assert one[2] + 24 <= other[0] or one[3] <= other[1] or other[3] <= one[1]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_on_paper_everything_is_light_and_inside(open_page, scheme):
    """A4 with Chromium's margins, whatever the screen's scheme is."""
    for file in ("index.html", "print.html"):
        page = open_page(file, 718)
        page.emulate_media(media="print", color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate(OUTSIDE) == [], file
        colour = "node => getComputedStyle(node).backgroundColor"
        assert page.eval_on_selector("body", colour) == "rgb(255, 255, 255)"
        fill = page.eval_on_selector("figure svg path", "node => getComputedStyle(node).fill")
        assert fill == "rgb(255, 255, 255)"
        assert not page.locator("nav").is_visible()
        assert page.locator("details:not([open])").count() == 0 or file != "print.html"
        if file == "print.html":
            assert len(page.pdf(format="A4")) > 100_000


def test_what_leaves_a_page_would_be_found(open_page):
    page = open_page("index.html", 390)
    assert page.evaluate(OUTSIDE) == []
    page.evaluate("document.querySelector('main p').style.width = '900px'")
    [found] = page.evaluate(OUTSIDE)
    assert found.startswith("P.")


def test_without_scripts_every_page_is_readable(browser, report):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 900})
    page = context.new_page()
    for path in sorted(report.parent.glob("*.html")):
        page.goto(path.as_uri())
        assert page.locator("h1").is_visible() and page.locator("main").inner_text().strip(), path.name
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
        assert page.locator("button").count() == 0
    context.close()


def test_a_phone_shows_every_page_whole(browser, report):
    phone = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 3, "is_mobile": True}
    context = browser.new_context(**phone, has_touch=True)
    page = context.new_page()
    for path in sorted(report.parent.glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("innerWidth") == 390, path.name
        assert page.evaluate(OUTSIDE) == [], path.name
        sizes = page.eval_on_selector_all(
            "main p, main li, main td, main th, summary",
            "nodes => nodes.filter(n => n.innerText).map(n => parseFloat(getComputedStyle(n).fontSize))",
        )
        assert min(sizes) >= 12, path.name
    context.close()


def test_below_a_prefix_of_a_server_everything_is_found(browser, report):
    with served(report.parents[1], "/studies/one/") as address:
        page = browser.new_context().new_page()
        lost = []
        page.on("response", lambda answer: lost.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"{address}report/")
        for file in page.eval_on_selector_all("nav ol a", "nodes => nodes.map(n => n.getAttribute('href'))"):
            page.goto(f"{address}report/{file}")
            links = page.eval_on_selector_all("a[href]", "nodes => nodes.map(n => n.href)")
            assert all(link.startswith(address) for link in links), file
            assert all(page.request.head(link).ok for link in set(link.partition("#")[0] for link in links)), file
        page.locator("nav input[name=q]").fill("ledger tries")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}report/print.html?q=*")
        assert page.locator("main > section:not([hidden])").count() > 0 and lost == []
        page.context.close()


@pytest.mark.parametrize("clipboard", [True, False], ids=["of its own", "of old"])
def test_commands_have_a_button_that_copies_them(browser, report, clipboard):
    with served(report.parents[1], "/") as address:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        if not clipboard:  # as of a server without TLS
            context.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        page = context.new_page()
        page.goto(f"{address}report/index.html")
        commands = page.locator("code.command")
        assert commands.count() == page.locator("button.copy").count() > 0
        page.locator("button.copy").first.click()
        page.wait_for_function("document.querySelector('button.copy').textContent === 'Copied'")
        if clipboard:
            assert page.evaluate("navigator.clipboard.readText()") == commands.first.inner_text()
        assert page.evaluate("getSelection().toString()") == commands.first.inner_text()
        assert violations(page) == {}
        context.close()


def test_the_commands_of_a_weighed_job_have_one_too(browser, tmp_path):
    with served(weighed(tmp_path).parent, "/") as address:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto(f"{address}index.html")
        commands = page.locator("code.command")
        assert commands.count() == page.locator("button.copy").count() > 0
        page.locator("button.copy").first.click()
        page.wait_for_function("document.querySelector('button.copy').textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()") == "python train.py"
        refused = """() => { const s = document.createElement('script'); s.textContent = 'window.hit = 1';
          document.body.append(s); return window.hit === undefined }"""
        assert page.evaluate(refused)
        context.close()


def test_points_show_their_values_under_the_pointer(read):
    texts = read().eval_on_selector_all(
        "figure svg g > title, figure svg use > title", "nodes => nodes.map(node => node.textContent)"
    )
    assert len(texts) > 100 and all(any(letter.isdigit() for letter in text) for text in texts)


def test_every_figure_has_its_numbers_beside_it(read):
    lacking = read(opened=True).eval_on_selector_all(
        "figure:has(svg)",
        "nodes => nodes.filter(n => !n.closest('section').querySelector('table'))"
        ".filter(n => !n.querySelector('a[href$=csv], li')).map(n => n.closest('section').id)",
    )
    assert lacking == []


def test_links_to_other_results_are_relative_and_there(read, report):
    page = read()
    links = page.eval_on_selector_all("#provenance a", "nodes => nodes.map(n => n.getAttribute('href'))")
    assert "../tables/metrics.csv" in links
    assert all((report.parent / link).exists() for link in links)


def test_a_dark_page_recolours_its_figures(read):
    def paper(page):
        return page.eval_on_selector("figure svg path", "node => getComputedStyle(node).fill")

    assert paper(read(scheme="light")) != paper(read(scheme="dark"))


# A study on a CUDA device, with a recorded reference machine beside it.

DEVICE_SECTIONS = ("choices", "roofline", "profiles", "reference", "machine")


def weighed(folder):
    """The page of a job that was weighed."""
    write_page(ANSWER, folder / "index.html")
    return folder / "index.html"


def several_machines(folder):
    """The page of a study on four machines, three of them equal in all but their kernel."""
    steps = side_by_side_of.run(0.99, 1.01, metric="step_s", campaign=side_by_side_of.STEPS)
    both = {name: [*own, steps] for name, own in side_by_side_of.of_all().items()}
    records = side_by_side_of.records(**{"thin-2": {"kernel": "6.5"}})
    table = side_by_side_of.table_of(both)
    return side_by_side.write("two", table, records, side_by_side_of.KINDS, folder / "report")


def two_studies(folder):
    """The page of `tare diff`, with claims that agree, that do not, and that one study lacks."""
    claim, equal, more = agreement_of.claim, agreement_of.EQUAL, agreement_of.MORE
    parts = {"metric": "imports_s", "role": "exploratory"}
    podman = claim(*equal, launch="podman", campaign="rounds.host+podman")
    agreement_of.results(folder / "a", claim(*equal), podman, claim(*equal, **parts))
    slower = claim(1.2, 1.21, workload="sentiment_rnn")
    agreement_of.results(folder / "b", claim(*more), slower, claim(1.2, 1.21, **parts), machine="other")
    assert main(["diff", str(folder / "a"), str(folder / "b"), "--out", str(folder / "out")]) == 0
    return folder / "out/index.html"


@pytest.mark.parametrize("written", [weighed, several_machines, two_studies])
def test_a_page_apart_from_reports_is_looked_at_too(browser, tmp_path, written):
    path = written(tmp_path)
    page = load(browser, path)
    assert page.logged == [] and unfilled(page) == []
    assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]
    for width in (390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OUTSIDE) == [] and page.evaluate(TOUCHING) == []
        assert min(page.eval_on_selector_all("svg text", LETTERS), default=8) >= 8
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == {}
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    page.set_viewport_size({"width": 718, "height": 900})
    page.emulate_media(media="print", color_scheme="dark", reduced_motion="reduce")
    assert page.evaluate(OUTSIDE) == []
    assert page.eval_on_selector("body", "node => getComputedStyle(node).backgroundColor") == "rgb(255, 255, 255)"
    page.context.close()


def test_pages_of_notebooks_are_filled_in_accessible_and_fit_a_phone(browser, notebook_pages):
    assert len(notebook_pages) > 7
    page = load(browser, notebook_pages[0], 390)
    for path in notebook_pages:
        page.goto(path.as_uri())
        assert unfilled(page) == [], path.name
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert violations(page) == {}, f"{path.name}, {scheme}"
    assert page.logged == []
    page.context.close()


def test_the_figure_of_a_weighed_job_has_its_values_under_the_pointer(browser, tmp_path):
    page = load(browser, weighed(tmp_path))
    titles = page.eval_on_selector_all("svg circle > title", "nodes => nodes.map(node => node.textContent)")
    assert titles == ["host again: +0.10% ±0.5", "docker: +0.10% ±0.5", f"{SLOW.name}: +6.0% ±0.6"]
    page.context.close()


def test_what_machines_and_studies_are_compared_by_is_on_the_first_screen(browser, tmp_path):
    """The control is the only row that is paler, and a page without one has none."""
    for number, (written, rows) in enumerate(((several_machines, 2), (two_studies, 0))):
        (tmp_path / str(number)).mkdir()
        page = load(browser, written(tmp_path / str(number)))
        assert page.locator(".glance").first.evaluate("node => node.getBoundingClientRect().top") < 900
        assert page.locator(".glance tr.control").count() == rows
        colours = page.eval_on_selector_all(
            ".glance tbody tr:not(.control)", "nodes => nodes.map(node => getComputedStyle(node).color)"
        )
        assert set(colours) == {page.eval_on_selector("body", "node => getComputedStyle(node).color")}
        page.context.close()


@pytest.fixture(scope="module")
def device_report(tmp_path_factory):
    results = builders.build_results(tmp_path_factory.mktemp("device") / "results", device="cuda")
    device_builders.reference(results, results)
    draw_device(results)
    return build(results, results, builders.CUDA_STUDY, results / "report/index.html")


@pytest.fixture(scope="module")
def read_device(browser, device_report):
    return functools.partial(reader(browser, device_report.with_name("print.html")), opened=True)


def test_a_page_of_a_device_has_every_placeholder_filled_in_and_no_labels_that_touch(read_device):
    page = read_device(1280)
    assert unfilled(page) == [] and page.evaluate(TOUCHING) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_of_a_device_fits_its_width_and_draws_everything(read_device, width):
    page = read_device(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in DEVICE_SECTIONS:
        right = page.eval_on_selector_all(
            f"#{name} p, #{name} li, #{name} h3, #{name} h4, #{name} .chip, #{name} figure svg",
            "nodes => Math.max(...nodes.map(n => n.getBoundingClientRect().right))",
        )
        assert right <= width, name
    for name in ("device_time", "device_samples", "choices"):
        assert page.locator(f"figure svg[aria-labelledby^='{name}_mnist_cnn']").count() >= 1, name


@pytest.mark.parametrize("scheme", in_turn(1, SCHEMES))  # the one that the host's pages have not
def test_a_page_of_a_device_has_no_accessibility_violation(read_device, scheme):
    sections = {"include": [[f"#{name}"] for name in DEVICE_SECTIONS]}
    assert violations(read_device(scheme=scheme), within=sections) == {}


def test_letters_in_figures_of_a_device_stay_readable_on_a_phone(read_device):
    assert min(read_device(390).eval_on_selector_all("figure svg text", LETTERS)) >= 8
