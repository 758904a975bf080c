"""Hurt a cluster of three brokers again and again under load, and account for every record.

Run ``python -m tests.chaos.cluster_rounds --rounds 100``; the seed is printed and ``--seed`` replays the
faults, their victims and pauses (not the scheduling of processes). Replication 3, ``min.insync.replicas`` 2,
idempotent producers with acks=all, unclean election off. A round is one fault, or two that overlap, then
quiet until every partition acknowledges again. What must hold after all of it: no acknowledged record lost,
none twice, no gap, no other order; the logs of all replicas byte-identical up to the high watermark.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import confluent_kafka
import confluent_kafka.admin

from kalda.testing import ProcessCluster
from tests.chaos.ordered_load import CheckingReader, Ledger, OrderedLoad
from tests.chaos.replica_check import check_replicas
from tests.integration import real_zookeeper

TOPIC = "ordered"
BROKERS = 3
PARTITIONS = 6
RECORDS_PER_SECOND = 3_000
SEGMENT_BYTES = 1_048_576
SESSION_TIMEOUT_MS = 2_000
PROGRESS_SECONDS = 60.0
IN_SYNC_SECONDS = 60.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "log.segment.bytes": str(SEGMENT_BYTES),
    "replica.lag.time.max.ms": "5000",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did and found."""

    seed: int
    faults: Counter[str]
    acknowledged: int
    recovery_seconds: list[float]
    """How long after the end of each round's faults every partition acknowledged again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to the cluster and is over, processes running again, when `run` returns."""

    name: str
    weight: int
    run: Callable[["Chaos"], None]


class Coordinator(Protocol):
    """The coordination server's process: ours, or a real ZooKeeper."""

    def start(self) -> None:
        """Start it again after a kill."""

    def kill(self) -> None:
        """End it at once."""

    def pause(self) -> None:
        """Have it stand still."""

    def resume(self) -> None:
        """Have it go on."""


class Chaos:
    """The cluster and the dice."""

    def __init__(self, cluster: ProcessCluster, coordinator: Coordinator, choice: random.Random) -> None:
        self.cluster = cluster
        self.coordinator = coordinator
        self.choice = choice

    def any_broker(self) -> int:
        """Choose a victim."""
        return self.choice.randrange(BROKERS)

    def controller(self) -> int:
        """Return the controller's id, or that of some broker while there is none."""
        fallback = self.any_broker()
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": self.cluster.bootstrap, "log_level": 0}
        )
        try:
            found = admin.list_topics(timeout=2).controller_id
        except confluent_kafka.KafkaException:
            return fallback
        return found if found in range(BROKERS) else fallback

    def wait(self, least: float, most: float) -> None:
        """Let some time go by."""
        time.sleep(self.choice.uniform(least, most))

    def absence(self) -> None:
        """Wait as long as a broker is away: about as often shorter as longer than its session."""
        self.wait(0.05, 2 * SESSION_TIMEOUT_MS / 1000 + 1)


def _kill(chaos: Chaos, victims: Sequence[int]) -> None:
    for victim in victims:
        chaos.cluster.kill(victim)
    chaos.absence()
    for victim in victims:
        chaos.cluster.start(victim)


def _pause(chaos: Chaos, victim: int) -> None:
    chaos.cluster.pause(victim)
    chaos.absence()
    chaos.cluster.resume(victim)


def _restart(chaos: Chaos) -> None:
    victim = chaos.any_broker()
    chaos.cluster.stop(victim)
    chaos.wait(0.0, 1.0)
    chaos.cluster.start(victim)


def _kill_coordinator(chaos: Chaos) -> None:
    chaos.coordinator.kill()
    chaos.absence()
    chaos.coordinator.start()


def _pause_coordinator(chaos: Chaos) -> None:
    chaos.coordinator.pause()
    chaos.absence()
    chaos.coordinator.resume()


def _pause_one_kill_another(chaos: Chaos) -> None:
    paused, killed = chaos.choice.sample(range(BROKERS), 2)
    chaos.cluster.pause(paused)
    chaos.wait(0.0, 1.0)
    _kill(chaos, [killed])
    chaos.cluster.resume(paused)


def _kill_broker_and_coordinator(chaos: Chaos) -> None:
    victim = chaos.any_broker()
    chaos.cluster.kill(victim)
    chaos.wait(0.0, 0.5)
    _kill_coordinator(chaos)
    chaos.cluster.start(victim)


FAULTS = (
    Fault("kill a broker", 6, lambda chaos: _kill(chaos, [chaos.any_broker()])),
    Fault("pause a broker", 6, lambda chaos: _pause(chaos, chaos.any_broker())),
    Fault("restart a broker", 3, _restart),
    Fault("kill the controller", 4, lambda chaos: _kill(chaos, [chaos.controller()])),
    Fault("pause the controller", 4, lambda chaos: _pause(chaos, chaos.controller())),
    Fault("kill the coordinator", 3, _kill_coordinator),
    Fault("pause the coordinator", 3, _pause_coordinator),
    Fault("kill two brokers", 2, lambda chaos: _kill(chaos, chaos.choice.sample(range(BROKERS), 2))),
    Fault("kill all brokers", 1, lambda chaos: _kill(chaos, range(BROKERS))),
    Fault("pause one broker, kill another", 2, _pause_one_kill_another),
    Fault("kill a broker and the coordinator", 2, _kill_broker_and_coordinator),
)


def run(rounds: int, seed: int, directory: Path, *, is_zookeeper_real: bool = False) -> Report:
    """Run the rounds; an AssertionError names what went wrong, and the seed."""
    if not is_zookeeper_real:
        with ProcessCluster(directory, brokers=BROKERS, settings=SETTINGS) as cluster:
            return _run(rounds, seed, cluster, cluster.coordinator)
    reason = real_zookeeper.missing()
    assert reason is None, reason
    with (
        real_zookeeper.RealZooKeeper(directory / "zookeeper") as zookeeper,
        ProcessCluster(
            directory, brokers=BROKERS, settings=SETTINGS, zookeeper=f"{zookeeper.hosts}/chaos"
        ) as cluster,
    ):
        return _run(rounds, seed, cluster, zookeeper)


def _run(rounds: int, seed: int, cluster: ProcessCluster, coordinator: Coordinator) -> Report:
    choice = random.Random(seed)
    faults: Counter[str] = Counter()
    recoveries: list[float] = []
    ledger = Ledger(PARTITIONS)
    create_topic(cluster.bootstrap)
    loads = [OrderedLoad(cluster.bootstrap, TOPIC, ledger, records_per_second=RECORDS_PER_SECOND)]
    reader = CheckingReader(cluster.bootstrap, TOPIC, ledger)
    chaos = Chaos(cluster, coordinator, choice)
    try:
        reader.start()
        for load in loads:
            load.start()
            load.wait_progress(PROGRESS_SECONDS)
        for number in range(rounds):
            fault = choice.choices(FAULTS, [each.weight for each in FAULTS])[0]
            faults[fault.name] += 1
            chaos.wait(0.0, 0.5)
            fault.run(chaos)
            took = max(load.wait_progress(PROGRESS_SECONDS) for load in loads)
            recoveries.append(took)
            print(f"{number + 1:>4} {fault.name}: serves again after {took:.2f} s", flush=True)
            problems = [*ledger.violations, *reader.errors]
            assert not problems, f"seed {seed}, round {number + 1}, {fault.name}: {problems}"
        for load in loads:
            load.stop()
            assert not load.errors, f"seed {seed}: {load.errors[:3]}"
        reader.wait_all_read()
        wait_in_sync(cluster.bootstrap)
        reader.stop()
        for broker in range(BROKERS):
            cluster.stop(broker)
    finally:
        for load in loads:
            load.abandon()
        reader.stop()
    ledger.check_all_read()
    problems = [*ledger.violations, *reader.errors]
    assert not problems, f"seed {seed}: {problems}"
    for partition in range(PARTITIONS):
        committed = check_replicas(cluster.log_directories, TOPIC, partition)
        assert committed == ledger.next_offsets[partition], f"seed {seed}: partition {partition}: {committed}"
    return Report(seed, faults, ledger.acknowledged_count, recoveries)


def create_topic(bootstrap: str) -> None:
    """Create the topic of the load."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    new = confluent_kafka.admin.NewTopic(
        TOPIC, PARTITIONS, BROKERS, config={"min.insync.replicas": "2", "segment.bytes": str(SEGMENT_BYTES)}
    )
    admin.create_topics([new])[TOPIC].result(30)


def wait_in_sync(bootstrap: str) -> None:
    """Wait until every replica of every partition is in sync."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + IN_SYNC_SECONDS
    while True:
        partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        behind = {number: p.isrs for number, p in partitions.items() if len(p.isrs) < BROKERS}
        if len(partitions) == PARTITIONS and not behind:
            return
        assert time.monotonic() < deadline, f"not in sync after {IN_SYNC_SECONDS} s: {behind}"
        time.sleep(0.2)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--real-zookeeper", action="store_true", help="coordinate through a real ZooKeeper")
    parser.add_argument("--keep", type=Path, help="a directory to leave logs and data in")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kalda-cluster-chaos-") as temporary:
        report = run(
            options.rounds,
            options.seed,
            options.keep or Path(temporary),
            is_zookeeper_real=options.real_zookeeper,
        )
    for name, count in sorted(report.faults.items()):
        print(f"{count:>5} x {name}")
    print(
        f"{options.rounds} rounds: {report.acknowledged} acknowledged records, none lost, doubled or moved; "
        f"replicas identical; serves again after {statistics.median(report.recovery_seconds):.2f} s "
        f"(median), {max(report.recovery_seconds):.2f} s (worst)"
    )


if __name__ == "__main__":
    main()
