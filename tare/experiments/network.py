"""The network of instances that train together, alone: a TCP stream, round trips, all-reduce by size.

One group of workers in each environment, on a switch as the study's scenario `distributed` has it, and iperf3
between two ports of a switch where it is installed. They are the ceilings of the network roofline.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tare.core.errors import UnavailableError, UserError
from tare.core.process import ended, kill_group, run, start
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.launch import scenarios
from tare.launch.conditions import PATH, choose_cpus
from tare.launch.group import launch_group
from tare.launch.networks import Wires, switched
from tare.launch.scenarios.distributed import SWITCH
from tare.launch.sites import sites
from tare.launch.switch import SUBNET
from tare.machine.facts import machine_name
from tare.machine.fitting import settled
from tare.model.journals.units import AS_FOUND
from tare.model.records.launches import LaunchRecord
from tare.model.records.measured import Iperf, NetworkRecord
from tare.model.registry import DISTRIBUTED
from tare.model.specification import Specification
from tare.model.studies.study import NetworkPart, load_part

STREAM_S = 0.5  # that the stream takes, about, where a rate is set
FREE_STREAM_BYTES = 1 << 28  # of the stream where none is
IPERF_S = 2  # of which the first is left out
SERVER_S = 5.0  # for iperf3's server to listen
CLIENT = {"PATH": PATH}


def measure_network(source: str, folder: Path | None, out: Path) -> None:
    """Measure the network in every environment; one that can't run leaves its reason.

    Raises:
        UserError: the study is wrong, or trains no instances together.
        UnavailableError: the host can't be used.
    """
    study = settled(load_part(NetworkPart, source))
    wanted = study.distributed
    if wanted is None:
        raise UserError("the study trains no instances together: give it the scenario `distributed` and that key")
    rate = wanted.rate_mbit_per_s
    network = Wires(rate_bit_per_s=None if rate is None else rate * 1e6, delay_ms=wanted.delay_ms)
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
        barred = scenarios.barred(DISTRIBUTED, found, SWITCH)
        launches: dict[str, LaunchRecord] = {}
        for name, site in found.items():
            if name not in barred:
                launches[name] = launch_group(site, spec, conditions, size=wanted.workers, network=network)
                say(f"network of {wanted.workers} instances in {name}: {_told(launches[name])}")
        iperf3 = by_iperf3(network, choose_cpus(conditions.cpus))
    NetworkRecord(
        study=study.study,
        machine=machine_name(),
        stack=study.stack,
        group={"workers": wanted.workers, "rate_mbit_per_s": rate, "delay_ms": wanted.delay_ms, "network": SWITCH},
        iperf3=iperf3,
        launches=launches,
        unavailable={**unavailable, **barred},
        provenance=provenance,
    ).write(out)


def _told(record: LaunchRecord) -> str:
    return record.status + (f", {record.reason}" if record.reason else "")


def by_iperf3(wires: Wires, cpus: Sequence[int]) -> Iperf:
    """One stream between two ports of such a switch, each end on a CPU of its own where there are two."""
    if shutil.which("iperf3") is None:
        return Iperf(reason="iperf3 is not installed (Debian's package iperf3)")
    try:
        with switched(CLIENT, 2, wires) as (first, second):
            server = [*_within(first, cpus[0]), "iperf3", "--server", "--one-off"]
            null = subprocess.DEVNULL
            listener = start(server, env=CLIENT, cwd=None, stdin=null, stdout=null, stderr=null)
            try:
                return _stream(_within(second, cpus[-1]))
            finally:
                kill_group(listener.pid)
                listener.wait()
                ended(listener.pid)
    except UnavailableError as error:
        return Iperf(reason=str(error))


def _within(pid: int, cpu: int) -> list[str]:
    return ["taskset", "-c", str(cpu), "nsenter", f"--net=/proc/{pid}/ns/net", "--"]


def _stream(within: list[str]) -> Iperf:
    options = ("--time", str(IPERF_S), "--omit", "1", "--json")
    client = [*within, "iperf3", "--client", SUBNET.format(1), *options]
    until = time.monotonic() + SERVER_S
    done = run(client, timeout_s=30.0, env=CLIENT)
    while "refused" in done.stdout + done.stderr and time.monotonic() < until:  # the server does not listen yet
        time.sleep(0.1)
        done = run(client, timeout_s=30.0, env=CLIENT)
    try:
        told = json.loads(done.stdout)
        received = told["end"]["sum_received"]
        return Iperf(
            reason=None,
            version=str(told["start"]["version"]),
            bits_per_s=float(received["bits_per_second"]),
            seconds=float(received["seconds"]),
            retransmits=int(told["end"]["sum_sent"].get("retransmits", 0)),
        )
    except (ValueError, KeyError, TypeError):
        return Iperf(reason=f"iperf3: {done.explain()}")
