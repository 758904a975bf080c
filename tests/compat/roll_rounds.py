"""Roll a cluster between Apache Kafka and Kalda again and again under load, and account for every record.

Run ``python -m tests.compat.roll_rounds --rounds 30``; the seed is printed and ``--seed`` repeats the choices
(not the scheduling of processes). A round swaps all three brokers in a random order, to Kalda or back to
Kafka; each swap stops its broker by SIGTERM or kills it by SIGKILL. ``--control`` replaces Kafka by Kafka,
for what Kafka alone doubles.

The load: idempotent producers with acks=all of librdkafka and of Kalda, transactional copiers of librdkafka
and Java in a classic group. What must hold: no acknowledged record lost or out of order, none twice unless
Kafka alone doubles it; each input copied once; no committed offset goes back; no transaction left open; the
logs of all replicas, internal topics too, equal byte by byte up to the high watermark; no log set aside.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import NotAvailableError
from kalda import Admin, AsyncAdmin, NewTopic
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.testing import Security
from kalda.testing.security import PropertiesLibrary
from kalda.tools.migrate.observe import Depth, observe
from kalda.tools.migrate.walk import Seen, Software
from tests.chaos.cluster_rounds import PARTITIONS, create_topics
from tests.chaos.copier_clients import copier_command
from tests.chaos.copies import COPIES, Copies
from tests.chaos.kalda_clients import KaldaLoad, KaldaReader
from tests.chaos.ordered_load import (
    CheckingReader,
    Ledger,
    LibrdkafkaLoad,
    LibrdkafkaReader,
    OrderedLoad,
    Record,
)
from tests.chaos.replica_check import check_replicas, high_watermark, read_batches
from tests.compat.swapped_brokers import SwappableCluster

TOPICS: Final = ("by-librdkafka", "by-kalda")
KAFKA, KALDA = Software.KAFKA, Software.KALDA
SESSION_TIMEOUT_MS = 4_000
WAIT_SECONDS = 180.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    # Replicas clean at different times; then they differ although their records are the same.
    "log.cleaner.enable": "false",
}


class RollLedger(Ledger):
    """A ledger that counts records that are there twice, and measures how long a partition acknowledged
    nothing; a gap, another order or a loss is a violation as in any ledger.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions, is_dense=False)
        self.doubled = 0
        self._last_at = [time.monotonic()] * partitions
        self._longest = 0.0

    def acknowledge(self, record: Record) -> None:
        """Take note of what a broker promised to keep, and when."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last_at[record.partition])
        self._last_at[record.partition] = now
        offsets = self.acknowledged[record.partition]
        if record.number in offsets:
            self._violate(f"partition {record.partition}: number {record.number} was acknowledged twice")
        offsets[record.number] = record.offset

    def read(self, record: Record) -> None:
        """Judge the next record of a partition."""
        if record.number < self.next_numbers[record.partition]:
            self.doubled += 1
            return
        super().read(record)

    def longest_gap(self) -> float:
        """Return the longest time that a partition acknowledged nothing, since the last call."""
        now = time.monotonic()
        longest = max(self._longest, *(now - each for each in self._last_at))
        self._longest = 0.0
        return longest


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    rolls: int = 0
    swaps: Counter[str] = field(default_factory=Counter)
    clean_gaps: list[float] = field(default_factory=list)
    kill_gaps: list[float] = field(default_factory=list)
    swap_seconds: list[float] = field(default_factory=list)
    """From the command that stops a broker until all replicas are in sync again."""
    acknowledged: int = 0
    doubled: int = 0
    copied: int = 0
    partitions: int = 0
    """How many partitions were compared."""


class Traffic:
    """Producers, readers and copiers of one run."""

    def __init__(
        self, cluster: SwappableCluster, copiers: Sequence[Sequence[str]], *, records_per_second: int
    ) -> None:
        bootstrap = cluster.bootstrap
        libraries: tuple[PropertiesLibrary, ...] = ("confluent-kafka", "kalda")
        settings = [cluster.client_config(library=each) for each in libraries]
        self.ledgers = [RollLedger(PARTITIONS) for _ in TOPICS]
        loads, readers = (LibrdkafkaLoad, KaldaLoad), (LibrdkafkaReader, KaldaReader)
        self.loads: list[OrderedLoad] = [
            load(bootstrap, topic, ledger, records_per_second=records_per_second, settings=each)
            for load, topic, ledger, each in zip(loads, TOPICS, self.ledgers, settings, strict=True)
        ]
        self.readers: list[CheckingReader] = [
            reader(bootstrap, topic, ledger, settings=each)
            for reader, topic, ledger, each in zip(readers, TOPICS, self.ledgers, settings, strict=True)
        ]
        self.copied = RollLedger(PARTITIONS)
        self.copies: Copies | None = None
        if copiers:
            self.copies = Copies(
                bootstrap, TOPICS[0], PARTITIONS, cluster.directory, commands=copiers, protocol="classic"
            )
            self.copies.ledger = self.copied
            self.copies.reader = LibrdkafkaReader(bootstrap, COPIES, self.copied)

    @property
    def problems(self) -> list[str]:
        """What must not be and is."""
        return [
            *(violation for ledger in self.ledgers for violation in ledger.violations),
            *(error for reader in self.readers for error in reader.errors),
            *(error for load in self.loads for error in load.errors),
            *([] if self.copies is None else self.copies.problems),
        ]

    def start(self) -> None:
        """Begin to produce, read and copy."""
        for reader in self.readers:
            reader.start()
        for load in self.loads:
            load.start()
        self.wait_progress()
        if self.copies is not None:
            self.copies.start()

    def wait_progress(self) -> None:
        """Wait until every partition acknowledges again."""
        for load in self.loads:
            load.wait_progress(WAIT_SECONDS)

    def longest_gap(self) -> float:
        """Return the longest gap of a partition since the last call."""
        return max(ledger.longest_gap() for ledger in self.ledgers)

    def finish(self) -> None:
        """Stop producing, and wait until all is read and copied."""
        for load in self.loads:
            load.stop()
        for reader in self.readers:
            reader.wait_all_read()
        if self.copies is not None:
            self.copies.wait_all_copied(self.loads[0].produced)
            self.copies.check_no_open_transaction()
        for ledger in self.ledgers:
            ledger.check_all_read()

    def close(self) -> None:
        """End all clients; twice is harmless."""
        for load in self.loads:
            load.abandon()
        if self.copies is not None:
            self.copies.stop()
        for reader in self.readers:
            reader.stop()


class Rolls:
    """The cluster, the dice, and what was seen."""

    def __init__(
        self,
        cluster: SwappableCluster,
        traffic: Traffic,
        seed: int,
        *,
        is_control: bool,
        kill_share: float,
    ) -> None:
        self._kill_share = kill_share
        self._cluster = cluster
        self._traffic = traffic
        self._choice = random.Random(seed)
        self._is_control = is_control
        self.report = Report()
        self.software = dict.fromkeys(cluster.ids, KAFKA)

    def roll(self, number: int) -> None:
        """Swap all brokers in a random order.

        Raises:
            AssertionError, TimeoutError: something must not be and is.
        """
        order = self._choice.sample(self._cluster.ids, len(self._cluster.ids))
        begin = time.monotonic()
        for broker_id in order:
            self._swap(broker_id, is_kill=self._choice.random() < self._kill_share)
            assert not self._traffic.problems, f"roll {number}: {self._traffic.problems}"
        print(
            f"{number:>3} to {self.software[order[-1]]}: brokers {order}, {time.monotonic() - begin:.1f} s, "
            f"doubled {sum(each.doubled for each in self._traffic.ledgers)}",
            flush=True,
        )

    def _swap(self, broker_id: int, *, is_kill: bool) -> None:
        now = self.software[broker_id]
        target = KAFKA if self._is_control else now.other
        self._traffic.longest_gap()
        begin = time.monotonic()
        self._cluster.run(f"{'kill' if is_kill else 'stop'}_{now}", broker_id)
        self._wait("is gone", Depth.BROKERS, lambda seen: broker_id not in seen.brokers)
        self._cluster.run(f"start_{target}", broker_id)
        self._wait(
            "is back and in sync",
            Depth.WHOLE,
            lambda seen: seen.brokers.get(broker_id) is target and is_in_sync(seen),
        )
        seconds = time.monotonic() - begin
        self._traffic.wait_progress()
        gap = self._traffic.longest_gap()
        self.software[broker_id] = target
        kind = "kill" if is_kill else "clean"
        report = self.report
        report.swaps[f"{now} to {target}, {kind}"] += 1
        report.swap_seconds.append(seconds)
        (report.kill_gaps if is_kill else report.clean_gaps).append(gap)
        print(
            f"      broker {broker_id} {now} to {target}, {kind}: {seconds:.1f} s, gap {gap:.2f} s",
            flush=True,
        )

    def _wait(self, what: str, depth: Depth, holds: Callable[[Seen], bool]) -> None:
        problem = asyncio.run(wait_seen(self._cluster, depth, holds))
        assert problem is None, f"no broker {what} within {WAIT_SECONDS:.0f} s: {problem}"


async def wait_seen(cluster: SwappableCluster, depth: Depth, holds: Callable[[Seen], bool]) -> str | None:
    """Wait until the cluster shows what `holds` accepts; return what it showed last if it never does."""
    deadline = time.monotonic() + WAIT_SECONDS
    last: object = None
    config = {**cluster.client_config(), "default.api.timeout.ms": "15000"}
    async with AsyncAdmin.from_config(config) as admin:
        while time.monotonic() < deadline:
            try:
                seen = await observe(admin, depth)
            except ClientError as error:
                last = error
            else:
                if holds(seen):
                    return None
                last = f"brokers {sorted(seen.brokers)}, {behind(seen)} partitions behind"
            await asyncio.sleep(0.1)
    return str(last)


def is_in_sync(seen: Seen) -> bool:
    """Return whether all replicas of all partitions are in sync."""
    return not seen.leaderless and behind(seen) == 0


def behind(seen: Seen) -> int:
    """Return how many partitions have replicas that are not in sync."""
    return sum(len(seen.isr.get(each, ())) < len(replicas) for each, replicas in seen.partitions.items())


def check_logs(cluster: SwappableCluster) -> int:
    """Compare the replicas of all partitions of stopped brokers; return how many were compared.

    Raises:
        AssertionError: a log was set aside.
        ReplicasDifferError: two replicas differ.
    """
    places: dict[TopicPartition, list[Path]] = {}
    for broker_id in cluster.ids:
        for directory in cluster.log_dirs(broker_id):
            for log in directory.iterdir():
                assert not log.name.endswith("-stray"), log
                topic, dash, number = log.name.rpartition("-")
                if log.is_dir() and dash and number.isdecimal():
                    places.setdefault(TopicPartition(topic, int(number)), []).append(directory)
    for partition, directories in places.items():
        assert len(cluster.ids) == len(directories), (partition, directories)
        if partition.topic.startswith("__"):
            check_common_prefix(directories, partition)
        else:
            check_replicas(directories, *partition)
    return len(places)


def check_common_prefix(directories: Sequence[Path], partition: TopicPartition) -> None:
    """Compare replicas up to the lowest of their high watermarks.

    Coordinators write until the last broker has stopped: a member's session ends, a transaction's time is
    over. A broker that was stopped before lacks these records rightly.

    Raises:
        AssertionError: two replicas differ.
    """
    common = min(high_watermark(each, *partition) for each in directories)
    logs = [
        [batch for batch in read_batches(each / str(partition)) if batch.last_offset < common]
        for each in directories
    ]
    assert all(each == logs[0] for each in logs), f"{partition} differs below {common} in {directories}"


def run(
    directory: Path,
    *,
    rounds: int,
    seed: int,
    minutes: float = 600.0,
    release: str = "3.9.1",
    is_control: bool = False,
    records_per_second: int = 300,
    kill_share: float = 0.5,
    more_partitions: int = 0,
    directories: int = 1,
    security: Security | None = None,
) -> Report:
    """Run the rolls; an AssertionError or TimeoutError names what went wrong.

    Args:
        directory: where the cluster is; it must not exist.
        rounds: how many rolls.
        minutes: after how many no roll begins any more.
        seed: of all choices.
        release: the release of Kafka.
        is_control: whether Kafka is replaced by Kafka.
        records_per_second: of each producer.
        kill_share: the share of swaps that kill their broker.
        more_partitions: how many partitions there are beside those of the load.
        directories: how many log directories each broker has.
        security: of the brokers' listener; there are no copiers then.

    Raises:
        NotAvailableError: Java, Maven or a jar is missing.
    """
    copiers = [] if security is not None else [copier_command("librdkafka"), copier_command("java")]
    with SwappableCluster(
        directory, release=release, settings=SETTINGS, directories=directories, security=security
    ) as cluster:
        settings = cluster.client_config(library="confluent-kafka")
        create_topics(cluster.bootstrap, (*TOPICS, COPIES), settings)
        if more_partitions:
            with Admin.from_config(cluster.client_config()) as admin:
                admin.create_topics([NewTopic("more", more_partitions, 3)])
        traffic = Traffic(cluster, copiers, records_per_second=records_per_second)
        rolls = Rolls(cluster, traffic, seed, is_control=is_control, kill_share=kill_share)
        end = time.monotonic() + 60 * minutes
        try:
            traffic.start()
            for number in range(1, rounds + 1):
                if time.monotonic() >= end:
                    break
                rolls.roll(number)
                rolls.report.rolls = number
            traffic.finish()
            problem = asyncio.run(wait_seen(cluster, Depth.WHOLE, is_in_sync))
            assert problem is None, problem
        finally:
            traffic.close()
        assert not traffic.problems, str(traffic.problems)
        for broker_id in cluster.ids:
            cluster.run(f"stop_{rolls.software[broker_id]}", broker_id)
        report = rolls.report
        report.partitions = check_logs(cluster)
    report.acknowledged = sum(ledger.acknowledged_count for ledger in traffic.ledgers)
    report.doubled = sum(ledger.doubled for ledger in (*traffic.ledgers, traffic.copied))
    report.copied = sum(traffic.copied.next_numbers)
    return report


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no roll after this time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--release", default="3.9.1", help="the release of Kafka")
    parser.add_argument("--control", action="store_true", help="replace Kafka by Kafka")
    parser.add_argument("--records-per-second", type=int, default=300, help="of each producer")
    parser.add_argument("--kill-share", type=float, default=0.5, help="the share of swaps that kill")
    parser.add_argument("--more-partitions", type=int, default=0, help="beside those of the load")
    parser.add_argument("--directories", type=int, default=1, help="log directories of each broker")
    parser.add_argument("--secured", action="store_true", help="SASL_SSL with SCRAM and ACLs; no copiers")
    parser.add_argument("--keep", type=Path, help="a directory to leave logs and data in")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kalda-rolls-") as temporary:
        try:
            report = run(
                (given.keep or Path(temporary)) / "cluster",
                rounds=given.rounds,
                minutes=given.minutes,
                seed=given.seed,
                release=given.release,
                is_control=given.control,
                records_per_second=given.records_per_second,
                kill_share=given.kill_share,
                more_partitions=given.more_partitions,
                directories=given.directories,
                security=Security() if given.secured else None,
            )
        except NotAvailableError as error:
            raise SystemExit(str(error)) from None
    for name, count in sorted(report.swaps.items()):
        print(f"{count:>5} x {name}")
    print(
        f"{report.rolls} rolls: {report.acknowledged} acknowledged records, none lost or out of order; "
        f"{report.copied} copied by transactions; {report.doubled} doubled; {report.partitions} partitions "
        "equal on all replicas"
    )
    for name, gaps in (("clean", report.clean_gaps), ("kill", report.kill_gaps)):
        if gaps:
            print(
                f"longest gap of a partition, {name} swaps: median {statistics.median(gaps):.2f} s, worst "
                f"{max(gaps):.2f} s"
            )
    print(
        f"a swap until all replicas are in sync: median {statistics.median(report.swap_seconds):.1f} s, "
        f"worst {max(report.swap_seconds):.1f} s"
    )


if __name__ == "__main__":
    main()
