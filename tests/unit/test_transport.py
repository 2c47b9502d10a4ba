"""What carries a launch: the order of what it is shown, and whose clock it counts."""

import math
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from asked import spec

from tare.core.errors import UnavailableError
from tare.core.files import sha256_file
from tare.launch import inside, transport
from tare.launch.channel import Conversation, ConversationError
from tare.launch.program import CommandProgram, WorkerProgram
from tare.launch.transport import ANSWER_S, TRANSPORTS, Cargo, Carried, Carrier, same_clock, transport_of
from tare.model.environment import Bind
from tare.model.records.launches import Clock

WORKER = WorkerProgram(spec(mode="start"))


def test_folders_are_shown_before_the_launchs_own_and_what_lies_in_it_after():
    """What is bound later lies over what was bound before."""
    parts = [Cargo(source=Path("/code"), target=Path("/w")), Cargo(source=Path("/data"), target=Path("/w/data"))]
    own = (Bind(source=Path("/asked"), target=Path("/asked")),)
    found = TRANSPORTS["binds"].binds(Path("/w"), parts, [Path("/tool")], [Path("/scratch")], own)
    assert [(str(one.source), str(one.target), one.writable) for one in found] == [
        ("/asked", "/asked", False),
        ("/tool", "/tool", False),
        ("/scratch", "/scratch", True),
        ("/code", "/w", False),
        ("/w", "/w", True),
        ("/data", "/w/data", False),
    ]


def test_only_what_is_bound_shares_files_with_this_machine():
    assert {name: one.shares_files for name, one in TRANSPORTS.items()} == {"binds": True, "channel": False}
    assert {transport_of(type("One", (), {"transport": name})) for name in TRANSPORTS} == set(TRANSPORTS.values())


def test_a_clock_is_ours_by_kernel_and_time_namespace():
    namespace = Path("/proc/self/ns/time")
    ours = {
        "boot_id": inside.boot_id(),
        "time_namespace": str(namespace.readlink()) if namespace.is_symlink() else None,
    }
    assert same_clock(ours)
    assert not same_clock({**ours, "boot_id": "another"}) and not same_clock({**ours, "time_namespace": "another"})


def test_no_clock_is_ours_where_the_kernels_name_is_hidden(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert not same_clock({"boot_id": None, "time_namespace": str(Path("/proc/self/ns/time").readlink())})


@pytest.mark.parametrize(("text", "found"), [("5f2a\n", "5f2a"), (None, None)])
def test_the_kernels_name_is_told_or_hidden(tmp_path, monkeypatch, text, found):
    if text is not None:
        (tmp_path / "boot_id").write_text(text)
    monkeypatch.setattr(inside, "BOOT_ID", tmp_path / "boot_id")
    assert inside.boot_id() == found


def test_a_namespace_is_a_launchs_own_where_its_number_is_known_and_another():
    ours = {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    assert inside.own_namespaces({**ours, "net": "net:[1]", "mnt": None, "pid": ours["pid"]}) == ["net"]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_program_whose_output_counts_is_talked_to_over_fifos_where_files_are_shared(tmp_path, monkeypatch, keeps):
    asked = []
    monkeypatch.setattr(transport, "Conversation", lambda argv, **more: asked.append(more))
    TRANSPORTS["binds"].start(
        SimpleNamespace(
            program=SimpleNamespace(keeps_output=keeps),
            environment=SimpleNamespace(command=lambda planned: ["it"]),
            planned=SimpleNamespace(workdir=Path("/w")),
            client={},
            folder=tmp_path,
            fifos=None,
        )
    )
    (more,) = asked
    assert (more["fifos"], more["output_path"]) == ((tmp_path, tmp_path / "stdout") if keeps else (None, None))
    assert more["errors_path"] == tmp_path / "stderr"


@pytest.mark.parametrize(
    ("program", "wrapper", "lacks"),
    [(WORKER, (), None), (WORKER, ("nsys", "profile"), " nsys"), (CommandProgram(argv=("true",)), (), "")],
)
def test_a_channel_brings_the_worker_and_no_program_beside_it(program, wrapper, lacks):
    def check():
        TRANSPORTS["channel"].check(program, folders=(), scratch=(), wrapper=wrapper)

    if lacks is None:
        check()
        return
    with pytest.raises(UnavailableError) as caught:
        check()
    assert str(caught.value).endswith(lacks)


def test_an_archive_has_what_links_lead_to_and_nobody_owns_it(tmp_path):
    own, data, there = tmp_path / "own", tmp_path / "data", Path("/tmp/tare-1")
    for folder in (own, data):
        folder.mkdir()
    (tmp_path / "elsewhere").write_text("read")
    (data / "link").symlink_to(tmp_path / "elsewhere")
    (own / "spec.json").write_text("{}")
    cargo = (Cargo(source=data, target=there / "data"),)
    path, sha256 = transport.pack(SimpleNamespace(folder=own, inside=there, cargo=cargo))
    assert path.parent == own and sha256 == sha256_file(path)
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert archive.extractfile("data/link").read() == b"read"
    assert [member.name for member in members] == ["data", "data/link", "spec.json"]
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}


def test_of_round_trips_that_took_as_long_the_first_counts():
    ours, theirs = iter([7, 9, 16, 19, 21, 23]), iter([5, 17, 22])
    assert transport.offset_of(lambda: next(theirs), 3, lambda: next(ours)) == (2, 4)


@pytest.fixture
def carrier(tmp_path, monkeypatch):
    """A carrier without a program; `ends` has how long each end of its conversation was waited for."""
    one = Carrier.__new__(Carrier)
    one.ready = SimpleNamespace(carried=Carried(), command=("it",), limit_s=7.0, kept=("kept",), folder=tmp_path)
    one.protocol, one._talks_of = transport.CHANNEL_PROTOCOL, None
    one._failure = one._finished = None
    one._other_clock, one._offsets, one.ends = False, [], []
    ended = SimpleNamespace(explain=lambda: "how it ended")
    monkeypatch.setattr(Conversation, "end", lambda self, *, timeout_s: self.ends.append(timeout_s) or ended)
    return one


@pytest.mark.parametrize("protocol", [None, "test/1"])
def test_a_worker_talks_where_there_is_a_protocol(carrier, protocol):
    said = []
    carrier.say, carrier._talks_of = lambda word, **values: said.append((word, values)), protocol
    carrier.go()
    wanted = {"argv": ["it"], "talks": protocol is not None, "limit_s": 7.0, "fetch": ["record.json", "kept"]}
    assert said == [("go", wanted)] and carrier.protocol == (protocol or transport.CHANNEL_PROTOCOL)


def test_a_channel_that_broke_has_not_begun_and_says_so_at_each_word(carrier):
    assert carrier.greeted is True
    error = carrier._over("cut")
    assert (error.reason, error.timed_out, carrier.greeted, carrier.ends) == ("cut", False, False, [0])
    for word in (lambda: carrier.send(b"x", timeout_s=1), lambda: carrier.hear("x", timeout_s=1)):
        with pytest.raises(ConversationError) as caught:
            word()
        assert caught.value is error
    error = carrier._over(None, timed_out=True)
    assert (error.reason, error.timed_out, carrier.ends) == ("how it ended", True, [0, 5])


@pytest.mark.parametrize("sign", [None, "broke", "said", "went"])
def test_a_worker_has_ended_by_its_word_or_with_its_channel(carrier, monkeypatch, sign):
    broke, said, went = (sign == each for each in ("broke", "said", "went"))
    carrier._failure = ConversationError("cut") if broke else None
    carrier.is_readable = lambda: said
    monkeypatch.setattr(Conversation, "has_ended", lambda self: went)
    assert carrier.has_ended() is (sign is not None)


@pytest.mark.parametrize(
    ("timeout_s", "broke", "ended", "fetched", "waits"),
    [
        (0.5, False, False, [0.5], ANSWER_S), (0, False, False, [], 0), (-1, False, False, [], 0),
        (5, True, False, [], 0),
        (5, False, True, [], ANSWER_S),
    ],
)  # fmt: skip
def test_what_a_worker_wrote_is_fetched_once_and_from_a_whole_channel(
    carrier, timeout_s, broke, ended, fetched, waits
):
    asked, carrier.protocol = [], "test/1"
    carrier._fetch = asked.append
    carrier._failure, carrier._finished = ConversationError("cut") if broke else None, ended or None
    carrier.end(timeout_s=timeout_s)
    assert (asked, carrier.ends) == (fetched, [waits])
    assert (carrier.protocol == transport.CHANNEL_PROTOCOL) == bool(fetched)


@pytest.mark.parametrize("timed_out", [True, False])
def test_a_worker_that_goes_on_is_no_problem_of_its_channel(carrier, timed_out):
    def fetch(timeout_s):
        raise ConversationError("late", timed_out=timed_out)

    carrier._fetch = fetch
    carrier.end(timeout_s=5)
    assert (carrier.ready.carried.problem is None) == timed_out


@pytest.mark.parametrize(
    ("name", "count", "fits"),
    [("record.json", 0, True), ("record.json", 10, True), ("kept", 1, True), ("record.json", -1, False),
     ("record.json", 11, False), ("other", 1, False)],
)  # fmt: skip
def test_what_was_asked_for_is_fetched_up_to_the_largest_file(carrier, monkeypatch, name, count, fits):
    def receive(path, count, *, timeout_s):
        path.write_bytes(b"x" * count)
        return "sum"

    monkeypatch.setattr(transport, "LARGEST_FILE_BYTES", 10)
    told = {"put_s": 0.25, "files": [{"name": name, "bytes": count, "sha256": "sum"}]}
    carrier.hear, carrier.receive = lambda expected, *, timeout_s: told, receive
    carrier.ask = lambda word, expected, *, timeout_s: {}
    carried, path = carrier.ready.carried, carrier.ready.folder / name
    if not fits:
        with pytest.raises(ConversationError):
            carrier._fetch(5)
        assert not path.exists() and carried.released_ns is None
        return
    carrier._fetch(5)
    assert list(path.parent.iterdir()) == [path] and path.stat().st_size == count
    assert (carried.put_s, carried.fetch_s, carried.clock) == (0.25, 0.0, Clock())


ENDLESS = {"name": "record.json", "bytes": math.inf, "sha256": ""}


@pytest.mark.parametrize(
    "told",
    [{}, *({"put_s": said, "files": []} for said in (None, "long", math.nan, math.inf, -1)),
     {"put_s": 0, "files": [ENDLESS]}, {"put_s": 0, "files": 1}],
)  # fmt: skip
def test_an_end_that_cant_be_read_is_the_channels(carrier, told):
    carrier.hear = lambda expected, *, timeout_s: told
    with pytest.raises(ConversationError):
        carrier._fetch(5)


@pytest.mark.parametrize("told", [[], "long", math.nan, -1])
def test_a_last_word_that_cant_be_read_is_the_channels(carrier, told):
    carrier.hear = lambda expected, *, timeout_s: {"put_s": 0, "files": []}
    carrier.ask = lambda word, expected, *, timeout_s: {"fetch_s": told}
    with pytest.raises(ConversationError):
        carrier._fetch(5)


@pytest.mark.parametrize("told", [{}, {"at_ns": None}, {"at_ns": "now"}, {"at_ns": math.inf}])
def test_a_clock_that_cant_be_read_is_the_channels(carrier, told):
    carrier._other_clock, carrier.ask = True, lambda word, expected, *, timeout_s: told
    with pytest.raises(ConversationError):
        carrier._compare_clocks()


def test_an_offset_lies_within_all_exchanges_of_a_launch(carrier, monkeypatch):
    found = iter([(-8, 3), (-5, 5)])
    carrier._other_clock = True
    monkeypatch.setattr(transport, "offset_of", lambda theirs, exchanges: next(found))
    for _ in range(2):
        carrier._compare_clocks()
    told = carrier.ready.carried.clock
    assert told == Clock(shared=False, offset_ns=-2, error_ns=7, exchanges=2 * transport.EXCHANGES)
