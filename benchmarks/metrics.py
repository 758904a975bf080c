"""What a scrape costs: its size, how long it takes, and for how long it keeps the event loop from other work.

The broker's loop is watched from outside: a second connection sends one small request after the other, and
the longest answer beyond the usual tells how long the loop was held. A scrape of a broker whose loop is held
for 50 ms would show as one answer of 50 ms.
"""

import contextlib
import gzip
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.end_to_end import Figure
from kalda.testing import KaldaProcess
from kalda.testing.process import free_ports_in_a_row

_TOPICS: Final = 200
_PARTITIONS: Final = 10
_SCRAPES: Final = 30


def run() -> list[Figure]:
    """Scrape an idle broker, then one with 2,000 partitions."""
    with tempfile.TemporaryDirectory(prefix="kalda-metrics-") as directory:
        return _idle(Path(directory) / "idle") + _partitions(Path(directory) / "many")


def scrape(port: int, *, compressed: bool = False) -> tuple[float, bytes]:
    """Return the seconds that a scrape takes, and its text."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    if compressed:
        request.add_header("Accept-Encoding", "gzip")
    begin = time.perf_counter()
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read()
    seconds = time.perf_counter() - begin
    return seconds, gzip.decompress(body) if compressed else body


def _idle(directory: Path) -> list[Figure]:
    port = free_ports_in_a_row(1)
    with KaldaProcess(directory, settings={"metrics.port": str(port)}) as kalda:
        AdminClient({"bootstrap.servers": kalda.bootstrap}).list_topics(timeout=30)
        _, text = scrape(port)
    return [("scrape of an idle broker", len(text) / 1000, "KB")]


def _partitions(directory: Path) -> list[Figure]:
    port = free_ports_in_a_row(1)
    count = _TOPICS * _PARTITIONS
    with KaldaProcess(directory, settings={"metrics.port": str(port)}) as kalda:
        admin = AdminClient({"bootstrap.servers": kalda.bootstrap})
        topics = [NewTopic(f"topic-{number}", _PARTITIONS, 1) for number in range(_TOPICS)]
        for created in admin.create_topics(topics).values():
            created.result(60)
        scrape(port)
        figures: list[Figure] = []
        for compressed, how in ((False, "plain"), (True, "gzip")):
            with _watching(port) as delays_before:
                time.sleep(1)
            with _watching(port) as delays:
                taken = [scrape(port, compressed=compressed) for _ in range(_SCRAPES)]
            median = statistics.median(seconds for seconds, _ in taken)
            figures += [
                (f"scrape of {count} partitions, {how}", median * 1000, "ms"),
                (f"longest answer meanwhile, {how}", max(delays) * 1000, "ms"),
                (f"longest answer without a scrape, {how}", max(delays_before) * 1000, "ms"),
            ]
        figures.append((f"text of {count} partitions", len(taken[0][1]) / 1000, "KB"))
    return figures


@contextlib.contextmanager
def _watching(port: int) -> Iterator[list[float]]:
    """Ask for the health of the broker all the time, and note how long each answer takes."""
    delays: list[float] = []
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            begin = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
                answer.read()
            delays.append(time.perf_counter() - begin)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield delays
    finally:
        stopped.set()
        thread.join()
