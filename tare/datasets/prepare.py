"""Turn verified content into the form that a workload reads with the standard library and torch alone.

MNIST keeps its four uncompressed idx files, in the layout that `torchvision.datasets.MNIST(root)` reads:
`<root>/MNIST/raw/*-ubyte`. Reviews become one file, `reviews.jsonl`: a line per review, `{"label": 0 or 1,
"text": …}`, 1 for a positive one, in an order that depends on the seed and the reviews' names alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.archives import Member
from tare.core.errors import IntegrityError
from tare.core.files import MOST_TIMES, SMALL_BYTES
from tare.model.data_sets import DataSet

POSITIVE, NEGATIVE = 1, 0
REVIEWS_FILE = "reviews.jsonl"
_ACL_MEMBER = re.compile(r"(?:.*/)?train/(pos|neg)/([^/]+)\.txt")


@dataclass(frozen=True, kw_only=True)
class Review:
    """One review: a name unique in its set, 1 for positive or 0 for negative, and the text as it came."""

    name: str
    label: int
    text: str


def read_acl_imdb(path: Path) -> list[Review]:
    """The training reviews of aclImdb's .tar.gz, a stream, by name; IntegrityError if it is cut short or empty."""
    try:
        reviews = [
            Review(name=f"{side}/{name}", label=POSITIVE if side == "pos" else NEGATIVE, text=text)
            for side, name, text in _archive_members(path)
        ]
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path} can't be read to its end: {error}") from error
    if not reviews:
        raise IntegrityError(f"{path} holds no train/pos/*.txt or train/neg/*.txt")
    return sorted(reviews, key=lambda review: review.name)


def _archive_members(path: Path) -> Iterator[tuple[str, str, str]]:
    left = max(MOST_TIMES * path.stat().st_size, SMALL_BYTES)
    with tarfile.open(path, mode="r|*", tarinfo=Member) as tar:
        for member in tar:
            left -= member.size
            if left < 0:
                raise IntegrityError(
                    f"{path} unpacks to more than {MOST_TIMES} times its size, from {member.name} on"
                )
            match = _ACL_MEMBER.fullmatch(member.name)
            if match and member.isfile() and (body := tar.extractfile(member)):
                yield match[1], match[2], body.read().decode("utf-8")


def read_snippets(path: Path, counts: Mapping[str, int]) -> list[Review]:
    """Sentences with a mean rating above 0 as positive, below 0 as negative; those at 0 are dropped. `path`: lines
    of `id <tab> mean rating from -4 to 4 <tab> text`. `counts`: how many `positive`, `negative` and `neutral` lines
    there must be. Raises IntegrityError where a line has another form, or the counts differ.
    """
    reviews = []
    found = {"positive": 0, "negative": 0, "neutral": 0}
    for number, line in enumerate(path.read_bytes().decode("utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            name, rating, text = line.rstrip("\r").split("\t")
            mean = float(rating)
        except ValueError as error:
            raise IntegrityError(f"{path} line {number} is not `id, rating, text`") from error
        found["positive" if mean > 0 else "negative" if mean < 0 else "neutral"] += 1
        if mean != 0:
            reviews.append(Review(name=name, label=POSITIVE if mean > 0 else NEGATIVE, text=text))
    if found != dict(counts):
        raise IntegrityError(f"{path} holds {found}, expected {dict(counts)}")
    return reviews


def sample(reviews: Sequence[Review], rows: int, seed: int) -> list[Review]:
    """A class-balanced sample in order of SHA-256 of `seed:name`, one positive more if odd; or IntegrityError."""
    shuffled = sorted(reviews, key=lambda r: hashlib.sha256(f"{seed}:{r.name}".encode()).digest())
    wanted = {POSITIVE: rows - rows // 2, NEGATIVE: rows // 2}
    chosen = []
    for review in shuffled:
        if wanted[review.label]:
            wanted[review.label] -= 1
            chosen.append(review)
    if any(wanted.values()):
        raise IntegrityError(f"a sample of {rows} balanced reviews needs more than these {len(reviews)}")
    return chosen


def write_reviews(reviews: Sequence[Review], folder: Path) -> int:
    """Write reviews.jsonl; returns the number of rows."""
    lines = (json.dumps({"label": r.label, "text": r.text}, ensure_ascii=False) + "\n" for r in reviews)
    (folder / REVIEWS_FILE).write_text("".join(lines), encoding="utf-8")
    return len(reviews)


def _mnist_raw(paths: Mapping[str, Path], folder: Path, dataset: DataSet) -> int:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    rows = 0
    for name, path in paths.items():
        shutil.copyfile(path, raw / name)
        if "labels" in name:
            with path.open("rb") as handle:
                rows += int.from_bytes(handle.read(8)[4:], "big")
    return rows


def _reviews(paths: Mapping[str, Path], folder: Path, dataset: DataSet) -> int:
    (path,) = paths.values()
    of_acl = dataset.recipe == "reviews-acl-imdb"
    reviews = read_acl_imdb(path) if of_acl else read_snippets(path, dataset.counts or {})
    if dataset.sample:
        reviews = sample(reviews, dataset.sample.rows, dataset.sample.seed)
    return write_reviews(reviews, folder)


# Each writes the prepared form into an empty folder and returns the number of rows.
RECIPES: dict[str, Callable[[Mapping[str, Path], Path, DataSet], int]] = {
    "mnist-raw": _mnist_raw,
    "reviews-acl-imdb": _reviews,
    "reviews-snippets": _reviews,
}
# Keys that an entry needs in addition to those that all have.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "mnist-raw": ("rows",),
    "reviews-acl-imdb": ("sample",),
    "reviews-snippets": ("sample", "counts"),
}
