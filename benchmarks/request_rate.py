"""Produce requests over bare sockets, one in flight on each: of one record, and of a batch of 900 KB.

The load generator is one prepared request, in this process, so that nearly all of the other core is the
broker's. Requests of one record are counted, over 1, 20 and 200 connections, and the bytes of large batches,
over two.
"""

import os
import select
import socket
import statistics
import struct
import time
from types import TracebackType
from typing import Final, Self

import psutil

from benchmarks import page_cache
from benchmarks.end_to_end import Figure, Workload, create_topic, delete_topic
from kalda.records.record import RecordBatchBuilder

_SECONDS: Final = 4.0
_WARM_UP_SECONDS: Final = 1.0
_BATCH_BYTES: Final = 900_000
_BATCH_SECONDS: Final = 1.5
_BATCH_RUNS: Final = 5
_VERSION: Final = 7
_SIZE: Final = struct.Struct(">i")


def run(bootstrap: str, pid: int) -> list[Figure]:
    """Measure rates and the broker's processor time."""
    return [*_small_requests(bootstrap, pid), *_large_batches(bootstrap, pid)]


def _small_requests(bootstrap: str, pid: int) -> list[Figure]:
    create_topic(bootstrap, "requests")
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    frame = produce_frame("requests")
    figures: list[Figure] = []
    for count in (1, 20, 200):
        with Connections(host, int(port), frame, count) as connections:
            connections.drive(_WARM_UP_SECONDS)
            before = processor_seconds(pid)
            done, seconds = connections.drive(_SECONDS)
            used = processor_seconds(pid) - before
        label = f"{count} connections"
        figures.append((f"one-record produce requests, {label}", done / seconds / 1000, "k/s"))
        figures.append((f"processor time of a produce request, {label}", used / done * 1e6, "us"))
    return figures


def _large_batches(bootstrap: str, pid: int) -> list[Figure]:
    """Send one batch again and again, which needs no work of the client; a first run is not counted."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    # A deleted log leaves at once, or its pages would push those of the next run out of the cache.
    workload = Workload(topic_config={"file.delete.delay.ms": "100"})
    figures: list[Figure] = []
    for size in (100, 1_000):
        rates, costs = [], []
        for number in range(_BATCH_RUNS + 1):
            topic = f"batches-{size}-{number}"
            create_topic(bootstrap, topic, workload)
            frame = produce_frame(topic, size=size, count=_BATCH_BYTES // size)
            page_cache.fill()
            with Connections(host, int(port), frame, 2) as connections:
                before = processor_seconds(pid)
                done, seconds = connections.drive(_BATCH_SECONDS)
                used = processor_seconds(pid) - before
            delete_topic(bootstrap, topic, workload)
            megabytes = done * len(frame) / 1e6
            rates.append(megabytes / seconds)
            costs.append(used / megabytes * 1000)
        label = f"prepared batches of {size} B"
        figures.append((f"produce, {label}", statistics.median(rates[1:]), "MB/s"))
        figures.append((f"processor time, {label}", statistics.median(costs[1:]), "ms/MB"))
    return figures


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its own and the kernel's for it."""
    return sum(psutil.Process(pid).cpu_times()[:2])


def produce_frame(
    topic: str,
    partition: int = 0,
    *,
    producer_id: int = -1,
    sequence: int = -1,
    size: int = 100,
    count: int = 1,
) -> bytes:
    """Build a Produce v7 request, acks=1, with `count` records of `size` bytes; by hand, as any peer."""
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=-1 if producer_id < 0 else 0, base_sequence=sequence
    )
    for _ in range(count):
        builder.append(timestamp=int(time.time() * 1000), key=None, value=b"x" * size)
    records = bytes(builder.build())
    name = topic.encode()
    header = struct.pack(">hhih", 0, _VERSION, 1, 5) + b"bench"
    body = struct.pack(
        f">hhiih{len(name)}siii", -1, 1, 30_000, 1, len(name), name, 1, partition, len(records)
    )
    return _SIZE.pack(len(header) + len(body) + len(records)) + header + body + records


def requests_per_second(host: str, port: int, frame: bytes, count: int) -> float:
    """Keep one request in flight on each of `count` connections; return answers per second."""
    with Connections(host, port, frame, count) as connections:
        connections.drive(_WARM_UP_SECONDS)
        done, seconds = connections.drive(_SECONDS)
        return done / seconds


class Connections:
    """Connections to brokers with one request in flight on each; a context manager."""

    def __init__(self, host: str, port: int, frame: bytes, count: int) -> None:
        self._sockets: Final[list[socket.socket]] = []
        self._frames: Final[dict[int, bytes]] = {}
        self._poller: Final = select.epoll()
        self.add(host, port, frame, count)

    def add(self, host: str, port: int, frame: bytes, count: int) -> None:
        """Open further connections, on which `frame` is sent; before the context is entered."""
        for _ in range(count):
            opened = socket.create_connection((host, port))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poller.register(opened.fileno(), select.EPOLLIN)
            self._sockets.append(opened)
            self._frames[opened.fileno()] = frame

    def __enter__(self) -> Self:
        for descriptor, frame in self._frames.items():
            os.write(descriptor, frame)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._poller.close()
        for each in self._sockets:
            each.close()

    def drive(self, seconds: float) -> tuple[int, float]:
        """Answer each response with the next request for a while; return the responses and the seconds.

        Raises:
            RuntimeError: The broker answered anything but one whole response.
        """
        read, write, poll, frames = os.read, os.write, self._poller.poll, self._frames
        done = 0
        begin = time.perf_counter()
        end = begin + seconds
        while time.perf_counter() < end:
            for descriptor, _ in poll(1.0):
                # The whole answer (about 60 bytes) comes in one piece on loopback.
                answer = read(descriptor, 4096)
                if len(answer) < 4 or _SIZE.unpack_from(answer)[0] != len(answer) - 4:
                    raise RuntimeError(f"the broker answered {answer!r}, which is not one whole response")
                write(descriptor, frames[descriptor])
                done += 1
        return done, time.perf_counter() - begin
