"""Apache Kafka's log cleaner over the same files: how fast it is, in the processor time of its thread.

The logs are put into the broker's directory while it is down, under topics that it knows, so that it cleans
byte for byte what ours cleans. What else the JVM does meanwhile, collecting garbage and compiling, goes on in
other threads and is not counted.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.apache_kafka import ApacheKafka, NotAvailableError

_COPIES: Final = 4
"""Of each log, one a partition; the first is the compiler's and does not count."""
_THREAD_NAME: Final = "kafka-log-clean"
"""As the kernel cuts it."""
_CLEANING_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.002
_LOG_SUFFIXES: Final = (".log", ".index", ".timeindex")


def rates(logs: Mapping[str, Path], segment_bytes: int) -> dict[str, float]:
    """Return the MB/s at which each log is cleaned, by the names of `logs`, whose values are directories.

    Raises:
        NotAvailableError: Apache Kafka cannot be had here, or does not clean a log in five minutes.
    """
    topics = {f"log-{number}": name for number, name in enumerate(logs)}
    settings = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "1000"}
    with ApacheKafka(settings=settings) as kafka:
        # Not compacted before it is its turn.
        config = {"retention.ms": "-1", "segment.bytes": str(segment_bytes), "segment.ms": str(10**12)}
        config["min.cleanable.dirty.ratio"] = "0.0"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(topic, _COPIES, 1, config=config) for topic in topics])
        for future in made.values():
            future.result()

        def fill() -> None:
            for topic, name in topics.items():
                for partition in range(_COPIES):
                    _put(logs[name], kafka.data / f"{topic}-{partition}")

        # It would try for ever to connect to a broker that is down, and say so.
        del admin, made
        kafka.restart(fill)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        return {name: _rate(kafka, admin, topic, logs[name]) for topic, name in topics.items()}


def _put(source: Path, target: Path) -> None:
    for path in target.iterdir():
        if path.suffix in _LOG_SUFFIXES:
            path.unlink()
    for path in source.iterdir():
        if path.suffix in _LOG_SUFFIXES:
            # The broker changes indexes in place, logs never: its cleaner writes new ones.
            (os.link if path.suffix == ".log" else shutil.copyfile)(path, target / path.name)


def _rate(kafka: ApacheKafka, admin: AdminClient, topic: str, log: Path) -> float:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    _wait_cleaned(kafka, topic, 1)
    before = _cleaner_seconds(kafka.pid)
    _wait_cleaned(kafka, topic, _COPIES)
    seconds = _cleaner_seconds(kafka.pid) - before
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    return (_COPIES - 1) * size / 1e6 / seconds


def _wait_cleaned(kafka: ApacheKafka, topic: str, count: int) -> None:
    """Wait until the cleaner's checkpoint, written after each log, names `count` logs of the topic."""
    deadline = time.monotonic() + _CLEANING_SECONDS
    while (kafka.data / "cleaner-offset-checkpoint").read_text().count(f"\n{topic} ") < count:
        if time.monotonic() > deadline:
            raise NotAvailableError(f"Apache Kafka has not cleaned {topic} in {_CLEANING_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _cleaner_seconds(pid: int) -> float:
    """Return the processor time of the JVM's cleaner thread so far."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith(_THREAD_NAME):
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise NotAvailableError("Apache Kafka runs no cleaner")
