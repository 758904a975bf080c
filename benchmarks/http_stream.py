"""What readers of server-sent events cost the gateway: 100 and 5,000 of them, at 20 events each second.

The readers are bare sockets in this process that count what comes, so that the other core is the gateway's
and the broker's. Processor time is that of the process of `kalda http`, its own and the kernel's for it.
"""

import resource
import select
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.end_to_end import Figure
from benchmarks.http_server import http_server
from benchmarks.request_rate import processor_seconds
from kalda import Admin, NewTopic, Producer
from kalda.testing import KaldaProcess

_TOPIC: Final = "prices"
_EVENTS_PER_SECOND: Final = 20
_SECONDS: Final = 10.0
_WARM_UP_SECONDS: Final = 2.0
_ARRIVAL_SECONDS: Final = 30.0
"""For the last events; the readers of this process take longer than the gateway."""
_READERS: Final = (100, 5_000)
_VALUE: Final = b'{"symbol": "ABC", "price": 10.25, "pad": "' + b"x" * 100 + b'"}'


def run() -> list[Figure]:
    """Measure each number of readers with processes of its own."""
    wanted = max(_READERS) + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(wanted, soft), hard), hard))
    figures: list[Figure] = []
    for count in _READERS:
        with tempfile.TemporaryDirectory(prefix="kalda-http-stream-") as directory:
            figures += _measure(Path(directory), count)
    return figures


def _measure(directory: Path, count: int) -> list[Figure]:
    with KaldaProcess(directory / "data") as kalda, http_server(kalda.bootstrap) as (pid, address):
        with Admin(bootstrap_servers=kalda.bootstrap) as admin:
            admin.create_topics([NewTopic(_TOPIC, partitions=3, replication_factor=1)])
        idle_bytes = psutil.Process(pid).memory_info().rss
        with _Readers(address, count) as readers, Producer(bootstrap_servers=kalda.bootstrap) as producer:
            warm = _produce(producer, _WARM_UP_SECONDS)
            readers.wait_events(warm * count)
            before, began = processor_seconds(pid), time.monotonic()
            sent = _produce(producer, _SECONDS)
            readers.wait_events((warm + sent) * count)
            used, seconds = processor_seconds(pid) - before, time.monotonic() - began
            received = readers.events - warm * count
            reader_bytes = (psutil.Process(pid).memory_info().rss - idle_bytes) / count
    label = f"{count} readers, {_EVENTS_PER_SECOND} events/s"
    return [
        (f"processor time of the gateway, {label}", used / seconds, "cores"),
        (f"processor time of an event for a reader, {label}", used / max(received, 1) * 1e6, "us"),
        (f"memory of a reader, {label}", reader_bytes / 1000, "KB"),
        (f"events received, {label}", received / (sent * count) * 100, "%"),
    ]


def _produce(producer: "Producer[bytes | None, bytes | None]", seconds: float) -> int:
    """Send events at their rate; return how many."""
    count = round(seconds * _EVENTS_PER_SECOND)
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(began + number / _EVENTS_PER_SECOND - time.monotonic(), 0.0))
        producer.send(_TOPIC, _VALUE, partition=number % 3)
    producer.flush()
    return count


class _Readers:
    """Open streams whose events a thread counts; a context manager."""

    def __init__(self, address: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self.events = 0
        self._is_over = False
        self._poller: Final = select.epoll()
        self._sockets: Final[dict[int, socket.socket]] = {}
        request = f"GET /v1/topics/{_TOPIC}/stream HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        for _ in range(count):
            opened = socket.create_connection((host, int(port)))
            opened.sendall(request)
            self._sockets[opened.fileno()] = opened
        for opened in self._sockets.values():
            # The position comes when the reader has its place.
            received = b""
            while b"id: " not in received:
                received += opened.recv(4096)
            self._poller.register(opened.fileno(), select.EPOLLIN)
        self._thread: Final = threading.Thread(target=self._read)

    def wait_events(self, count: int) -> None:
        """Wait until so many events came, or for as long as they may take."""
        deadline = time.monotonic() + _ARRIVAL_SECONDS
        while self.events < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def _read(self) -> None:
        while not self._is_over:
            for descriptor, _ in self._poller.poll(0.2):
                self.events += self._sockets[descriptor].recv(262_144).count(b"\ndata: ")

    def __enter__(self) -> "_Readers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self._poller.close()
        for opened in self._sockets.values():
            opened.close()
