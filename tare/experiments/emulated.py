"""A whole run by hand where every instruction is emulated: the same job, so much smaller that it takes minutes.

It is for seeing that a guest trains. Its times say nothing of a virtual machine, and what is less of the job stands
among the record's deviations.
"""

from __future__ import annotations

from pathlib import Path

from tare.model.registry import describe_workload, options_of
from tare.model.specification import Specification

BATCH, STEPS = 4, 2
FEWEST_IMAGES = 2  # of a step, where a workload's samples are a study's to choose
LIMIT_S = 300.0
SLOWER = 200  # times, at least, that what a sample takes on one core takes where every instruction is emulated
IMAGES = (".jpeg", ".jpg", ".png")


def job(spec: Specification, workload: str, batch: int | None) -> tuple[Specification, list[str]]:
    """A whole run of two steps, of the smallest images and of no more samples than these take. Returns its
    specification, and in words what it is.
    """
    known, options = options_of(workload), spec.options
    fewest = max(FEWEST_IMAGES, describe_workload(workload).get("least_batch", FEWEST_IMAGES))
    size = batch or (fewest if "samples" in known else BATCH)
    smallest: tuple[str, ...] = ("image_px", "enlarged")
    wanted = {name: known[name].least for name in smallest if name in known}
    own = {"samples": STEPS * size, "epochs": 1, "warmup_steps": 1, "loader_workers": 1}
    wanted |= {name: max(value, known[name].least) for name, value in own.items() if name in known}
    less = [f"{name} {value} (of {options[name]})" for name, value in wanted.items() if options.get(name) != value]
    short = spec.replace(batch=size, steps=STEPS, **({"options": {**options, **wanted}} if known else {}))
    return short, [f"{STEPS} steps of {size} samples", *less]


def too_long(spec: Specification, workload: str, limit_s: float) -> str | None:
    """Why a shortened run would not come to its end within a limit, by what its samples take; None where it may.
    `limit_s`: seconds that it may take.
    """
    sample_s = describe_workload(workload, spec.options).get("sample_s", 0.0)
    samples = spec.steps * spec.batch
    needed_s = SLOWER * samples * sample_s
    if needed_s <= limit_s:
        return None
    return (
        f"where every instruction is emulated its smallest job, {spec.steps} steps of {spec.batch} "
        f"samples, takes {needed_s / 60:.0f} minutes or more, and it may take {limit_s:.0f} s (conditions: "
        "launch_timeout_s)"
    )


def few_images(data: Path, folder: Path) -> str | None:
    """Fill a folder with links to a data set's files, of each folder of images to the first alone.

    A launch over a channel unpacks all that it is sent: of 22,000 files an emulated guest had not all within 600 s,
    beside other work. Returns in words how many images these are; None where the data set has no images, and
    nothing is left out.
    """
    kept = left = 0
    for place in (data, *sorted(path for path in data.rglob("*") if path.is_dir())):
        own = folder / place.relative_to(data)
        own.mkdir(exist_ok=True)
        files = sorted(path for path in place.iterdir() if path.is_file())
        images = [path for path in files if path.suffix.lower() in IMAGES]
        for path in [*(path for path in files if path not in images), *images[:1]]:
            (own / path.name).symlink_to(path.resolve())
        kept, left = kept + len(images[:1]), left + len(images[1:])
    return f"{kept} images of a data set of {kept + left}" if left else None
