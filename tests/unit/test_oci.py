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
import urllib.request

import pytest

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import SMALL_BYTES
from tare.core.manifest import manifest_digest, read_manifest
from tare.images.base import MOST_LIST_BYTES, debian_packages, get_base, glibc_version, normalise_layer
from tare.images.layers import Blob, layers_of, unpack
from tare.images.oci import ARCHIVE, FolderLayer, TarLayer, assemble, write_layer
from tare.images.pull import Repository, pull, resolve
from tare.images.tree import EPOCH_S, Tree
from tare.machine import distribution
from tare.machine.distribution import archive_addresses, host_sources

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


def layers(tree, folder):
    folder.mkdir(exist_ok=True)
    base = folder / "base.tar"
    base.write_bytes(tar_bytes([("etc/hosts", b"127.0.0.1 localhost\n")]))
    return [
        TarLayer(path=base, digest=digest(base.read_bytes()), made_by="base"),
        FolderLayer(root=tree.path, entries=tree.entries, inside=tree.inside, made_by="tree"),
    ]


def image_of(tree, folder, of=None):
    chosen = layers(tree, folder) if of is None else of
    made = assemble(chosen, config=CONFIG, labels={}, name="tare/tiny", folder=folder)
    return made, folder / ARCHIVE


def test_tree_layer_unpacks_to_the_tree(tree, tmp_path):
    with (tmp_path / "tree.tar").open("wb") as sink:
        written = write_layer(layers(tree, tmp_path)[1], sink)
    data = (tmp_path / "tree.tar").read_bytes()
    assert written == (digest(data), len(data))
    with tarfile.open(tmp_path / "tree.tar") as archive:
        members = archive.getmembers()
        archive.extractall(tmp_path / "root", filter="tar")
    inside = tmp_path / "root/opt/tare/tiny"
    assert manifest_digest(read_manifest(inside)) == tree.digest
    assert {(m.uid, m.gid, m.mtime) for m in members} == {(0, 0, EPOCH_S)}
    assert [m.name for m in members][:3] == ["opt", "opt/tare", "opt/tare/tiny"]


def test_equal_inputs_give_an_equal_archive_and_other_inputs_another(tree, tmp_path):
    (first, archive), (second, again) = image_of(tree, tmp_path / "one"), image_of(tree, tmp_path / "two")
    assert archive.read_bytes() == again.read_bytes() and first == second
    other, _ = image_of(tree, tmp_path, layers(tree, tmp_path)[:1])
    assert other["digest"] != first["digest"]


def test_archive_is_an_oci_layout_and_a_docker_archive_of_one_image(tree, tmp_path):
    image, path = image_of(tree, tmp_path / "image")
    assert path.stat().st_size % tarfile.RECORDSIZE == 0
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert {member.mtime for member in archive} == {EPOCH_S}
        blobs = {name: archive.extractfile(name).read() for name in names if name.startswith("blobs/sha256/")}
        index, docker = (json.load(archive.extractfile(name)) for name in ("index.json", "manifest.json"))
        layout = json.load(archive.extractfile("oci-layout"))
    assert names[:2] == ["blobs", "blobs/sha256"]  # Apptainer needs the folders first
    assert len(names) == len(set(names)) == 9
    assert layout == {"imageLayoutVersion": "1.0.0"}
    assert all(digest(data).removeprefix("sha256:") == name.rpartition("/")[2] for name, data in blobs.items())

    def blob(name):
        return blobs["blobs/" + name.replace(":", "/")]

    (descriptor,) = index["manifests"]
    assert descriptor["digest"] == image["digest"] and descriptor["size"] == len(blob(image["digest"]))
    manifest = json.loads(blob(image["digest"]))
    assert manifest["config"]["digest"] == image["image_id"]
    config = json.loads(blob(image["image_id"]))
    digests = [layer["digest"] for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == digests == image["layers"]
    assert [layer["size"] for layer in manifest["layers"]] == [len(blob(name)) for name in digests]
    assert descriptor["annotations"]["io.containerd.image.name"] == f"docker.io/{image['tag']}"
    (entry,) = docker
    assert entry["RepoTags"] == [image["tag"]] == [f"tare/tiny:{image['digest'][7:19]}"]
    assert digest(blobs[entry["Config"]]) == image["image_id"]
    assert [digest(blobs[name]) for name in entry["Layers"]] == digests


def test_the_header_of_a_layer_beyond_8_gib_is_one_block_too(monkeypatch):
    from tare.images import oci

    large = oci._header(oci.NO_BLOB, mode=0o644, size=9 << 30)
    assert len(large) == tarfile.BLOCKSIZE
    assert tarfile.TarInfo.frombuf(large, "utf-8", "strict").size == 9 << 30


def test_an_archive_unpacks_to_its_layers(tree, tmp_path):
    _, archive = image_of(tree, tmp_path / "image")
    (tmp_path / "root").mkdir()
    unpack(layers_of(archive), tmp_path / "root")
    assert manifest_digest(read_manifest(tmp_path / "root/opt/tare/tiny")) == tree.digest
    assert (tmp_path / "root/etc/hosts").read_bytes() == b"127.0.0.1 localhost\n"


# --- layers over one another


LOWER = [
    ("kept", b"kept"),
    ("gone", b"gone"),
    ("folder/a", b"a"),
    ("folder/b", b"b"),
    ("opaque/old", b"old"),
    ("opaque/deep/old", b"old"),
    ("was/a/folder", b"old"),
    ("link", (tarfile.SYMTYPE, "folder")),
    ("dev/null", b"no device"),
]


def unpacked(tmp_path, *members):
    root, blobs = tmp_path / "root", []
    root.mkdir()
    for number, layer in enumerate(members):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(tar_bytes(layer))
        blobs.append(Blob(path=path))
    unpack(blobs, root)
    return {
        entry["path"]: entry.get("link") or (root / entry["path"]).read_bytes() for entry in read_manifest(root)
    }


def test_whiteouts_remove_what_lower_layers_hold_and_nothing_of_their_own(tmp_path):
    upper = [
        ("new", b"new"),
        ("gone", b"back"),
        (".wh.gone", b""),
        ("folder/.wh.a", b""),
        ("opaque/new", b"new"),
        ("opaque/.wh..wh..opq", b""),
        (".wh.link", b""),
        ("was", b"a file now"),
        (".wh.never", b""),
    ]
    assert unpacked(tmp_path, LOWER, upper) == {
        "kept": b"kept",
        "gone": b"back",
        "folder/b": b"b",
        "opaque/new": b"new",
        "new": b"new",
        "was": b"a file now",
    }


def test_a_whole_folder_is_whited_out_and_a_link_is_not_followed(tmp_path):
    found = unpacked(tmp_path, LOWER, [(".wh.folder", b""), (".wh.opaque", b""), (".wh.was", b"")])
    assert found == {"kept": b"kept", "gone": b"gone", "link": "folder"}


def test_a_layer_above_brings_back_what_one_below_it_removed(tmp_path):
    found = unpacked(tmp_path, LOWER, [("folder/.wh..wh..opq", b"")], [("folder/a", b"again")])
    assert found["folder/a"] == b"again" and "folder/b" not in found


@pytest.mark.parametrize("name", ["../.wh.precious", "out/.wh.precious", "out/.wh..wh..opq"])
def test_whiteouts_never_reach_outside_the_image(tmp_path, name):
    (tmp_path / "precious").write_text("")
    with pytest.raises(UnavailableError, match="leads out of the image"):
        unpacked(tmp_path, [("out", (tarfile.SYMTYPE, ".."))], [(name, b"")])
    assert (tmp_path / "precious").exists()


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


def control(name, version, *lines):
    return "\n".join((f"Package: {name}", f"Version: {version}", "Architecture: amd64", *lines, ""))


def test_debian_packages_of_a_base_are_read_from_lists_in_its_layers(tmp_path):
    installed, removed = "Status: install ok installed", "Status: deinstall ok config-files"
    old = control("libc6", "2.31", installed)
    status = "\n".join(
        (control("libc6", "2.36", installed, "Description: C\n more"), control("gone", "1", removed))
    )
    unpacked = [(f"./var/lib/dpkg/status.d/{name}", control(name, "1:1").encode()) for name in ("zlib1g", "dash")]
    layers = [
        [("var/lib/dpkg/status", old.encode()), ("var/lib/dpkg/status-old", control("older", "0").encode())],
        [("./var/lib/dpkg/status", status.encode()), *unpacked],
        [("var/lib/dpkg/status.d/odd", b"\xff\n\nno: control\n\nPackage: no-version\n"), ("etc/x", b"")],
        [("var/lib/dpkg/status.d/large", b"\n" * MOST_LIST_BYTES)],
    ]
    paths = [tmp_path / f"{number}.tar" for number in range(len(layers))]
    for path, members in zip(paths, layers, strict=True):
        path.write_bytes(tar_bytes(members))
    found = debian_packages(paths)
    assert [(one.name, one.version) for one in found] == [("dash", "1:1"), ("libc6", "2.36"), ("zlib1g", "1:1")]
    assert debian_packages(paths[2:]) == ()


def recipe_of(registry):
    about = {"host": registry.host, "repository": "library/tiny", "tag": "1", "digest": registry.index}
    return {**about, "timeout_s": 5, "scheme": "http"}


def test_base_from_a_registry_is_kept_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    text = b"\0GNU C Library (Debian GLIBC 2.41-12) stable release version 2.41.\n"
    with Registry(("usr/lib/libc.so.6", text)) as registry:
        recipe = {"registry": recipe_of(registry), "debian": {}}
        base = get_base(recipe)
    assert (base.kind, base.name, base.digest) == ("registry", "tiny:1", registry.manifest)
    assert (base.glibc, base.reason) == ((2, 41), None)
    assert [layer.digest for layer in base.layers] == [digest(registry.layers[0])]
    assert get_base(recipe) == base  # the registry has gone
    base.layers[0].path.write_bytes(b"damaged")
    monkeypatch.setattr("tare.images.base.host_release", lambda: {"ID": "plan9", "PRETTY_NAME": "Plan 9"})
    with pytest.raises(UnavailableError, match=r"refused.*Plan 9 has no Debian archive"):
        get_base(recipe)


def test_apt_sources_of_the_own_release_alone_are_used(tmp_path, monkeypatch):
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
    monkeypatch.setattr(distribution, "host_release", lambda: {"VERSION_CODENAME": "trixie"})
    assert archive_addresses(tmp_path) == ["http://archive.example/debian", "http://mirror.example/debian"]
    monkeypatch.setattr(distribution, "host_release", dict)
    assert archive_addresses(tmp_path) == []


class Registry:
    """A registry of images on this machine that wants an anonymous token, as Docker's does."""

    def __init__(self, *members, upper=(), variables=(), tag="1"):
        """`members` are those of the lowest layer, each of `upper` those of one above it."""
        layers = [tar_bytes([("etc/os-release", b"ID=tiny\n"), *members]), *map(tar_bytes, upper)]
        self.hold(layers, [gzip.compress(layer, mtime=0) for layer in layers], variables, tag)

    def hold(self, layers, packed, variables, tag):
        """Serve an image of these layers, each as a tar and as it is served, under a tag."""
        self.layers, self.packed = layers, packed
        rootfs = {"diff_ids": [digest(layer) for layer in self.layers]}
        config = json.dumps({"rootfs": rootfs, "config": {"Env": list(variables)}}).encode()
        manifest = json.dumps(
            {"config": {"digest": digest(config)}, "layers": [{"digest": digest(data)} for data in self.packed]}
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
        self.served = {tag: index, **{digest(data): data for data in (config, manifest, index, *self.packed)}}
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
        assert [path.read_bytes() for path in pulled.layers] == registry.layers
        assert registry.requests[1].startswith("/token?service=tiny&scope=repository%3Alibrary%2Ftiny%3Apull")
        count = len(registry.requests)
        assert pull(registry.repository(), registry.manifest, tmp_path) == pulled
        assert not any(digest(registry.packed[0]) in path for path in registry.requests[count:])  # kept


def test_a_base_from_a_registry_is_pulled_layer_by_layer_and_unpacks_with_its_whiteouts(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    text = b"\0GNU C Library (Debian GLIBC 2.41-12) stable release version 2.41.\n"
    lower = [("usr/lib/libc.so.6", text), ("usr/share/doc/a", b"a"), ("usr/bin/pip", b"pip"), ("etc/b", b"old")]
    upper = [
        [("usr/share/doc/.wh..wh..opq", b""), ("usr/share/doc/c", b"c")],
        [("usr/bin/.wh.pip", b""), ("etc/b", b"new")],
    ]
    with Registry(*lower, upper=upper) as registry:
        base = get_base({"registry": recipe_of(registry), "debian": {}})
    assert [layer.digest for layer in base.layers] == [digest(layer) for layer in registry.layers]
    (tmp_path / "root").mkdir()
    unpack([Blob(path=layer.path) for layer in base.layers], tmp_path / "root")
    found = {entry["path"]: entry["sha256"] for entry in read_manifest(tmp_path / "root")}
    wanted = {"etc/os-release": b"ID=tiny\n", "usr/lib/libc.so.6": text, "usr/share/doc/c": b"c", "etc/b": b"new"}
    assert found == {path: digest(data).removeprefix("sha256:") for path, data in wanted.items()}
    made = assemble(base.layers, config=CONFIG, labels={}, name="tare/tiny", folder=tmp_path)
    assert made["layers"] == [digest(layer) for layer in registry.layers]
    (tmp_path / "again").mkdir()
    unpack(layers_of(tmp_path / ARCHIVE), tmp_path / "again")
    assert read_manifest(tmp_path / "again") == read_manifest(tmp_path / "root")


@pytest.mark.parametrize("which", ["index", "layer"])
def test_pull_of_something_else_than_the_digest_says_is_refused(tmp_path, which):
    with Registry() as registry:
        name = registry.index if which == "index" else digest(registry.packed[0])
        registry.served[name] = registry.served[name] + b" "
        with pytest.raises(IntegrityError, match=name):
            pull(registry.repository(), registry.index, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_in_the_way_of_a_registry_is_named(tmp_path, monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)  # it knows the proxies of the first address that it opened
    registry = Repository(host="registry.example", name="x/y", timeout_s=1)
    with pytest.raises(
        UnavailableError, match=r"refused, through the proxy http://127\.0\.0\.1:9: unset https_proxy"
    ):
        pull(registry, digest(b""), tmp_path)


def test_registry_that_lacks_the_image_or_does_not_answer_is_unavailable(tmp_path):
    with Registry() as registry, pytest.raises(UnavailableError, match="Not Found"):
        pull(registry.repository(), digest(b"unknown"), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, says nothing
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(UnavailableError, match="timed out"):
            pull(Repository(host=host, name="x/y", timeout_s=0.3, scheme="http"), digest(b""), tmp_path)
        assert time.monotonic() - started < 60
    with pytest.raises(UnavailableError, match="refused"):
        pull(Repository(host=host, name="x/y", timeout_s=1, scheme="http"), digest(b""), tmp_path)


def serve(registry, **manifest):
    """Have a registry serve a manifest and a configuration that are changed, each under its own digest."""
    config = {"rootfs": {"diff_ids": [digest(layer) for layer in registry.layers]}, **manifest.pop("config", {})}
    data = json.dumps(config).encode()
    layers = [{"digest": digest(one), "size": len(one)} for one in registry.packed]
    text = json.dumps({"config": {"digest": digest(data)}, "layers": layers, **manifest}).encode()
    registry.served |= {digest(data): data, digest(text): text}
    return digest(text)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"config": {"rootfs": {"diff_ids": ["sha256:../../../kept"]}}},
            "'sha256:../../../kept' is no digest",
        ),
        ({"config": {"rootfs": {"diff_ids": []}}}, "what sha256:[0-9a-f]+ names is no image: zip"),
        ({"config": {"rootfs": None}}, "names is no image"),
        ({"layers": [{"digest": "sha256:/etc/passwd"}]}, "'sha256:/etc/passwd' is no digest"),
        ({"layers": 1}, "names is no image"),
        ({"manifests": [1]}, "names is no image"),
    ],
)
def test_an_image_that_describes_itself_falsely_is_one_line(tmp_path, changed, says):
    (tmp_path / "a/b").mkdir(parents=True)
    with Registry() as registry, pytest.raises(IntegrityError, match=says):
        pull(registry.repository(), serve(registry, **changed), tmp_path / "a/b")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_layer_is_no_longer_than_its_image_says(tmp_path):
    with Registry() as registry:
        served = serve(registry)
        assert pull(registry.repository(), served, tmp_path / "whole").layers
        registry.served[digest(registry.packed[0])] += b"x" * 100
        with pytest.raises(IntegrityError, match=rf"more than the {len(registry.packed[0])} bytes of sha256"):
            pull(registry.repository(), served, tmp_path / "longer")
    assert list((tmp_path / "longer").iterdir()) == []


def test_a_layer_that_unpacks_out_of_proportion_is_refused(tmp_path):
    layer = bytes(3 * SMALL_BYTES)
    with Registry() as registry:
        registry.hold([layer], [gzip.compress(layer, mtime=0)], (), "1")
        with pytest.raises(IntegrityError, match="unpacks to more than 200 times its size"):
            pull(registry.repository(), registry.index, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("challenge", "token", "says"),
    [
        ('Bearer realm="file://{home}/secret.json"', b"", "sends for a token to 'file://"),
        ('Bearer realm="{base}/token"', b"[]", "it gave no token"),
        ('Bearer realm="{base}/token"', b"{", "gave no library/tiny"),
        ("Basic", b"", "it asks for credentials"),
    ],
)
def test_a_registry_is_told_nothing_of_this_machine(tmp_path, monkeypatch, challenge, token, says):
    """It may name where a token is to be had, and then gets what was there."""
    (tmp_path / "secret.json").write_text('{"token": "of this machine"}')
    heard = []
    with Registry() as registry:

        def answer(request):
            heard.append(request.headers.get("Authorization"))
            if request.path.startswith("/token"):
                return registry.send(request, 200, token)
            request.send_response(401)
            told = challenge.format(home=tmp_path, base=f"http://{registry.host}")
            request.send_header("WWW-Authenticate", told)
            request.send_header("Content-Length", "0")
            return request.end_headers()

        monkeypatch.setattr(registry, "answer", answer)
        for ask in (
            lambda: pull(registry.repository(), registry.index, tmp_path / "a"),
            lambda: resolve(registry.repository(), "1"),
        ):
            with pytest.raises(UnavailableError, match=says):
                ask()
    assert set(heard) == {None}
