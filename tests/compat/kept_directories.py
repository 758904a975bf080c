"""Starts Apache Kafka 3.9.1 with its ZooKeeper on the directories that testing clusters left behind.

``KALDA_KEEP_DIRECTORIES=/tmp/kept pytest tests/integration/…`` keeps them, and ``python -m
tests.compat.kept_directories /tmp/kept`` looks at each copy, which changes it: ZooKeeper gets the files of
the coordination server, each broker of the cluster is started as one of Kafka, and every record of each
partition that has a leader is read. `EXCEPTIONS` has what Kafka may refuse, with the reason.
"""

import argparse
import asyncio
import contextlib
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin

from benchmarks.apache_kafka import NotAvailableError, kafka_jars
from kalda.broker.metadata.session_file import SessionFile
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.testing.kept_directories import ORIGIN_FILE
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.port import WatchEvent
from tests.compat.old_kafka import ApacheBroker
from tests.integration.real_zookeeper import RealZooKeeper

RELEASE: Final = "3.9.1"
SESSION_SECONDS: Final = 60.0
"""How long the sessions of brokers that were killed may last."""
READ_SECONDS: Final = 60.0
JAVA_OPTIONS: Final = ("-XX:+UseSerialGC",)
LINES_MAX: Final = 8
"""Notes and problems that are printed for a directory."""
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "kept",
    "controlled.shutdown.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.threads": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    # Tests write records with timestamps of long ago.
    "log.retention.check.interval.ms": "3600000",
}

EXCEPTIONS: Final[Mapping[str, str]] = {
    r"test_transaction_requests\.py.*\n.*Error processing append operation on partition txn-": (
        "the tests write markers of coordinators with epochs of the future, which fence that of Kafka"
    ),
    r"error processing change notification .*\"(groups|client-metrics)/": (
        "Kafka with ZooKeeper has no settings of groups; it passes over the notification of a change"
    ),
    r"test_dynamic_listeners\.py::test_a_listener_with_tls": (
        "the broker's key and login are stored in ZooKeeper, encrypted with a secret of its server.properties"
    ),
}
"""By a regular expression for the origin and, in the next line, a problem: why Kafka may have it."""


@dataclass(slots=True)
class Finding:
    """What Kafka did with one directory."""

    directory: Path
    origin: str
    topics: int = 0
    records: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "problems" if self.problems else "ok"
        lines = [
            f"{state}: {self.directory.name} {self.origin}: {self.topics} topics, {self.records} records"
        ]
        return "\n    ".join([*lines, *self.notes[:LINES_MAX], *self.problems[:LINES_MAX]])


def brokers_of(directory: Path) -> dict[int, list[Path]]:
    """Return the log directories of each broker, by its id."""
    found: dict[int, list[Path]] = {}
    for path in sorted(directory.glob("*/meta.properties")):
        match = re.search(r"^broker\.id=(\d+)$", path.read_text(), re.MULTILINE)
        assert match is not None, f"{path} names no broker"
        found.setdefault(int(match[1]), []).append(path.parent)
    return found


def examine(directory: Path) -> Finding:
    """Start Kafka on a directory and read all topics; whatever fails is a problem of the directory."""
    try:
        return _examine(directory)
    except Exception as error:
        return Finding(directory, _origin(directory), problems=[f"{type(error).__name__}: {error}"])


def _origin(directory: Path) -> str:
    return (directory / ORIGIN_FILE).read_text()


def _examine(directory: Path) -> Finding:
    finding = Finding(directory, _origin(directory))
    brokers = brokers_of(directory)
    # ZooKeeper's helper keeps its files in a directory below.
    kept, coordination = directory / "zookeeper" / "version-2", directory / "zookeeper" / "data" / "version-2"
    if kept.is_dir():
        coordination.parent.mkdir()
        kept.rename(coordination)
    if not brokers or not coordination.is_dir():
        finding.notes.append("no cluster: it has no brokers, or another coordination server")
        return finding
    with ExitStack() as stack:
        zookeeper = RealZooKeeper(directory / "zookeeper", jars=sorted(kafka_jars(RELEASE).glob("*.jar")))
        try:
            zookeeper.start()
        except RuntimeError as error:
            finding.problems.append(str(error))
            return finding
        stack.callback(zookeeper.kill)
        asyncio.run(_end_sessions(zookeeper.hosts, [path for paths in brokers.values() for path in paths]))
        running = []
        for broker_id, log_dirs in brokers.items():
            settings = {**SETTINGS, "log.dirs": ",".join(map(str, log_dirs))}
            broker = ApacheBroker(
                RELEASE,
                broker_id,
                directory / f"kafka-{broker_id}",
                zookeeper.hosts,
                settings=settings,
                java_options=JAVA_OPTIONS,
            )
            stack.callback(broker.kill)
            broker.start_nowait()
            running.append(broker)
        for broker in running:
            try:
                broker.wait_started()
            except NotAvailableError:
                finding.problems.append(f"broker {broker.broker_id}: {_cause(broker)}")
        if not finding.problems:
            _read_all(",".join(each.bootstrap for each in running), finding)
        for broker in running:
            finding.problems += _errors(broker)
    return finding


async def _end_sessions(hosts: str, log_dirs: list[Path]) -> None:
    """End the sessions of brokers that were killed, by the keys beside their data, as their restart would."""
    session = await EnsembleClient.connect(hosts, session_timeout_ms=10_000, connection_timeout_ms=10_000)
    gone = asyncio.Event()

    def on_event(_: WatchEvent) -> None:
        gone.set()

    try:
        for log_dir in log_dirs:
            key = SessionFile(OsFileSystem(), [str(log_dir)]).read()
            if key is not None:
                await session.end_session(key)
        registrations = [f"/brokers/ids/{each}" for each in await session.children("/brokers/ids")]
        async with asyncio.timeout(SESSION_SECONDS):
            for path in (*registrations, "/controller"):
                while await session.exists(path, on_event) is not None:
                    await gone.wait()
                    gone.clear()
    finally:
        await session.close()


def _cause(broker: ApacheBroker) -> str:
    """Return the first line of each error in the log of a broker that did not start."""
    lines = broker.log_of_start().decode(errors="replace").splitlines()
    found = [line for line in lines if " FATAL " in line or " ERROR " in line or "Exception" in line]
    return " | ".join(found[:6]) or "; ".join(lines[-3:])


def _errors(broker: ApacheBroker) -> Iterator[str]:
    """Yield what a broker that serves logged as an error.

    While the others start, a controller of Kafka logs each partition that has no leader yet as one.
    """
    for line in broker.log_of_start().decode(errors="replace").splitlines():
        if re.search(r"\] (ERROR|FATAL) ", line) and not line.endswith("(state.change.logger)"):
            yield f"broker {broker.broker_id}: {line[:400]}"


def _read_all(bootstrap: str, finding: Finding) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = _topics(admin)
    finding.topics = len(topics)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        for name, topic in topics.items():
            for number, partition in topic.partitions.items():
                if partition.leader < 0:
                    finding.notes.append(f"{name}-{number} has no leader (in sync {partition.isrs})")
                    continue
                _read(consumer, name, number, finding)
    finally:
        consumer.close()


def _topics(
    admin: confluent_kafka.admin.AdminClient,
) -> dict[str, confluent_kafka.admin.TopicMetadata]:
    """Return all topics, once their partitions have leaders; those that never have are read by nobody."""
    deadline = time.monotonic() + 15
    while True:
        topics: dict[str, confluent_kafka.admin.TopicMetadata] = {}
        # A broker that has just started gives parts of an answer.
        with contextlib.suppress(confluent_kafka.KafkaException):
            topics = admin.list_topics(timeout=30).topics
        leaders = [each.leader for topic in topics.values() for each in topic.partitions.values()]
        if (leaders and min(leaders) >= 0) or time.monotonic() > deadline:
            return topics
        time.sleep(0.5)


def _read(consumer: confluent_kafka.Consumer, name: str, number: int, finding: Finding) -> None:
    partition = confluent_kafka.TopicPartition(name, number, confluent_kafka.OFFSET_BEGINNING)
    consumer.assign([partition])
    deadline = time.monotonic() + READ_SECONDS
    while True:
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() > deadline:
                finding.problems.append(f"{name}-{number}: not read to its end in {READ_SECONDS} s")
                return
            continue
        error = message.error()
        if error is None:
            finding.records += 1
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            return
        else:
            finding.problems.append(f"{name}-{number}: {error}")
            return


def excuse(finding: Finding) -> str | None:
    """Return the reasons why all problems are expected; None if one is not."""
    reasons = []
    for problem in finding.problems:
        text = f"{finding.origin}\n{problem}"
        reason = next((reason for pattern, reason in EXCEPTIONS.items() if re.search(pattern, text)), None)
        if reason is None:
            return None
        reasons.append(reason)
    return "; ".join(dict.fromkeys(reasons))


def main() -> int:
    """Look at every directory; exit code 1 if Kafka refused one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="what KALDA_KEEP_DIRECTORIES named")
    parser.add_argument("--most", type=int, default=1_000_000, help="look at no more")
    parser.add_argument("--jobs", type=int, default=1, help="how many clusters run at once")
    parser.add_argument("--remove", action="store_true", help="remove each directory that Kafka took")
    options = parser.parse_args()
    failed = excused = taken = 0
    directories = sorted(each for each in options.directory.iterdir() if (each / ORIGIN_FILE).exists())
    with ThreadPoolExecutor(options.jobs) as threads:
        for finding in threads.map(examine, directories[: options.most]):
            reason = excuse(finding) if finding.problems else None
            print(finding, *([] if reason is None else [f"    expected: {reason}"]), sep="\n", flush=True)
            failed += bool(finding.problems) and reason is None
            excused += reason is not None
            taken += not finding.problems
            if options.remove and not finding.problems:
                shutil.rmtree(finding.directory)
    print(f"{taken} directories taken, {excused} expected exceptions, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
