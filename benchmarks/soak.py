"""A steady rate on one core: a billion messages a day on three brokers. Run ``python -m benchmarks.soak``.

The brokers and their coordinator have the first core, the clients the others. A producer sends messages of
200 B with acks=all at an even pace, and a consumer reads them; both are librdkafka. Every message must arrive
once and in the order of its partition.
"""

import argparse
import os
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from benchmarks.end_to_end import Workload, create_topic
from benchmarks.footprint import memory_mb
from benchmarks.request_rate import processor_seconds
from kalda.testing import ProcessCluster

_PER_SECOND: Final = 11_600
_BYTES: Final = 200
_PARTITIONS: Final = 12
_TURN_SECONDS: Final = 0.01
_TOPIC: Final = "soak"
_STAMP: Final = struct.Struct(">qd")
_LATE_SECONDS: Final = 60.0


def main() -> int:
    """Run the load for some minutes and print what each minute cost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=_PER_SECOND, help="messages a second")
    options = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        # Child processes inherit it.
        os.sched_setaffinity(0, processors[:1])
        with ProcessCluster(Path(directory), brokers=3) as cluster:
            os.sched_setaffinity(0, processors[1:] or processors)
            create_topic(cluster.bootstrap, _TOPIC, Workload(partitions=_PARTITIONS, replication=3))
            reader = _Reader(cluster.bootstrap)
            reader.start()
            sent = _send(cluster, reader, options.minutes, options.rate)
            reader.finish(sent)
            return 0 if reader.report(sent) else 1


def _send(cluster: ProcessCluster, reader: "_Reader", minutes: float, rate: int) -> list[int]:
    """Send at an even pace and print a line each minute; return the messages of each partition."""
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
        }
    )
    filler = b"x" * (_BYTES - _STAMP.size)
    sent = [0] * _PARTITIONS
    total = 0
    begin = minute_began = time.monotonic()
    used = _processor_seconds(cluster)
    while (now := time.monotonic()) - begin < minutes * 60:
        due = int((now - begin) * rate)
        while total < due:
            partition = total % _PARTITIONS
            value = _STAMP.pack(sent[partition], time.time()) + filler
            producer.produce(_TOPIC, value, partition=partition)
            sent[partition] += 1
            total += 1
        producer.poll(0)
        if now - minute_began >= 60.0:
            after = _processor_seconds(cluster)
            memory = max(memory_mb(pid) for pid in cluster.broker_pids)
            print(
                f"{(now - begin) / 60:5.1f} min: {total:,} sent, {reader.count:,} read, "
                f"{(after - used) / (now - minute_began) * 100:.1f} % of the core, "
                f"{memory:.0f} MB the largest broker, {reader.quantiles()}",
                flush=True,
            )
            minute_began, used = now, after
        time.sleep(max(0.0, _TURN_SECONDS - (time.monotonic() - now)))
    left = producer.flush(_LATE_SECONDS)
    if left or failed:
        raise RuntimeError(f"{left} messages were not acknowledged; errors: {failed[:3]}")
    return sent


def _processor_seconds(cluster: ProcessCluster) -> float:
    """Return the processor time of all brokers and the coordinator."""
    return sum(processor_seconds(pid) for pid in (*cluster.broker_pids, cluster.coordinator_pid))


class _Reader(threading.Thread):
    """Reads all partitions, checks their order and keeps the time from producer to consumer."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self._next = [0] * _PARTITIONS
        self._wrong: list[str] = []
        self._sent: list[int] | None = None
        self._all_ms: list[float] = []
        self._minute_ms: list[float] = []
        self._consumer: Final[Any] = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "soak",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(_TOPIC, each, 0) for each in range(_PARTITIONS)]
        )

    def run(self) -> None:
        while self._sent is None or self.count < sum(self._sent):
            first = self._consumer.poll(0.05)
            if first is None:
                continue
            # `consume` waits for as many as it is asked for, or for its timeout.
            for message in (first, *self._consumer.consume(5_000, timeout=0)):
                number, at = _STAMP.unpack_from(message.value())
                partition = message.partition()
                if number != self._next[partition]:
                    self._wrong.append(f"partition {partition}: {number} follows {self._next[partition] - 1}")
                self._next[partition] = number + 1
                self.count += 1
                if not number % 10:
                    self._minute_ms.append((time.time() - at) * 1000)

    def quantiles(self) -> str:
        """Describe the latencies since the last call."""
        latencies, self._minute_ms = sorted(self._minute_ms), []
        self._all_ms += latencies
        return _quantiles(latencies)

    def finish(self, sent: list[int]) -> None:
        """Wait for the last messages."""
        self._sent = sent
        self.join(_LATE_SECONDS)
        self._consumer.close()

    def report(self, sent: list[int]) -> bool:
        """Print the result of the whole run; return whether each message came once and in order."""
        self.quantiles()
        missing = sum(sent) - self.count
        print(f"in all: {sum(sent):,} sent, {missing} missing, {len(self._wrong)} out of order", flush=True)
        print(_quantiles(sorted(self._all_ms)), flush=True)
        return not missing and not self._wrong


def _quantiles(latencies: Sequence[float]) -> str:
    """Describe ascending latencies in milliseconds."""
    if not latencies:
        return "nothing read"
    p50, p99, p999 = (latencies[int(len(latencies) * each)] for each in (0.5, 0.99, 0.999))
    return f"p50 {p50:.1f}, p99 {p99:.1f}, p99.9 {p999:.1f}, at most {latencies[-1]:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
