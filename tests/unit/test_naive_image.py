"""A naive image beside ours: its build's arguments, its archive's weight, its record to the table, when it pays."""

import dataclasses
import gzip
import io
import json
import math
import tarfile
from pathlib import Path
from types import SimpleNamespace

import builders
import image_cost_builders
import pytest
from pages import visible

from envs import apptainer
from tare.analysis import image_costs, naive_images
from tare.analysis.choice import of_rounds
from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import sha256_file, write_json
from tare.core.process import Finished
from tare.experiments import definition_image
from tare.experiments import naive_image as making
from tare.images import naive
from tare.images.definition import ways
from tare.images.oci import ARCHIVE, TarLayer, assemble
from tare.model.environment import Probe
from tare.model.records.naive_image import DefinitionBuilds, NaiveImageRecord
from tare.model.schema import read
from tare.model.studies.stacks import load_stack
from tare.model.studies.study import check, load_checked
from tare.report import evidence
from tare.report.images import break_even
from tare.report.images import naive_image as words
from tare.stats.break_even import NEVER, pull_seconds, runs_until_paid

STACK = image_cost_builders.STACK
NAMES = ("host", "docker", "apptainer")


def table_of(folder, record=None):
    image_cost_builders.image_records(folder, NAMES, {})
    path = folder / STACK / "naive/record.json"
    write_json(path, record or image_cost_builders.naive_record())
    return image_costs.build("nyu2022", [image_costs.read_forms(folder, STACK, NAMES, path)], None)


def number(table, item, env="oci"):
    return image_costs.cost(table, STACK, env, item)


# --- making


def test_the_build_has_no_network_and_no_cache_where_none_may_be(tmp_path):
    cold, again = (naive.build_command(tmp_path, "x", cached=cached) for cached in (False, True))
    assert tuple(cold[cold.index("--network") :][:2]) == ("--network", "none")
    assert "--no-cache" in cold and "--no-cache" not in again
    assert cold[-1] == str(tmp_path)


def test_steps_are_the_builders_own_count():
    assert naive.steps_of("Step 1/8 : FROM x\n ---> 1\nStep 2/8 : WORKDIR /app\n") == 8
    with pytest.raises(UnavailableError, match="names no steps"):
        naive.steps_of("[+] Building 199.7s (17/17) FINISHED")


def test_the_context_has_what_the_dockerfile_copies(tmp_path):
    """The interpreter without its packages, pip in their place, the lock by hash, our code."""
    root = tmp_path / "tree"
    entries = []
    for name in ("bin/python3.11", "lib/python3.11/os.py", "lib/python3.11/site-packages/numpy/__init__.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
        entries.append({"path": name, "mode": 0o755 if name.startswith("bin") else 0o644})
    entries.append({"path": "bin/python3", "link": "python3.11"})
    wheel = tmp_path / "numpy-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    wheels = [SimpleNamespace(name="numpy", version="1.0", sha256="a" * 64, path=wheel)]
    context = tmp_path / "context"
    context.mkdir()
    naive.write_context(context, SimpleNamespace(path=root, entries=entries), wheels)
    packages = context / "python/lib/python3.11/site-packages"
    assert [path.name for path in packages.iterdir()] == ["pip"]
    assert (context / "python/bin/python3").readlink().name == "python3.11"
    assert (context / "python/bin/python3.11").stat().st_mode & 0o111
    assert (context / "requirements.txt").read_text() == f"numpy==1.0 --hash=sha256:{'a' * 64}\n"
    copied = {line.split()[1] for line in (context / "Dockerfile").read_text().splitlines() if "COPY " in line[:5]}
    assert copied == {path.name for path in context.iterdir()} - {"Dockerfile"}
    before = (context / naive.TOUCHED).read_text()
    naive.touch_code(context)
    assert (context / naive.TOUCHED).read_text() == before + "# another line\n"


def archive_of(folder, contents):
    """An archive of one layer for each text, as we write them."""
    layers = []
    for number_, text in enumerate(contents):
        path = folder / f"{number_}.tar"
        with tarfile.open(path, "w") as tar:
            member = tarfile.TarInfo("file")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        digest = f"sha256:{sha256_file(path)}"
        layers.append(
            TarLayer(path=path, digest=digest, made_by=f"/bin/sh -c #(nop) COPY {number_} in /app/wheels")
        )
    assemble(layers, config={"env": {}, "workdir": "/", "labels": {}}, labels={}, name="tare/x", folder=folder)
    return folder / ARCHIVE, layers


def test_layers_are_counted_as_they_lie_in_an_archive(tmp_path):
    texts = (b"a" * 70_000, bytes(range(256)) * 40)
    archive, layers = archive_of(tmp_path, texts)
    found = naive.saved_layers(archive)
    assert [layer.digest for layer in found] == [layer.digest for layer in layers]
    assert [layer.bytes for layer in found] == [layer.path.stat().st_size for layer in layers]
    assert found[0].made_by == "COPY 0 in /app/wheels"
    for layer, size, own in zip(found, naive.gzip_sizes(found), layers, strict=True):
        naive.copy_layer(layer, tmp_path / "copy.tar")
        assert (tmp_path / "copy.tar").read_bytes() == own.path.read_bytes()
        assert size == pytest.approx(len(gzip.compress(own.path.read_bytes(), naive.GZIP_LEVEL)), abs=12)
    assert naive.stack_begins(found) == 0


def saved_by_containerd(folder, texts, packed):
    """An archive as `docker save` writes it from containerd's store, where layers are compressed."""
    archive, layers = archive_of(folder, texts)
    target = folder / "saved.tar"
    with tarfile.open(archive) as ours, tarfile.open(target, "w") as tar:
        listed = json.load(ours.extractfile("manifest.json"))
        for member in ours:
            data = ours.extractfile(member).read() if member.isfile() else b""
            if member.name in listed[0]["Layers"]:
                data = packed(data)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return target, layers


def in_two_parts(data):
    return gzip.compress(data[:1000]) + gzip.compress(data[1000:])


@pytest.mark.parametrize("packed", [gzip.compress, in_two_parts], ids=["whole", "in parts"])
def test_layers_that_containerds_store_keeps_compressed_are_counted_as_their_tars(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(naive, "COPY_BYTES", 4096)
    archive, layers = saved_by_containerd(tmp_path, (b"a" * 70_000, bytes(range(256)) * 40), packed)
    found = naive.saved_layers(archive)
    assert [layer.digest for layer in found] == [layer.digest for layer in layers]
    assert [layer.bytes for layer in found] == [layer.path.stat().st_size for layer in layers]
    for layer, own in zip(found, layers, strict=True):
        assert layer.gzip_bytes < layer.bytes
        naive.copy_layer(layer, tmp_path / "copy.tar")
        assert (tmp_path / "copy.tar").read_bytes() == own.path.read_bytes()
    plain, _ = archive_of(tmp_path, (b"a" * 70_000, bytes(range(256)) * 40))
    assert naive.gzip_sizes(found) == naive.gzip_sizes(naive.saved_layers(plain))


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (lambda data: naive.ZSTD_SIGN + data, "compressed by zstd"),
        (lambda data: gzip.compress(data)[:-20], "cut short"),
        (lambda data: naive.GZIP_SIGN + data, "that is no gzip"),
    ],
    ids=["zstd", "cut", "wrong"],
)
def test_a_saved_layer_that_can_not_be_read_is_named(tmp_path, packed, said):
    archive, layers = saved_by_containerd(tmp_path, (b"a" * 5000,), packed)
    with pytest.raises(UnavailableError, match=f"saved.tar has a .*{said}.*{layers[0].digest}"):
        naive.saved_layers(archive)


def test_equal_layers_that_a_daemon_saved_once_are_both_counted(tmp_path):
    """Older daemons save a second, equal layer as a link to the first."""
    layer = b"x" * 1024
    config = {"history": [{"created_by": "COPY a in /"}, {"empty_layer": True}, {"created_by": "COPY b in /"}]}
    config |= {"rootfs": {"diff_ids": ["sha256:1", "sha256:1"]}}
    names = {"Config": "config.json", "Layers": ["one/layer.tar", "two/layer.tar"]}
    files = {"config.json": config, "manifest.json": [names]}
    with tarfile.open(tmp_path / "saved.tar", "w") as tar:
        for name, data in [("one/layer.tar", layer), *((n, json.dumps(v).encode()) for n, v in files.items())]:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("two/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../one/layer.tar"
        tar.addfile(link)
    first, second = naive.saved_layers(tmp_path / "saved.tar")
    assert second.blob == first.blob and (first.bytes, second.made_by) == (1024, "COPY b in /")
    with pytest.raises(UnavailableError, match="no layer of the image holds /app/wheels"):
        naive.stack_begins([first, second])


def test_what_changed_is_all_from_the_first_new_layer_on():
    assert naive.first_difference(["a", "b", "c"], ["a", "x", "y"]) == 1
    assert naive.first_difference(["a", "b"], ["a", "b"]) == 2


def test_without_a_daemon_the_record_has_the_reason(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise UnavailableError("no Docker daemon answers")

    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    monkeypatch.setattr(making, "with_interpreter", lambda stack: (stack, None))
    monkeypatch.setattr(making, "fetch_fitting", lambda stack: (stack, SimpleNamespace(wheels=())))
    monkeypatch.setattr(making, "compare", refuse)
    built = DefinitionBuilds.model_validate_json(json.dumps(image_cost_builders.definition_builds()))
    monkeypatch.setattr(making, "build_definitions", lambda *arguments: built)
    out = tmp_path / "naive/record.json"
    assert main(["naive-image", "--stack", STACK, "--variant", "cpu", "--out", str(out)]) == 0
    found = read(NaiveImageRecord, out)
    assert (found.status, found.naive) == ("unavailable", None) and "no Docker daemon answers" in found.reason
    assert [(one.way, one.status) for one in found.definition.builds] == [
        ("root", "unavailable"),
        ("fakeroot", "ok"),
        ("namespace", "ok"),
    ]


def test_a_study_without_docker_has_the_definition_file_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    monkeypatch.setattr(making, "with_interpreter", lambda stack: (stack, None))
    monkeypatch.setattr(making, "fetch_fitting", lambda stack: (stack, SimpleNamespace(wheels=())))
    calls, comparison = [], making._none(load_stack(STACK), UnavailableError("it was asked for"))
    monkeypatch.setattr(making, "compare", lambda *arguments: calls.append(arguments) or comparison)
    built = DefinitionBuilds.model_validate_json(json.dumps(image_cost_builders.definition_builds()))
    monkeypatch.setattr(making, "build_definitions", lambda *arguments: built)
    out = tmp_path / "record.json"
    for envs, says in (
        (["host", "apptainer"], "docker, which builds it, is none of the study's"),
        (["docker"], "asked"),
    ):
        making.measure_naive_image(STACK, "cpu", [SimpleNamespace(env=env) for env in envs], out)
        found = read(NaiveImageRecord, out)
        assert says in found.reason and found.definition == built
    assert len(calls) == 1


def test_without_packages_or_apptainer_every_way_has_the_reason(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise UnavailableError("no wheels here")

    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    monkeypatch.setattr(making, "with_interpreter", lambda stack: (stack, None))
    monkeypatch.setattr(making, "fetch_fitting", refuse)
    out = tmp_path / "naive/record.json"
    making.measure_naive_image(STACK, "cpu", [], out)
    found = read(NaiveImageRecord, out)
    assert {one.reason for one in found.definition.builds} == {found.reason} == {"no wheels here"}
    lacking = SimpleNamespace(probe=lambda: Probe(available=False, reason="no apptainer", remedy="install it"))
    monkeypatch.setattr(definition_image, "environment", lambda name: lacking)
    none = definition_image.build_definitions(None, [], None)
    assert {one.reason for one in none.builds} == {"no apptainer (mend it: install it)"} and none.builder is None


# --- the definition file

PROGRAM, HERE = Path("/bin/apptainer"), (Path("a.def"), Path("o.sif"))


def test_each_way_to_be_root_is_its_own_command():
    def command(way, root):
        return ways.build_command(PROGRAM, way, *HERE, root=root, processors=2)

    commands = {way: command(way, True) for way in ways.WAYS}
    rest = ["--mksquashfs-args", "-comp zstd -Xcompression-level 3 -processors 2", "o.sif", "a.def"]
    build = ["/bin/apptainer", "build", "--disable-cache"]
    assert commands == {
        "root": ["unshare", "--net", "--", *build, *rest],
        "fakeroot": ["unshare", "--net", "--", *build, "--fakeroot", *rest],
        "namespace": ["unshare", "--user", "--map-root-user", "--net", "--", *build, *rest],
    }
    # newuidmap gives no ids within a user namespace, so an ordinary user's --fakeroot begins in none.
    assert command("fakeroot", False) == [*build, "--fakeroot", *rest]
    assert command("namespace", False) == commands["namespace"]
    with pytest.raises(UnavailableError, match="only root builds so"):
        command("root", False)
    assert set(ways.WAYS) == set(naive_images.WAYS)
    assert ways.COMPRESSION.split() == list(apptainer.COMPRESSION)  # else sizes and seconds could not be compared


def test_the_definition_has_the_dockerfiles_steps():
    root = naive.project_root()
    dockerfile, definition = (root / name for name in (naive.DOCKERFILE, ways.DEFINITION))
    steps = [line.split(maxsplit=1) for line in dockerfile.read_text().splitlines() if line[:1].isupper()]
    lines = [line.strip() for line in definition.read_text().splitlines()]
    assert [rest for name, rest in steps if name == "RUN"] == [line for line in lines if " -m pip " in line]
    copied = {rest.split()[0] for name, rest in steps if name == "COPY"}
    files = lines[lines.index("%files") + 1 : lines.index("%post")]
    assert {line.split()[0].removesuffix("/*") for line in files if line} == copied
    assert f"From: {ways.BASE}" in lines


def ended(stderr, stdout="", status=255):
    return Finished(
        argv=("unshare",), returncode=status, stdout=stdout, stderr=stderr, started_ns=0, ended_ns=1, user_s=0.0,
        system_s=0.0, timed_out=False,
    )  # fmt: skip


POST = "FATAL:   While performing build: while running engine: while running %post section: exit status 1"
CAPABILITIES = "Requesting capability set 0x000001ffffffffff while permitted capability set is 0x000001fffeffffff"
COPYING = (
    "FATAL:   While performing build: unable to copy files from host to container fs: while copying [x] to /r/x: "
)
RUNNING = "INFO:    Running post scriptlet\n"
WHILE = "FATAL:   While performing build: "
# As Apptainer 1.4.5 prints it, and what is told of it.
PRINTED = {
    RUNNING + "+ cat /none\ncat: /none: No such file\n" + POST: "%post failed: cat: /none: No such file",
    RUNNING + "+ exit 3\n" + POST: "%post failed: + exit 3",
    RUNNING + POST: "%post failed: exit status 1",
    f"\x1b[91mERROR  : {CAPABILITIES}\n\x1b[0m{POST}": f"%post failed: {CAPABILITIES}",
    f"{COPYING}: [-fLr x /r/x]: /usr/bin/cp: cannot stat 'x': No such file": "%files failed: /usr/bin/cp: cannot "
    "stat 'x': No such file",
    f"{WHILE}failed to execute %test script: exit status 3": "%test failed: exit status 3",
    f"{WHILE}conveyor failed to get: open b.tar: no such file": "conveyor failed to get: open b.tar: no such file",
    "unshare: unshare failed: Operation not permitted": "unshare ended with status 255: unshare: unshare failed: "
    "Operation not permitted",
    f"cp: No space left on device\n{POST}": "apptainer found no space left: free some, or point TARE_CACHE and "
    "TMPDIR at a larger disk",
}


@pytest.mark.parametrize(("printed", "told"), PRINTED.items())
def test_a_build_that_failed_is_told_in_one_line_by_its_step_and_its_last_words(printed, told):
    assert ways.explain(ended(printed)) == told


def test_a_way_that_the_machine_lacks_comes_with_its_remedy(monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 0)
    none = ended("FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid for root")
    found = ways.refused(none, "root", "ann:100000:65536\n# a note\n")
    assert found.reason == "could not use fakeroot: no mapping entry found in /etc/subuid for root"
    assert found.remedy == "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 root"
    assert "usermod --add-subuids 100000-165535" in ways.refused(none, "root", "").remedy
    assert "every capability" in ways.refused(ended(f"ERROR  : {CAPABILITIES}\n{POST}"), "root", "").remedy
    assert ways.refused(ended(POST), "root", "").remedy is None
    assert ways.refused(ended("INFO:    Build complete: o.sif", status=0), "root", "") is None


def test_a_build_that_went_another_way_than_asked_does_not_count():
    """Without further ids, --fakeroot of an ordinary user is that user's namespace, and says so."""
    fell_back = "INFO:    User not listed in /etc/subuid, trying root-mapped namespace\nINFO:    Build complete: o"
    found = ways.refused(ended(fell_back, status=0), "ann", "")
    assert found.reason == "User not listed in /etc/subuid, trying root-mapped namespace"
    assert "usermod --add-subuids" in found.remedy


def test_bad_words_are_one_line(tmp_path, capsys):
    out = ["--out", str(tmp_path / "record.json")]
    assert main(["naive-image", "--stack", "torch", *out]) == 2
    missing = ["--environments", "host", "--images", str(tmp_path)]
    assert main(["naive-image", "--stack", STACK, "--variant", "cpu", *missing, *out]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "host.json yet" in errors[1]


def test_a_study_asks_for_it_and_the_default_does_not():
    assert not load_checked("config/config.yaml").naive_image
    study = load_checked("config/full.yaml")
    assert study.naive_image
    with pytest.raises(UserError, match="naive_image: it needs packages that are locked"):
        check(
            {
                **study.to_json(),
                "stack": "bound",
                "stacks": [],
                "arms": {"workloads": [], "rounds": []},
            }
        )


# --- the table and the page


def test_the_table_has_both_images_each_number_with_its_kind(tmp_path):
    table = table_of(tmp_path)
    assert number(table, "naive_build_s") == 90.0 and number(table, "ours_build_s") == 26.0
    assert number(table, "naive_push_bytes") == 525_050_000 and number(table, "ours_push_bytes") == 270_000_000
    assert number(table, "naive_push_stack_bytes") == 490_050_000
    assert number(table, "naive_push_code_bytes") == 50_000 and number(table, "ours_push_code_bytes") == 0
    assert number(table, "naive_image_bytes") == 3 * 525_050_000
    assert number(table, "ours_convert_s", "apptainer") == 18.0
    assert number(table, "naive_convert_s", "docker") is None
    assert "store of its own" in image_costs.why_not(table, STACK, "podman", "naive_convert_s")
    kinds = table[table["campaign"] == naive_images.CAMPAIGN].set_index(["env", "item"])["kind"]
    assert kinds["oci", "naive_push_stack_bytes"] == kinds["oci", "ours_push_code_bytes"] == "modelled"
    assert kinds["oci", "naive_push_code_bytes"] == kinds["oci", "naive_build_s"] == "measured"
    assert image_costs.environments_of(table, STACK) == list(
        NAMES
    )  # a form that is compared is no environment's image


def test_the_table_has_the_definition_file_by_every_way(tmp_path):
    table = table_of(tmp_path)
    assert number(table, "naive_def_namespace_build_s", "apptainer") == 79.0
    assert number(table, "naive_def_fakeroot_archive_bytes", "apptainer") == 650_000_000
    assert number(table, "naive_def_fakeroot_disk_bytes", "apptainer") == 651_000_000
    for item in naive_images.OF_DEFINITIONS:
        reason = image_costs.why_not(table, STACK, "apptainer", f"naive_def_root_{item}")
        assert reason == "%post failed: too few capabilities"
    case = words.Beside(table, STACK)
    told = case.defining()
    assert told == [
        "Built with --fakeroot: 81.0 s to a .sif of 651 MB, the packages installed by its %post.",
        "Built in a user's own namespace: 79.0 s to a .sif of 651 MB, the packages installed by its %post.",
        "The Dockerfile's image, converted, is one of 700 MB after 2 min 10 s in all.",
        "Unavailable as root outright: %post failed: too few capabilities.",
    ]
    forms = case.sif_table()
    texts = [[row[0], *(getattr(cell, "text", cell) for cell in row[1:])] for row in forms.rows]
    assert texts[0] == ["By docker build, converted", "2 min 10 s", "700 MB"]
    assert texts[1] == ["Ours, converted", "44.0 s", "250 MB"]
    assert texts[2] == ["By definition file, as root outright", "unavailable", "unavailable"]
    assert texts[3][1:] == ["81.0 s", "651 MB"] and len(texts) == 5
    assert "too few capabilities" in forms.note and "too few capabilities" not in case.table().note


def test_the_page_has_every_way_to_a_sif(page):
    shown = " ".join(visible(page).split())
    for text in (
        "ways to a .sif",
        "with --fakeroot",
        "79.0 s to a .sif of 651 MB",
        "%post failed: too few capabilities",
    ):
        assert text in shown, text


def test_a_record_from_before_the_definition_file_says_nothing_of_it(tmp_path):
    old = {key: value for key, value in image_cost_builders.naive_record().items() if key != "definition"}
    table = table_of(tmp_path, old)
    assert not table["item"].str.contains("_def_").any() and number(table, "naive_build_s") == 90.0
    case = words.Beside(table, STACK)
    assert case.ways() == [] and case.defining() == []


def test_without_a_comparison_nothing_is_said_and_with_a_reason_the_reason(tmp_path):
    image_cost_builders.image_records(tmp_path / "plain", NAMES, {})
    plain = image_costs.build("nyu2022", [image_costs.read_forms(tmp_path / "plain", STACK, NAMES)], None)
    assert not words.Beside(plain, STACK).asked
    refused = words.Beside(table_of(tmp_path, image_cost_builders.naive_record("no Docker daemon")), STACK)
    assert refused.building() == ["Unavailable: no Docker daemon."]
    assert refused.moving() == [] and refused.converting() == []
    assert "Built with --fakeroot: 81.0 s" in refused.defining()[0] and len(refused.sif_table().rows) == 3
    table = refused.table()
    assert table.rows == [
        ["Build, nothing cached", "unavailable", "unavailable"],
        ["Push or pull, all of it", "unavailable", "unavailable"],
    ]
    assert "Unavailable: no Docker daemon." in table.note


def test_the_sentences_have_the_tables_numbers(tmp_path):
    case = words.Beside(table_of(tmp_path), STACK)
    told = " ".join([*case.building(), *case.moving(), *case.converting()])
    for text in ("8 steps takes 90.0 s", "ours takes 26.0 s", "525 MB naive, 270 MB ours, 1.9 times", "0 B ours"):
        assert text in told, text
    assert "Apptainer: 40.0 s to convert the naive one, 18.0 s ours; 700 MB and 250 MB" in told


def test_printed_numbers_of_papers_come_with_what_differs():
    (line,) = words.printed()
    assert "columbia2025: 199.7 s to build, 17 steps and 4.91 GB" in line and "CUDA" in line


@pytest.mark.parametrize("text", ["{", '{"schema": 9}', '{"schema": 1, "statsu": "ok"}'])
def test_a_damaged_record_is_refused(tmp_path, text):
    image_cost_builders.image_records(tmp_path, NAMES, {})
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match="run again"):
        image_costs.read_forms(tmp_path, STACK, NAMES, path)


# --- when it pays


@pytest.mark.parametrize(
    ("once", "low", "high", "fewest", "most"),
    [
        (100.0, 1.0, 2.0, 50, 100),
        (100.0, 3.0, 3.0, 34, 34),  # a run that is begun is whole
        (100.0, -1.0, 2.0, 50, NEVER),
        (100.0, 0.0, 2.0, 50, NEVER),
        (100.0, -2.0, -1.0, NEVER, NEVER),
        (0.0, 0.5, 1.0, 0, 0),
        (0.0, -2.0, -1.0, NEVER, NEVER),
    ],
)
def test_runs_until_it_is_paid(once, low, high, fewest, most):
    found = runs_until_paid(once, low, high)
    assert (found.fewest, found.most) == (fewest, most)
    if 0 < most < math.inf:  # the formula, from the other side
        assert most * low >= once > (most - 1) * low


def test_a_cost_below_zero_and_ends_that_are_the_wrong_way_round_are_refused():
    for arguments in ((-1.0, 1.0, 2.0), (1.0, 2.0, 1.0)):
        with pytest.raises(ValueError, match="no cost and interval"):
            runs_until_paid(*arguments)


def test_a_link_moves_bits():
    assert pull_seconds(125e6, 100e6) == 10.0


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-0.744, -0.562, "Never: a run takes 0.562 to 0.744 s more than it saves."),
        (0.0, 0.0, "Never: a run takes 0.000 s more than it saves."),
        (-0.1, 0.5, "After 200 runs at best (20 days), perhaps never: what a run saves lies between −0.100 s and "
         "0.500 s."),
        (0.5, 2.0, "After 50 to 200 runs (5.0 days to 20 days)."),
        (0.1, 0.1, "After 1,000 runs (100 days)."),
    ],
)  # fmt: skip
def test_the_answer_in_words(low, high, says):
    assert break_even.told(runs_until_paid(100.0, low, high), low, high, 10.0) == says


def test_the_defaults_are_the_verdicts_and_no_interval_gives_no_answer(tmp_path):
    root = builders.build_results(tmp_path / "results")
    found = evidence.gather(root, root, builders.STUDY)
    one = next(choice for choice in break_even.choices(found) if choice.title == "Docker, CNN on MNIST")
    rows = of_rounds(found.verdicts, "mnist_cnn")
    (own,) = rows[(rows["env"] == "docker") & (rows["metric"] == "real_s")].to_dict("records")
    runs = of_rounds(found.metrics, "mnist_cnn")
    host_s = runs[(runs["env"] == "host") & (runs["metric"] == "real_s")]["value"].median()
    assert one.low_s == pytest.approx(host_s * (1 - own["ci_high"]), abs=1e-3)
    assert one.high_s == pytest.approx(host_s * (1 - own["ci_low"]), abs=1e-3)
    assert (one.build_s, one.megabytes) == (40.0, 270.0)  # compressed layers, where they were counted
    none = dataclasses.replace(found, verdicts=found.verdicts.assign(ci_low=None))
    assert break_even.section(none) is None
