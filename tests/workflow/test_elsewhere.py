"""The workflow in a folder of its own, as a module of another one, and Snakemake's own report of its pages."""

import base64
import json
import re
import shutil
import zipfile

import builders
import pytest
from pages import draw
from project import copy_checkout, snakemake, take_for_done

from tare.report import build

pytestmark = pytest.mark.workflow

SMOKE = ("--configfile", "config/smoke.yaml")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the project."""
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "tare")


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def planned(done):
    """Titles of the jobs of a dry run, by either logger."""
    return set(re.findall(r"^(?:would |Job \d+: )(.*?)(?:  \(.*)?$", done.stdout + done.stderr, re.MULTILINE))


@pytest.mark.parametrize("study", [(), SMOKE, ("--config", "naive_image=True", "device=cuda")])
def test_a_plan_is_the_same_in_another_folder(checkout, tmp_path, study):
    before = files_of(checkout)
    there = planned(snakemake(checkout, "-n", "--directory", str(tmp_path / "runs"), *study))
    assert files_of(checkout) == before
    assert len(there) > 20 and there == planned(snakemake(checkout, "-n", *study))
    shutil.rmtree(checkout / ".snakemake")


def test_what_a_run_makes_lies_in_its_folder_and_nothing_in_the_checkout(checkout, tmp_path):
    before, runs = files_of(checkout), tmp_path / "runs"
    wanted = ("results/machines/box/machine.json", "results/probe/box/host.json")
    words = ("--cores", "1", "--directory", str(runs), *wanted)
    snakemake(checkout, *words, PYTHONPATH=str(checkout))
    assert files_of(checkout) == before
    made = {name.split("/")[0] for name in files_of(runs)}
    assert made == {"results", ".snakemake"}
    assert json.loads((runs / "results/probe/box/host.json").read_text())["available"]
    assert (runs / "results/logs/probe/box/host.log").exists()
    done = snakemake(checkout, "-n", *words)
    assert "nothing to be done" in (done.stdout + done.stderr).lower()
    (runs / "edited.yaml").write_text("study: other\nenvironments: [host, dokker]\n")
    done = snakemake(
        checkout, "-n", "--directory", str(runs), "--configfile", str(runs / "edited.yaml"), check=False
    )
    assert done.returncode and "dokker" in done.stdout + done.stderr


MODULE = """
import yaml


configfile: "own.yaml"


module tare:
    snakefile:
        "{checkout}/Snakefile"
{more}


use rule * from tare{naming}


rule mine:
    default_target: True
    input:
        "{wanted}",
    output:
        "mine.txt",
    shell:
        "cp {{input}} {{output}}"
"""
SMOKE_CONFIG = '    config:\n        yaml.safe_load(open("{checkout}/config/smoke.yaml"))'


def calling(folder, checkout, *, more="", naming="", wanted="results/machines/box/machine.json"):
    """Another workflow, with a file of settings of its own, that has Tare as a module."""
    folder.mkdir(exist_ok=True)
    (folder / "own.yaml").write_text("samples: [one]\n")
    text = MODULE.format(checkout=checkout, more=more.format(checkout=checkout), naming=naming, wanted=wanted)
    (folder / "Snakefile").write_text(text)
    return folder


def calls(folder, checkout, *words, check=True):
    return snakemake(folder, "--cores", "1", *words, check=check, PYTHONPATH=str(checkout))


@pytest.mark.parametrize(
    ("more", "naming", "results", "words"),
    [
        ("", "", "results", ()),
        ("", " as tare_*", "results/smoke", SMOKE),
        (SMOKE_CONFIG, " exclude all as tare_*", "results/smoke", ()),
    ],
)
def test_as_a_module_it_plans_the_whole_study(checkout, tmp_path, more, naming, results, words):
    page = f"{results}/report"
    folder = calling(tmp_path / "mine", checkout, more=more, naming=naming, wanted=page)
    shutil.copytree(checkout / "config", folder / "config") if words else None
    plan = planned(calls(folder, checkout, "-n", *words))
    own = planned(snakemake(checkout, "-n", page, *(SMOKE if "smoke" in results else ())))
    assert len(own) > 20 and own <= plan
    shutil.rmtree(checkout / ".snakemake")


def test_a_job_of_the_module_runs_in_the_calling_folder(checkout, tmp_path):
    before, folder = files_of(checkout), calling(tmp_path / "mine", checkout, naming=" as tare_*")
    calls(folder, checkout)
    assert json.loads((folder / "mine.txt").read_text()) == json.loads(
        (folder / "results/machines/box/machine.json").read_text()
    )
    assert files_of(checkout) == before


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('    prefix:\n        "sub"', "prefix"),
        ('    replace_prefix:\n        {{"results/": "sub/"}}', "prefix"),
        ('    config:\n        {{"studdy": "x"}}', "studdy"),
    ],
)
def test_a_module_that_cannot_be_is_refused_by_name(checkout, tmp_path, more, says):
    folder = calling(tmp_path / "mine", checkout, more=more)
    done = calls(folder, checkout, "-n", check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if says in line]
    assert done.returncode and len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_some_rules_of_the_module_can_be_taken_alone(checkout, tmp_path):
    folder = calling(tmp_path / "mine", checkout)
    path = folder / "Snakefile"
    path.write_text(path.read_text().replace("use rule *", "use rule describe_machine"))
    calls(folder, checkout)
    assert (folder / "mine.txt").exists()


# Snakemake's own report.


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A copy in which the smoke study is taken for done, with real pages, of another study."""
    folder = copy_checkout(tmp_path_factory.mktemp("written") / "tare")
    take_for_done(folder, ("--cores", "1", "all", *SMOKE))
    results = builders.build_results(tmp_path_factory.mktemp("pages") / "results")
    draw(results)
    build(results, results, builders.STUDY, folder / "results/smoke/report/index.html")
    snakemake(folder, "--cores", "1", "--touch", "all", *SMOKE)
    return folder


def pages_of(folder):
    found = {path.name: path.read_text() for path in (folder / "results/smoke/report").glob("*.html")}
    assert len(found) > 9 and {"index.html", "print.html", "why.html"} <= set(found)
    return found


def links(html):
    """Addresses of other pages beside this one, and fragments."""
    hrefs = re.findall(r'href="([^":]*)"', html)
    return {tuple(href.partition("#")[::2]) for href in hrefs if not href.startswith("../")}


def test_a_report_as_archive_has_every_page_and_their_links_work(written, tmp_path):
    snakemake(written, "--cores", "1", "--report", str(tmp_path / "report.zip"), "all", *SMOKE)
    with zipfile.ZipFile(tmp_path / "report.zip") as packed:
        names = [name for name in packed.namelist() if name.endswith("/index.html")]
        (index,) = names
        inside = {
            name.rpartition("/")[2]: packed.read(name).decode()
            for name in packed.namelist()
            if name.rpartition("/")[0] == index.rpartition("/")[0]
        }
        frame = packed.read("report/report.html").decode()
    pages = pages_of(written)
    assert inside == pages
    assert index.removeprefix("report/") in frame
    led = {(name, *link) for name, html in pages.items() for link in links(html)}
    assert {("index.html", "why.html", ""), ("why.html", "index.html", "")} <= led
    for name, page, fragment in led:
        target = inside[page or name]
        assert not fragment or f'id="{fragment}"' in target, (name, page, fragment)


def test_a_report_in_one_file_has_every_page_and_one_that_needs_no_other(written, tmp_path):
    snakemake(written, "--cores", "1", "--report", str(tmp_path / "report.html"), "all", *SMOKE)
    packed = re.findall(r"data:text/html;[^,\"]*base64,([A-Za-z0-9+/=]+)", (tmp_path / "report.html").read_text())
    inside = {base64.b64decode(one).decode() for one in packed}
    pages = pages_of(written)
    assert set(pages.values()) <= inside
    content = pages["print.html"].partition("</nav>")[2]
    assert {page for page, _ in links(content)} <= {"", "print.html"}


def test_pages_that_are_there_make_nothing_run_again(written):
    done = snakemake(written, "-n", "--cores", "1", "all", *SMOKE)
    assert "nothing to be done" in (done.stdout + done.stderr).lower()
    (written / "results/smoke/report/why.html").touch()
    done = snakemake(written, "-n", "--cores", "1", "all", *SMOKE)
    assert "nothing to be done" in (done.stdout + done.stderr).lower()
