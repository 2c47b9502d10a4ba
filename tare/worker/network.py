"""What a group's network gives: one TCP stream and its round trip, and the framework's all-reduce by size.

The stream goes from rank 1 to rank 0, over sockets of Python's own. An all-reduce is timed by each member from a
barrier on; the times that count are rank 0's. Nothing is trained.
"""

import os
import socket
from typing import Any, Dict, List, Mapping, Tuple

from tare.worker import frameworks
from tare.worker.marks import Marks, now_ns

CHUNK_BYTES = 1 << 20
ROUND_TRIPS = 200
WARMUP = 2  # of each size


def measure(spec: Mapping[str, Any], marks: Marks) -> Tuple[Any, Dict[str, Any]]:
    """The launch of one member; returns (framework, what the record holds)."""
    framework = frameworks.of(spec)
    framework.import_()
    framework.set_threads(spec["threads"])
    marks.add("imports")
    framework.join(spec["rank"], spec["world_size"])
    marks.add("joined")
    results: Dict[str, Any] = {"size": framework.size, "stream": None, "round_trip_s": []}
    if framework.rank < 2:
        results.update(stream_of(framework, spec["stream_bytes"]))
    framework.module.distributed.barrier()
    results["all_reduce"] = [
        {"bytes": size, "s": all_reduces(framework, size, spec["repetitions"])} for size in spec["sizes_bytes"]
    ]
    framework.module.distributed.barrier()
    framework.module.distributed.destroy_process_group()
    marks.add("last_exchange")
    return framework, results


def all_reduces(framework: Any, size: int, repetitions: int) -> List[float]:
    """Seconds of each all-reduce of so many bytes."""
    torch = framework.module
    tensor = torch.ones(max(1, size // 4), dtype=torch.float32, device=framework.device)
    found = []
    for number in range(WARMUP + repetitions):
        torch.distributed.barrier()
        framework.synchronize()
        started = now_ns()
        torch.distributed.all_reduce(tensor)
        framework.synchronize()
        if number >= WARMUP:
            found.append((now_ns() - started) / 1e9)
        tensor.fill_(1.0)
    return found


def stream_of(framework: Any, count: int) -> Dict[str, Any]:
    """A stream of `count` bytes from rank 1 to rank 0, and round trips of one byte; what either end saw."""
    torch, address = framework.module, os.environ["MASTER_ADDR"]
    port = torch.zeros(1, dtype=torch.int64, device=framework.device)
    if framework.rank == 0:
        with socket.socket() as listener:
            listener.bind((address, 0))
            listener.listen(1)
            port[0] = listener.getsockname()[1]
            torch.distributed.send(port, dst=1)
            connection, _ = listener.accept()
        with connection:
            return receive(connection, count)
    torch.distributed.recv(port, src=0)
    with socket.create_connection((address, int(port[0]))) as connection:
        return send(connection, count)


def receive(connection: socket.socket, count: int) -> Dict[str, Any]:
    """Answer the round trips, then take the stream: it is timed from its first piece on, which is not counted."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(ROUND_TRIPS):
        connection.sendall(connection.recv(1))
    buffer = memoryview(bytearray(CHUNK_BYTES))
    timed = left = count - connection.recv_into(buffer, CHUNK_BYTES)
    started = now_ns()
    while left:
        took = connection.recv_into(buffer, min(left, CHUNK_BYTES))
        if not took:
            raise IOError("the stream ended {} bytes before its end".format(left))
        left -= took
    ended = now_ns()
    connection.sendall(b".")
    return {"stream": {"bytes": timed, "s": (ended - started) / 1e9}, "round_trip_s": []}


def send(connection: socket.socket, count: int) -> Dict[str, Any]:
    """Ask for the round trips, then give the stream."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips = []
    for _ in range(ROUND_TRIPS):
        started = now_ns()
        connection.sendall(b".")
        connection.recv(1)
        trips.append((now_ns() - started) / 1e9)
    chunk, left, started = bytes(CHUNK_BYTES), count, now_ns()
    while left:
        connection.sendall(chunk[: min(left, CHUNK_BYTES)])
        left -= min(left, CHUNK_BYTES)
    connection.recv(1)  # it has all arrived
    return {"stream": {"bytes": count, "s": (now_ns() - started) / 1e9}, "round_trip_s": trips}
