"""Kills a mirror maker and both of its clusters again and again, and looks for every record in the copy.

Run ``python -m tests.chaos.mirror_maker_rounds --rounds 20 --ids 1000000``. Each round writes numbered
records with keys, timestamps and tombstones to the source while ``kalda legacy MirrorMaker`` copies them to
the target, and kills with ``kill -9`` the mirror maker, a leader of the source or a leader of the target. The
next round begins when all records of this one have arrived. With ``--tool mirror``, it is ``kalda mirror``
that copies, and records have headers, too, which cannot pass the old formats.

At the end each record is in the copy, with its key, value, timestamp and headers: at least once, and with
``kalda mirror`` exactly once and in order. The mirror maker ends in order after SIGTERM, and one that is
started again copies nothing more.
"""

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.testing import ProcessCluster
from tests.chaos.command_line import application_parser

PARTITIONS: Final = 4
TOPIC: Final = "numbers"
MODERN: Final = "mirror"
"""The tool `kalda mirror`; the other one is `kalda legacy MirrorMaker`."""
GROUP: Final = "mirror"
SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.min.session.timeout.ms": "500",
}
FIRST_TIMESTAMP: Final = 1_600_000_000_000
TOMBSTONES: Final = 10
"""Every tenth record deletes its key."""
ROUND_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
DAMAGES: Final = ("mirror maker", "source leader", "target leader")


def value_of(number: int) -> bytes | None:
    """Return the value of a record."""
    return None if number % TOMBSTONES == 0 else b"value of %012d" % number


def headers_of(number: int, *, has_headers: bool) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record."""
    return (("number", b"%d" % number), ("even", b"")) if has_headers and number % 2 == 0 else ()


class Copy:
    """Reads the copy and compares each record with what it has to be."""

    def __init__(self, bootstrap: str, topic: str, count: int, *, is_exact: bool) -> None:
        self.found: Final = bytearray(count)
        """How often each record is there, up to 255."""
        self.arrived = 0
        """The different records."""
        self.read = 0
        self.wrong: Final[list[str]] = []
        self._is_exact: Final = is_exact
        self._last: Final = [-1] * PARTITIONS
        """The last number in each partition."""
        self._consumer: Final = Consumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed"
        )
        self._consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        self._consumer.seek_to_beginning()

    def poll(self) -> int:
        """Read on; return how many different records there are."""
        # While a leader is gone, the next call asks again.
        with contextlib.suppress(ClientError):
            for record in self._consumer.poll(timeout_s=0.2, max_records=20_000):
                number = int(record.key or b"-1")
                self.read += 1
                headers = headers_of(number, has_headers=self._is_exact)
                expected = (value_of(number), FIRST_TIMESTAMP + number, headers)
                found = (record.value, record.timestamp_ms, tuple(record.headers))
                if found != expected:
                    self.wrong.append(f"record {number} came as {found}")
                if self._is_exact and number <= self._last[record.partition]:
                    self.wrong.append(f"record {number} came behind {self._last[record.partition]}")
                self._last[record.partition] = number
                self.arrived += not self.found[number]
                self.found[number] = min(self.found[number] + 1, 255)
        return self.arrived

    def close(self) -> None:
        """Close connections."""
        self._consumer.close()


class MirrorMakerProcess:
    """The command, started again after each kill."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments: Final = arguments
        self._log: Final = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def ensure(self) -> None:
        """Start the mirror maker unless it runs.

        Raises:
            AssertionError: it ended although nothing killed it.
        """
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            assert -signal.SIGKILL == code, f"the mirror maker ended with exit code {code}; see {self._log}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log)
        self.starts += 1

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """End it by SIGTERM; return the exit code."""
        assert self._process is not None, "it was started"
        process, self._process = self._process, None
        process.terminate()
        return process.wait(STOP_TIMEOUT_S)


class Rounds:
    """One run."""

    def __init__(
        self, options: argparse.Namespace, source: ProcessCluster, target: ProcessCluster, directory: Path
    ) -> None:
        self._options: Final = options
        self._source: Final = source
        self._target: Final = target
        self._rng: Final = random.Random(options.seed)
        self._happened: Final[Counter[str]] = Counter()
        self._count: Final = options.ids // options.rounds * options.rounds
        self._is_modern: Final = options.tool == MODERN
        arguments = self._modern_arguments(directory) if self._is_modern else self._arguments(directory)
        self._mirror: Final = MirrorMakerProcess(arguments, directory / "mirror.log")

    def run(self) -> list[str]:
        """Run all rounds; return what is wrong."""
        copied = f"A.{TOPIC}" if self._is_modern else TOPIC
        for cluster, topic in ((self._source, TOPIC), (self._target, copied)):
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                admin.create_topics([NewTopic(topic, partitions=PARTITIONS)])
        copy = Copy(self._target.bootstrap, copied, self._count, is_exact=self._is_modern)
        with contextlib.closing(copy):
            try:
                return [*self._rounds(copy), *copy.wrong[:10]]
            finally:
                self._mirror.kill()

    def _rounds(self, copy: Copy) -> Iterator[str]:
        began = time.monotonic()
        per_round = self._count // self._options.rounds
        written = 0
        for number in range(self._options.rounds):
            self._mirror.ensure()
            damage = DAMAGES[number % len(DAMAGES)]
            started = time.monotonic()
            with Producer(bootstrap_servers=self._source.bootstrap, linger_ms=20) as producer:
                for each in range(written, written + per_round):
                    producer.send(
                        TOPIC,
                        value_of(each),
                        key=b"%d" % each,
                        timestamp_ms=FIRST_TIMESTAMP + each,
                        headers=headers_of(each, has_headers=self._is_modern),
                    )
                    if each == written + per_round // 2:
                        self._strike(damage)
            written += per_round
            while copy.poll() < written:
                if time.monotonic() - started > ROUND_TIMEOUT_S:
                    yield f"round {number}, {damage}: only {copy.arrived} of {written} records came"
                    return
                self._mirror.ensure()
            self._happened[damage] += 1
            print(f"round {number}: {damage}: {time.monotonic() - started:.1f} s", flush=True)
        yield from self._end(copy, time.monotonic() - began)

    def _strike(self, damage: str) -> None:
        # When the copy has begun with the records of this round, and before it is done with them.
        time.sleep(self._rng.uniform(0.0, 0.5))
        if damage == "mirror maker":
            self._mirror.kill()
            self._mirror.ensure()
            return
        cluster = self._source if damage == "source leader" else self._target
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            topic = f"A.{TOPIC}" if self._is_modern and cluster is self._target else TOPIC
            partitions = admin.describe_topics([topic])[topic].partitions
        leaders = sorted({each.leader_id for each in partitions if each.leader_id >= 0})
        victim = self._rng.choice(leaders)
        cluster.kill(victim)
        time.sleep(self._rng.uniform(0.0, 1.0))
        cluster.start(victim)

    def _end(self, copy: Copy, seconds: float) -> Iterator[str]:
        if code := self._mirror.stop():
            yield f"the mirror maker ended with exit code {code} after SIGTERM"
        copy.poll()
        before = copy.read
        self._mirror.ensure()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            copy.poll()
        if code := self._mirror.stop():
            yield f"the mirror maker ended with exit code {code} after its second SIGTERM"
        if self._is_modern and copy.read != copy.arrived:
            yield f"{copy.read - copy.arrived} records are in the copy twice"
        if copy.read != before:
            yield f"{copy.read - before} records were copied again after an orderly end"
        print(f"happened: {dict(sorted(self._happened.items()))}")
        print(
            f"{sum(self._happened.values())} kills, seed {self._options.seed}: {copy.arrived} of "
            f"{self._count} records arrived, {copy.read - copy.arrived} of them again, "
            f"{self._mirror.starts} starts, {seconds:.0f} s"
        )

    def _modern_arguments(self, directory: Path) -> list[str]:
        file = directory / "connect-mirror-maker.properties"
        file.write_text(
            f"clusters=A,B\nA.bootstrap.servers={self._source.bootstrap}\n"
            f"B.bootstrap.servers={self._target.bootstrap}\nA->B.enabled=true\nA->B.topics={TOPIC}\n"
            "B.exactly.once.source.support=enabled\nemit.checkpoints.interval.seconds=1\n"
            f"producer.compression.type={self._options.codec}\n"
        )
        return [sys.executable, "-m", "kalda", "mirror", "run", str(file)]

    def _arguments(self, directory: Path) -> list[str]:
        consumer, producer = directory / "consumer.properties", directory / "producer.properties"
        if self._options.consumer == "old":
            consumer.write_text(
                f"zk.connect={self._source.zookeeper}\ngroupid={GROUP}\nautooffset.reset=smallest\n"
                "zk.sessiontimeout.ms=3000\nrebalance.backoff.ms=500\nrebalance.max.retries=30\n"
                f"offsets.storage={self._options.storage}\ndual.commit.enabled=false\n"
            )
        else:
            consumer.write_text(
                f"bootstrap.servers={self._source.bootstrap}\ngroup.id={GROUP}\nauto.offset.reset=earliest\n"
                "session.timeout.ms=1500\nheartbeat.interval.ms=300\n"
            )
        if self._options.producer == "old":
            producer.write_text(
                f"metadata.broker.list={self._target.bootstrap}\ncompression.codec={self._options.codec}\n"
                "request.timeout.ms=3000\nsocket.timeout.ms=5000\n"
            )
        else:
            producer.write_text(
                f"bootstrap.servers={self._target.bootstrap}\ncompression.type={self._options.codec}\n"
            )
        files = ["--consumer.config", str(consumer), "--producer.config", str(producer)]
        streams = ["--num.streams", "2", "--num.producers", "2"]
        rest = ["--whitelist", TOPIC, "--offset.commit.interval.ms", "1000"]
        return [sys.executable, "-m", "kalda", "legacy", "MirrorMaker", *files, *streams, *rest]


def main() -> int:
    """Run the rounds; exit code 1 if a record was lost."""
    parser = application_parser(__doc__.splitlines()[0], rounds=20, ids=1_000_000)
    parser.add_argument("--tool", choices=("MirrorMaker", MODERN), default="MirrorMaker")
    parser.add_argument("--consumer", choices=("old", "new"), default="old", help="the mirror's consumers")
    parser.add_argument(
        "--storage", choices=("zookeeper", "kafka"), default="zookeeper", help="of old offsets"
    )
    parser.add_argument("--producer", choices=("old", "new"), default="old", help="the mirror's producer")
    parser.add_argument("--codec", choices=("none", "gzip", "snappy", "lz4"), default="none")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        source = stack.enter_context(ProcessCluster(directory / "source", brokers=3, settings=SETTINGS))
        target = stack.enter_context(ProcessCluster(directory / "target", brokers=3, settings=SETTINGS))
        found = Rounds(options, source, target, directory).run()
    for each in found:
        print(each)
    print("FAILED" if found else "ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
