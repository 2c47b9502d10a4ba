"""One launch anywhere: over bind mounts or two streams alone, its record, its clock, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, spec

from tare.core import process
from tare.core.errors import UnavailableError, UserError
from tare.core.process import Finished
from tare.launch import conditions, group, inside, networks, prepare, record, scenarios, transport
from tare.launch.channel import Conversation, ConversationError
from tare.launch.limits import Share
from tare.launch.place import Site
from tare.launch.program import worker
from tare.launch.program.base import TAIL_CHARACTERS, Place
from tare.launch.run import Order, launch, launch_side_by_side
from tare.model.environment import Environment, Probe, Quota
from tare.model.journals.units import launched_ns
from tare.model.records.launches import Clock, Inside, LaunchRecord
from tare.model.schema import parse

SPEC = spec(mode="device", device="cpu", devices=None)


class Bare(Environment):
    """The host without any condition; its words can be replaced by a script."""

    title = description = "Bare"
    contained = False
    unseen = ("affinity", "/dev/shm bytes", "network interfaces", "open files", "working directory")
    script = None
    points = ()

    def probe(self):
        return Probe(available=True)

    def prepare(self, image, folder):
        raise AssertionError("nothing is ever prepared")

    def command(self, launch):
        return list(launch.argv) if self.script is None else [sys.executable, "-S", "-c", self.script]

    def mount_points(self, launch):
        return tuple(point / launch.name / "inner" for point in self.points)


class Streams(Bare):
    """The same, over its streams alone."""

    transport = "channel"


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TARE_CACHE", folder)
        yield Path(folder)


def site_of(environment, **more):
    return Site(environment=environment, python=sys.executable, reference=None, data=None, **more)


@pytest.mark.parametrize("kind", [Bare, Streams])
def test_a_launch_gives_its_record_over_either_transport(kind, cache):
    found = launch(site_of(kind()), SPEC, CONDITIONS)
    assert found.status == "ok", found.reason
    inside = found.seen_inside()
    assert inside.mode == "device" and inside.marks[0].name == "entry"
    assert found.transport == kind.transport and found.clock == Clock()
    assert found.unseen == kind.unseen and found.deviations == ()
    assert found.cpus_share_cores in (True, False, None)
    again = parse(LaunchRecord, json.loads(json.dumps(found.to_json())), "a record")
    assert again == found
    folder = Path(inside.facts.cwd)
    assert list((cache / "launches").iterdir()) == []
    if kind is Streams:
        assert folder.parent == Path("/tmp") and not folder.exists(), "its folder is gone on the other side as well"
        assert 0 < found.put_s < (found.end_ns - found.spawn_ns) / 1e9
        assert not any(str(cache) in word for word in found.argv), "nothing on the command line leads here"


def test_launches_side_by_side_have_a_record_each_also_where_one_fails(cache):
    broken = Bare()
    broken.script = "raise SystemExit(3)"
    sites = {"bare": site_of(Bare()), "streams": site_of(Streams()), "broken": site_of(broken)}
    orders = {name: Order(site=site, program=SPEC, conditions=CONDITIONS) for name, site in sites.items()}
    found = launch_side_by_side(orders)
    assert {name: one.status for name, one in found.items()} == {"bare": "ok", "streams": "ok", "broken": "failed"}
    assert "status 3" in found["broken"].reason
    assert found["streams"].spawn_ns < found["bare"].end_ns, "none waits for another"
    assert list((cache / "launches").iterdir()) == []


def test_launches_side_by_side_end_at_their_limit(cache):
    slow = Bare()
    slow.script = "import time; time.sleep(60)"
    orders = {
        name: Order(site=site_of(slow), program=SPEC, conditions=CONDITIONS.replace(launch_timeout_s=0.5))
        for name in ("a", "b")
    }
    started = time.monotonic()
    assert {one.status for one in launch_side_by_side(orders).values()} == {"timeout"}
    assert time.monotonic() - started < 10


def test_data_and_kept_files_travel(cache, tmp_path):
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    (data / "deep/file").write_bytes(bytes(range(256)) * 5000)
    kept = tmp_path / "kept.bin"
    script = "import sys; data = open(sys.argv[1], 'rb').read(); open(sys.argv[2], 'wb').write(data[::-1])"
    site = Site(environment=Streams(), python=sys.executable, reference=None, data=data)
    with prepare.ready(site, SPEC, CONDITIONS, pad_bytes=0, keep={"it": kept}) as ready:
        read, written = ready.cargo[1].target / "deep/file", ready.inside / "kept.bin"
        program = (sys.executable, "-c", script, str(read), str(written))
        ended = transport.Channel().converse(replace(ready, command=program), None).end(timeout_s=30)
        assert ended.ok and ready.carried.problem is None
        assert (ready.folder / "kept.bin").read_bytes() == (data / "deep/file").read_bytes()[::-1]


SLEEPS = "import os, pathlib, time; pathlib.Path('begun').write_text(str(os.getpid())); time.sleep(600)"


def test_the_other_side_ends_what_it_started_when_nobody_is_there_any_more(cache):
    with prepare.ready(site_of(Streams()), SPEC, CONDITIONS, pad_bytes=0) as ready:
        carrier = transport.Channel().start(replace(ready, command=(sys.executable, "-c", SLEEPS)))
        carrier.go()
        deadline = time.monotonic() + 60
        while not (begun := ready.inside / "begun").exists() or not begun.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        worker = int(begun.read_text())
        assert not Conversation.end(carrier, timeout_s=60).timed_out, "its input has ended"
        assert not Path(f"/proc/{worker}").exists() and not ready.inside.exists()


def test_the_other_side_ends_what_it_started_when_its_time_is_over(cache):
    with prepare.ready(site_of(Streams()), SPEC, CONDITIONS, pad_bytes=0) as ready:
        assert ready.limit_s == CONDITIONS.launch_timeout_s + transport.FETCH_S
        late = replace(ready, command=(sys.executable, "-c", SLEEPS), limit_s=0.5)
        ended = transport.Channel().converse(late, None).end(timeout_s=60)
        assert not ended.timed_out and ended.returncode == 128 + signal.SIGKILL
        assert late.carried.problem is None and not ready.inside.exists()


def test_each_cache_has_its_own_copy_of_the_code(cache, tmp_path, monkeypatch, capsys):
    """A process that measured with a cache that is gone launches from the next one."""
    names = worker.names_inside(SPEC, CONDITIONS)
    first, sha256 = worker.stage_code(names)
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    second, same = worker.stage_code(names)
    assert same == sha256 and first.is_relative_to(cache) and second.is_relative_to(tmp_path)
    assert (second / "tare/worker/main.py").read_bytes() == (first / "tare/worker/main.py").read_bytes()
    assert capsys.readouterr() == ("", "") and len(first.name) == len(second.name) == 16
    monkeypatch.setattr(worker.store, "keep", lambda *given, **named: pytest.fail("once in each process"))
    assert worker.stage_code(names) == (second, sha256)


def test_each_folder_of_data_has_one_name():
    one, other = Path("/one"), Path("/other")
    assert worker.data_names(site_of(Bare())) == {}
    site = replace(site_of(Bare()), data=one, data_of={"a": other, "b": one})
    assert worker.data_names(site) == {one: "data", other: "data1"}
    assert worker.data_names(replace(site, data=None)) == {other: "data", one: "data1"}


def test_the_worker_reads_its_jobs_with_their_data_its_rank_and_the_sites_framework(tmp_path):
    jobs = [{"workload": "mnist_cnn", "batch": 4}, {"workload": "sentiment_rnn", "batch": 2}, {"batch": 8}]
    program = worker.WorkerProgram(spec(jobs=jobs))
    site = replace(site_of(Bare()), framework="numpy", data_of={"mnist_cnn": Path("/digits")})
    place = Place(
        **{"site": site, "conditions": CONDITIONS, "folder": tmp_path, "inside": Path("/in"), "rank": 0, "size": 3},
        inputs={"data": Path("/shown")},
    )
    program.write(place)
    assert program.workloads == ("mnist_cnn", "sentiment_rnn")
    assert json.loads((tmp_path / "spec.json").read_text()) == {
        **{"threads": CONDITIONS.threads, "settings": dict(CONDITIONS.settings), "record": "/in/record.json"},
        **{"mode": "train", "framework": "numpy", "rank": 0, "world_size": 3},
        "jobs": [{**jobs[0], "data": "/shown"}, *jobs[1:]],
    }
    assert place.shares_files and not program.talks


def test_a_workload_that_is_not_written_for_the_framework_of_a_site_is_refused():
    site = replace(site_of(Bare()), framework="numpy")
    with pytest.raises(UserError, match="numpy"):
        worker.WorkerProgram(spec(workload="mnist_cnn", batch=4)).needs(site, CONDITIONS)


@pytest.mark.parametrize(("device", "counters"), [("cpu", True), ("cuda", False)])
def test_a_worker_that_computes_on_a_gpu_says_so_and_one_that_reads_counters(device, counters):
    program = worker.WorkerProgram(spec(device=device, counters=counters))
    assert (program.uses_gpu, program.reads_counters) == (device == "cuda", counters)


@pytest.mark.parametrize(
    ("status", "returncode", "found", "reason", "tail"),
    [
        ("ok", 0, "ok", None, None),
        ("ok", 3, "failed", "x ended with status 3", None),
        ("failed", 1, "failed", "it broke", TAIL_CHARACTERS),
        (None, 0, "failed", "x ended with status 0", TAIL_CHARACTERS),
        ("none", 0, "failed", "the record from inside has schema none", TAIL_CHARACTERS),
    ],
)
def test_a_run_succeeds_by_its_record_and_its_clients_end(tmp_path, status, returncode, found, reason, tail):
    wrote = inside_at(1, 2).to_json() | {"status": status, "reason": "it broke" if status == "failed" else None}
    if status is not None:
        (tmp_path / "record.json").write_text(json.dumps([] if status == "none" else wrote))
    client = replace(ended(started_ns=0, ended_ns=1), returncode=returncode, stderr="y" * 9000)
    result = worker.WorkerProgram(SPEC).result(client, tmp_path, Bare())
    assert result.status == found and (result.inside is not None) == (status in ("ok", "failed"))
    assert result.reason == reason or result.reason.startswith(reason)
    assert (None if result.stderr is None else len(result.stderr)) == tail
    late = worker.WorkerProgram(SPEC).result(replace(client, timed_out=True), tmp_path, Bare())
    assert late.status == "timeout" and late.inside == result.inside


def test_a_channel_shows_no_folder_of_this_machine():
    site = site_of(Streams(), folders=(Path("/opt/tool"), Path("/opt/driver")))
    with pytest.raises(UnavailableError, match=r"shares no files can't be shown /opt/tool, /opt/driver$"):
        launch(site, SPEC, CONDITIONS)


def test_no_member_of_a_group_waits_for_what_is_carried_for_another(monkeypatch):
    """Each is carried for half a second before its worker and after it: none of that is the group's own run."""
    compare = transport.Carrier._compare_clocks
    monkeypatch.setattr(transport.Carrier, "_compare_clocks", lambda self: (time.sleep(0.5), compare(self)))
    found = group.launch_group(site_of(Streams()), SPEC, CONDITIONS, size=2)
    assert found.ok, found.reason
    assert all(one.put_s >= 0.5 and one.fetch_s >= 0.5 for one in found.instances)
    began, ended = launched_ns(found)
    entries = [one.inside.marks[0].at_ns for one in found.instances]
    assert began < min(entries) and max(one.inside.mark("last").at_ns for one in found.instances) < ended
    assert found.end_ns - found.spawn_ns - (ended - began) > 1e9


def test_a_group_that_can_have_no_network_is_a_record_with_the_reason(monkeypatch):
    site = site_of(Bare())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = group.launch_group(site, SPEC, CONDITIONS, size=2)
    assert found.status == "failed" and "\n" not in found.reason
    assert found.reason.startswith("a group can't have its own network: unshare")


def test_a_kernel_that_lets_nobody_out_of_its_network_is_one_line(monkeypatch):
    """Refused by the kernel itself: whoever runs this loses the right to make a namespace first."""
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"] if os.getuid() == 0 else []
    monkeypatch.setattr(networks, "unshared", lambda: [*without, "unshare", "--net", "--"])
    found = group.launch_group(site_of(Bare()), SPEC, CONDITIONS, size=2)
    assert found.status == "failed" and "\n" not in found.reason
    assert found.reason.startswith("a group can't have its own network: ")
    assert found.reason.endswith("unshare: unshare failed: Operation not permitted")


ENDED = 'ANSWER ended {"put_s": 0.1, "files": [{"name": "%s", "bytes": %d, "sha256": "0"}]}'
BREAKS = {
    "says nothing that can be read": ("print('Welcome to the machine', flush=True); import time; time.sleep(60)",
                                     "it said 'Welcome to the machine', which is no line of tare-channel/1"),
    "ends at once": ("raise SystemExit('no such machine')", "ended with status 1: no such machine"),
    "ends in the middle of the archive": (
        "import os; os.write(1, b'tare-channel/1 here {}\\n'); os.read(0, 50000); raise SystemExit('cable pulled')",
        "cable pulled"),
    "says why in the middle of the archive": (
        "import os; os.write(1, b'tare-channel/1 here {}\\n'); os.read(0, 50000); "
        "os.write(1, b'tare-channel/1 failed {\"reason\": \"no room\"}\\n'); raise SystemExit('ends')",
        "its channel: no room"),
    "gives back what nobody asked for": (ENDED % ("../evil", 3), "'../evil' of 3 bytes, which nobody asked for"),
    "gives back damaged bytes": (ENDED % ("record.json", 3) + "\nabc", "record.json of 3 bytes arrived damaged"),
    "is cut short in the middle of the record": (ENDED % ("record.json", 3000) + "\nabc", "ended with status 0"),
    "forgets what it has to say": ("ANSWER ended {}", "lacks 'put_s'"),
}  # fmt: skip
ANSWERS = """
import os, re, sys, time
def line():
    got = b""
    while not got.endswith(b"\\n"):
        got += os.read(0, 1)
    return got.decode()
def skip(count):
    while count:
        count -= len(os.read(0, min(count, 65536)))
def say(text):
    os.write(1, ("tare-channel/1 " + text).encode())
skip(int(os.read(0, 8)))
say("here " + %r + "\\n")
skip(int(re.search('"bytes": ([0-9]+)', line())[1]))
say("placed {}\\n")
line()
say(%r)
"""


def here():
    """What a program on this machine says of its clock."""
    return json.dumps({"boot_id": inside.boot_id(), "time_namespace": str(Path("/proc/self/ns/time").readlink())})


@pytest.mark.parametrize("fault", BREAKS)
def test_a_channel_that_breaks_or_talks_nonsense_is_one_line_and_never_half_a_launch(fault):
    script, reason = BREAKS[fault]
    if script.startswith("ANSWER "):
        text = script.removeprefix("ANSWER ")
        script = ANSWERS % (here(), text if "\n" in text else text + "\n")
    environment = Streams()
    environment.script = script
    found = launch(site_of(environment), SPEC, CONDITIONS)
    assert found.status == "failed" and found.inside is None
    assert found.reason.startswith("its channel: ") and reason in found.reason and "\n" not in found.reason


def test_a_channel_that_hangs_is_a_timeout():
    environment = Streams()
    environment.script = ANSWERS.replace("say(%r)", "time.sleep(60)") % here()
    found = launch(site_of(environment), SPEC, CONDITIONS.replace(launch_timeout_s=1.0))
    assert found.status == "timeout" and "was killed" in found.reason


def test_a_conversation_over_a_broken_channel_gives_its_reason_at_the_first_word():
    environment = Streams()
    environment.script = "raise SystemExit('no such machine')"
    with prepare.ready(site_of(environment), SPEC, CONDITIONS, pad_bytes=0) as ready:
        talk = ready.converse("test/1")
        for _ in range(2):
            with pytest.raises(ConversationError, match="no such machine"):
                talk.ask("word", "answer", timeout_s=5)
        assert not talk.end(timeout_s=5).ok


@pytest.mark.parametrize(("mode", "shares"), [("co_runner", True), ("co_runner", False), ("device", True)])
def test_a_co_runner_is_talked_to_over_fifos_where_files_are_shared(mode, shares):
    environment = Streams()
    if shares:
        environment.transport = "binds"
    with prepare.ready(site_of(environment), SPEC.replace(mode=mode), CONDITIONS, pad_bytes=0) as ready:
        inner = json.loads((ready.folder / "spec.json").read_text())
        wanted = mode == "co_runner" and shares
        assert ready.fifos == (ready.folder if wanted else None)
        assert inner.get("fifos") == (str(ready.folder) if wanted else None)
        assert (ready.limit_s is None) == (mode == "co_runner")


def test_the_shortest_round_trip_decides_the_offset():
    clock = iter([0, 1000, 10_000, 10_100, 20_000, 25_000])  # ours, before and after each question
    answers = iter([500 - 7, 10_060 - 7, 20_100 - 7])  # theirs is 7 behind
    low, high = transport.offset_of(lambda: next(answers), 3, lambda: next(clock))
    assert (low, high) == (10_000 - 10_053, 10_100 - 10_053) and low <= 7 <= high


def test_clocks_that_differ_are_compared_within_their_error():
    inside = inside_at(1_000, 2_000)
    finished = ended(started_ns=51_100, ended_ns=52_500)
    off = Clock(shared=False, offset_ns=50_000, error_ns=200, exchanges=16)
    assert record.clock_problems(finished, inside, off) == []
    assert record.clock_problems(finished, inside, off.replace(error_ns=10)) != []
    assert "between the launcher's call and the mark entry" in record.clock_problems(finished, inside, Clock())[0]


def inside_at(entry, last):
    instants = {"entry": entry, "last": last}
    rows = [{"name": name, "at_ns": at, "user_s": 0.0, "system_s": 0.0} for name, at in instants.items()]
    mount = {"point": "/", "type": None, "source": None}
    facts = dict.fromkeys(("python", "executable", "libc", "kernel", "hostname", "cwd"), "")
    facts |= {"uid": 0, "gid": 0, "affinity": [], "open_files": {"soft": 1, "hard": 1}, "shm_bytes": 1,
              "environment_names": [], "environment_bytes": 0, "interfaces": [], "status": {}, "namespaces": {},
              "cgroups": {}, "cpu_quota": None, "cpu_stat": None, "transparent_hugepage": None,
              "root_mount": mount, "tree_mount": mount}  # fmt: skip
    value = {"schema": 1, "mode": "train", "status": "ok", "reason": None, "facts": facts, "marks": rows,
             "memory": {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}}  # fmt: skip
    return parse(Inside, value, "here")


def ended(**instants):
    nothing = {"stdout": "", "stderr": "", "user_s": 0.0, "system_s": 0.0}
    return Finished(argv=("x",), returncode=0, timed_out=False, **nothing, **instants)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"schema": 2, "mode": "train"}', "the record from inside has schema 2, this version reads 1"),
        (
            '{"schema": 1, "mode": "train", "status": "good"}',
            "the record from inside: status: 'good' is not allowed",
        ),
        ("[]", "the record from inside has schema none"),
        ('{"schema": 1, "mo', "record.json"),
    ],
)
def test_a_record_from_inside_that_is_none_is_one_line(tmp_path, text, reason):
    (tmp_path / "record.json").write_text(text)
    found, why = inside.read_inside(tmp_path / "record.json")
    assert found is None and reason in why and "\n" not in why


def test_the_last_mark_is_set_when_the_record_has_been_written(tmp_path, monkeypatch):
    """What serialising costs is bookkeeping: it lies before the last mark, whatever the record's size."""
    from tare.worker import main, marks

    done = marks.Marks(marks.now_ns())
    main.write_record(str(tmp_path / "r.json"), {"results": {"losses": [0.1] * 2_000_000}}, done)
    after = marks.now_ns()
    value = json.loads((tmp_path / "r.json").read_text())
    assert [row["name"] for row in value["marks"]] == ["entry", "last"]
    assert len(value["results"]["losses"]) == 2_000_000
    written_s = (done.rows[1]["at_ns"] - done.rows[0]["at_ns"]) / 1e9
    assert (after - done.rows[1]["at_ns"]) / 1e9 < written_s / 5


def test_mount_points_are_made_before_the_launch_and_gone_after_it(tmp_path):
    environment = Bare()
    environment.points = (tmp_path,)
    environment.script = (
        f"import pathlib; found = list(pathlib.Path({str(tmp_path)!r}).glob('*/inner')); assert found"
    )
    found = launch(replace(site_of(environment), reference=str(tmp_path)), SPEC, CONDITIONS)
    assert "status 0" in found.reason, "the folders were there"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("siblings", "count", "chosen"),
    [
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, 2, [0, 2]),
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, 3, [0, 1, 2]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, 2, [0, 1]),
        ({}, 2, [0, 1]),
    ],
)
def test_cpus_are_of_different_cores_as_far_as_there_are_any(tmp_path, siblings, count, chosen):
    for cpu, text in siblings.items():
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(text + "\n")
    cpus = sorted(conditions.by_core(range(4), tmp_path)[:count])
    assert cpus == chosen
    assert conditions.share_cores(cpus, tmp_path) is ((count > 2) if siblings else None)


@pytest.mark.parametrize(("count", "fits"), [(1, True), (3, True), (4, False)])
def test_no_more_cpus_are_chosen_than_this_process_may_use(monkeypatch, tmp_path, count, fits):
    monkeypatch.setattr(conditions, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(conditions.os, "sched_getaffinity", lambda pid: {5, 2, 3} if pid == 0 else set(range(9)))
    if fits:
        assert conditions.choose_cpus(count) == (2, 3, 5)[:count]
        return
    with pytest.raises(UserError):
        conditions.choose_cpus(count)


def test_shared_memory_is_the_hosts_or_a_gibibyte(monkeypatch):
    monkeypatch.setattr(conditions.os, "statvfs", lambda path: SimpleNamespace(f_blocks=3, f_frsize=4096))
    assert conditions.shared_memory_bytes() == 12_288

    def none(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(conditions.os, "statvfs", none)
    assert conditions.shared_memory_bytes() == 1_073_741_824


def test_a_cold_disk_needs_root(monkeypatch):
    def denied(path, text):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(conditions.os, "sync", lambda: None)
    monkeypatch.setattr(Path, "write_text", denied)
    with pytest.raises(UserError):
        conditions.drop_page_cache()


@pytest.mark.parametrize(
    ("processors", "threads", "crowded"), [(None, 2, False), (2.5, 2, False), (2.51, 2, True), (1.9, 2, False)]
)
def test_threads_of_a_framework_may_keep_half_a_processor_busy_beside_them(processors, threads, crowded):
    assert bool(conditions.crowding(processors, threads)) == crowded


@pytest.mark.parametrize(
    ("unseen", "told"), [((), ["affinity", "user"]), (("user",), ["affinity"]), (("user", "affinity"), [])]
)
def test_conditions_that_cant_be_seen_are_no_deviations(unseen, told):
    facts = inside_at(1, 2).facts.replace(uid=7)
    asked = SimpleNamespace(cpus=(0,), nofile=1, shm_bytes=1, interfaces=(), uid=0)
    found = conditions.deviations(facts, CONDITIONS, asked, workdir=Path(), unseen=("working directory", *unseen))
    assert [line.split()[0] for line in found] == told, "of threads a launch without a framework says nothing"


QUOTA = Quota(period_us=100_000, quota_us=50_000, group=Path("/sys/fs/cgroup/one"))
MEMBER = prepare.Member(
    rank=1, size=3, address="10.0.0.1", port=7, network="/proc/1/ns/net", cpus=(5,), interface="eth0",
    interfaces=("eth0", "lo"), own_address="10.0.0.2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "cpus", "quota"),
    [({}, (9,), None), ({"member": MEMBER}, (5,), None), ({"share": Share(cpus=(3,), quota=QUOTA)}, (3,), QUOTA)],
    ids=["alone", "member", "share"],
)
def test_a_launch_is_planned_alone_as_a_member_or_with_a_share(monkeypatch, more, cpus, quota):
    monkeypatch.setattr(prepare, "choose_cpus", lambda count: (9,))
    with prepare.ready(site_of(Bare(), variables={"OWN": "1"}), SPEC, CONDITIONS, pad_bytes=0, **more) as one:
        told, planned = json.loads((one.folder / "spec.json").read_text()), one.planned
        assert planned.workdir == one.folder
    assert (planned.cpus, planned.quota) == (cpus, quota)
    assert (planned.gpu, planned.devices, planned.counters) == (None, (), False)
    assert planned.argv[:2] == ("/usr/bin/env", "-i") and "OWN=1" in planned.argv
    assert not any(word.startswith(f"{process.MARK}=") for word in planned.argv)
    meets = planned.network, planned.address, planned.interfaces
    if "member" in more:
        assert meets == ("/proc/1/ns/net", "10.0.0.2", ("eth0", "lo"))
        assert (told["rank"], told["world_size"]) == (1, 3) and {"RANK=1", "MASTER_PORT=7"} <= set(planned.argv)
    else:
        assert meets == (None, None, ("lo",))
        assert "rank" not in told and not any(word.startswith("RANK=") for word in planned.argv)


def test_only_where_files_are_shared_a_launch_can_be_held():
    with prepare.ready(site_of(Bare()), SPEC, CONDITIONS, pad_bytes=0, held=True) as one:
        assert any(word.startswith(f"{process.MARK}=") for word in one.planned.argv)
    with (
        pytest.raises(UnavailableError),
        prepare.ready(site_of(Streams()), SPEC, CONDITIONS, pad_bytes=0, held=True),
    ):
        pytest.fail("it can't be held")


HARNESS = """
import sys
sys.path[:0] = ["tests", "tests/unit"]
import test_launch
from tare.core import process
from tare.launch.run import Order, launch, launch_side_by_side
environment = getattr(test_launch, sys.argv[1])()
up = sys.argv[2] + "/up"
environment.script = f"import os, time; open({up!r}, 'w').write(str(os.getpid())); time.sleep(600)"
launch(test_launch.site_of(environment), test_launch.SPEC, test_launch.CONDITIONS.replace(launch_timeout_s=600))
"""


@pytest.mark.parametrize("both", [False, True], ids=["the-guard-lives", "the-guard-is-killed-first"])
def test_no_launch_outlives_its_harness(cache, tmp_path, both):
    """Where the guard was killed too, what is left ends when a launch is next made ready."""
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, "Bare", str(tmp_path)])
    up = tmp_path / "up"
    deadline = time.monotonic() + 30
    while not (up.exists() and up.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    worker = int(up.read_text())
    if both:
        children = Path(f"/proc/{harness.pid}/task/{harness.pid}/children").read_text().split()
        for pid in children:
            if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
    harness.kill()
    harness.wait()
    if both:
        assert list((cache / "launches").iterdir()) != [] and alive(worker)
        prepare.end_leftovers()
    deadline = time.monotonic() + 5
    while (alive(worker) or list((cache / "launches").iterdir())) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(worker) and list((cache / "launches").iterdir()) == []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_group_shares_out_cpus_and_one_is_an_ordinary_launch(monkeypatch):
    assert group.split((0, 1, 2, 3), 2) == [(0, 1), (2, 3)]
    assert group.split((0, 1), 3) == [(0, 1)] * 3
    monkeypatch.setattr(group, "launch", lambda *given, **more: ("alone", more))
    assert group.launch_group(None, SPEC, CONDITIONS, size=1, pad_bytes=3) == ("alone", {"pad_bytes": 3})


def test_an_unknown_scenario_is_named_with_the_nearest():
    with pytest.raises(UserError, match="there is no scenario 'singel': did you mean 'single'"):
        scenarios.scenario("singel")


def test_single_is_nothing_at_all():
    with scenarios.surrounded("single", scenarios.around([0])) as span:
        pass
    assert span.to_json()["lived"] and span.reason is None
