"""Official images: pulled from a registry of this machine by digest, run by their own Python in containers."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from image_builders import data_record
from test_images import Host, Runtime
from test_oci import Registry, digest
from test_study import change

from tare.cli.main import main
from tare.core.errors import UserError
from tare.core.files import project_root, read_json
from tare.images import build, official
from tare.launch import sites
from tare.machine.fitting import settled
from tare.model.registry import HOST
from tare.model.schema import parse
from tare.model.studies import arms, campaigns, checks, layout, loading, stacks
from tare.model.studies.stacks import AlikeFile, Official, load_stack

NAME, LIKE = "tensorflow-2.1-official", "tensorflow-2.1"
TAG = load_stack(NAME).official.tag
PACKAGES = "usr/local/lib/python3.6/dist-packages"
LINK = (tarfile.SYMTYPE, "python3.6")
LIBC = b"\0GNU C Library (Ubuntu GLIBC 2.27-3) stable release version 2.27.\n"
LOWER = [
    ("lib/x86_64-linux-gnu/libc-2.27.so", LIBC),
    ("usr/bin/python3.6", b"\x7fELF"),
    ("usr/bin/python3", LINK),
    ("usr/lib/python3/dist-packages/six-1.11.0.egg-info", b""),
    (f"{PACKAGES}/six-1.13.0.dist-info/METADATA", b""),
    (f"{PACKAGES}/tensorflow_cpu-2.1.0.dist-info/METADATA", b""),
    (f"{PACKAGES}/gone-1.0.dist-info/METADATA", b""),
    (f"{PACKAGES}/old/code.py", b""),
]
UPPER = [[(f"{PACKAGES}/.wh.gone-1.0.dist-info", b""), (f"{PACKAGES}/old/.wh..wh..opq", b"")]]
VARIABLES = ["PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The official stack in another place, in a cache of its own; adapters are small ones."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    adapters = {"host": Host(), "docker": Runtime()}
    monkeypatch.setattr(build, "environment", adapters.__getitem__)

    def at(host, **fields):
        given = {"host": host, "repository": "library/tiny", "tag": TAG, "scheme": "http", "timeout_s": 1, **fields}
        stack = replace(load_stack(NAME), official=Official(**given))
        monkeypatch.setattr(build, "load_stack", lambda name, variant="cpu": stack)

    return at


def test_it_is_pulled_by_the_digest_that_its_tag_names_and_kept(place):
    with Registry(*LOWER, upper=UPPER, variables=VARIABLES, tag=TAG) as registry:
        place(registry.host)
        record = build.build(NAME, "cpu")
        assert registry.requests[0].endswith(f"/manifests/{TAG}")
        assert registry.requests[3].endswith(f"/manifests/{registry.index}")
    assert (record.status, record.install, record.python) == ("ok", "official", "/usr/bin/python3")
    assert (record.base.digest, record.base.glibc) == (registry.manifest, "2.27")
    assert record.base.name == f"{registry.host}/library/tiny:{TAG}"
    assert {one.name: one.version for one in record.packages} == {"six": "1.13.0", "tensorflow-cpu": "2.1.0"}
    assert record.tree.inside == f"/{PACKAGES}" and set(record.seconds) == {"base", "assemble"}
    assert record.storage.disk_bytes >= record.bytes
    again = build.build(NAME, "cpu")  # the registry has gone
    assert again.cached and again.replace(cached=False) == record
    with tarfile.open(record.path) as archive:
        blobs = [name for name in archive.getnames() if name.startswith("blobs/sha256/")]
    layers = [digest(layer).removeprefix("sha256:") for layer in registry.layers]
    assert {f"blobs/sha256/{layer}" for layer in layers} <= set(blobs)


def test_a_container_runs_its_own_python_and_the_host_says_why_it_has_none(place):
    with Registry(*LOWER, variables=VARIABLES, tag=TAG) as registry:
        place(registry.host, digest=registry.index)
        record = build.build(NAME, "cpu")
        assert not any(path.endswith(TAG) for path in registry.requests), "where a digest is known no tag is asked"
    form = build.derive(record, "docker")
    assert (form.status, form.python, form.stack) == ("ok", "/usr/bin/python3", NAME)
    assert Path(form.reference).is_file() and form.packages == record.packages
    assert build.ensure(form) == form
    host = build.derive(record, "host")
    assert host.status == "unavailable" and "an official image" in host.reason and "containers alone" in host.reason


def test_an_image_without_a_python_on_its_path_is_unavailable(place):
    with Registry(LOWER[0], ("opt/python3", b"\x7fELF"), variables=VARIABLES, tag=TAG) as registry:
        place(registry.host)
        record = build.build(NAME, "cpu")
    assert record.status == "unavailable" and "no python3 or python on its PATH, /usr/local/bin" in record.reason


def test_where_no_registry_answers_its_words_are_the_record(place, tmp_path):
    with Registry(tag=TAG) as registry:
        pass
    place(registry.host)
    out = tmp_path / NAME / "oci.json"
    common = ["--stack", NAME, "--variant", "cpu"]
    assert main(["build-image", *common, "--optional", "--out", str(out)]) == 0
    record = read_json(out)
    assert record["status"] == "unavailable" and record["reason"].startswith(f"the stack {NAME}: no image")
    assert f"the registry {registry.host} gave no library/tiny:{TAG}: " in record["reason"]
    tree = tmp_path / "tree.json"
    assert main(["build-tree", *common, "--optional", "--out", str(tree)]) == 0
    assert "is an official image" in read_json(tree)["reason"]


def test_what_layers_remove_is_not_there(tmp_path):
    with Registry(*LOWER, upper=UPPER) as registry:
        pass
    paths = []
    for number, layer in enumerate(registry.layers):
        paths.append(tmp_path / f"{number}.tar")
        paths[-1].write_bytes(layer)
    found = official.names_in(paths)
    assert f"/{PACKAGES}/six-1.13.0.dist-info/METADATA" in found
    assert not any("gone" in path or "/old/" in path or ".wh." in path for path in found)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"official": {"host": "a", "repository": "b", "tag": "latest"}}, "'latest' names another image tomorrow"),
        ({"official": {"host": "a", "repository": "b", "tag": "latest-py3"}}, "name the tag of a release"),
        ({"official": {"host": "a", "repository": "b", "tag": "1", "digest": "md5:1"}}, "digest"),
        ({}, "name either library or official"),
    ],
)
def test_what_is_wrong_with_an_official_stack_is_said(own, says):
    with pytest.raises(UserError, match=says):
        parse(AlikeFile, {"name": "a", "like": LIKE, **own}, "stack.yaml", UserError)


def test_its_files_are_no_locks_and_the_host_has_what_it_is_like(monkeypatch):
    assert [str(path) for path in stacks.stack_inputs(NAME)] == [f"containers/stacks/{LIKE}/stack.yaml"]
    arm, folder = arms.parse(f"stack={NAME}+xla"), Path("images/torch-2.13")
    assert layout.image_record(folder, "docker", arm) == Path(f"images/{NAME}/docker.json")
    assert layout.image_record(folder, HOST, arm) == Path(f"images/{LIKE}/{HOST}.json")
    assert (arm.on_host, arms.parse(f"stack={LIKE}").on_host) == (f"{LIKE}+xla", LIKE)
    described = {"stack": NAME}
    assert [arms.stack_of(described, "torch-2.13", env) for env in (HOST, "docker", None)] == [LIKE, NAME, NAME]
    kinds = [load_stack(name).image_kind for name in (NAME, LIKE, f"{LIKE}-onednn", "torch-1.4-openblas")]
    assert kinds == [
        f"official image (tensorflow/tensorflow:{TAG})",
        "pip",
        "built for the target: oneDNN, by pip",
        "built for the target: openblas compiled here, the rest by pip",
    ]


@pytest.fixture
def config():
    return settled(loading.load_checked(project_root() / "config/modak2020.yaml")).to_json()


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("stacks_everywhere",), [], f"{NAME} is an official image, which containers alone can have"),
        (("stacks_everywhere",), [NAME, "jax-0.1"], "stacks_everywhere: jax-0.1 is none of `stacks`"),
        (("stack",), NAME, f"stack: {NAME} is an official image, which no host can have"),
    ],
)
def test_a_study_names_a_container_for_it(config, path, value, says):
    with pytest.raises(UserError, match=says):
        checks.check(change(config, path, value))


def test_where_no_container_has_it_its_campaign_launches_nothing(config, tmp_path, monkeypatch):
    whole = checks.check(config)
    (one,) = [c for c in campaigns.campaigns(whole) if c.stack == NAME]
    assert one.environments == whole.environments and one.workload == "mnist_cnn_scripts"
    prepared = tmp_path / "data.json"
    data_record(name="mnist", dataset="mnist", folder=str(tmp_path)).write(prepared)
    reason = f"the stack {NAME}: no image: the registry gave none"

    def one_host(study, workload, names, *arguments, **options):
        class Enter:
            def __enter__(self):
                return {HOST: None}, {name: reason for name in names if name != HOST}, {}

            def __exit__(self, *_):
                pass

        return Enter()

    monkeypatch.setattr(sites, "sites", one_host)
    with sites.launch_sites(whole, one.workload, one.environments, None, prepared, arms.parse(one.arm)) as found:
        assert found[:2] == ({}, dict.fromkeys(one.environments, reason))
