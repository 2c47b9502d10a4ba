"""The network of instances that train together, alone: a TCP stream, round trips, all-reduce by size.

One group of workers in each environment, on a switch as the study's scenario `distributed` has it, or on nodes of a
cluster. They are the ceilings of the network roofline.
"""

from __future__ import annotations

from pathlib import Path

from tare.core.errors import UserError
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.launch import scenarios
from tare.launch.group import launch_group
from tare.launch.networks import Wires
from tare.launch.scenarios.distributed import SWITCH
from tare.launch.sites import sites
from tare.machine.facts import machine_name
from tare.machine.fitting import settled
from tare.model.conditions import SLURM
from tare.model.journals.units import AS_FOUND
from tare.model.records.launches import LaunchRecord
from tare.model.records.measured import NetworkRecord
from tare.model.registry import DISTRIBUTED
from tare.model.specification import Specification
from tare.model.studies.loading import load_part
from tare.model.studies.study import NetworkPart

STREAM_S = 0.5  # that the stream takes, about, where a rate is set
FREE_STREAM_BYTES = 1 << 28  # of the stream where none is


def measure_network(source: str, folder: Path | None, out: Path) -> None:
    """Measure the network in every environment; one that can't run leaves its reason. Raises UserError: the study
    is wrong, or trains no instances together. UnavailableError: the host can't be used.
    """
    study = settled(load_part(NetworkPart, source))
    wanted = study.distributed
    if wanted is None:
        raise UserError("the study trains no instances together: give it the scenario `distributed` and that key")
    rate = wanted.rate_mbit_per_s
    kind = SLURM if wanted.network == SLURM else SWITCH
    rate = None if kind == SLURM else rate
    switch = Wires(rate_bit_per_s=None if rate is None else rate * 1e6, delay_ms=wanted.delay_ms)
    network = SLURM if kind == SLURM else switch
    stream = FREE_STREAM_BYTES if rate is None else max(1 << 20, round(rate * 1e6 / 8 * STREAM_S))
    spec = Specification(
        mode="network",
        device=study.found_device,
        seed=study.seed,
        sizes_bytes=tuple(kib << 10 for kib in wanted.sizes_kib),
        repetitions=wanted.repetitions,
        stream_bytes=stream,
    )
    names = list(wanted.environments or study.environments)
    conditions = study.conditions.of_launch(page_cache=AS_FOUND)
    with measuring(out), sites(study, None, names, folder, None) as (found, unavailable, provenance):
        barred = scenarios.barred(DISTRIBUTED, found, kind)
        launches: dict[str, LaunchRecord] = {}
        for name, site in found.items():
            if name not in barred:
                launches[name] = launch_group(site, spec, conditions, size=wanted.workers, network=network)
                say(f"network of {wanted.workers} instances in {name}: {_outcome(launches[name])}")
    NetworkRecord(
        study=study.study,
        machine=machine_name(),
        stack=study.stack,
        group={"workers": wanted.workers, "rate_mbit_per_s": rate, "delay_ms": wanted.delay_ms, "network": kind},
        launches=launches,
        unavailable={**unavailable, **barred},
        provenance=provenance,
    ).write(out)


def _outcome(record: LaunchRecord) -> str:
    return record.status + (f", {record.reason}" if record.reason else "")
