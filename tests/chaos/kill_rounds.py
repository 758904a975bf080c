"""Kill a broker again and again under load and check that nothing it acknowledged is lost.

Run ``python -m tests.chaos.kill_rounds --rounds 200``; the seed is printed and ``--seed`` replays the pauses
and choices (not the scheduling of processes). A process kill leaves the page cache alive, so even acks=1 must
lose nothing on one broker.
"""

import random
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from kalda.testing import KaldaProcess
from tests.chaos.command_line import rounds_parser
from tests.chaos.log_check import InvalidLogError, check_log

PARTITIONS = 3
SEGMENT_BYTES = 1_048_576
"""Kafka's smallest segment is 14 bytes, but about one megabyte gives a few rolls in each round."""
FINAL_FLUSH_SECONDS = 60.0
CONSUME_SECONDS = 30.0
PROGRESS_SECONDS = 30.0
END_SECONDS = 5.0
"""From SIGTERM to the end of the process, logs flushed and closed."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did and found."""

    seed: int
    rounds: int
    acknowledged: int
    records: int
    slowest_start_seconds: float


class Load:
    """One producer in a thread of its own, which notes every acknowledged record."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, object]) -> None:
        self.topic = topic
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self.errors: list[str] = []
        self._number = 0
        self._newest_acknowledged = -1
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "queue.buffering.max.messages": 5_000,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"load {topic}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop producing and wait until each record is acknowledged or has failed."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(FINAL_FLUSH_SECONDS)
        assert 0 == left, f"{left} records of {self.topic} got no answer"

    def wait_progress(self, timeout_seconds: float) -> None:
        """Wait until a record that was produced from now on is acknowledged."""
        target = self._number
        deadline = time.monotonic() + timeout_seconds
        while self._newest_acknowledged < target:
            assert time.monotonic() < deadline, f"{self.topic}: nothing acknowledged in {timeout_seconds} s"
            time.sleep(0.005)

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                self._produce(partition)
            self._producer.poll(0)
            time.sleep(0.0005)

    def _produce(self, partition: int) -> None:
        number = self._number
        try:
            self._producer.produce(
                self.topic,
                value=b"%d" % number + b" " * 200,
                partition=partition,
                on_delivery=lambda error, message: self._delivered(number, error, message),
            )
        except BufferError:
            self._producer.poll(0.01)
            return
        self._number += 1

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[message.partition()][message.offset()] = number
            self._newest_acknowledged = max(self._newest_acknowledged, number)


def run(rounds: int, seed: int, directory: Path) -> Report:
    """Run the rounds; an AssertionError or InvalidLogError names what was lost or broken, and the seed."""
    choice = random.Random(seed)
    kalda = KaldaProcess(directory / "data", settings={"log.segment.bytes": str(SEGMENT_BYTES)})
    kalda.start()
    create_topics(kalda.bootstrap, ["acks-1", "acks-all"])
    loads = [
        Load(kalda.bootstrap, "acks-1", {"acks": 1, "enable.idempotence": False}),
        Load(kalda.bootstrap, "acks-all", {"acks": "all", "enable.idempotence": True}),
    ]
    slowest = 0.0
    try:
        for load in loads:
            load.start()
        for _ in range(rounds):
            # A kill counts only under load, and librdkafka takes up to a second to come back.
            for load in loads:
                load.wait_progress(PROGRESS_SECONDS)
            time.sleep(choice.uniform(0.0, 0.4))
            kalda.kill()
            kalda.start()
            slowest = max(slowest, kalda.start_seconds)
            for log in partition_directories(directory):
                check_running_log(log)
        for load in loads:
            load.stop()
        records = sum(check_kept(kalda.bootstrap, load, seed) for load in loads)
        kalda.stop(END_SECONDS)
    finally:
        for load in loads:
            load._stop.set()
        if kalda.is_running:
            kalda.stop()
    for log in partition_directories(directory):
        check_log(log)
    acknowledged = sum(len(by_offset) for load in loads for by_offset in load.acknowledged.values())
    return Report(seed, rounds, acknowledged, records, slowest)


def check_running_log(log: Path) -> None:
    """Check the newest segments of a log that is being written to.

    A reader can see half of a write that is under way, which is whole a moment later.
    """
    for attempts_left in reversed(range(3)):
        try:
            check_log(log, last_segments=2)
            return
        except InvalidLogError:
            if not attempts_left:
                raise
            time.sleep(0.05)


def create_topics(bootstrap: str, names: list[str]) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    new = [confluent_kafka.admin.NewTopic(name, PARTITIONS, 1) for name in names]
    for future in admin.create_topics(new).values():
        future.result(30)


def partition_directories(directory: Path) -> list[Path]:
    """Return the directories of the topics under load, wherever the broker keeps its logs."""
    return sorted({path.parent for path in (directory / "data").rglob("acks-*/*.log")})


def check_kept(bootstrap: str, load: Load, seed: int) -> int:
    """Read the topic back; each acknowledged record must be where the broker said it is."""
    assert not load.errors, f"seed {seed}: producing to {load.topic} failed: {load.errors[:3]}"
    total = 0
    for partition in range(PARTITIONS):
        values = read_partition(bootstrap, load.topic, partition)
        total += len(values)
        for offset, number in load.acknowledged[partition].items():
            found = values.get(offset)
            assert found == number, (
                f"seed {seed}: {load.topic}-{partition} offset {offset}: acknowledged {number}, found {found}"
            )
        if load.topic == "acks-all":
            numbers = [values[offset] for offset in sorted(values)]
            assert numbers == sorted(set(numbers)), f"seed {seed}: {load.topic}-{partition} has duplicates"
            assert len(numbers) == len(load.acknowledged[partition]), f"seed {seed}: more records than sent"
    return total


def read_partition(bootstrap: str, topic: str, partition: int) -> dict[int, int]:
    """Return the number in each record, by offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(
            confluent_kafka.TopicPartition(topic, partition), timeout=CONSUME_SECONDS
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, low)])
        values: dict[int, int] = {}
        while len(values) < high - low:
            # It waits for as many as are asked for.
            batch = consumer.consume(min(10_000, high - low - len(values)), timeout=CONSUME_SECONDS)
            assert batch, f"{topic}-{partition}: {len(values)} of {high - low} records could be read"
            for message in batch:
                assert message.error() is None, message.error()
                values[message.offset()] = int(message.value())
        return values
    finally:
        consumer.close()


def main() -> None:
    """Run from the command line."""
    options = rounds_parser(__doc__, 200).parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kalda-kill-") as directory:
        report = run(options.rounds, options.seed, Path(directory))
    print(
        f"{report.rounds} kills: {report.acknowledged} acknowledged records, none lost; "
        f"{report.records} stored; slowest start {report.slowest_start_seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
