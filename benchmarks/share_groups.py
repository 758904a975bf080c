"""Share groups: how many records a second one worker, and 64 workers, acquire and acknowledge, and what
of the broker's processor time that takes.

Workers are `AsyncShareConsumer`s on one event loop, in implicit mode: each poll acknowledges the records of
the poll before. They do nothing with the records. Client and broker share the machine.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.end_to_end import Figure
from benchmarks.request_rate import processor_seconds
from kalda import Admin, AlterConfigOp, AsyncShareConsumer, ConfigResource, NewTopic, Producer
from kalda.testing import KaldaProcess

_SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_TOPIC: Final = "jobs"
_PARTITIONS: Final = 4
_RECORDS: Final = 100_000
_VALUE: Final = b"x" * 1000
_WORKERS: Final = (1, 64)
_RUNS: Final = 4
"""The first is discarded."""
_TIMEOUT_SECONDS: Final = 120.0


def run() -> list[Figure]:
    """Measure on one broker."""
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory) / "data", settings=_SETTINGS) as broker,
    ):
        return _measure(broker.bootstrap, broker.pid)


def run_apache_kafka() -> list[Figure]:
    """Measure Apache Kafka under the same labels.

    Raises:
        NotAvailableError: it cannot be had here.
    """
    with ApacheKafka(settings=_SETTINGS) as kafka:
        return _measure(kafka.bootstrap, kafka.pid)


def _measure(bootstrap: str, pid: int) -> list[Figure]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(_RECORDS):
            producer.send(_TOPIC, value=_VALUE)
    figures: list[Figure] = []
    for workers in _WORKERS:
        rates: list[float] = []
        used: list[float] = []
        for number in range(_RUNS):
            before = processor_seconds(pid)
            rates.append(_rate(bootstrap, workers, f"{workers}-workers-{number}"))
            used.append((processor_seconds(pid) - before) * 1e6 / _RECORDS)
        label = f"share group, {workers} worker{'s' if workers > 1 else ''}, 1 KB"
        figures += [
            (f"{label}: acknowledged", statistics.median(rates[1:]), "records/s"),
            (f"{label}: the broker's processor time", statistics.median(used[1:]), "us/record"),
        ]
    return figures


def _rate(bootstrap: str, workers: int, group: str) -> float:
    with Admin(bootstrap_servers=bootstrap) as admin:
        earliest = AlterConfigOp.set("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({ConfigResource.group(group): [earliest]})
    return asyncio.run(_work(bootstrap, workers, group))


async def _work(bootstrap: str, workers: int, group: str) -> float:
    """Return the acknowledged records a second, from the first record on until all are acknowledged."""
    count = 0
    began = ended = 0.0
    done = asyncio.Event()

    async def work() -> None:
        nonlocal count, began, ended
        async with AsyncShareConsumer(_TOPIC, bootstrap_servers=bootstrap, group_id=group) as worker:
            while not done.is_set():
                records = await worker.poll(0.5)
                if records:
                    began = began or time.perf_counter()
                    count += len(records)
                    if count >= _RECORDS:
                        await worker.commit()
                        ended = time.perf_counter()
                        done.set()

    async with asyncio.timeout(_TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())
    return _RECORDS / (ended - began)
