"""How a launch gets its files, and its record back: by bind mounts and standard streams, or over two streams alone.

`Binds` shows the launcher's own folders inside, at their own paths: the launch reads and writes them itself.
`Channel` needs nothing but an interpreter on the other side that reads standard input and writes standard output:
it is sent a first program (tare.worker.boot), then an archive of code, specification and data, with its length and
SHA-256; the record and kept files come back the same way. Where the other side has another clock, an exchange of
instants before and after the worker says by how much, and how well that is known.
"""

from __future__ import annotations

import contextlib
import math
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tare.core.errors import UnavailableError
from tare.core.files import project_root, sha256_file
from tare.core.process import Finished, run
from tare.launch.channel import Conversation, ConversationError
from tare.launch.place import Site
from tare.launch.program.base import Cargo, Program
from tare.launch.program.worker import RECORD, SPEC, STARTED, WorkerProgram
from tare.model.environment import Bind, Environment, Launch
from tare.model.records.launches import Clock

WORKER = (
    "tare/worker/line.py",
    "tare/worker/boot.py",
)  # sent as text, in the order in which they import each other
CHANNEL_PROTOCOL = "tare-channel/1"  # as in tare/worker/boot.py
OPEN_S = 120.0  # for a runtime to start an interpreter
PUT_S = 600.0  # for an archive to arrive and to be unpacked
ANSWER_S = 30.0
FETCH_S = 600.0
EXCHANGES = 16
FILE_BYTES = 1 << 20  # of a file, to be sent at once
LARGEST_FILE_BYTES = 1 << 34
LENGTH_DIGITS = 8
# The very first program: it reads the text of the next one, and becomes it.
BOOT = f"""\
import os
def read(count):
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            raise SystemExit("the channel ended at its beginning")
        data += more
    return data
exec(compile(read(int(read({LENGTH_DIGITS}))), "boot", "exec"))
"""


@dataclass(kw_only=True)
class Carried:
    """What a transport has seen by the end of a launch."""

    name: str = "binds"
    clock: Clock | None = None  # of the launch; None where nothing compared it with ours
    put_s: float | None = None  # in which files travelled there
    fetch_s: float | None = None  # and back
    problem: str | None = None  # why there is no whole record, in one line
    released_ns: int | None = None  # when the other side said its last word, on our clock

    def values(self) -> dict[str, Any]:
        """Fields of the launch's record; what is as ever is left out."""
        found = {"clock": self.clock, "put_s": self.put_s, "fetch_s": self.fetch_s}
        named = {} if self.name == Binds.name else {"transport": self.name}
        return named | {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A launch that only has to be started."""

    environment: Environment
    planned: Launch  # what the adapter takes
    folder: Path  # the launch's own folder on this side; gone when the context that made it ends
    inside: Path  # the same on the other side
    program: Program  # what it runs
    command: tuple[str, ...]  # the program and its arguments inside, without its environment
    cargo: tuple[Cargo, ...]  # what else it reads
    kept: tuple[str, ...]  # names of further files that it writes
    code_sha256: str | None  # of what runs inside; None where nobody knows that
    pad_bytes: int
    client: Mapping[str, str]  # environment of the runtime's client
    fifos: Path | None = None  # folder of the FIFOs that it is talked to over; None for its standard streams
    # after which a side that shares nothing with us ends the worker by itself; None for never
    limit_s: float | None = None
    carried: Carried = field(default_factory=Carried)

    @property
    def started_path(self) -> Path:
        """What a member of a group makes when it has come to its first line, where it can."""
        return self.folder / STARTED

    def run(self, timeout_s: float) -> Finished:
        """Start it and wait for its end; how that came about."""
        return transport_of(self.environment).run(self, timeout_s)

    def start(self) -> Conversation:
        """Start it, and wait for nothing; its end is asked for later."""
        return transport_of(self.environment).start(self)

    def converse(self, protocol: str) -> Conversation:
        """Start it to be talked to; a transport that breaks before says so at the first word."""
        return transport_of(self.environment).converse(self, protocol)


class Binds:
    """Bind mounts and standard streams: nothing is carried, and the clock is the kernel's own."""

    name: ClassVar[str] = "binds"
    shares_files: ClassVar[bool] = True  # of one kernel, FIFOs included

    def inside(self, folder: Path) -> Path:
        """The launch's own folder as it sees it."""
        return folder

    def workdir(self, folder: Path) -> Path:
        """The folder in which the runtime starts the program."""
        return folder

    def place(self, source: Path, inside: Path, name: str) -> Path:
        """Where the launch finds an input."""
        return source

    def check(
        self, program: Program, *, folders: Sequence[Path], scratch: Sequence[Path], wrapper: Sequence[str]
    ) -> None:
        """See that a launch needs nothing that can't be brought: here, anything can."""

    def words(self, site: Site, command: tuple[str, ...]) -> tuple[str, ...]:
        """What the runtime is to start."""
        return command

    def binds(
        self,
        folder: Path,
        cargo: Sequence[Cargo],
        folders: Sequence[Path],
        scratch: Sequence[Path],
        own: Sequence[Bind] = (),
    ) -> tuple[Bind, ...]:
        """What the runtime is to show inside; what the program itself asks for (`own`) is below the others."""
        parts = [Bind(source=part.source, target=part.target) for part in cargo]
        return (
            *own,
            *(Bind(source=path, target=path) for path in folders),
            *(Bind(source=path, target=path, writable=True) for path in scratch),
            *parts[:1],
            Bind(source=folder, target=folder, writable=True),
            *parts[1:],
        )

    def run(self, ready: Ready, timeout_s: float) -> Finished:
        """Start it and wait for its end."""
        argv = ready.environment.command(ready.planned)
        return run(argv, timeout_s=timeout_s, env=ready.client, cwd=ready.planned.workdir)

    def start(self, ready: Ready) -> Conversation:
        """Start it, and wait for nothing."""
        if not ready.program.keeps_output:
            return self.converse(ready, "nothing")
        return self._started(ready, "nothing", fifos=ready.folder, output_path=ready.folder / "stdout")

    def converse(self, ready: Ready, protocol: str) -> Conversation:
        """Start it to be talked to."""
        return self._started(ready, protocol, fifos=ready.fifos)

    def _started(
        self, ready: Ready, protocol: str, *, fifos: Path | None, output_path: Path | None = None
    ) -> Conversation:
        return Conversation(
            ready.environment.command(ready.planned),
            protocol=protocol,
            env=ready.client,
            cwd=ready.planned.workdir,
            errors_path=ready.folder / "stderr",
            fifos=fifos,
            output_path=output_path,
        )


class Channel:
    """Standard input and output, and nothing else; its verbs are those of `Binds`."""

    name: ClassVar[str] = "channel"
    shares_files: ClassVar[bool] = False

    def inside(self, folder: Path) -> Path:
        """A folder that the first program makes."""
        return Path("/tmp") / folder.name

    def workdir(self, folder: Path) -> Path:
        """One that is there before anything has been put."""
        return Path("/")

    def place(self, source: Path, inside: Path, name: str) -> Path:
        """Below the launch's own folder."""
        return inside / name

    def check(
        self, program: Program, *, folders: Sequence[Path], scratch: Sequence[Path], wrapper: Sequence[str]
    ) -> None:
        """See that a launch needs nothing that can't be brought. Raises UnavailableError: it is to see a folder of
        this machine, or runs something else than Tare's worker.
        """
        if not isinstance(program, WorkerProgram):
            raise UnavailableError(
                f"a launch that shares no files can't run a {program.kind}: it is only brought Tare's own worker"
            )
        wanted = [*map(str, folders), *map(str, scratch), *wrapper[:1]]
        if wanted:
            raise UnavailableError(f"a launch that shares no files can't be shown {', '.join(wanted)}")

    def words(self, site: Site, command: tuple[str, ...]) -> tuple[str, ...]:
        """An interpreter that listens."""
        return (site.interpreter, "-s", "-c", BOOT)

    def binds(
        self,
        folder: Path,
        cargo: Sequence[Cargo],
        folders: Sequence[Path],
        scratch: Sequence[Path],
        own: Sequence[Bind] = (),
    ) -> tuple[Bind, ...]:
        """Nothing."""
        return ()

    def run(self, ready: Ready, timeout_s: float) -> Finished:
        """Start it, bring its files, wait for its end, fetch what it wrote."""
        return self.converse(ready, None).end(timeout_s=timeout_s)

    def start(self, ready: Ready) -> Conversation:
        """Start it and bring its files; its worker waits for the word to go."""
        return Carrier(ready, None)

    def converse(self, ready: Ready, protocol: str | None) -> Conversation:
        """Start it, bring its files, let it go, and hand on the streams; without a protocol it does not talk."""
        carrier = Carrier(ready, protocol)
        carrier.go()
        return carrier


class Carrier(Conversation):
    """A launch over a channel: it is brought its files at the start, and asked for what it wrote at the end.

    In between it is a conversation like any other, where the worker talks (`protocol`).
    """

    def __init__(self, ready: Ready, protocol: str | None) -> None:
        self.ready = ready
        self._failure: ConversationError | None = None
        self._offsets: list[tuple[int, int]] = []
        ready.carried.name = Channel.name
        archive, sha256 = pack(ready)
        super().__init__(
            ready.environment.command(ready.planned),
            protocol=CHANNEL_PROTOCOL,
            env=ready.client,
            cwd=ready.folder,
            errors_path=ready.folder / "stderr",
        )
        self._talks_of = protocol
        with self._noting_problem():
            self._open(archive, sha256)

    def go(self) -> None:
        """Start the worker; from here on the streams are its own, where it talks."""
        protocol = self._talks_of
        with self._noting_problem():
            self.say(
                "go",
                argv=list(self.ready.command),
                talks=protocol is not None,
                limit_s=self.ready.limit_s,
                fetch=self._wanted(),
            )
        self.protocol = protocol or CHANNEL_PROTOCOL

    def _wanted(self) -> list[str]:
        return [RECORD, *self.ready.kept]

    @contextlib.contextmanager
    def _noting_problem(self) -> Iterator[None]:
        """That a channel broke at the start is reported to whoever first talks to it."""
        try:
            yield
        except ConversationError as error:
            self.ready.carried.problem = f"its channel: {error.reason}"

    def send(self, data: bytes | memoryview, *, timeout_s: float) -> None:
        """As any conversation; a channel that broke before says so."""
        if self._failure is not None:
            raise self._failure
        super().send(data, timeout_s=timeout_s)

    def hear(self, expected: str, *, timeout_s: float) -> dict[str, Any]:
        """As any conversation; a channel that broke before says so."""
        if self._failure is not None:
            raise self._failure
        return super().hear(expected, timeout_s=timeout_s)

    @property
    def greeted(self) -> bool:
        """Whether the other side has taken its files and begun."""
        return self._failure is None

    def has_ended(self) -> bool:
        """Whether the worker has ended: it says so."""
        return self._failure is not None or self.is_readable() or super().has_ended()

    def end(self, *, timeout_s: float) -> Finished:
        """Wait for the worker's end, fetch what it wrote, and let the other side go."""
        if self._finished is None and timeout_s > 0 and self._failure is None:
            self.protocol = CHANNEL_PROTOCOL
            try:
                self._fetch(timeout_s)
            except ConversationError as error:
                if not error.timed_out:
                    self.ready.carried.problem = f"its channel: {error.reason}"
        return super().end(timeout_s=ANSWER_S if timeout_s > 0 and self._failure is None else 0)

    def _over(self, reason: str | None, *, timed_out: bool = False) -> ConversationError:
        finished = super().end(timeout_s=5 if reason is None else 0)
        self._failure = ConversationError(reason or finished.explain(), timed_out=timed_out)
        return self._failure

    def _open(self, archive: Path, sha256: str) -> None:
        first = first_program()
        self.send(f"{len(first):0{LENGTH_DIGITS}d}".encode() + first, timeout_s=OPEN_S)
        here = self.hear("here", timeout_s=OPEN_S)
        self.say("put", folder=str(self.ready.inside), bytes=archive.stat().st_size, sha256=sha256)
        with archive.open("rb") as handle:
            while chunk := handle.read(FILE_BYTES):
                self.send(chunk, timeout_s=PUT_S)
        archive.unlink()
        self.hear("placed", timeout_s=PUT_S)
        self._other_clock = not same_clock(here)
        self._compare_clocks()

    def _fetch(self, timeout_s: float) -> None:
        ended = self.hear("ended", timeout_s=timeout_s)
        carried = self.ready.carried
        try:
            carried.put_s = _seconds(ended["put_s"])
            rows = [(str(row["name"]), int(row["bytes"]), str(row["sha256"])) for row in ended["files"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._over(f"what it says of its end lacks {error}") from None
        for name, count, sha256 in rows:
            if name not in self._wanted() or not 0 <= count <= LARGEST_FILE_BYTES:
                raise self._over(f"it wants to give back {name!r} of {count} bytes, which nobody asked for")
            partial = self.ready.folder / f".{name}.part"
            if self.receive(partial, count, timeout_s=FETCH_S) != sha256:
                raise self._over(f"{name} of {count} bytes arrived damaged")
            partial.rename(self.ready.folder / name)
        self._compare_clocks()
        try:
            carried.fetch_s = _seconds(self.ask("bye", "bye", timeout_s=ANSWER_S).get("fetch_s", 0.0))
        except (TypeError, ValueError) as error:
            raise self._over(f"what it says at last: {error}") from None
        carried.released_ns = time.monotonic_ns()

    def _compare_clocks(self) -> None:
        """Offset and error of the launch's clock, by all exchanges until now."""
        if not self._other_clock:
            self.ready.carried.clock = Clock()
            return

        def theirs() -> int:
            return int(self.ask("clock", "clock", timeout_s=ANSWER_S)["at_ns"])

        try:
            self._offsets.append(offset_of(theirs, EXCHANGES))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._over(f"its clock: {error}") from None
        self.ready.carried.clock = clock_of(self._offsets)


def clock_of(offsets: Sequence[tuple[int, int]]) -> Clock:
    """Another clock than ours, by all comparisons of its offset until now (`offset_of`)."""
    low, high = min(low for low, _ in offsets), max(high for _, high in offsets)
    return Clock(
        shared=False,
        offset_ns=(low + high) // 2,
        error_ns=-(-(high - low) // 2),
        exchanges=EXCHANGES * len(offsets),
    )


def _seconds(said: Any) -> float:
    """A time as the other side reports it. Raises TypeError or ValueError where it is none."""
    found = float(said)
    if not 0 <= found < math.inf:
        raise ValueError(f"{found} seconds")
    return found


def offset_of(
    theirs: Callable[[], int], exchanges: int, ours: Callable[[], int] = time.monotonic_ns
) -> tuple[int, int]:
    """Bounds in ns of what has to be added to their clock to have ours, by the shortest of several round trips:
    their instant was between our question and our hearing of the answer.
    """
    best: tuple[int, int, int] | None = None
    for _ in range(exchanges):
        asked = ours()
        at = theirs()
        heard = ours()
        if best is None or heard - asked < best[0]:
            best = (heard - asked, asked - at, heard - at)
    assert best is not None
    return best[1], best[2]


def same_clock(here: Mapping[str, Any]) -> bool:
    """Whether the other side counts the same kernel's time, in the same time namespace."""
    ours = Path("/proc/sys/kernel/random/boot_id")
    mine = ours.read_text().strip() if ours.exists() else None
    namespace = Path("/proc/self/ns/time")
    own = str(namespace.readlink()) if namespace.is_symlink() else None
    return mine is not None and (here.get("boot_id"), here.get("time_namespace")) == (mine, own)


def first_program() -> bytes:
    """The text of tare.worker.boot with what it imports, which starts itself."""
    root = project_root()
    modules = [
        (name.removesuffix(".py").replace("/", "."), (root / name).read_text(encoding="utf-8")) for name in WORKER
    ]
    return (
        "import sys, types\n"
        f"for name, text in {modules!r}:\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    exec(compile(text, name, 'exec'), module.__dict__)\n"
        "module.main()\n"
    ).encode()


def pack(ready: Ready) -> tuple[Path, str]:
    """Code, specification and data as one tar in the launch's folder: (its path, SHA-256)."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tempfile.NamedTemporaryFile(dir=ready.folder, prefix=".archive-", delete=False) as handle:
        with tarfile.open(fileobj=handle, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive:
            for part in (*ready.cargo, Cargo(source=ready.folder / SPEC, target=ready.inside / SPEC)):
                archive.add(part.source, str(part.target.relative_to(ready.inside)), filter=plain)
        path = Path(handle.name)
    return path, sha256_file(path)


Transport = Binds | Channel
TRANSPORTS: Mapping[str, Transport] = {Binds.name: Binds(), Channel.name: Channel()}


def transport_of(environment: Environment) -> Transport:
    """The transport that an environment declares."""
    return TRANSPORTS[environment.transport]
