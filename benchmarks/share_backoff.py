"""Share groups: how long after its release a record comes again, with a back-off of 200 ms.

One worker releases each record at its first delivery and accepts it at the second. Records are produced ten
at a time, every 50 ms, so that releases are spread over the time between them. Client and broker share the
machine.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import Figure
from kalda import (
    AcknowledgeType,
    Admin,
    AlterConfigOp,
    AsyncProducer,
    AsyncShareConsumer,
    ConfigResource,
    NewTopic,
)
from kalda.testing import KaldaProcess

_SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_TOPIC: Final = "backoff"
_GROUP: Final = "backoff"
_PARTITIONS: Final = 4
_RECORDS: Final = 2_000
_TOGETHER: Final = 10
_PAUSE_SECONDS: Final = 0.05
_BACKOFF_MS: Final = 200
_TIMEOUT_SECONDS: Final = 180.0


def run() -> list[Figure]:
    """Measure on one broker."""
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory) / "data", settings=_SETTINGS) as broker,
    ):
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])
            settings = {
                "share.auto.offset.reset": "earliest",
                "kalda.share.redelivery.backoff.ms": str(_BACKOFF_MS),
            }
            operations = [AlterConfigOp.set(*each) for each in settings.items()]
            admin.incremental_alter_configs({ConfigResource.group(_GROUP): operations})
        waits = sorted(asyncio.run(_waits(broker.bootstrap)))
    label = f"a release with {_BACKOFF_MS} ms back-off comes again"
    return [
        (f"{label}: least", waits[0], "ms"),
        (f"{label}: median", statistics.median(waits), "ms"),
        (f"{label}: p99", waits[len(waits) * 99 // 100], "ms"),
        (f"{label}: most", waits[-1], "ms"),
    ]


async def _waits(bootstrap: str) -> list[float]:
    """Return how many milliseconds passed between the release of each record and its next delivery."""
    released: dict[tuple[int, int], float] = {}
    waits: list[float] = []

    async def feed() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(_RECORDS):
                await producer.send(_TOPIC, value=b"x" * 100, partition=number % _PARTITIONS)
                if number % _TOGETHER == _TOGETHER - 1:
                    await asyncio.sleep(_PAUSE_SECONDS)

    async def work() -> None:
        async with AsyncShareConsumer(
            _TOPIC, bootstrap_servers=bootstrap, group_id=_GROUP, share_acknowledgement_mode="explicit"
        ) as worker:
            while len(waits) < _RECORDS:
                for record in await worker.poll(0.5):
                    place, now = (record.partition, record.offset), time.perf_counter()
                    if place in released:
                        waits.append((now - released[place]) * 1000)
                        worker.acknowledge(record)
                    else:
                        released[place] = now
                        worker.acknowledge(record, AcknowledgeType.RELEASE)

    async with asyncio.timeout(_TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(work())
        tasks.create_task(feed())
    return waits
