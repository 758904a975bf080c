"""Kill a broker again and again under load and check that nothing it acknowledged is lost.

Run ``python -m tests.chaos.kill_rounds --rounds 200``; the seed is printed and ``--seed`` replays the pauses
and choices (not the scheduling of processes). A process kill leaves the page cache alive, so even acks=1 must
lose nothing on one broker. ``--client`` names the library that writes the records and reads them back.
"""

import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from kalda.testing import KaldaProcess
from tests.chaos.acknowledged_load import PARTITIONS, AcknowledgedLoad
from tests.chaos.command_line import rounds_parser
from tests.chaos.copier_clients import LIBRDKAFKA
from tests.chaos.log_check import InvalidLogError, check_log
from tests.chaos.rounds_clients import CLIENTS, RoundsClients

SEGMENT_BYTES = 1_048_576
"""Kafka's smallest segment is 14 bytes, but about one megabyte gives a few rolls in each round."""
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


def run(rounds: int, seed: int, directory: Path, *, client: str = LIBRDKAFKA) -> Report:
    """Run the rounds; an AssertionError or InvalidLogError names what was lost or broken, and the seed."""
    choice = random.Random(seed)
    kalda = KaldaProcess(directory / "data", settings={"log.segment.bytes": str(SEGMENT_BYTES)})
    kalda.start()
    create_topics(kalda.bootstrap, ["acks-1", "acks-all"])
    clients = CLIENTS[client]
    loads = [
        clients.acknowledged_load(kalda.bootstrap, "acks-1", acks="1", is_idempotent=False),
        clients.acknowledged_load(kalda.bootstrap, "acks-all", acks="all", is_idempotent=True),
    ]
    slowest = 0.0
    try:
        for load in loads:
            load.start()
        for _ in range(rounds):
            # A kill counts only under load, and a client takes up to a second to come back.
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
        records = sum(check_kept(clients, kalda.bootstrap, load, seed) for load in loads)
        kalda.stop(END_SECONDS)
    finally:
        for load in loads:
            load.close()
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


def check_kept(clients: RoundsClients, bootstrap: str, load: AcknowledgedLoad, seed: int) -> int:
    """Read the topic back; each acknowledged record must be where the broker said it is."""
    assert not load.errors, f"seed {seed}: producing to {load.topic} failed: {load.errors[:3]}"
    total = 0
    for partition in range(PARTITIONS):
        values = clients.read_partition(bootstrap, load.topic, partition)
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


def main() -> None:
    """Run from the command line."""
    options = rounds_parser(__doc__, 200).parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kalda-kill-") as directory:
        report = run(options.rounds, options.seed, Path(directory), client=options.client)
    print(
        f"{report.rounds} kills under load from {options.client}: "
        f"{report.acknowledged} acknowledged records, none lost; "
        f"{report.records} stored; slowest start {report.slowest_start_seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
