"""The archive as a Provenance Run Crate: the validator passes it, and the profile's own questions have answers.

The questions are those of https://www.researchobject.org/workflow-run-crate/requirements, in SPARQL. No network is
asked: `TERMS` and `RUN_TERMS` are what the contexts say of the terms that a crate of ours uses.
"""

import json
import subprocess

import archive_builders
import pytest
from archive_builders import CAMPAIGN, DIGEST

from tare.archive import crate, writing
from tare.archive.members import CRATE
from tare.archive.reading import opened
from tare.core.files import sha256_file
from tare.core.places import project_root

SCHEMA, RUN = "http://schema.org/", "https://w3id.org/ro/terms/workflow-run#"
TERMS = {
    **{
        name: SCHEMA + name
        for name in (
            "ComputerLanguage", "ControlAction", "CreateAction", "CreativeWork", "Dataset", "HowTo", "HowToStep",
            "OrganizeAction", "PropertyValue", "SoftwareApplication", "SoftwareSourceCode", "about", "actionStatus",
            "additionalType", "agent", "contentSize", "datePublished", "description", "encodingFormat", "endTime",
            "error", "hasPart", "identifier", "instrument", "license", "mainEntity", "mentions", "name", "object",
            "position", "programmingLanguage", "propertyID", "result", "softwareVersion", "startTime", "step",
            "subjectOf", "unitCode", "url", "value", "version", "workExample",
        )
    },
    "File": f"{SCHEMA}MediaObject",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
    "ComputationalWorkflow": "https://bioschemas.org/ComputationalWorkflow",
}  # fmt: skip
RUN_TERMS = {name: RUN + name for name in ("ContainerImage", "containerImage", "resourceUsage", "sha256")}
CONTEXTS = {f"{crate.RO_CRATE}/context": TERMS, f"{crate.RUN_TERMS}/context": RUN_TERMS}
BASE, PROFILE = "http://crate/", "provenance-run-crate-0.5"
PREFIXES = f"""
PREFIX s: <{SCHEMA}>
PREFIX run: <{RUN}>
PREFIX bioschemas: <https://bioschemas.org/>
PREFIX codemeta: <https://codemeta.github.io/terms/>
"""


def checked(**question):
    """What tests/crate_checks.py answers, in the environment that has the validator (`make setup-test`)."""
    root = project_root()
    python = root / ".crate/bin/python"
    assert python.exists(), "make setup-test installs roc-validator, in .crate"
    argv = [str(python), str(root / "tests/crate_checks.py")]
    asked = json.dumps({"contexts": CONTEXTS, **question})
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crate")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return writing.write(archive_builders.results_in(folder), folder / "study.zip").path


@pytest.fixture(scope="module")
def root(archive):
    with opened(archive) as folder:
        yield folder


@pytest.fixture(scope="module")
def entities(root):
    return {one["@id"]: one for one in json.loads((root / CRATE).read_text())["@graph"]}


@pytest.fixture(scope="module")
def answers(root):
    """Rows by name of the question, of the crate as a graph."""
    whole = json.loads((root / CRATE).read_text())
    remote = [CONTEXTS[one] if isinstance(one, str) else one for one in whole["@context"]]
    queries = {name: PREFIXES + query for name, query in ASKED.items()}
    return checked(graph={**whole, "@context": remote}, base=BASE, queries=queries)


@pytest.fixture
def issues(tmp_path_factory):
    """What the validator says against a crate: names of its checks."""
    cache = tmp_path_factory.mktemp("http") / "cache"

    def of(path, severity="REQUIRED"):
        return set(checked(crate=str(path), profile=PROFILE, severity=severity, cache=str(cache)))

    return of


@pytest.mark.parametrize("packed", [True, False])
def test_the_validator_passes_it(archive, root, packed, issues):
    assert not issues(archive if packed else root)


def test_of_what_is_recommended_it_lacks_what_nobody_knows(archive, issues):
    """Who ran it and who publishes it; where an image that was built there is hosted; pages of runtimes."""
    lacking = issues(archive, "RECOMMENDED")
    assert lacking == {
        "Action agent", "Root Data Entity: `author` property", "Root Data Entity: `publisher` property",
        "Root Data Entity: `license` SHOULD link to a Contextual Entity", "ContainerImage registry",
        "Application url", "SoftwareApplication id", "version or softwareVersion", "environment file conformsTo",
        "README.md about", "README.md encodingFormat",
    }  # fmt: skip


def test_the_validator_finds_what_is_wrong(root, tmp_path, issues):
    whole = json.loads((root / CRATE).read_text())
    for entity in whole["@graph"]:
        if entity["@type"] == "HowToStep":
            del entity["workExample"]
    whole["@graph"][1].pop("license")
    (tmp_path / CRATE).write_text(json.dumps(whole))
    found = " ".join(issues(tmp_path))
    assert "workExample" in found and "license" in found and "availability" in found


RUN_OF_WORKFLOW = "?a a s:CreateAction ; s:instrument ?w . ?w a bioschemas:ComputationalWorkflow ."
OWN = f"in {'/'.join(CAMPAIGN.parts[-3:])}"  # how the names of a campaign's actions end
ASKED = {
    "images of the run": f"SELECT ?sha {{ {RUN_OF_WORKFLOW} ?a run:containerImage [ run:sha256 ?sha ] }}",
    "images of launches": """SELECT ?name ?kind ?sha {
        ?a s:name ?name ; run:containerImage ?i . FILTER(CONTAINS(?name, ' in '))
        ?i a run:ContainerImage ; s:additionalType ?kind ; run:sha256 ?sha } ORDER BY ?name""",
    "time of the run": f"SELECT ?start ?end {{ {RUN_OF_WORKFLOW} ?a s:startTime ?start ; s:endTime ?end }}",
    "use by launches in docker": f"""SELECT ?id ?unit ?value {{
        ?a s:name 'docker {OWN}' ; run:resourceUsage [ s:propertyID ?id ; s:unitCode ?unit ; s:value ?value ]
        }} ORDER BY ?id""",
    "agents": "SELECT ?who { ?a s:agent|s:author|s:creator|s:publisher ?who }",
    "configuration": f"SELECT ?file {{ {RUN_OF_WORKFLOW} ?a s:object ?file }}",
    "environment files": "SELECT ?file { ?s a s:HowToStep ; codemeta:buildInstructions ?file }",
    "success": "SELECT ?status { ?a a s:CreateAction ; s:actionStatus ?status }",
    "inputs": "SELECT ?file { ?a a s:CreateAction ; s:object ?file }",
    "outputs": "SELECT ?file { ?a a s:CreateAction ; s:result ?file }",
    "versions": "SELECT ?name ?version { ?t a s:SoftwareApplication ; s:name ?name ; s:softwareVersion ?version }",
}


@pytest.fixture
def ask(answers):
    return lambda question: [tuple(row) for row in answers[question]]


def test_which_container(ask):
    """Of the run as a whole, and of each environment's launches."""
    digest = DIGEST.removeprefix("sha256:")
    assert ask("images of the run") == [(digest,)] * 2
    assert ask("images of launches") == [
        (f"apptainer {OWN}", f"{RUN}SIFImage", digest),
        (f"docker {OWN}", f"{RUN}DockerImage", digest),
    ]


def test_how_long(ask):
    """From the ledger's instant to the seal's, and the launches' own seconds."""
    ((start, end),) = ask("time of the run")
    assert start.endswith("+00:00") and end == "2026-01-02T03:04:05+00:00"
    launches, seconds = ask("use by launches in docker")
    assert launches == ("urn:tare:launches", crate.ONE, "3")
    assert seconds[:2] == ("urn:tare:seconds", crate.SECONDS) and 1 < float(seconds[2]) < 100


def test_by_whom_is_left_empty(ask, entities):
    assert not ask("agents")
    assert not [one for one in entities.values() if one["@type"] in ("Person", "Organization")]


def test_the_other_questions(ask):
    """Configuration, environment files, success, inputs and outputs, versions."""
    assert ask("configuration") == [(f"{BASE}config/nyu2022.yaml",)]
    assert (f"{BASE}containers/stacks/torch-2.13/stack.yaml",) in ask("environment files")
    assert set(ask("success")) == {(crate.DONE,)}
    assert {(f"{BASE}{CAMPAIGN}/plan.json",), (f"{BASE}results/data/mnist.json",)} <= set(ask("inputs"))
    assert {(f"{BASE}{CAMPAIGN}/units.jsonl",), (f"{BASE}results/report/index.html",)} <= set(ask("outputs"))
    assert ("Docker", "1.2.3") in ask("versions")


def test_terms_are_those_that_the_contexts_here_have(root):
    """The test's own contexts have every term, so that nothing drops out of the graph without a word."""
    keys, types = set(), set()
    for entity in json.loads((root / CRATE).read_text())["@graph"]:
        keys |= entity.keys() - {"@id", "@type"}
        types |= {entity["@type"]} if isinstance(entity["@type"], str) else set(entity["@type"])
    assert keys | types <= {*TERMS, *RUN_TERMS, "buildInstructions"}


def test_files_have_their_hashes(root, entities):
    files = [one for one in entities.values() if "File" in one["@type"]]
    assert len(files) > 100
    for one in files:
        assert one["sha256"] == sha256_file(root / one["name"] if one["name"] != "Tare" else root / "Snakefile")


def test_a_campaign_that_was_not_finished_says_so(tmp_path, monkeypatch, issues):
    monkeypatch.chdir(tmp_path)
    study = archive_builders.results_in(tmp_path)
    (CAMPAIGN / "sealed.json").unlink()
    writing.write(study, tmp_path / "a.zip")
    with opened(tmp_path / "a.zip") as root:
        graph = json.loads((root / CRATE).read_text())["@graph"]
    actions = {one["@id"]: one for one in graph if "Action" in str(one["@type"])}
    own = actions["#launches/" + "/".join(CAMPAIGN.parts[-3:]) + "/docker"]
    assert own["actionStatus"] == crate.FAILED and "endTime" not in own and own["error"] == "it was not finished"
    assert actions[crate.RUN_ACTION]["actionStatus"] == crate.FAILED
    assert not issues(tmp_path / "a.zip")
