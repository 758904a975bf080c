"""What a broker costs before it does anything: start-up time and memory, idle and with many partitions."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import confluent_kafka.admin
import psutil

from benchmarks.end_to_end import Figure
from benchmarks.request_rate import produce_frame, requests_per_second
from kalda.testing import KaldaProcess

_STARTS: Final = 5
_TOPICS: Final = 1_000
_PARTITIONS: Final = 4
_TOPICS_PER_REQUEST: Final = 100


def run() -> list[Figure]:
    """Measure an empty broker, then one with 1,000 topics of 4 partitions."""
    with tempfile.TemporaryDirectory(prefix="kalda-footprint-") as directory:
        return _empty(Path(directory) / "empty") + _many_partitions(Path(directory) / "many")


def memory_mb(pid: int) -> float:
    """Resident memory of a process in MB."""
    return psutil.Process(pid).memory_info().rss / 1e6


def _empty(directory: Path) -> list[Figure]:
    starts = []
    for number in range(_STARTS):
        with KaldaProcess(directory / str(number)) as kalda:
            starts.append(kalda.start_seconds)
            time.sleep(0.5)
            memory = memory_mb(kalda.pid)
    return [("start to ready", statistics.median(starts), "s"), ("memory, idle", memory, "MB")]


def _many_partitions(directory: Path) -> list[Figure]:
    kalda = KaldaProcess(directory)
    kalda.start()
    rate_before = _one_connection(kalda)
    begin = time.perf_counter()
    _create_topics(kalda.bootstrap)
    create_seconds = time.perf_counter() - begin
    rate_after = _one_connection(kalda)
    processor = psutil.Process(kalda.pid)
    used = sum(processor.cpu_times()[:2])
    time.sleep(5)
    idle_percent = (sum(processor.cpu_times()[:2]) - used) / 5 * 100
    memory = memory_mb(kalda.pid)
    kalda.stop()
    kalda.start()
    clean_seconds = kalda.start_seconds
    kalda.kill()
    kalda.start()
    dirty_seconds = kalda.start_seconds
    kalda.stop()
    many = f"{_TOPICS} topics x {_PARTITIONS}"
    return [
        (f"{many}: created in", create_seconds, "s"),
        (f"{many}: request time beside an empty broker's", rate_before / rate_after, "x"),
        (f"{many}: start after a clean stop", clean_seconds, "s"),
        (f"{many}: start after a kill", dirty_seconds, "s"),
        (f"{many}: memory", memory, "MB"),
        (f"{many}: CPU when idle", idle_percent, "%"),
    ]


def _one_connection(kalda: KaldaProcess) -> float:
    host, _, port = kalda.bootstrap.rpartition(":")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kalda.bootstrap})
    if "rate" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([confluent_kafka.admin.NewTopic("rate", 1, 1)])["rate"].result(30)
    frame = produce_frame("rate")
    return statistics.median(requests_per_second(host, int(port), frame, 1) for _ in range(3))


def _create_topics(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    names = [f"idle-{number:04}" for number in range(_TOPICS)]
    for first in range(0, _TOPICS, _TOPICS_PER_REQUEST):
        new = [
            confluent_kafka.admin.NewTopic(name, _PARTITIONS, 1)
            for name in names[first : first + _TOPICS_PER_REQUEST]
        ]
        for future in admin.create_topics(new, operation_timeout=60, request_timeout=60).values():
            future.result(90)
