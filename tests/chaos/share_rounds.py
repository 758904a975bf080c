"""Kills members of a share group, leaders and coordinators; no record is lost or delivered too often.

Run ``python -m tests.chaos.share_rounds --rounds 20``. Members on Kalda's client, confluent-kafka's,
franz-go's, and Apache Kafka's console and verifiable share consumers share four partitions on three brokers;
those that this machine does not have are left out, with a message. A producer writes numbers. The first three
clients note what they do with each record: they reject every 50th number and release some at their first
delivery.

First nothing is killed, and the time from a release to the next delivery is measured, with a back-off of
200 ms. Then each round kills a member, the leader of a partition, or the coordinator of the group or of its
state. In the end each record that was acknowledged to the producer was accepted or rejected, none delivered
more often than the limit; the group has no lag; and each record that was only rejected is in the dead-letter
topic, with reason, count and origin.
"""

import contextlib
import random
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import NotAvailableError
from kalda import (
    Admin,
    AlterConfigOp,
    ClientError,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    TopicPartition,
)
from kalda.testing import ProcessCluster
from tests.chaos.command_line import rounds_parser
from tests.chaos.share_members import Delivery, Members, Place
from tests.chaos.share_worker import ACCEPT, REJECT, RELEASE
from tests.compat.java_releases import JavaRelease
from tests.compat.newest_kafka import NEWEST

TOPIC: Final = "share-rounds"
GROUP: Final = "share-rounds"
LETTERS: Final = "dlq.share-rounds"
PARTITIONS: Final = 4
DELIVERIES_MAX: Final = 5
BACKOFF_MS: Final = 200
RELEASES: Final = 100
"""How many releases are measured before the kills."""
PROGRESS: Final = 100
"""So many records are settled between two kills."""
PROGRESS_SECONDS: Final = 180.0
SETTINGS: Final = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
GROUP_CONFIG: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": str(DELIVERIES_MAX),
    "share.record.lock.duration.ms": "15000",
    "kalda.share.redelivery.backoff.ms": str(BACKOFF_MS),
    "errors.deadletterqueue.topic.name": LETTERS,
    "errors.deadletterqueue.copy.record.enable": "true",
}
KINDS: Final = ("member", "leader", "coordinator")
REJECTED: Final = b"Offset rejected by client."
_ORIGIN: Final = "__dlq.errors."


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did and found."""

    clients: list[str]
    kills: Counter[str]
    records: int
    deliveries: Counter[str]
    """How many were noted, by client."""
    most_deliveries: int
    """How often one record was."""
    letters: int
    returns_ms: list[int]
    """From each release before the kills to the next delivery, sorted."""
    slowest_seconds: float
    """The longest time that `PROGRESS` records took after a kill."""


class Load:
    """Writes numbers, and keeps the places that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: Final = bootstrap
        self._is_over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="load")
        self.acknowledged: Final[dict[Place, int]] = {}
        self.errors: Final[list[str]] = []

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; harmless twice."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self._bootstrap, delivery_timeout_ms=180_000) as producer:
            while not self._is_over.is_set():
                sent = [producer.send(TOPIC, b"%d" % each) for each in range(number, number + 10)]
                for each, future in enumerate(sent, number):
                    try:
                        stored = future.result(200)
                    except ClientError as error:
                        self.errors.append(f"{each}: {error!r}")
                        return
                    self.acknowledged[stored.partition, stored.offset] = each
                number += len(sent)
                time.sleep(0.1)


def run(rounds: int, seed: int, directory: Path) -> Report:
    """Run the rounds; an AssertionError names what was lost or delivered too often, and the seed."""
    choice = random.Random(seed)
    with ProcessCluster(
        directory / "cluster", brokers=3, settings=SETTINGS, start_timeout_seconds=300.0
    ) as cluster:
        _prepare(cluster)
        members = Members(cluster.bootstrap, TOPIC, GROUP, directory / "members")
        load = Load(cluster.bootstrap)
        kills: Counter[str] = Counter()
        slowest = 0.0
        try:
            for client in members.clients:
                members.start(client)
            load.start()
            returns = _measure_returns(members, seed)
            for number in range(rounds):
                time.sleep(choice.uniform(0.0, 0.5))
                kind = KINDS[number % len(KINDS)]
                _kill(kind, cluster, members, choice)
                kills[kind] += 1
                slowest = max(slowest, _wait_progress(members, seed))
                print(f"{number + 1} kills, {len(members.deliveries)} deliveries", flush=True)
            load.stop()
            assert not load.errors, f"seed {seed}: {load.errors[:3]}"
            _wait_settled(members, load, cluster, seed)
            letters = _read_letters(cluster.bootstrap)
            _describe_with_java(cluster.bootstrap)
        finally:
            load.stop()
            members.close()
        deliveries = members.deliveries
        times = _check_counts(deliveries, seed)
        _check_letters(deliveries, letters, load, seed)
        return Report(
            members.clients,
            kills,
            len(load.acknowledged),
            Counter(each.client for each in deliveries),
            times,
            len(letters),
            returns,
            slowest,
        )


def _prepare(cluster: ProcessCluster) -> None:
    letters_config = {"errors.deadletterqueue.group.enable": "true"}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.incremental_alter_configs(
            {ConfigResource.group(GROUP): [AlterConfigOp.set(*each) for each in GROUP_CONFIG.items()]}
        )
        admin.create_topics(
            [
                NewTopic(TOPIC, partitions=PARTITIONS, replication_factor=3),
                NewTopic(LETTERS, partitions=1, replication_factor=3, config=letters_config),
            ]
        )


def _measure_returns(members: Members, seed: int) -> list[int]:
    """Wait until released records came again; return the milliseconds that they took, sorted.

    Those that were released before all members had records do not count: starting them takes the processors.
    """
    deadline = time.monotonic() + PROGRESS_SECONDS
    first = None
    while True:
        members.read()
        seen = {each.client for each in members.deliveries}
        if first is None and len(seen) == len(members.clients):
            first = len(members.deliveries)
        returns = [] if first is None else _returns(members.deliveries[first:])
        if len(returns) >= RELEASES:
            return returns
        assert time.monotonic() < deadline, f"seed {seed}: {len(returns)} returned; {seen} got records"
        time.sleep(0.2)


def _returns(deliveries: list[Delivery]) -> list[int]:
    released = {
        each.place: each.time_ms
        for each in deliveries
        if each.outcome == RELEASE and each.time_ms is not None and each.count == 1
    }
    return sorted(
        each.time_ms - released[each.place]
        for each in deliveries
        if each.time_ms is not None and each.count == 2 and each.place in released
    )


def _kill(kind: str, cluster: ProcessCluster, members: Members, choice: random.Random) -> None:
    if kind == "member":
        members.kill(choice.choice(members.clients))
        return
    topic = TOPIC if kind == "leader" else choice.choice(("__consumer_offsets", "__share_group_state"))
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        described = admin.describe_topics([topic])[topic]
    broker_id = choice.choice([each.leader_id for each in described.partitions if each.has_leader] or [0])
    cluster.kill(broker_id)
    time.sleep(choice.uniform(0.0, 3.0))
    cluster.start(broker_id)


def _wait_progress(members: Members, seed: int) -> float:
    """Wait until records were settled; return how long it took."""
    members.read()
    before, begin = _settled_count(members), time.monotonic()
    while (now := _settled_count(members)) < before + PROGRESS:
        seconds = time.monotonic() - begin
        assert seconds < PROGRESS_SECONDS, f"seed {seed}: no progress: {now} records after {before}"
        time.sleep(0.1)
        members.read()
    return time.monotonic() - begin


def _settled_count(members: Members) -> int:
    return len({each.place for each in members.deliveries if each.outcome != RELEASE})


def _wait_settled(members: Members, load: Load, cluster: ProcessCluster, seed: int) -> None:
    """Wait until each record was accepted or rejected, and the group has no lag."""
    deadline = time.monotonic() + PROGRESS_SECONDS
    while True:
        members.read()
        settled = {each.place for each in members.deliveries if each.outcome != RELEASE}
        missing = sorted(load.acknowledged.keys() - settled)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            offsets = admin.list_share_group_offsets([GROUP])[GROUP]
        lags = {partition.partition: each.lag for partition, each in offsets.items() if each is not None}
        if not missing and len(lags) == PARTITIONS and not any(lags.values()):
            return
        assert time.monotonic() < deadline, (
            f"seed {seed}: {len(missing)} of {len(load.acknowledged)} records were not settled, such as "
            f"{missing[:5]}; lags {lags}"
        )
        time.sleep(0.5)


def _read_letters(bootstrap: str) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    partition = TopicPartition(LETTERS, 0)
    found: list[ConsumerRecord[bytes | None, bytes | None]] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        (end,) = consumer.end_offsets([partition]).values()
        while consumer.position(partition) < end:
            found += consumer.poll(1.0)
    return found


def _describe_with_java(bootstrap: str) -> None:
    """Let Apache Kafka's ``kafka-share-groups`` describe the group."""
    try:
        release = JavaRelease(NEWEST)
    except NotAvailableError:
        return
    for what in ("--members", "--offsets", "--state"):
        words = ("--bootstrap-server", bootstrap, "--describe", "--group", GROUP, what)
        text = release.run("org.apache.kafka.tools.consumer.group.ShareGroupCommand", *words)
        assert GROUP in text, text
        print(text.strip(), flush=True)


def _check_counts(deliveries: list[Delivery], seed: int) -> int:
    """Check how often records were delivered; return how often one was."""
    times = Counter(each.place for each in deliveries)
    too_often = {place: count for place, count in times.items() if count > DELIVERIES_MAX}
    assert not too_often, f"seed {seed}: delivered more than {DELIVERIES_MAX} times: {too_often}"
    counts = max(each.count or 0 for each in deliveries)
    assert counts <= DELIVERIES_MAX, f"seed {seed}: a delivery count of {counts}"
    return max(times.values())


def _check_letters(
    deliveries: list[Delivery],
    letters: list[ConsumerRecord[bytes | None, bytes | None]],
    load: Load,
    seed: int,
) -> None:
    outcomes: defaultdict[Place, set[str]] = defaultdict(set)
    for each in deliveries:
        outcomes[each.place].add(each.outcome)
    origins: set[Place] = set()
    for letter in letters:
        headers = dict(letter.headers)
        place = int(headers[f"{_ORIGIN}partition"] or b""), int(headers[f"{_ORIGIN}offset"] or b"")
        origins.add(place)
        count = int(headers[f"{_ORIGIN}delivery.count"] or b"")
        facts = f"seed {seed}: {place}: {headers}, {letter.value!r}, {outcomes[place]}"
        assert TOPIC.encode() == headers[f"{_ORIGIN}topic"], facts
        assert GROUP.encode() == headers[f"{_ORIGIN}group"], facts
        assert b"%d" % load.acknowledged[place] == letter.value, facts
        assert 1 <= count <= DELIVERIES_MAX, facts
        if headers[f"{_ORIGIN}message"] == REJECTED:
            assert REJECT in outcomes[place], facts
        else:
            assert DELIVERIES_MAX == count, facts
    rejected = {place for place, found in outcomes.items() if REJECT in found and ACCEPT not in found}
    missing = sorted(rejected - origins)
    assert not missing, (
        f"seed {seed}: {len(missing)} rejected records are no dead letters, such as {missing[:5]}"
    )


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="kalda-share-") as directory:
        yield Path(directory)


def main() -> None:
    """Run from the command line."""
    parser = rounds_parser(__doc__, 20)
    parser.add_argument("--keep", type=Path, help="a directory to leave logs and data in")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with _directory(options.keep) as directory:
        report = run(options.rounds, options.seed, directory)
    returns = report.returns_ms
    late = returns[(len(returns) * 99 - 1) // 100]
    print(
        f"{', '.join(report.clients)}: {dict(report.kills)} kills under {report.records} records: none lost, "
        f"one delivered {report.most_deliveries} times at most; deliveries {dict(report.deliveries)}; "
        f"{report.letters} dead letters; {len(returns)} releases with a back-off of {BACKOFF_MS} ms "
        f"returned in {returns[0]} to {returns[-1]} ms, half of them in {returns[len(returns) // 2]}, 99 % "
        f"in {late}; {PROGRESS} records took {report.slowest_seconds:.1f} s at "
        "most after a kill"
    )


if __name__ == "__main__":
    main()
