"""The image: base layers, the pull from a registry, the layer of a tree, the archive that two formats share."""

import gzip
import hashlib
import http.server
import io
import json
import socket
import tarfile
import threading
import time

import pytest

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.manifest import manifest_digest, read_manifest
from tare.images.base import get_base, glibc_version, host_sources, normalise_layer
from tare.images.oci import Layer, assemble, check_archive, write_tree_layer
from tare.images.pull import Repository, pull
from tare.images.tree import EPOCH_S, Tree

CONFIG = {"env": {"PATH": "/bin"}, "workdir": "/", "labels": {"a": "b"}}


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar_bytes(members) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.mtime = 12345
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = content
                archive.addfile(entry)
    return buffer.getvalue()


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    deep = root / "lib" / ("d" * 90) / ("e" * 90)  # longer than an old tar header holds
    deep.mkdir(parents=True)
    (deep / "module.py").write_text("x = 1\n")
    (root / "bin").mkdir()
    (root / "bin" / "python3.11").write_bytes(b"\x7fELF")
    (root / "bin" / "python3.11").chmod(0o755)
    (root / "bin" / "python3").symlink_to("python3.11")
    entries = tuple(read_manifest(root))
    return Tree(
        key="k",
        path=root,
        inside=root.__class__("/opt/tare/tiny"),
        digest=manifest_digest(entries),
        entries=entries,
        size_bytes=10,
        python="3.11.7",
        glibc=(2, 36),
        seconds={},
        cached=False,
    )


def image_of(tree, folder):
    folder.mkdir(exist_ok=True)
    base = folder / "base.tar"
    base.write_bytes(tar_bytes([("etc/hosts", b"127.0.0.1 localhost\n")]))
    layers = [
        Layer(path=base, digest=digest(base.read_bytes()), made_by="base"),
        write_tree_layer(tree, folder / "tree.tar"),
    ]
    return assemble(
        layers, config=CONFIG, labels={}, name="tare/tiny", tree=tree.inside, archive=folder / "image.oci.tar"
    )


def test_tree_layer_unpacks_to_the_tree(tree, tmp_path):
    layer = write_tree_layer(tree, tmp_path / "tree.tar")
    assert layer.digest == digest(layer.path.read_bytes())
    with tarfile.open(layer.path) as archive:
        members = archive.getmembers()
        archive.extractall(tmp_path / "root", filter="tar")
    inside = tmp_path / "root/opt/tare/tiny"
    assert manifest_digest(read_manifest(inside)) == tree.digest
    assert {(m.uid, m.gid, m.mtime) for m in members} == {(0, 0, EPOCH_S)}
    assert [m.name for m in members][:3] == ["opt", "opt/tare", "opt/tare/tiny"]


def test_equal_inputs_give_an_equal_archive_and_other_inputs_another(tree, tmp_path):
    first, second = image_of(tree, tmp_path / "one"), image_of(tree, tmp_path / "two")
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert (first.digest, first.image_id, first.tag) == (second.digest, second.image_id, second.tag)
    layers = [Layer(path=first.layers[0], digest=digest(first.layers[0].read_bytes()), made_by="base")]
    other = assemble(layers, config=CONFIG, labels={}, name="n", tree=tree.inside, archive=tmp_path / "other.tar")
    assert other.digest != first.digest


def test_archive_is_an_oci_layout_and_a_docker_archive_of_one_image(tree, tmp_path):
    image = image_of(tree, tmp_path / "image")
    with tarfile.open(image.archive) as archive:
        names = archive.getnames()
        blobs = {name: archive.extractfile(name).read() for name in names if name.startswith("blobs/sha256/")}
        index, docker = (json.load(archive.extractfile(name)) for name in ("index.json", "manifest.json"))
        layout = json.load(archive.extractfile("oci-layout"))
    assert names[:2] == ["blobs", "blobs/sha256"]  # Apptainer needs the folders first
    assert layout == {"imageLayoutVersion": "1.0.0"}
    assert all(digest(data).removeprefix("sha256:") == name.rpartition("/")[2] for name, data in blobs.items())

    def blob(name):
        return blobs["blobs/" + name.replace(":", "/")]

    (descriptor,) = index["manifests"]
    assert descriptor["digest"] == image.digest and descriptor["size"] == len(blob(image.digest))
    manifest = json.loads(blob(image.digest))
    assert manifest["config"]["digest"] == image.image_id
    config = json.loads(blob(image.image_id))
    digests = [layer["digest"] for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == digests == [digest(path.read_bytes()) for path in image.layers]
    assert [layer["size"] for layer in manifest["layers"]] == [path.stat().st_size for path in image.layers]
    (entry,) = docker
    assert entry["RepoTags"] == [image.tag]
    assert digest(blobs[entry["Config"]]) == image.image_id
    assert [digest(blobs[name]) for name in entry["Layers"]] == digests
    assert image.tag == f"tare/tiny:{image.digest[7:19]}"
    assert check_archive(image.archive, image.digest) is None


def test_damaged_archive_is_found_out(tree, tmp_path):
    image = image_of(tree, tmp_path / "image")
    data = bytearray(image.archive.read_bytes())
    at = data.find(b"x = 1")
    data[at] ^= 1
    image.archive.write_bytes(data)
    assert "under the name" in check_archive(image.archive, image.digest)
    image.archive.write_bytes(data[: len(data) // 2])
    assert check_archive(image.archive, image.digest) is not None
    assert "does not hold" in check_archive(image_of(tree, tmp_path / "other").archive, digest(b"none"))


RECIPE = {"drop": ["usr/share/man/*", "etc/hostname", "dev/*"], "keep": ["dev/"], "folders": ["opt"]}
ROOT = [
    ("./", (tarfile.DIRTYPE, "")),
    ("./dev/", (tarfile.DIRTYPE, "")),
    ("./dev/null", (tarfile.CHRTYPE, "")),
    ("./dev/fd", (tarfile.SYMTYPE, "/proc/self/fd")),
    ("./etc/", (tarfile.DIRTYPE, "")),
    ("./etc/hostname", b"secret"),
    ("./etc/resolv.conf", b"nameserver 10.1.2.3"),
    ("./usr/", (tarfile.DIRTYPE, "")),
    ("./usr/share/", (tarfile.DIRTYPE, "")),
    ("./usr/share/man/", (tarfile.DIRTYPE, "")),
    ("./usr/share/man/page", b"man"),
    ("./usr/z", b"zz"),
    ("./usr/a", (tarfile.LNKTYPE, "./usr/z")),
    ("./bin", (tarfile.SYMTYPE, "usr/bin")),
]


def test_base_layer_depends_on_nothing_of_the_machine_but_its_packages(tmp_path):
    recipe = RECIPE | {"files": {"etc/resolv.conf": "", "etc/passwd": "root\n"}}
    results = []
    for number, members in enumerate([ROOT, [*ROOT[:7], *reversed(ROOT[7:12]), *ROOT[12:]]]):
        (tmp_path / "raw.tar").write_bytes(tar_bytes(members))
        target = tmp_path / f"{number}.tar"
        normalise_layer(tmp_path / "raw.tar", target, recipe)
        results.append(target.read_bytes())
    assert results[0] == results[1]
    with tarfile.open(tmp_path / "0.tar") as archive:
        names = archive.getnames()
        assert {m.mtime for m in archive.getmembers()} == {EPOCH_S}
        assert archive.extractfile("etc/resolv.conf").read() == b""
        assert archive.extractfile("usr/a").read() == b"zz"  # a link to a file that came first
    assert sorted(names) == [
        "bin",
        "dev",
        "etc",
        "etc/passwd",
        "etc/resolv.conf",
        "opt",
        "usr",
        "usr/a",
        "usr/share",
        "usr/z",
    ]


def test_glibc_of_a_base_is_read_from_its_library(tmp_path):
    text = b"\0GNU C Library (Debian GLIBC 2.31-13) stable release version 2.31.\n"
    (tmp_path / "layer.tar").write_bytes(tar_bytes([("usr/lib/x86_64-linux-gnu/libc.so.6", text)]))
    (tmp_path / "upper.tar").write_bytes(tar_bytes([("etc/x", b"")]))
    assert glibc_version([tmp_path / "layer.tar", tmp_path / "upper.tar"]) == (2, 31)
    assert glibc_version([tmp_path / "upper.tar"]) == ()


def test_base_from_a_registry_is_kept_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    text = b"\0GNU C Library (Debian GLIBC 2.41-12) stable release version 2.41.\n"
    with Registry(("usr/lib/libc.so.6", text)) as registry:
        recipe = {
            "registry": {
                "host": registry.host,
                "repository": "library/tiny",
                "tag": "1",
                "digest": registry.index,
                "timeout_s": 5,
                "scheme": "http",
            },
            "debian": {},
        }
        base = get_base(recipe)
    assert (base.kind, base.name, base.digest) == ("registry", "tiny:1", registry.manifest)
    assert (base.glibc, base.digests, base.reason) == ((2, 41), (digest(registry.layer),), None)
    assert get_base(recipe) == base  # the registry has gone
    base.layers[0].write_bytes(b"damaged")
    monkeypatch.setattr("tare.images.base.host_release", lambda: {"ID": "plan9", "PRETTY_NAME": "Plan 9"})
    with pytest.raises(UnavailableError, match=r"refused.*Plan 9 has no Debian archive"):
        get_base(recipe)


def test_apt_sources_of_the_own_release_alone_are_used(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.example/debian trixie main\n"
        "deb [arch=amd64] http://archive.example/debian trixie main contrib\n"
        "deb-src http://archive.example/debian trixie main\n"
        "deb http://archive.example/debian sid main\n"
    )
    (tmp_path / "sources.list.d" / "other.list").write_text("deb https://vendor.example/apt cloud-trixie main\n")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb deb-src\n# a remark\nURIs: http://archive.example/debian\n"
        " http://mirror.example/debian\nSuites: trixie trixie-updates\n"
        "Components: main\nSigned-By: /usr/share/keyrings/d.gpg\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off.example\nSuites: trixie\nComponents: main\n"
    )
    signed = "[signed-by=/usr/share/keyrings/d.gpg]"
    assert host_sources("trixie", tmp_path) == [
        "deb [arch=amd64] http://archive.example/debian trixie main contrib",
        f"deb {signed} http://archive.example/debian trixie main",
        f"deb {signed} http://archive.example/debian trixie-updates main",
        f"deb {signed} http://mirror.example/debian trixie main",
        f"deb {signed} http://mirror.example/debian trixie-updates main",
    ]
    assert host_sources("forky", tmp_path) == []


class Registry:
    """A registry of images on this machine that wants an anonymous token, as Docker's does."""

    def __init__(self, *members):
        self.layer = tar_bytes([("etc/os-release", b"ID=tiny\n"), *members])
        self.packed = gzip.compress(self.layer, mtime=0)
        config = json.dumps({"rootfs": {"diff_ids": [digest(self.layer)]}}).encode()
        manifest = json.dumps(
            {"config": {"digest": digest(config)}, "layers": [{"digest": digest(self.packed)}]}
        ).encode()
        index = json.dumps(
            {
                "manifests": [
                    {"digest": digest(b"arm"), "platform": {"os": "linux", "architecture": "arm64"}},
                    {"digest": digest(manifest), "platform": {"os": "linux", "architecture": "amd64"}},
                ]
            }
        ).encode()
        self.index, self.manifest = digest(index), digest(manifest)
        self.served = {digest(data): data for data in (config, manifest, index, self.packed)}
        self.requests = []

    def __enter__(self):
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                registry.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request):
        self.requests.append(request.path)
        if request.path.startswith("/token"):
            return self.send(request, 200, b'{"token": "anonymous"}')
        if request.headers.get("Authorization") != "Bearer anonymous":
            request.send_response(401)
            scope = 'service="tiny",scope="repository:library/tiny:pull"'
            request.send_header("WWW-Authenticate", f'Bearer realm="http://{self.host}/token",{scope}')
            request.send_header("Content-Length", "0")
            return request.end_headers()
        data = self.served.get(request.path.rpartition("/")[2])
        return self.send(request, 404 if data is None else 200, data or b"")

    def send(self, request, status, data):
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def repository(self, timeout_s=5):
        return Repository(host=self.host, name="library/tiny", timeout_s=timeout_s, scheme="http")


def test_pull_follows_the_index_and_unpacks_the_layers(tmp_path):
    with Registry() as registry:
        pulled = pull(registry.repository(), registry.index, tmp_path)
        assert pulled.digest == registry.manifest
        assert [path.read_bytes() for path in pulled.layers] == [registry.layer]
        assert registry.requests[1].startswith("/token?service=tiny&scope=repository%3Alibrary%2Ftiny%3Apull")
        count = len(registry.requests)
        assert pull(registry.repository(), registry.manifest, tmp_path) == pulled
        assert not any(digest(registry.packed) in path for path in registry.requests[count:])  # kept


@pytest.mark.parametrize("which", ["index", "layer"])
def test_pull_of_something_else_than_the_digest_says_is_refused(tmp_path, which):
    with Registry() as registry:
        name = registry.index if which == "index" else digest(registry.packed)
        registry.served[name] = registry.served[name] + b" "
        with pytest.raises(IntegrityError, match=name):
            pull(registry.repository(), registry.index, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_registry_that_lacks_the_image_or_does_not_answer_is_unavailable(tmp_path):
    with Registry() as registry, pytest.raises(UnavailableError, match="Not Found"):
        pull(registry.repository(), digest(b"unknown"), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, says nothing
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(UnavailableError, match="timed out"):
            pull(Repository(host=host, name="x/y", timeout_s=0.3, scheme="http"), digest(b""), tmp_path)
        assert time.monotonic() - started < 3
    with pytest.raises(UnavailableError, match="refused"):
        pull(Repository(host=host, name="x/y", timeout_s=1, scheme="http"), digest(b""), tmp_path)
