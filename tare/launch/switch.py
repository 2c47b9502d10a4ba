"""A switch: a network namespace for each instance of a group, joined to one bridge by pairs of virtual Ethernet.

Run as a file in its own network namespace, standard library only: `python -I -S tare/launch/switch.py PLAN`,
with PLAN as JSON: `name` (of the launch's locked folder, which every device's name carries), `ports` (how many
instances), `namespaces` (processes whose namespaces are taken; without, it makes them), `rate_bit_per_s` and
`delay_ms` (None and 0 for none), `overlay`, `taps`. It says `tare-network/1 up {"pids": […], "addresses": […]}`
when the network is there, or `failed` with the reason, and lives until its input ends.

The bridge is in the namespace of this process, so no two of them can meet, nothing of the machine's own network
is touched, and the kernel takes all of it away with the last process that is in there, however that ended. A rate
is a token bucket (tbf) at both ends of each pair, so of either direction, as on a full-duplex cable; a delay is
netem's, on what an instance sends.

With `overlay` each cable ends in a further namespace, which represents a host, and an instance has a VXLAN device
whose packets travel in UDP between those (RFC 7348), as in the overlay networks of Docker swarm and of flannel.

With `taps` an instance is a virtual machine: its namespace, which represents the machine that runs it, has its own
bridge from the cable to a tap device, and no address.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

PROTOCOL = "tare-network/1"
SUBNET, OVERLAY = "10.83.0.{}", "10.84.0.{}"  # within the namespaces alone
VXLAN = ("id", "83", "dstport", "4789")
ANY_OTHER = "00:00:00:00:00:00"  # the forwarding entry for whoever has none
INTERFACE = "eth0"  # of an instance
TAP, INNER_BRIDGE = "tap0", "br0"  # in the namespace of a virtual machine
CLONE_NEWNET = 0x40000000
BURST_BYTES = 1 << 17  # two of the largest packets that a pair passes on in one piece (64 KiB)
QUEUE_MS = 50  # that a packet may wait for its rate before it is dropped
NETEM_PACKETS = 100_000
COMMAND_S = 20
# What a program's message means, by a part of it.
MEANS = (
    ("Operation not permitted", "this user may not make network devices"),
    ("qdisc kind is unknown", "this kernel has no {kind}"),
    ("Unknown device type", "this kernel has no {kind}"),
    ("File exists", "its name is taken"),
    ("open: ", "/dev/net/tun can't be opened: this kernel has no tun, or this user may not"),
)


class Refused(Exception):
    """A part of the network can't be had; the message says which, and why."""


def loopback_up() -> None:
    """Set the loopback of this namespace up (ioctl SIOCSIFFLAGS, flags IFF_UP and IFF_RUNNING)."""
    with socket.socket() as any_one:
        fcntl.ioctl(any_one, 0x8914, struct.pack("16sh22x", b"lo", 0x41))


def instance_namespace() -> int:
    """A child in its own network namespace, which lives until our end of its pipe closes; its number."""
    ready, report = os.pipe()
    held, hold = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hold)
        os.close(ready)
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            os.write(report, os.strerror(ctypes.get_errno()).encode())
            os._exit(1)
        loopback_up()
        os.close(report)
        os.read(held, 1)
        os._exit(0)
    os.close(report)
    os.close(held)
    if said := os.read(ready, 200).decode():
        raise Refused(f"a network namespace: {said}")
    os.close(ready)
    return pid


def ask(kind: str, *argv: str) -> None:
    """Run a program of iproute2; `kind` is what it is to make."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except FileNotFoundError:
        raise Refused(f"{argv[0]} is not installed (Debian's package iproute2)") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{kind}: {argv[0]} did not answer within {COMMAND_S} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        first = said[0] if said else f"{argv[0]} ended with status {done.returncode}"
        why = next((text.format(kind=kind) for sign, text in MEANS if sign in first), first)
        raise Refused(f"{kind}: {why}")


def shape(within: Sequence[str], device: str, rate_bit_per_s: float | None, delay_ms: float) -> None:
    """Give what a device sends a rate and a delay; `within` begins the command in its namespace."""
    parent: tuple[str, ...] = ("root",)
    if delay_ms:
        late = ("netem", "delay", f"{delay_ms:g}ms", "limit", str(NETEM_PACKETS))
        ask("netem", *within, "tc", "qdisc", "add", "dev", device, *parent, "handle", "1:", *late)
        parent = ("parent", "1:1")
    if rate_bit_per_s:
        limit = ("rate", f"{rate_bit_per_s:.0f}bit", "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms")
        ask("tbf", *within, "tc", "qdisc", "add", "dev", device, *parent, "handle", "10:", "tbf", *limit)


def build(plan: Mapping[str, Any]) -> list[int]:
    """Make the whole network; returns a process in each instance's namespace."""
    name, rate, delay = plan["name"].removeprefix("tare-"), plan["rate_bit_per_s"], plan["delay_ms"]
    loopback_up()
    pids = plan["namespaces"] or [instance_namespace() for _ in range(plan["ports"])]
    hosts = [instance_namespace() for _ in pids] if plan["overlay"] else pids
    bridge = f"t-{name}"
    ask("bridge", "ip", "link", "add", "name", bridge, "type", "bridge")
    ask("bridge", "ip", "link", "set", "dev", bridge, "up")
    for number, pid in enumerate(hosts):
        port, within = f"{name}-{number:02d}", inside(pid)
        pair = ("type", "veth", "peer", "name", INTERFACE, "netns", str(pid))
        ask("veth", "ip", "link", "add", "name", port, *pair)
        ask("bridge", "ip", "link", "set", "dev", port, "master", bridge, "up")
        if plan["taps"]:
            open_tap(within)
        else:
            begin(within, SUBNET.format(number + 1))
        shape(within, INTERFACE, rate, delay)
        shape((), port, rate, 0)
    for number, (pid, host) in enumerate(zip(pids, hosts, strict=True) if plan["overlay"] else ()):
        device = f"{name}-ov"
        local = ("local", SUBNET.format(number + 1), "dev", INTERFACE)
        ask("vxlan", *inside(host), "ip", "link", "add", "name", device, "type", "vxlan", *VXLAN, *local)
        ask("vxlan", *inside(host), "ip", "link", "set", "dev", device, "netns", str(pid))
        ask("vxlan", *inside(pid), "ip", "link", "set", "dev", device, "name", INTERFACE)
        for other in range(len(pids)):
            if other != number:
                way = ("dst", SUBNET.format(other + 1))
                ask("vxlan", *inside(pid), "bridge", "fdb", "append", ANY_OTHER, "dev", INTERFACE, *way)
        begin(inside(pid), OVERLAY.format(number + 1))
    return pids


def open_tap(within: Sequence[str]) -> None:
    """Join the cable of a namespace to a tap device, which whoever starts a virtual machine there opens."""
    ask("tun", *within, "ip", "tuntap", "add", "dev", TAP, "mode", "tap")
    ask("bridge", *within, "ip", "link", "add", "name", INNER_BRIDGE, "type", "bridge")
    for device in (INTERFACE, TAP):
        ask("bridge", *within, "ip", "link", "set", "dev", device, "master", INNER_BRIDGE, "up")
    ask("bridge", *within, "ip", "link", "set", "dev", INNER_BRIDGE, "up")


def inside(pid: int) -> tuple[str, ...]:
    """What begins a command in a process's network namespace."""
    return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")


def begin(within: Sequence[str], address: str) -> None:
    """Give an instance's interface its address, and set it up."""
    ask("address", *within, "ip", "address", "add", f"{address}/24", "dev", INTERFACE)
    ask("address", *within, "ip", "link", "set", "dev", INTERFACE, "up")


def network_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Make the whole network: a process in each instance's namespace, and the addresses of the instances."""
    pids, subnet = build(plan), OVERLAY if plan["overlay"] else SUBNET
    return {"pids": pids, "addresses": [subnet.format(number + 1) for number in range(len(pids))]}


def say(word: str, values: Mapping[str, Any]) -> None:
    """One line of the protocol."""
    print(PROTOCOL, word, json.dumps(values), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("{"):
        asked = bool({"-h", "--help"} & set(sys.argv))
        print(__doc__, file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
    try:
        say("up", network_of(json.loads(sys.argv[1])))
    except Refused as error:
        say("failed", {"reason": str(error)})
        sys.exit(1)
    sys.stdin.read()
