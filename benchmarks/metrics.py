"""What a scrape costs: its size, how long it takes, and for how long it holds the broker's event loop.

The time is that of a client, from a broker process that does nothing else. The longest step is the processor
time of the longest callback of the loop while a broker in this process is scraped.
"""

import gc
import gzip
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cleaner import watched_steps
from benchmarks.end_to_end import Figure
from kalda.testing import Cluster, KaldaProcess
from kalda.testing.ports import free_ports_in_a_row

_TOPICS: Final = 200
_PARTITIONS: Final = 10
_SCRAPES: Final = 30


def run() -> list[Figure]:
    """Scrape an idle broker, then one with 2,000 partitions."""
    with tempfile.TemporaryDirectory(prefix="kalda-metrics-") as directory:
        return [*_idle(Path(directory) / "idle"), *_partitions(Path(directory) / "many"), *_longest_steps()]


def scrape(port: int, *, compressed: bool = False) -> tuple[float, bytes]:
    """Return the milliseconds that a scrape takes, and its text."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    if compressed:
        request.add_header("Accept-Encoding", "gzip")
    begin = time.perf_counter()
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read()
    taken_ms = (time.perf_counter() - begin) * 1000
    return taken_ms, gzip.decompress(body) if compressed else body


def _idle(directory: Path) -> list[Figure]:
    port = free_ports_in_a_row(1)
    with KaldaProcess(directory, settings={"metrics.port": str(port)}) as kalda:
        AdminClient({"bootstrap.servers": kalda.bootstrap}).list_topics(timeout=30)
        _, text = scrape(port)
    return [("scrape of an idle broker: text", len(text) / 1000, "KB")]


def _partitions(directory: Path) -> list[Figure]:
    port = free_ports_in_a_row(1)
    with KaldaProcess(directory, settings={"metrics.port": str(port)}) as kalda:
        _create_topics(kalda.bootstrap)
        figures: list[Figure] = []
        for compressed, how in ((False, "plain"), (True, "gzip")):
            taken = [scrape(port, compressed=compressed) for _ in range(_SCRAPES)]
            median = statistics.median(taken_ms for taken_ms, _ in taken)
            figures.append((f"{_title()}: {how}", median, "ms"))
        figures.append((f"{_title()}: text", len(taken[0][1]) / 1000, "KB"))
    return figures


def _longest_steps() -> list[Figure]:
    port = free_ports_in_a_row(1)
    figures: list[Figure] = []
    with Cluster(1, settings={"metrics.port": str(port)}) as cluster:
        _create_topics(cluster.bootstrap)
        # What creating the topics has left to the collector is not the scrape's.
        gc.collect()
        gc.freeze()
        for compressed, how in ((False, "plain"), (True, "gzip")):
            with watched_steps() as steps:
                for _ in range(_SCRAPES):
                    scrape(port, compressed=compressed)
            figures.append((f"{_title()}: longest step on the loop, {how}, processor time", max(steps), "ms"))
    return figures


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"topic-{number}", _PARTITIONS, 1) for number in range(_TOPICS)]
    for created in admin.create_topics(topics).values():
        created.result(60)


def _title() -> str:
    return f"scrape of {_TOPICS * _PARTITIONS} partitions"
