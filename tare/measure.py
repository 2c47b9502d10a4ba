"""What the measuring commands do: gather images and data, hold the Docker daemon where one is needed, launch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare import data, images
from tare import rounds as campaigns
from tare.errors import TareError, UnavailableError, UserError
from tare.files import read_json, write_json
from tare.launch import Site, launch, site_of
from tare.progress import say
from tare.registry import describe_workload, environment
from tare.study import HOST, load_checked, settings_of

PROFILE_SCHEMA = 1


@contextlib.contextmanager
def sites(
    study: Mapping[str, Any], workload: str | None, names: Sequence[str], folder: Path | None, record: Path | None
) -> Iterator[tuple[dict[str, Site], dict[str, str], dict[str, Any]]]:
    """Launch sites of the available environments, the reasons of the others, and what was used.

    An environment that can't be used never stops the others; a host that can't be used stops a comparison.
    """
    folder = folder or Path("results/images") / study["stack"]
    prepared, provenance = _data(workload, record)
    available: dict[str, Site] = {}
    unavailable: dict[str, str] = {}
    provenance["images"] = {}
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(names):
            try:
                adapter = environment(name)
                stack.enter_context(adapter.session())
                image = _image(folder / f"{name}.json")
                available[name] = site_of(name, adapter, image, prepared)
                provenance["images"][name] = {key: image.get(key) for key in ("digest", "tree_digest", "bytes")}
            except UnavailableError as error:
                if name == HOST:
                    raise
                unavailable[name] = str(error)
                say(f"{name} is unavailable: {error}")
        yield available, unavailable, provenance


def _image(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise UserError(f"no image record {path}: make it with `snakemake {path}`")
    return images.ensure(read_json(path))


def _data(workload: str | None, record: Path | None) -> tuple[Path | None, dict[str, Any]]:
    if workload is None:
        return None, {}
    dataset = describe_workload(workload)["dataset"]
    record = record or Path("results/data") / f"{dataset}.json"
    if not record.exists():
        raise UserError(f"no data record {record}: make it with `snakemake {record}`")
    found = read_json(record)
    kept = {key: found.get(key) for key in ("dataset", "choice", "source", "canonical", "rows", "files")}
    return data.ensure(found), {"data": kept}


def rounds(
    source: str, workload: str, names: Sequence[str], folder: Path | None, record: Path | None, out: Path
) -> None:
    """Campaign of whole runs."""
    study = load_checked(source)
    settings_of(study, workload)
    with sites(study, workload, [HOST, *names], folder, record) as (available, unavailable, provenance):
        campaigns.run_rounds(out.parent, study, workload, available, unavailable, provenance)


def sweep(source: str, workload: str, folder: Path | None, record: Path | None, out: Path) -> None:
    """Batch sweep on the host."""
    study = load_checked(source)
    settings_of(study, workload)
    with sites(study, workload, [HOST], folder, record) as (available, _, provenance):
        campaigns.run_sweep(out.parent, study, workload, available[HOST], provenance)


def profile(source: str, workload: str, env: str, folder: Path | None, record: Path | None, out: Path) -> None:
    """One profiled launch; an environment that can't run gets a record with its reason."""
    study = load_checked(source)
    settings = settings_of(study, workload)
    identity = {
        "schema": PROFILE_SCHEMA,
        "study": study["study"],
        "workload": workload,
        "env": env,
        "stack": study["stack"],
        "arm": campaigns.arm(study["conditions"]),
        "batch": settings["batch"],
        "trace": None,
    }
    with sites(study, workload, [env], folder, record) as (available, unavailable, provenance):
        if env in unavailable:
            write_json(out, {**identity, "status": "unavailable", "reason": unavailable[env], "inside": None})
            return
        spec = {
            **campaigns.whole_run_spec(workload, settings["batch"], 0, study),
            **study["profile"],
            "mode": "profile",
        }
        trace = out.with_name("trace.json.gz")
        result = launch(available[env], spec, study["conditions"], keep={"trace": trace})
    identity["trace"] = trace.name if trace.exists() and result["status"] == "ok" else None
    write_json(out, {**identity, "provenance": provenance, **result})
    say(f"{workload} in {env}: {result['status']}" + (f", {result['reason']}" if result["reason"] else ""))


def ceilings(source: str, folder: Path | None, out: Path) -> None:
    """Measured roofs of this machine, on the host."""
    study = load_checked(source)
    with sites(study, None, [HOST], folder, None) as (available, _, provenance):
        spec = {"mode": "ceilings", "device": study["device"], "seed": study.get("seed", 0), **study["ceilings"]}
        result = launch(available[HOST], spec, study["conditions"])
    if result["status"] != "ok":
        raise UnavailableError(f"the ceilings could not be measured: {result['reason']}")
    write_json(
        out,
        {
            "schema": PROFILE_SCHEMA,
            "study": study["study"],
            "stack": study["stack"],
            "env": HOST,
            "provenance": provenance,
            **result,
        },
    )


def single(
    source: str,
    workload: str,
    env: str,
    batch: int | None,
    folder: Path | None,
    record: Path | None,
    out: Path | None,
) -> dict[str, Any]:
    """One whole run by hand; returns its record.

    Raises:
        UnavailableError: the environment is not to be had here.
        TareError: the launch failed.
    """
    study = load_checked(source)
    settings = settings_of(study, workload)
    with sites(study, workload, [env], folder, record) as (available, unavailable, _):
        if env in unavailable:
            raise UnavailableError(f"{env}: {unavailable[env]}")
        spec = campaigns.whole_run_spec(workload, batch or settings["batch"], settings["steady_epochs"], study)
        result = launch(available[env], spec, study["conditions"], pad_bytes=os.getpid() % 4096)
    if out:
        write_json(out, result)
    if result["status"] != "ok":
        raise TareError(f"{workload} in {env}: {result['status']}: {result['reason']}")
    return result
