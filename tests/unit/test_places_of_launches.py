"""Where launches meet and what is made for them: values by hand, without a launch."""

import contextlib
import errno
import json
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, spec
from test_adapters import LAUNCH

from envs.docker import Docker
from envs.host import Host
from envs.vm import Vm
from tare.core.errors import UnavailableError
from tare.core.process import Finished
from tare.launch import conditions, group, networks, prepare
from tare.launch.channel import ConversationError
from tare.launch.networks import Wires
from tare.launch.place import Site
from tare.launch.scenarios import distributed, shared
from tare.launch.slicing.rounds import in_own_time, slices_of
from tare.model.conditions import Group
from tare.model.records.launches import Clock, LaunchRecord, Network

SITE = Site(environment=Host(), python="p", reference=None, data=None)
GROUP = Group(workers=2, exchange="all-reduce", network="switch", rate_mbit_per_s=1000.0, delay_ms=0.5)


@pytest.mark.parametrize(("wanted", "kind", "interfaces"), [(None, None, ("lo",)), ("host", "host", None)])
def test_on_the_hosts_network_all_have_one_loopback_and_a_port_that_is_free(wanted, kind, interfaces):
    with networks.meeting(replace(SITE, isolates_network=False), 3, wanted) as found:
        assert (found.networks, found.address, found.interface) == (("host",) * 3, "127.0.0.1", "lo")
        assert found.interfaces == interfaces
        assert (found.record.kind if found.record else None) == kind
        with socket.socket() as one:
            one.bind(("127.0.0.1", found.port))


@pytest.mark.parametrize(
    ("isolates", "joins", "network"),
    [(True, True, "/proc/7/ns/net"), (True, False, "host"), (False, True, "host")],
)
def test_a_loopback_is_a_groups_own_where_its_environment_can_enter_one(monkeypatch, isolates, joins, network):
    environment = Host() if joins else Docker()
    monkeypatch.setattr(networks, "_loopback", lambda site: contextlib.nullcontext("/proc/7/ns/net"))
    site = Site(environment=environment, isolates_network=isolates)
    with networks.meeting(site, 2, None) as found:
        assert found.networks == (network,) * 2 and (found.interfaces, found.record) == (("lo",), None)
        assert (found.port == networks.PORT) == (network != "host")
    with networks.meeting(site, 2, "host") as found:
        assert found.networks == ("host",) * 2 and found.port >= 1024, "the kernel chooses none below"


@pytest.mark.parametrize(("uid", "words"), [(0, []), (1000, ["--user", "--map-current-user", "--keep-caps"])])
def test_only_root_needs_no_user_namespace_of_its_own(monkeypatch, uid, words):
    monkeypatch.setattr(networks.os, "getuid", lambda: uid)
    assert networks.unshared() == ["unshare", *words, "--net", "--"]


@pytest.mark.parametrize(
    ("environment", "networks_of", "addresses", "by_launches"),
    [
        (Host(), ("/proc/7/ns/net", "/proc/8/ns/net"), (), False),
        (Docker(), ("launch:held-1", "launch:held-2"), (), True),
        (Vm(), ("/proc/7/ns/net", "/proc/8/ns/net"), ("10.0.0.1", "10.0.0.2"), False),
    ],
)
def test_a_switch_is_entered_by_path_by_launch_or_by_tap(
    monkeypatch, environment, networks_of, addresses, by_launches
):
    asked, numbers = [], iter((1, 2))

    def switch_of(client, size, wires, namespaces, *, taps):
        asked.append((size, namespaces, taps))
        return contextlib.nullcontext({"pids": [7, 8], "addresses": ["10.0.0.1", "10.0.0.2"]})

    def held(site):
        number = next(numbers)
        return contextlib.nullcontext((f"held-{number}", number))

    monkeypatch.setattr(networks, "_held_by_a_launch", held)
    monkeypatch.setattr(networks, "process_in", lambda inode: 100 + inode)
    monkeypatch.setattr(networks, "switch_of", switch_of)
    with networks.meeting(Site(environment=environment), 2, Wires(rate_bit_per_s=1e9, delay_ms=0.5)) as found:
        assert (found.networks, found.address, found.addresses) == (networks_of, "10.0.0.1", addresses)
        assert (found.record.kind, found.record.by_launches) == ("switch", by_launches)
        assert (found.record.rate_bit_per_s, found.record.delay_ms) == (1e9, 0.5)
    assert asked == [(2, [101, 102] if by_launches else [], environment.bridges_networks)]
    overlay = Wires(rate_bit_per_s=None, overlay=True)
    if environment.bridges_networks:
        with pytest.raises(UnavailableError), networks.meeting(Site(environment=environment), 2, overlay):
            pytest.fail("a guest is on no overlay")
    elif not by_launches:
        with networks.meeting(Site(environment=environment), 2, overlay) as found:
            assert found.record.kind == "overlay"


@pytest.fixture
def holders(monkeypatch, tmp_path):
    """Programs that hold a network are none; `asked` has their arguments."""
    asked = []

    def holding(argv, client, folder):
        asked.append(argv)
        return contextlib.nullcontext((None, {"pids": ["7"], "inode": "9"}))

    monkeypatch.setattr(networks, "own_folder", lambda: contextlib.nullcontext(("tare-1", tmp_path)))
    monkeypatch.setattr(networks, "at_death", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(networks, "ended_with_us", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(networks, "_holding", holding)
    return asked


def test_a_switch_is_planned_without_a_delay_an_overlay_or_taps_where_none_is_asked_for(holders):
    with networks.switched({}, 3, Wires(rate_bit_per_s=None)) as pids:
        assert pids == [7]
    assert json.loads(holders[0][-1]) == {
        "name": "tare-1", "ports": 3, "namespaces": [], "rate_bit_per_s": None, "delay_ms": 0.0, "overlay": False,
        "taps": False,
    }  # fmt: skip


def test_a_launch_that_holds_a_network_asks_for_little(holders, monkeypatch):
    planned, ended = [], []

    class Noted(Docker):
        def command(self, launch):
            planned.append(launch)
            return ["it"]

    monkeypatch.setattr(networks.os, "sched_getaffinity", lambda pid: {3, 1} if pid == 0 else {9})
    monkeypatch.setattr(networks, "clean_up", lambda environment, launch: ended.append(launch))
    with networks._held_by_a_launch(Site(environment=Noted(), python="p", reference="r")) as found:
        assert found == ("tare-1", 9) and not ended
    (launch,) = planned
    assert (launch.cpus, launch.shm_bytes, launch.nofile) == ((1, 3), 1_048_576, 1024) and ended == planned


def test_a_namespace_is_found_by_the_process_that_is_in_it(tmp_path, monkeypatch):
    for name in ("self", "12", "13"):
        (tmp_path / f"proc/{name}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{name}/ns/net").touch()
    (tmp_path / "proc/14/ns").mkdir(parents=True)
    (tmp_path / "proc/14/ns/net").symlink_to("gone")
    numbers = {name: (tmp_path / f"proc/{name}/ns/net").stat().st_ino for name in ("self", "12", "13")}
    monkeypatch.setattr(networks, "Path", lambda text: tmp_path / text.lstrip("/"))
    assert [networks.process_in(numbers[name]) for name in ("12", "13")] == [12, 13]
    for number in (numbers["self"], 0):
        with pytest.raises(UnavailableError):
            networks.process_in(number)


@pytest.mark.parametrize(
    ("network", "environment", "overlay"),
    [
        ("switch", None, False), ("overlay", None, True), ("overlay-of-containers", None, True),
        ("overlay-of-containers", Docker(), True), ("overlay-of-containers", Host(), False),
        ("overlay-of-containers", Vm(), False), ("overlay", Host(), True),
    ],
)  # fmt: skip
def test_a_group_meets_on_a_switch_or_an_overlay_with_the_rate_of_its_study(network, environment, overlay):
    found = distributed.network_of(GROUP.replace(network=network), environment)
    assert found == Wires(rate_bit_per_s=1e9, delay_ms=0.5, overlay=overlay)


def test_a_group_without_a_rate_has_none_and_one_on_the_hosts_network_no_wires():
    assert distributed.network_of(GROUP.replace(rate_mbit_per_s=None)) == Wires(rate_bit_per_s=None, delay_ms=0.5)
    assert distributed.network_of(GROUP.replace(network="host")) == "host"


@pytest.mark.parametrize(("number", "kind"), [(errno.EROFS, UnavailableError), (errno.ENOSPC, OSError)])
def test_an_image_that_is_not_ours_to_write_to_is_unavailable(tmp_path, monkeypatch, number, kind):
    """As one that others made, or that a network file system shows; a full disk says itself what it is."""
    adapter = SimpleNamespace(mount_points=lambda planned: [tmp_path / "data"])

    def mkdir(*_, **__):
        raise OSError(number, "refused")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with (
        pytest.raises(kind, match="refused"),
        prepare.mount_points(adapter, replace(LAUNCH, reference=str(tmp_path))),
    ):
        pass


def test_mount_points_of_a_launch_alone_go_after_it_the_deepest_first(tmp_path):
    (tmp_path / "shared").mkdir()
    points = [tmp_path / "shared/all", tmp_path / "shared/one/code/deep"]
    adapter = SimpleNamespace(mount_points=lambda planned: points)
    planned = replace(LAUNCH, name="one", reference=str(tmp_path / "shared"))
    assert prepare.own_mount_points(adapter, planned) == [points[1], points[1].parent, points[1].parent.parent]
    for _ in range(2):
        with prepare.mount_points(adapter, planned):
            assert all(point.is_dir() for point in points)
        assert points[0].is_dir() and not (tmp_path / "shared/one").exists()
    with prepare.mount_points(adapter, replace(planned, reference=str(tmp_path / "image"))):
        assert not points[1].exists(), "never where an image should be"


def test_cpus_of_one_core_are_as_the_kernel_lists_them(tmp_path):
    folder = tmp_path / "cpu3/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text("1,3\n")
    assert conditions.siblings_of(3, tmp_path) == "1,3" and conditions.siblings_of(1, tmp_path) is None


def billed():
    """What was billed to a launch that was stopped from 2 s to 5 s after its first instruction at 10 s."""
    ended = Finished(
        argv=("it",), returncode=0, stdout="", stderr="", started_ns=9 * 10**9, ended_ns=17 * 10**9, user_s=0.0,
        system_s=0.0, timed_out=False,
    )  # fmt: skip
    job = SimpleNamespace(
        holder=SimpleNamespace(means="cgroup2"),
        servers=SimpleNamespace(clock=lambda: {1: 4_000_000, 2: 2_000_000}),
        ended_ns=16 * 10**9,
        began_ns=[10 * 10**9, 15 * 10**9],
        stopped_ns=[12 * 10**9 - 5000, 16 * 10**9],
        quiet_ns=[12 * 10**9, 16 * 10**9],
        quantum_s=[0.04, 0.0],
        waited_s=[0.25, 0.0],
        cpu_ns=[7, 1_500_000_000, 2_250_000_000],
        gates_ns=[11 * 10**9],
        gates_cpu_ns=[900_000_000],
        **{"looks": 9, "idle_looks": 2, "waiting_looks": 1, "memory_bytes": 4096},
    )
    held = SimpleNamespace(finished=ended, servers=2, servers_ns=1_500_000, arrived_ns=10 * 10**9, left=0)
    return slices_of(held, job)


def test_slices_are_told_in_microseconds_since_the_first_instruction():
    found = billed()
    assert (found.spawn_ns, found.arrived_ns, found.ended_ns, found.end_ns) == tuple(
        n * 10**9 for n in (9, 10, 16, 17)
    )
    assert (found.began_us, found.length_us, found.quiet_us) == (
        (0, 5_000_000), (1_999_995, 1_000_000), (2_000_000, 1_000_000),
    )  # fmt: skip
    assert (found.quantum_ms, found.waited_us, found.cpu_us) == ((40, 0), (250_000, 0), (1_500_000, 2_250_000))
    assert (found.gates_us, found.gates_cpu_us, found.servers_cpu_us) == ((1_000_000,), (900_000,), 4_500)
    assert (found.servers, found.means, found.looks, found.idle_looks) == (2, "cgroup2", 9, 2)
    assert (found.waiting_looks, found.memory_bytes) == (1, 4096)


def test_in_its_own_time_a_launch_ends_without_what_it_was_stopped_for():
    record = LaunchRecord(status="ok", reason=None, spawn_ns=9 * 10**9, end_ns=17 * 10**9)
    found = in_own_time(record, billed())
    assert found.end_ns == 14 * 10**9 and found.slices == billed()
    never = record.replace(end_ns=None)
    assert in_own_time(never, billed()) == never


@pytest.mark.parametrize(
    ("ended", "killed", "cleaned"),
    [(("ok", "ok"), [], []), (("ok", "failed"), [], [1]), (("ok", None), [1], [1]), ((None, None), [0, 1], [0, 1])],
)
def test_of_a_group_only_members_that_did_not_end_well_are_cleaned_up(monkeypatch, ended, killed, cleaned):
    done = {"killed": [], "cleaned": []}

    def ready_one(site, program, asked, *, pad_bytes, member):
        talk = SimpleNamespace(go=lambda: None, kill=lambda: done["killed"].append(member))
        return contextlib.nullcontext(SimpleNamespace(start=lambda: talk, environment=None, planned=member))

    def watch(live, asked):
        for one, status in zip(live, ended, strict=True):
            one.record = status and LaunchRecord(status=status, reason=None if status == "ok" else "it died")

    monkeypatch.setattr(
        group, "meeting", lambda site, size, network: contextlib.nullcontext(SimpleNamespace(record=None, nodes=()))
    )
    monkeypatch.setattr(group, "ready", ready_one)
    monkeypatch.setattr(group, "members_at", lambda place, size, cpus: list(range(size)))
    monkeypatch.setattr(group, "clean_up", lambda environment, planned: done["cleaned"].append(planned))
    monkeypatch.setattr(group, "_watch", watch)
    monkeypatch.setattr(group, "_together", lambda live, culprit, asked, network: [one.rank for one in live])
    assert group._launch_once(None, None, CONDITIONS, 2, 0, None) == [0, 1]
    assert done == {"killed": killed, "cleaned": cleaned}


@pytest.mark.parametrize(
    ("ends", "tries"),
    [
        (["EADDRINUSE: 29500", None], 2),
        (["EADDRINUSE", "EADDRINUSE"], 2),
        (["it died"], 1),
        ([None], 1),
        ([""], 1),
    ],
)
def test_a_group_whose_port_was_taken_starts_anew_once(monkeypatch, ends, tries):
    left = list(ends)

    def once(*given):
        assert given[3:] == (2, 0, None)
        reason = left.pop(0)
        return LaunchRecord(status="ok" if reason is None else "failed", reason=reason or None)

    monkeypatch.setattr(group, "_launch_once", once)
    found = group.launch_group(None, None, CONDITIONS, size=2)
    assert len(ends) - len(left) == tries and found.reason == (ends[tries - 1] or None)


def test_one_alone_is_an_ordinary_launch_without_a_pad(monkeypatch):
    monkeypatch.setattr(group, "launch", lambda site, program, asked, **more: more)
    assert group.launch_group(None, None, CONDITIONS, size=1) == {"pad_bytes": 0}


@pytest.mark.parametrize("addresses", [(), ("10.0.0.1", "10.0.0.2")])
def test_members_have_what_their_meeting_gives_each(monkeypatch, addresses):
    monkeypatch.setattr(group, "choose_cpus", lambda count: tuple(range(count)))
    place = networks.Meeting(
        networks=("/a", "/b"), address="10.0.0.1", port=7, interface="eth0", interfaces=None, addresses=addresses
    )
    first, second = group.members_at(place, 2, 4)
    assert (first.rank, first.network, first.cpus) == (0, "/a", (0, 1))
    assert (second.rank, second.network, second.cpus) == (1, "/b", (2, 3))
    assert (first.own_address, second.own_address) == (addresses or (None, None))


@pytest.mark.parametrize(
    ("sign", "started"), [("silent", True), ("none", False), ("file", True), ("greeting", True)]
)
def test_a_member_has_started_by_its_file_or_its_greeting(tmp_path, sign, started):
    path = tmp_path / ("." if sign == "file" else "none")
    ready = SimpleNamespace(program=SimpleNamespace(announces=sign != "silent"), started_path=path)
    one = group.Live(rank=3, ready=ready, talk=SimpleNamespace(greeted=sign == "greeting"))
    assert (one.started, one.name) == (started, "rank 3")


class Member:
    """A member that starts and ends when the clock says so; `asked` counts who wanted its end."""

    def __init__(self, rank, watch, *, starts_s=0.0, ends_s=999.0, status="ok", talks_s=()):
        self.rank, self.watch, self.starts_s, self.ends_s, self.status = rank, watch, starts_s, ends_s, status
        self.talks_s, self.asked, self.record, self.talk = talks_s, 0, None, self
        self.descriptors, self.name = ((rank, "words"), (rank, "end")), f"rank {rank}"

    @property
    def started(self):
        return self.watch.now_s >= self.starts_s

    def has_ended(self):
        return self.watch.now_s >= self.ends_s


class Watch:
    """A clock, and a selector that wakes when a member speaks or ends: each of that once."""

    def __init__(self, monkeypatch):
        self.now_s, self.waits, self.of = 100.0, [], {}
        monkeypatch.setattr(group, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        kinds = SimpleNamespace(DefaultSelector=lambda: contextlib.nullcontext(self), EVENT_READ=1)
        monkeypatch.setattr(group, "selectors", kinds)
        monkeypatch.setattr(group, "_ended", self.ended)
        monkeypatch.setattr(group, "START_S", 5.0)

    @staticmethod
    def ended(one, asked):
        one.asked += 1
        return LaunchRecord(status=one.status, reason=None if one.status == "ok" else "it died")

    def register(self, descriptor, event, one):
        assert not one.has_ended()
        self.of[descriptor] = one

    def unregister(self, descriptor):
        del self.of[descriptor]

    def select(self, timeout_s):
        assert timeout_s >= 0
        self.waits.append(timeout_s)
        before, self.now_s = self.now_s, self.now_s + timeout_s + 0.001  # never to the instant
        found = []
        for descriptor, one in self.of.items():
            at_s = [one.ends_s, *(one.talks_s if descriptor[1] == "words" else ())]
            if any(before < at <= self.now_s for at in at_s):
                found.append((SimpleNamespace(data=one), 1))
        return found


def watched(monkeypatch, *members, limit_s=20.0):
    """What comes of members, each with its keywords: who was to blame, the members, and the clock."""
    watch = Watch(monkeypatch)
    live = [Member(rank, watch, **keywords) for rank, keywords in enumerate(members)]
    return group._watch(live, CONDITIONS.replace(launch_timeout_s=limit_s)), live, watch


@pytest.mark.parametrize(
    ("members", "limit_s", "blamed", "at_s"),
    [
        # one that never starts, and where there are several the first of them; the others may be training already
        ([{}, {"starts_s": 999.0}, {"starts_s": 999.0}], 20.0, (1, "timeout"), 105.0),
        # in a launch that may take less than a start, no later than its end
        ([{"starts_s": 999.0}, {}], 3.0, (0, "timeout"), 103.0),
        # one that starts late enough is waited for like the others; one that has ended is not to blame
        ([{"ends_s": 101.0}, {"starts_s": 104.0, "ends_s": 999.0}], 20.0, (1, "timeout"), 120.0),
        ([{"ends_s": 101.0}, {"ends_s": 119.9}], 20.0, None, None),
        # one that ends badly ends the watch, also before it was watched
        ([{"ends_s": 999.0}, {"ends_s": 103.0, "status": "failed"}], 20.0, (1, "failed"), None),
        ([{"ends_s": 50.0}, {"ends_s": 50.0, "status": "failed"}, {"ends_s": 50.0}], 20.0, (1, "failed"), 100.0),
        ([{"ends_s": 50.0}, {"ends_s": 50.0}], 20.0, None, 100.0),
    ],
)  # fmt: skip
def test_who_of_a_group_is_to_blame_and_when(monkeypatch, members, limit_s, blamed, at_s):
    found, _, watch = watched(monkeypatch, *members, limit_s=limit_s)
    assert (found and found[:2]) == blamed
    assert at_s is None or at_s <= watch.now_s < at_s + 0.01
    assert all(wait_s <= group.LOOK_S for wait_s in watch.waits)
    if found:
        assert found[2].startswith(f"rank {found[0]}")


def test_a_member_that_only_speaks_goes_on_and_the_end_of_each_is_asked_for_once(monkeypatch):
    spoken = {"ends_s": 104.0, "talks_s": (101.0, 103.0)}
    found, live, watch = watched(monkeypatch, spoken, {"ends_s": 101.0}, {"ends_s": 104.0})
    assert found is None and [one.asked for one in live] == [1, 1, 1] and watch.of == {}
    assert 104.0 <= watch.now_s < 104.5, "of those that were heard together each was looked at"


def test_a_group_is_told_from_its_first_start_to_its_last_end(monkeypatch):
    def told(rank, status, **more):
        times = {"client_user_s": 1.0, "client_system_s": 0.5, "spawn_ns": 10 + rank, "end_ns": 90 + rank}
        return LaunchRecord(status=status, reason=None if status == "ok" else "it died", **times | more)

    late = {"spawn_ns": None, "end_ns": None, "client_user_s": None, "client_system_s": None}
    records = [told(0, "ok", deviations=("odd",)), None, None]
    stopped = [told(1, "failed"), told(2, "failed", **late)]
    monkeypatch.setattr(group, "record_of", lambda finished, ready, asked: stopped.pop(0))
    live = [
        group.Live(rank=rank, ready=None, talk=SimpleNamespace(kill=lambda: None), record=record)
        for rank, record in enumerate(records)
    ]
    network = Network(kind="host")
    found = group._together(live, (1, "timeout", "rank 1 was late"), CONDITIONS, network)
    assert (found.status, found.reason, found.network) == ("timeout", "rank 1 was late", network)
    assert [one.status for one in found.instances] == ["ok", "timeout", "stopped"]
    assert found.instances[1].reason == "rank 1 was late" != found.instances[2].reason
    assert [(one.spawn_ns, one.end_ns) for one in found.instances] == [(10, 90), (11, 91), (0, 0)]
    assert (found.spawn_ns, found.end_ns, found.client_user_s, found.client_system_s) == (0, 91, 2.0, 1.0)
    assert found.deviations == ("rank 0: odd",)
    well = group._together([replace(one, record=told(one.rank, "ok")) for one in live], None, CONDITIONS, None)
    assert (well.status, well.reason, well.network, well.spawn_ns, well.end_ns) == ("ok", None, None, 10, 92)


@pytest.mark.parametrize(("cache", "dropped"), [("warm", 0), ("cold", 1)])
def test_a_group_from_a_cold_disk_drops_what_is_in_memory_once(monkeypatch, cache, dropped):
    done, talk = [], SimpleNamespace(go=lambda: done.append("go"))
    prepared = SimpleNamespace(start=lambda: done.append("start") or talk)
    place = contextlib.nullcontext(SimpleNamespace(record=None, nodes=()))
    monkeypatch.setattr(group, "meeting", lambda site, size, network: place)
    monkeypatch.setattr(group, "ready", lambda *_, **__: contextlib.nullcontext(prepared))
    monkeypatch.setattr(group, "members_at", lambda place, size, cpus: list(range(size)))
    monkeypatch.setattr(group, "drop_page_cache", lambda: done.append("drop"))
    ok = LaunchRecord(status="ok", reason=None)

    def watch(live, asked):
        for one in live:
            one.record = ok

    monkeypatch.setattr(group, "_watch", watch)
    monkeypatch.setattr(group, "_together", lambda *_: ok)
    asked = CONDITIONS.replace(page_cache=cache)
    assert group._launch_once(None, None, asked, 2, 0, None) is ok
    assert done == [*["drop"] * dropped, "start", "start", "go", "go"]


def test_a_co_runner_made_the_steps_that_ended_while_the_launch_ran_by_its_own_clock(monkeypatch):
    told = {"step_ends_ns": [10, 20, 30, 40, 50], "seconds": 1.5, "cpu_s": 0.5}
    record = LaunchRecord(status="ok", reason=None, clock=Clock(offset_ns=100, error_ns=1), deviations=("odd",))
    monkeypatch.setattr(shared, "record_of", lambda finished, prepared, asked: record)
    talk = SimpleNamespace(ask=lambda *given, timeout_s: told, end=lambda *, timeout_s: None)
    live = shared.Live(
        prepared=SimpleNamespace(planned=SimpleNamespace(name="tare-1")),
        talk=talk,
        spec=spec(workload="mnist_cnn", batch=8),
        conditions=CONDITIONS,
    )
    beside = LaunchRecord(status="ok", reason=None, spawn_ns=120, end_ns=140)
    found = live.end(beside)
    assert (found.steps, found.seconds, found.cpu_s) == (3, 1.5, 0.5)
    assert (found.launch, found.workload, found.batch, found.deviations) == ("tare-1", "mnist_cnn", 8, ("odd",))
    assert live.has_ended
    del told["cpu_s"]
    with pytest.raises(ConversationError, match="lacks 'cpu_s'"):
        live.end(beside)
    failed = record.replace(status="failed", reason="it died")
    monkeypatch.setattr(shared, "record_of", lambda finished, prepared, asked: failed)
    live.has_ended = False
    with pytest.raises(UnavailableError, match="it died"):
        live.end(beside)
    assert not live.has_ended
