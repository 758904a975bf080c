"""Kill leaders and gateways under streams and writes with keys; no reader loses or doubles an event.

Run ``python -m tests.chaos.gateway_rounds --rounds 100``. Two processes of `kalda http` stand beside three
brokers. Writers repeat each request with its ``Idempotency-Key`` until it is answered, at either gateway.
Readers come back with their last event id, at either gateway, whenever their stream breaks. In each round one
process is killed: a broker that leads a partition, or a gateway. In the end each number that a writer got an
answer for is in the topic once, at the place of the answer, and each reader has seen exactly the topic.
"""

import http.client
import json
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kalda import Admin, Consumer, NewTopic, TopicPartition
from kalda.testing import ProcessCluster
from tests.chaos.command_line import rounds_parser
from tests.http_server import HttpProcess

TOPIC = "gateway-rounds"
PARTITIONS = 3
WRITERS = 2
READERS = 4
PROGRESS_SECONDS = 180.0
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass
class Writer:
    """Posts numbers, each with a key of its own, until the gateway answers."""

    name: str
    gateways: list[HttpProcess]
    random: random.Random
    is_over: threading.Event
    acknowledged: dict[str, Place] = field(default_factory=dict)
    tries: int = 0
    errors: list[str] = field(default_factory=list)

    def run(self) -> None:
        number = 0
        connection: http.client.HTTPConnection | None = None
        while not self.is_over.is_set():
            value = f"{self.name}-{number}"
            number += 1
            while True:
                self.tries += 1
                try:
                    if connection is None or self.random.random() < 0.02:
                        if connection is not None:
                            connection.close()
                        gateway = self.random.choice(self.gateways)
                        connection = http.client.HTTPConnection(gateway.address, timeout=90)
                    place = self._post(connection, value)
                except (OSError, http.client.HTTPException):
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.05)
                    continue
                if place is None:
                    time.sleep(0.05)
                    continue
                self.acknowledged[value] = place
                # A load that leaves the machine to those that come back after a kill.
                time.sleep(0.01)
                break
        if connection is not None:
            connection.close()

    def _post(self, connection: http.client.HTTPConnection, value: str) -> Place | None:
        headers = {"Idempotency-Key": value, "Content-Type": "application/json"}
        connection.request("POST", f"/v1/topics/{TOPIC}?key={value}", json.dumps(value), headers)
        response = connection.getresponse()
        body = response.read()
        if response.status == 200:
            (record,) = json.loads(body)["records"]
            return record["partition"], record["offset"]
        if response.status < 500:
            self.errors.append(f"{value}: {response.status} {body.decode()}")
        return None


@dataclass
class Reader:
    """Reads a stream, and comes back with the last id whenever it breaks."""

    gateways: list[HttpProcess]
    random: random.Random
    is_over: threading.Event
    seen: list[tuple[Place, str]] = field(default_factory=list)
    connections: int = 0
    last_id: str | None = None
    errors: list[str] = field(default_factory=list)

    def run(self) -> None:
        while not self.is_over.is_set():
            gateway = self.random.choice(self.gateways)
            try:
                self._stream(gateway.address)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(self.random.uniform(0.02, 0.2))

    def _stream(self, address: str) -> None:
        # Longer than two heartbeats; a stream that says nothing for so long is dead.
        connection = http.client.HTTPConnection(address, timeout=12)
        try:
            headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
            connection.request("GET", f"/v1/topics/{TOPIC}/stream?from=beginning", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                if response.status < 500:
                    self.errors.append(f"{response.status} {response.read().decode()}")
                time.sleep(0.1)
                return
            self.connections += 1
            fields: dict[str, str] = {}
            while not self.is_over.is_set() and (line := response.readline()):
                name, _, text = line.decode().rstrip("\n").partition(": ")
                if line != b"\n":
                    fields[name] = text
                    continue
                if "event" in fields:
                    self.errors.append(str(fields))
                elif "data" in fields:
                    record = json.loads(fields["data"])
                    self.seen.append(((record["partition"], record["offset"]), record["value"]))
                # As a browser does: the id counts when the event is whole.
                self.last_id = fields.get("id", self.last_id)
                fields = {}
                if self.random.random() < 0.0005:
                    return
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did and found."""

    rounds: int
    acknowledged: int
    tries: int
    connections: int


def run(rounds: int, seed: int, directory: Path) -> Report:
    """Run the rounds; an AssertionError names what was lost or doubled, and the seed."""
    choice = random.Random(seed)
    is_over, readers_over = threading.Event(), threading.Event()
    settings = {"http.stream.heartbeat.ms": "2000", "http.idempotency.partitions": "4"}
    with ProcessCluster(
        directory / "cluster", brokers=3, settings=SETTINGS, start_timeout_seconds=300.0
    ) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS, replication_factor=3)])
        gateways = [HttpProcess(cluster, directory / f"gateway-{number}", settings) for number in range(2)]
        writers = [
            Writer(f"w{number}", gateways, random.Random(choice.random()), is_over)
            for number in range(WRITERS)
        ]
        readers = [Reader(gateways, random.Random(choice.random()), readers_over) for _ in range(READERS)]
        runs = [*(each.run for each in writers), *(each.run for each in readers)]
        threads = [threading.Thread(target=run) for run in runs]
        try:
            for gateway in gateways:
                gateway.start()
            for thread in threads:
                thread.start()
            for number in range(rounds):
                _wait_progress(writers, readers, seed)
                time.sleep(choice.uniform(0.0, 0.5))
                _kill_one(number, choice, cluster, gateways)
            _wait_progress(writers, readers, seed)
            is_over.set()
            for thread in threads[:WRITERS]:
                thread.join()
            stored = _stored(cluster.bootstrap)
            _wait_read(readers, len(stored), seed)
        finally:
            is_over.set()
            readers_over.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            for gateway in gateways:
                if gateway.process is not None:
                    gateway.stop()
        _check(writers, readers, stored, seed)
    return Report(
        rounds,
        sum(len(each.acknowledged) for each in writers),
        sum(each.tries for each in writers),
        sum(each.connections for each in readers),
    )


def _kill_one(
    number: int, choice: random.Random, cluster: ProcessCluster, gateways: list[HttpProcess]
) -> None:
    if number % 2:
        gateway = choice.choice(gateways)
        gateway.kill()
        gateway.start()
        return
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        described = admin.describe_topics([TOPIC])[TOPIC]
    broker_id = choice.choice([each.leader_id for each in described.partitions if each.has_leader] or [0])
    cluster.kill(broker_id)
    time.sleep(choice.uniform(0.0, 1.0))
    cluster.start(broker_id)


def _wait_progress(writers: list[Writer], readers: list[Reader], seed: int) -> None:
    """Wait until each writer has further answers, and each reader further events."""
    before = [len(each.acknowledged) for each in writers], [len(each.seen) for each in readers]
    deadline = time.monotonic() + PROGRESS_SECONDS
    while True:
        now = [len(each.acknowledged) for each in writers], [len(each.seen) for each in readers]
        if all(b > a + 5 for a, b in zip(before[0], now[0], strict=True)) and all(
            b > a + 5 for a, b in zip(before[1], now[1], strict=True)
        ):
            return
        assert time.monotonic() < deadline, f"seed {seed}: no progress from {before} to {now}"
        time.sleep(0.02)


def _wait_read(readers: list[Reader], count: int, seed: int) -> None:
    deadline = time.monotonic() + PROGRESS_SECONDS
    while any(len(each.seen) < count for each in readers):
        seen = [len(each.seen) for each in readers]
        assert time.monotonic() < deadline, f"seed {seed}: the readers have {seen} of {count} events"
        time.sleep(0.05)


def _stored(bootstrap: str) -> dict[Place, str]:
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: dict[Place, str] = {}
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for record in consumer.poll(1.0):
                found[record.partition, record.offset] = json.loads(record.value or b"")
    return found


def _check(writers: list[Writer], readers: list[Reader], stored: dict[Place, str], seed: int) -> None:
    for writer in writers:
        assert not writer.errors, f"seed {seed}: {writer.errors[:3]}"
        for value, place in writer.acknowledged.items():
            found = stored.get(place)
            assert value == found, f"seed {seed}: {place} was answered for {value} and has {found}"
    values = list(stored.values())
    doubled = [value for value, count in Counter(values).items() if count > 1]
    assert not doubled, f"seed {seed}: written twice: {doubled[:5]}"
    for number, reader in enumerate(readers):
        assert not reader.errors, f"seed {seed}: reader {number}: {reader.errors[:3]}"
        places = [place for place, _ in reader.seen]
        for partition in range(PARTITIONS):
            offsets = [offset for each, offset in places if each == partition]
            assert offsets == sorted(set(offsets)), (
                f"seed {seed}: reader {number} has events twice or out of order"
            )
        missing = sorted(stored.keys() - set(places))
        assert not missing, f"seed {seed}: reader {number} misses {missing[:5]}"
        assert stored == dict(reader.seen), f"seed {seed}: reader {number} has other events"


def main() -> None:
    """Run from the command line."""
    options = rounds_parser(__doc__, 100).parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kalda-gateway-") as directory:
        report = run(options.rounds, options.seed, Path(directory))
    print(
        f"{report.rounds} kills of leaders and gateways: {report.acknowledged} requests with keys written "
        f"once, in {report.tries} tries; {READERS} readers over {report.connections} connections lost and "
        "doubled nothing"
    )


if __name__ == "__main__":
    main()
