"""What was run: images, data, and the files that were really mapped."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis import suspects
from tare.model.data_sets import IMAGENET_MEAN, IMAGENET_SPREAD
from tare.model.records.images import AnyImage, BaseImage, Channels, DataRecord, TreeRecord
from tare.model.studies.stacks import BOUND, load_stack
from tare.report.evidence import Evidence
from tare.report.words.labels import env_title, seconds, size_bytes, workload_title
from tare.report.words.layout import UNAVAILABLE, Row, Table


def packages(evidence: Evidence) -> dict[str, str]:
    """Version of every package of the stack, by name."""
    for record in evidence.images.values():
        if record.packages:
            return {package.name: package.version for package in record.packages}
    return {}


def images_table(evidence: Evidence) -> Table:
    """Bytes, build seconds and base of each environment's form of the one image."""
    rows: list[Row] = []
    order = [env for env in ("tree", "oci", *evidence.environments) if env in evidence.images]
    for name in order:
        record = evidence.images[name]
        title = {"tree": "Tree of the stack", "oci": "OCI image"}.get(name) or env_title(name)
        if record.status != "ok":
            rows.append([title, f"{UNAVAILABLE}: {record.reason}", None, None, None])
            continue
        storage = None if isinstance(record, TreeRecord) else record.storage
        size = storage.disk_bytes if storage and storage.disk_bytes else record.bytes
        base = None if isinstance(record, TreeRecord) else record.base
        rows.append(
            [
                title,
                UNAVAILABLE if size is None else size_bytes(size),
                _stages(_own_stages(evidence.images, name)),
                _base(base),
                _short_digest(record.digest),
            ]
        )
    note = (
        f"Packages: {len(packages(evidence))}, the same in every form. Each row shows the stages that it adds. "
        f"Stages that came from the cache show what they took when they were made.{_stand_in(evidence)}"
    )
    return Table(
        caption="Images: one recipe, one image, each environment's own form of it",
        columns=["form", "size on disk", "its own stages", "base", "digest"],
        rows=rows,
        note=note,
        wide=True,
    )


def _stand_in(evidence: Evidence) -> str:
    """What is said where another variant of the stack stands in for the one of the device."""
    name, device = evidence.study.stack, evidence.study.device
    other = None if name == BOUND else load_stack(name, device).otherwise
    if other is None or other not in {record.variant for record in evidence.images.values()}:
        return ""
    return f" The stack is here in its variant {other}: its builds for {device} were nowhere to be had."


def _own_stages(images: Mapping[str, AnyImage], name: str) -> dict[str, float]:
    """Stages that this form adds to those it shares; the parts of one that is listed whole are left out."""
    before = {"tree": (), "oci": ("tree",)}.get(name, ("tree", "oci"))
    shared = {stage for other in before if other in images for stage in images[other].seconds}
    stages = {key: value for key, value in images[name].seconds.items() if key not in shared}
    return {key: value for key, value in stages.items() if not any(key.startswith(f"{o}_") for o in stages)}


def _stages(stages: Mapping[str, float]) -> str:
    if not stages:
        return "none of its own"
    return ", ".join(f"{name.replace('_', ' ')} {seconds(value)}" for name, value in stages.items())


def _base(base: BaseImage | None) -> str | None:
    if base is None:
        return None
    return base.name if base.kind.lower() in base.name.lower() else f"{base.kind} {base.name}"


def _short_digest(digest: str | None) -> str | None:
    return None if not digest else f"{digest[:19]}…" if len(digest) > 20 else digest


def data_sentences(evidence: Evidence) -> list[str]:
    """Which data stood behind each data set, where it came from, and whether it is the paper's."""
    lines = []
    for record in evidence.data.values():
        size = size_bytes(record.bytes)
        lines.append(f"{record.title}: {record.rows:,} rows, {size}, from {record.source.name}.")
        if absent := record.stands_for:
            lines.append(
                f"These are not {absent}: {_why_not(record)}. {record.note or ''} "
                "Shapes and steps are the paper's; losses can't be compared with its."
            )
        elif not record.canonical:
            lines.append("The files came from another place than their authors', and are verified by their hashes.")
        if record.channels is not None:
            lines.append(_channels(record.channels))
        if record.skipped:
            named = ", ".join(record.skipped[:3]) + (", …" if len(record.skipped) > 3 else "")
            lines.append(f"Broken images, left out of it: {len(record.skipped):,} ({named}).")
    return lines


def _channels(found: Channels) -> str:
    """What the pixels are like, beside those of a synthetic batch, which has ImageNet's."""
    own = zip(found.mean, found.spread, IMAGENET_MEAN, IMAGENET_SPREAD, strict=True)
    rows = [((mean - middle) / unit, spread / unit) for mean, spread, middle, unit in own]
    means, spreads = (", ".join(f"{value:.2f}" for value in values) for values in zip(*rows, strict=True))
    return (
        f"Its pixels, normalised as jobs do it, have means {means} and spreads {spreads} by channel (files of "
        f"{found.images:,} training images, before they are cropped); a synthetic batch has 0 and 1, as ImageNet's."
    )


def _why_not(record: DataRecord) -> str:
    if record.choice == "auto":
        return "no source of theirs answered when the data was fetched"
    return f"the study asks for {record.choice}"


def mapped_table(evidence: Evidence) -> Table:
    """What was really mapped after training, against the host's: files of the tree, files of the system."""
    rows: list[Row] = []
    for workload in evidence.workloads:
        own = evidence.fingerprints[evidence.fingerprints["workload"] == workload]
        for env in evidence.environments:
            count = int((own["launch"] == env).sum())
            if not count:
                continue
            mapped, same = suspects.tree_files(own, env)
            # A library may lie at another path in the image: the name counts, and the bytes.
            found = suspects.file_differences(own, env)
            told = ["the host left no record"] * 2
            if found is not None:
                others = [file for file in found if not file.in_tree]
                gone = [file.name for file in others if file.how == "only on the host"]
                differing = [file.name for file in others if file.name not in gone]
                told = [", ".join(names) or "none" for names in (differing, gone)]
            rows.append([workload_title(workload), env_title(env), str(count), f"{same} of {mapped}", *told])
    return Table(
        caption="Files that were really mapped",
        columns=[
            *("workload", "environment", "files", "of the tree, as on the host"),
            *("others that differ or are new", "others on the host only"),
        ],
        rows=rows,
        note="By path and SHA-256, read from inside at the end of the profiled launch.",
        wide=True,
    )
