"""Sets of images in tiny-imagenet's layout: the authors' zip, a path, and what stands in for it."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from asked import PART
from data_server import dataset, https_source, kept_files
from PIL import Image

from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError, explain_os_error
from tare.core.files import project_root
from tare.datasets import catalog, stamps, tiny_imagenet
from tare.datasets import fetch as fetching
from tare.launch.sites import batch_of, data_of
from tare.model.data_sets import AptSource, Images
from tare.model.studies import loading, sections, study

pytestmark = pytest.mark.usefixtures("data_cache")
CLASSES = ("n01", "n02", "n03")
Usage = namedtuple("Usage", "total used free")


def jpeg(red: int) -> bytes:
    made = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").point(lambda value: (value + red) % 256).save(made, "JPEG")
    return made.getvalue()


def make_set(folder: Path, train: int = 3, val: int = 2) -> Path:
    """A small set in tiny-imagenet's layout, with what the official one has beside."""
    (folder / "val/images").mkdir(parents=True)
    (folder / "test/images").mkdir(parents=True)
    (folder / "test/images/test_0.JPEG").write_bytes(jpeg(0))
    (folder / "wnids.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    (folder / "words.txt").write_text("".join(f"{name}\tword\n" for name in CLASSES))
    lines = []
    for number, name in enumerate(CLASSES):
        images = folder / "train" / name / "images"
        images.mkdir(parents=True)
        (images.parent / f"{name}_boxes.txt").write_text("")
        for index in range(train):
            (images / f"{name}_{index}.JPEG").write_bytes(jpeg(number * 10 + index))
        for index in range(val):
            file = f"val_{number * val + index}.JPEG"
            (folder / "val/images" / file).write_bytes(jpeg(100 + index))
            lines.append(f"{file}\t{name}\t0\t0\t63\t63\n")
    (folder / "val/val_annotations.txt").write_text("".join(lines))
    return folder


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"tiny-imagenet-200/{file.relative_to(folder)}")
    return path


@pytest.fixture
def images(tmp_path):
    return make_set(tmp_path / "set")


def prepared(path: Path, broken: str | None = None):
    return catalog.prepare("tiny_imagenet", str(path), broken_images=broken)


# --- where it comes from


def test_a_folder_of_this_machine_is_prepared_without_what_nobody_reads(images):
    record = prepared(images)
    folder = Path(record.folder)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert record.rows == 15 and len(files) == 18 and not any("test" in file or "boxes" in file for file in files)
    assert (folder / "train/n02/images/n02_1.JPEG").read_bytes() == (
        images / "train/n02/images/n02_1.JPEG"
    ).read_bytes()
    assert (folder / "val/val_annotations.txt").read_text() == (images / "val/val_annotations.txt").read_text()
    assert (record.source.kind, record.canonical, record.choice) == ("local", False, str(images))
    assert record.stands_for == "tiny-imagenet-200" and record.channels.images == 9
    lines = "".join(f"{hashlib.sha256((folder / file).read_bytes()).hexdigest()}  {file}\n" for file in files)
    assert record.prepared_sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_a_lost_set_is_made_again_from_its_path(images):
    record = prepared(images)
    shutil.rmtree(record.folder)
    assert catalog.ensure(record) == Path(record.folder)
    shutil.rmtree(record.folder)
    (images / "train/n01/images/n01_0.JPEG").write_bytes(jpeg(99))
    with pytest.raises(IntegrityError, match="differs from its record"):
        catalog.ensure(record)


def test_a_zip_gives_the_same_as_its_folder(images, tmp_path):
    one, other = prepared(images), prepared(zipped(images, tmp_path / "my.zip"))
    assert one.prepared_sha256 == other.prepared_sha256 and one.folder != other.folder


def test_of_many_files_a_record_holds_the_top_level(images, monkeypatch):
    monkeypatch.setattr(catalog, "MANY_FILES", 10)
    record = prepared(images)
    assert [file.path for file in record.files] == ["train/", "val/", "wnids.txt", "words.txt"]
    assert sum(file.bytes for file in record.files) == record.bytes
    path = next(Path(record.folder).glob("train/n03/images/*"))
    path.write_bytes(b"another")
    assert catalog.ensure(record) == Path(record.folder)
    assert path.read_bytes() != b"another", "a changed image was believed"


def registry_of(server, sources, **more):
    """The real group, its first member of another address and size."""
    real = catalog.load_registry()
    about = {"recipe": "tiny-imagenet", "rows": 15, "images": Images(size=64, classes=3, train=3, val=2)}
    made = dataset(*sources, name="tiny_imagenet_zip", sha256=None, **{**about, **more})
    return catalog.Registry(datasets={**real.datasets, "tiny_imagenet_zip": made}, groups=real.groups)


def served(server, name="x.zip"):
    return [https_source(f"{server.base}/ok/{name}", gives="tiny-imagenet-200.zip")]


def test_the_zip_is_fetched_its_hash_recorded_and_its_numbers_checked(server, images, tmp_path, data_cache):
    server.bodies["x.zip"] = zipped(images, tmp_path / "x.zip").read_bytes()
    record = catalog.prepare("tiny_imagenet", "auto", registry_of(server, served(server)))
    assert (record.dataset, record.canonical, record.stands_for) == ("tiny_imagenet_zip", True, None)
    noted = data_cache / "data/first-use/tiny-imagenet-200.zip.json"
    assert hashlib.sha256(server.bodies["x.zip"]).hexdigest() in noted.read_text()
    more = Images(size=64, classes=3, train=4, val=2)
    with pytest.raises(IntegrityError, match="train/n01 has 3 images, expected 4"):
        catalog.prepare("tiny_imagenet", "zip", registry_of(server, served(server), images=more))
    fewer = Images(size=64, classes=2, train=3, val=2)
    with pytest.raises(IntegrityError, match="3 classes, expected 2"):
        catalog.prepare("tiny_imagenet", "zip", registry_of(server, served(server), images=fewer))


def test_auto_goes_on_to_what_stands_in_and_says_every_reason(server, monkeypatch):
    def refuse(dataset, source, scratch):
        raise UnavailableError("apt: no such package")

    monkeypatch.setattr(fetching, "_through_apt", refuse)
    missing = [https_source(f"{server.base}/missing/x.zip", gives="tiny-imagenet-200.zip")]
    with pytest.raises(
        UnavailableError, match=r"404.*tuxpaint-stamps-default: apt: no such package.*apt-get update"
    ):
        catalog.prepare("tiny_imagenet", "auto", registry_of(server, missing))


def test_choices_are_auto_members_without_their_groups_name_and_paths(images):
    registry = catalog.load_registry()
    assert [made.name for made in registry.choices("tiny_imagenet", "zip")] == ["tiny_imagenet_zip"]
    assert len(registry.choices("tiny_imagenet", "auto")) == 2
    with pytest.raises(UserError, match=r"data.tiny_imagenet: no choice 'stamp': did you mean 'stamps'"):
        registry.choices("tiny_imagenet", "stamp")
    with pytest.raises(UserError, match="no set but tiny_imagenet"):
        registry.choices("mnist", str(images))
    with pytest.raises(UserError, match=r"there is nothing at .*/nowhere"):
        catalog.prepare("tiny_imagenet", "some/nowhere")
    with pytest.raises(UserError, match="data: tiny_imagenet: 'stamp' is none of auto, zip, stamps and a path"):
        loading.load_checked('{"data": {"tiny_imagenet": "stamp"}}')
    assert loading.load_checked(f'{{"data": {{"tiny_imagenet": "{images}"}}}}').data.tiny_imagenet == str(images)


def test_a_download_that_broke_off_is_carried_on(server, data_cache, monkeypatch):
    content = bytes(range(256)) * 1000
    asked = []

    def answer(url, method="GET", headers=None):
        asked.append(dict(headers or {}))
        start = int(headers["Range"][6:-1]) if headers else 0
        body = io.BytesIO(content[start : None if headers else 100_000])
        body.status = 206 if headers else 200
        body.headers = {"Content-Length": str(len(content) - start), "ETag": '"v1"'}
        return body

    monkeypatch.setattr(fetching, "open_url", answer)
    target = data_cache.parent / "arrived"
    with pytest.raises(UnavailableError, match="ended after 100000 of 256000 bytes"):
        fetching.download("https://x/y", target, "y")
    fetching.download("https://x/y", target, "y")
    assert target.read_bytes() == content
    assert asked == [{}, {"Range": "bytes=100000-", "If-Range": '"v1"'}]
    assert kept_files(data_cache) == []


def test_a_download_without_a_version_starts_anew(server, data_cache):
    with pytest.raises(UnavailableError, match="ended after"):
        fetching.download(f"{server.base}/short/a", data_cache.parent / "arrived", "a")
    assert kept_files(data_cache) == [], "nobody could say that the rest belongs to it"


# --- bad input


def test_a_truncated_zip_is_one_clear_line_and_nothing_is_kept(images, tmp_path, data_cache):
    path = zipped(images, tmp_path / "x.zip")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(IntegrityError, match=r"x\.zip is no whole zip .*fetch it again"):
        prepared(path)
    assert kept_files(data_cache) == []


def test_a_zip_with_a_changed_member_is_no_broken_image_but_refused(images, tmp_path):
    path = zipped(images, tmp_path / "x.zip")
    whole = path.read_bytes()
    at = whole.index((images / "train/n01/images/n01_0.JPEG").read_bytes()) + 300
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(IntegrityError, match=r"is no whole zip .*CRC"):
        prepared(path, "skip")


def break_images(images: Path) -> list[str]:
    broken = ["train/n01/images/n01_1.JPEG", "train/n03/images/n03_0.JPEG", "val/images/val_3.JPEG"]
    whole = (images / broken[0]).read_bytes()
    (images / broken[0]).write_bytes(whole[: len(whole) // 2])
    (images / broken[1]).write_bytes(b"<html>not found</html>")
    (images / broken[2]).write_bytes(b"")
    return broken


def test_broken_images_stop_named_and_counted(images, data_cache):
    broken = break_images(images)
    with pytest.raises(IntegrityError) as told:
        prepared(images)
    assert f"3 broken images: {', '.join(broken)}; repair or replace" in str(told.value)
    assert "broken_images: skip" in str(told.value) and kept_files(data_cache) == []


def test_broken_images_are_left_out_counted_and_named_where_the_study_says_so(images):
    broken = break_images(images)
    record = prepared(images, "skip")
    assert list(record.skipped) == broken and record.rows == 12 and record.broken_images == "skip"
    annotations = (Path(record.folder) / "val/val_annotations.txt").read_text()
    assert "val_3.JPEG" not in annotations and len(annotations.splitlines()) == 5
    shutil.rmtree(record.folder)
    assert catalog.ensure(record) == Path(record.folder)


def test_a_class_of_broken_images_only_is_missing(images):
    for path in (images / "train/n02/images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(IntegrityError, match="1 of 3 class folders without images: train/n02/images has broken"):
        prepared(images, "skip")


def test_missing_class_folders_are_named(images):
    shutil.rmtree(images / "train/n01")
    shutil.rmtree(images / "train/n03")
    with pytest.raises(
        IntegrityError, match=r"2 of 3 class folders.*train/n01/images, train/n03/images is missing"
    ):
        prepared(images)


def test_a_folder_that_is_no_class_is_named(images):
    shutil.copytree(images / "train/n01", images / "train/n09")
    with pytest.raises(IntegrityError, match=r"train has n09, which wnids.txt does not name"):
        prepared(images)


def test_a_list_of_classes_that_is_no_text_or_names_one_twice_is_refused(images):
    (images / "wnids.txt").write_text("n01\nn02\nn03\nn02\n")
    with pytest.raises(IntegrityError, match=r"wnids.txt names n02 more than once"):
        prepared(images)
    (images / "wnids.txt").write_bytes("n01\nn02\nn03\n".encode("utf-16"))
    with pytest.raises(IntegrityError, match=r"set: wnids.txt is no UTF-8 text \(byte 0\)"):
        prepared(images)


def test_a_zip_that_is_encrypted_says_what_to_do(images, tmp_path, data_cache):
    path = zipped(images, tmp_path / "x.zip")
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the header of each member, and its entry
        at = content.find(signature)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(signature, at + 4)
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"x\.zip: wnids\.txt can't be read \(.*encrypted.*unpack it and give"):
        prepared(path)
    assert kept_files(data_cache) == []


def test_annotations_that_name_no_file_are_named_with_their_line(images):
    (images / "val/images/val_2.JPEG").unlink()
    (images / "val/images/val_5.JPEG").unlink()
    with pytest.raises(
        IntegrityError, match=r"names 2 files .* have: val_2.JPEG \(line 3\), val_5.JPEG \(line 6\)"
    ):
        prepared(images)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("val_0.JPEG\tn01\nval_1.JPEG n01\n", "line 2 is not `file, class, box`"),
        ("val_0.JPEG\tn77\n", "line 1 has class n77, which wnids.txt does not name"),
        ("val_0.JPEG\tn01\n", "says nothing of val_1.JPEG, val_2.JPEG, val_3.JPEG and 2 more in val/images"),
    ],
)
def test_annotations_of_another_form_are_refused(images, text, says):
    (images / "val/val_annotations.txt").write_text(text)
    with pytest.raises(IntegrityError, match=says):
        prepared(images)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(IntegrityError, match=r"photos has no wnids.txt, as tiny-imagenet-200 has"):
        prepared(tmp_path / "photos")


def test_a_disk_without_room_is_told_before_anything_is_unpacked(images, monkeypatch, data_cache):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, 5000))
    with pytest.raises(UnavailableError, match=r"tiny_imagenet_local unpacked takes \d+ MB.*0 MB free.*TARE_CACHE"):
        prepared(images)
    assert kept_files(data_cache) == []


def test_a_disk_that_fills_while_unpacking_leaves_nothing(images, monkeypatch, data_cache):
    written = []

    def write(path, content):
        if len(written) == 7:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        with path.open("wb") as handle:
            return handle.write(content)

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(OSError, match="No space left") as told:
        prepared(images)
    assert explain_os_error(told.value).endswith("free some, or point TARE_CACHE at a larger disk")
    assert len(written) == 7 and kept_files(data_cache) == []


BAD = {
    "a truncated image": (break_images, "3 broken images: train/n01/images/n01_1.JPEG, "),
    "a class folder missing": (lambda images: shutil.rmtree(images / "train/n01"), "train/n01/images is missing"),
    "an annotation of no file": (lambda images: (images / "val/images/val_2.JPEG").unlink(), "val_2.JPEG (line 3)"),
    "no annotations": (lambda images: (images / "val/val_annotations.txt").unlink(), "no val/val_annotations.txt"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_of_the_command_and_no_record(case, images, tmp_path, data_cache, capsys):
    spoil, says = BAD[case]
    spoil(images)
    out = tmp_path / "out.json"
    assert main(["fetch", "--dataset", "tiny_imagenet", "--choice", str(images), "--out", str(out)]) == 4
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tare: ")]
    assert len(told) == 1 and str(images) in told[0] and says in told[0]
    assert not out.exists() and kept_files(data_cache) == []


def test_a_batch_that_is_larger_than_the_set_is_refused_before_anything_is_launched(images, tmp_path):
    path = tmp_path / "tiny_imagenet.json"
    prepared(images).write(path)
    folder, told = data_of("resnet18", path, batch=9)
    assert folder.is_dir() and told["data"]["rows"] == 15
    with pytest.raises(UserError, match=r"resnet18: batch 10 is larger than its data \(.*set\), which has 9"):
        data_of("resnet18", path, batch=10)
    job = study.JobPart(**PART.given(), study="s", workloads={"resnet18": sections.Batch(batch=10)})
    assert batch_of(job, "resnet18") == 10 and batch_of(PART, "resnet18") == 1


def test_broken_images_are_counted_by_the_command_where_they_may_be_skipped(images, tmp_path, capsys):
    break_images(images)
    argv = ["fetch", "--dataset", "tiny_imagenet", "--choice", str(images), "--out", str(tmp_path / "out.json")]
    assert main([*argv, "--broken-images", "skip"]) == 0
    assert "3 broken images left out, the first of them train/n01/images/n01_1.JPEG" in capsys.readouterr().out


# The cache on a small disk of its own, on which others take the room once it was looked at.
SMALL_DISK = """
mount -t tmpfs -o size=512k tmpfs disk
"$@"
status=$?
find disk -name '*.JPEG' > left
exit $status
"""
FILLS = """
import shutil
import sys
from collections import namedtuple

from tare.cli.main import main

shutil.disk_usage = lambda path: namedtuple("Usage", "total used free")(1, 0, 10**12)
sys.exit(main(["fetch", "--dataset", "tiny_imagenet", "--choice", sys.argv[1], "--out", "out.json"]))
"""


def test_a_real_disk_that_fills_while_unpacking_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    images = make_set(tmp_path / "set", train=90)
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "disk"))
    monkeypatch.setenv("PYTHONPATH", str(project_root()))
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    argv = ["unshare", "--mount", *as_root, "sh", "-u", "-c", SMALL_DISK, "sh", sys.executable, "-c", FILLS]
    done = subprocess.run([*argv, str(images)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("tare: ")]
    assert len(told) == 1 and "no space left while writing" in told[0] and "TARE_CACHE" in told[0]
    assert (tmp_path / "left").read_text() == "" and not (tmp_path / "out.json").exists()


def test_whether_an_image_is_whole():
    whole = jpeg(1)
    assert tiny_imagenet.is_whole(whole)
    assert not any(tiny_imagenet.is_whole(whole[:length]) for length in (0, 2, 100, len(whole) // 2))


def test_an_image_of_more_pixels_than_any_photograph_is_broken():
    whole = jpeg(1)
    at = whole.index(b"\xff\xc0") + 5  # height and width, of two bytes each
    assert whole[at : at + 4] == bytes((0, 64, 0, 64))
    assert not tiny_imagenet.is_whole(whole[:at] + b"\xff\xdc" * 2 + whole[at + 4 :])


def test_whatever_a_transfer_did_to_an_image_it_is_whole_or_broken():
    """Nothing that Pillow makes of changed bytes gets through as an error of ours."""
    whole, draw = jpeg(1), random.Random(1)
    size = whole.index(b"\xff\xc0") + 5
    told = set()
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(draw.choice((1, 4, 40))):
            changed[draw.randrange(draw.choice((200, len(whole))))] = draw.randrange(256)
        changed[size : size + 4] = whole[size : size + 4]  # larger ones take time, and are the test above
        told.add(tiny_imagenet.is_whole(bytes(changed[: draw.choice((len(whole), draw.randrange(len(whole))))])))
    assert told == {True, False}


# --- what stands in


def package(path: Path, photographs: dict[str, Image.Image]) -> Path:
    """A Debian package of these PNG files."""
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:xz") as tar:
        for name, image in photographs.items():
            png = io.BytesIO()
            image.save(png, "PNG")
            member = tarfile.TarInfo(f"./usr/share/tuxpaint/stamps/{name}")
            member.size = len(png.getvalue())
            tar.addfile(member, io.BytesIO(png.getvalue()))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": tarred.getvalue()}
    content = b"!<arch>\n"
    for name, body in members.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(body):<10}`\n".encode()
        content += header + body + b"\n" * (len(body) % 2)
    path.write_bytes(content)
    return path


def photograph(colours: int, width: int = 90, height: int = 70) -> Image.Image:
    """So many colours in an opaque middle; what is around it is transparent."""
    made = Image.new("RGBA", (width + 20, height + 10))
    for x in range(width):
        for y in range(height):
            colour = (x * height + y) % colours
            made.putpixel((x + 10, y + 5), (colour % 32 * 8, colour // 32 * 8, 128, 255))
    return made


PHOTOGRAPHS = {
    "animals/lion.png": photograph(300),
    "animals/lion-2.png": photograph(310),
    "animals/cartoon/bear.png": photograph(900),
    "animals/owl.png": photograph(200),
    "animals/owl_mirror.png": photograph(900),
    "plants/rose.png": photograph(100),
    "vehicles/747.png": photograph(400, 250, 40),
    "symbols/math/0.png": photograph(900),
}
WANTED = Images(size=64, classes=3, train=4, val=2, quality=85, seed=1)


def stamps_set(tmp_path, **more):
    archive = package(tmp_path / "stamps.deb", PHOTOGRAPHS)
    about = {"recipe": "stamps", "rows": 18, "images": WANTED, "stands_for": "tiny-imagenet-200"}
    source = AptSource(name="a package", kind="apt", package="stamps", version="1", file="stamps.deb")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    made = dataset(source, name="stamps", sha256=sha256, **{**about, **more})
    return archive, catalog.Registry(datasets={"stamps": made}, groups={"stamps": ("stamps",)})


def test_photographs_are_cut_to_the_layout_with_equal_bytes_each_time(tmp_path, monkeypatch):
    archive, registry = stamps_set(tmp_path)
    copied = tmp_path / "arrived.deb"
    shutil.copy(archive, copied)
    monkeypatch.setattr(fetching, "_through_apt", lambda dataset, source, scratch: {source.file: copied})
    record = catalog.prepare("stamps", "auto", registry)
    folder = Path(record.folder)
    assert (folder / "words.txt").read_text() == "s00000000\t747\ns00000001\tlion\ns00000002\towl\n"
    with tiny_imagenet.opened(folder) as source:
        assert len(source.sizes()) == 18 + 3
    assert prepared(folder).rows == 18, "it is no set in tiny-imagenet's layout"
    with Image.open(folder / "train/s00000001/images/s00000001_3.JPEG") as image:
        assert (image.size, image.mode, image.format) == ((64, 64), "RGB", "JPEG")
    assert len({path.read_bytes() for path in folder.rglob("*.JPEG")}) == 18
    # Of Pillow 13.0.0, which the lock has.
    assert record.prepared_sha256 == "782dd3697bd744a82ad66a0bb0dfc83ce513da706062e91c5f34681b95e7aa84"
    assert record.source.address == "stamps=1" and record.stands_for == "tiny-imagenet-200"


def test_another_prepared_set_than_the_registry_says_is_refused(tmp_path, monkeypatch):
    archive, registry = stamps_set(tmp_path, prepared_sha256="1" * 64)
    monkeypatch.setattr(fetching, "_through_apt", lambda dataset, source, scratch: {source.file: archive})
    with pytest.raises(IntegrityError, match=f"expected {'1' * 64}, got .*another Pillow"):
        catalog.prepare("stamps", "auto", registry)


def test_a_torn_package_and_one_with_too_few_photographs_are_refused(tmp_path):
    archive, registry = stamps_set(tmp_path, images=WANTED.replace(classes=9))
    (tmp_path / "made").mkdir()
    with pytest.raises(IntegrityError, match="photographs of 4 classes, expected 9"):
        stamps.cut({"stamps.deb": archive}, tmp_path / "made", registry.datasets["stamps"])
    archive.write_bytes(archive.read_bytes()[:-5000])
    with pytest.raises(IntegrityError, match="can't be read to its end"):
        stamps.read_photographs(archive)
    archive.write_bytes(b"PK\x03\x04")
    with pytest.raises(IntegrityError, match="it is no Debian package"):
        stamps.read_photographs(archive)


def test_apt_that_knows_no_such_package_is_a_source_that_does_not_answer(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    apt = programs / "apt-get"
    says = 'echo "E: Unable to locate package stamps" >&2; exit 100'
    apt.write_text(f'#!/bin/sh\ncase "$*" in *update*) exit 0;; *) {says};; esac\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    _, registry = stamps_set(tmp_path)
    assert "Unable to locate package" in fetching.probe(registry.datasets["stamps"].sources[0])
    with pytest.raises(UnavailableError, match=r"E: Unable to locate package stamps.*apt-get update"):
        catalog.prepare("stamps", "auto", registry)
