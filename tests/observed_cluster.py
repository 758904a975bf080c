"""A cluster that does a little of everything, so that each of its metrics has something to show.

Two groups: one commits half of what there is, so that it lags, and one is up to date and has a member.
"""

import contextlib
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

import kalda
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.testing import KaldaProcess
from kalda.testing.process import free_ports_in_a_row

TOPIC = "orders"
PARTITIONS = 3
GROUP = "billing"
RECORDS = 300

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line of a scrape."""

    name: str
    labels: dict[str, str] = field(compare=False)
    value: float


@dataclass
class ObservedCluster:
    """Running brokers, and where their metrics are."""

    bootstrap: str
    metrics_ports: list[int]
    consumer: confluent_kafka.Consumer

    def scrape(self, broker: int = 0) -> str:
        """Return the metrics of one broker as text."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.metrics_ports[broker]}/metrics", timeout=10
        ) as answer:
            return str(answer.read().decode())

    def samples(self) -> list[Sample]:
        """Return the samples of all brokers."""
        return [sample for number in range(len(self.metrics_ports)) for sample in parse(self.scrape(number))]

    def work(self) -> None:
        """Produce, fetch and commit some more."""
        produce(self.bootstrap, RECORDS)
        for _ in range(20):
            self.consumer.poll(0.1)
        self.consumer.commit(asynchronous=False)


def parse(text: str) -> list[Sample]:
    """Read the samples of a scrape."""
    samples = []
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match is not None, line
            labels = dict(_LABEL.findall(match[2] or ""))
            samples.append(Sample(match[1], labels, float(match[3])))
    return samples


def produce(bootstrap: str, count: int) -> None:
    """Send records to the topic, and wait until they are there."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(TOPIC, key=b"%d" % number, value=b"x" * 100)
    assert 0 == producer.flush(30)


@contextlib.contextmanager
def observed_cluster(directory: Path, brokers: int = 3) -> Iterator[ObservedCluster]:
    """Start brokers, feed them, and have a consumer that stays in its group."""
    first_port = free_ports_in_a_row(brokers)
    settings = {
        "metrics.port": str(first_port),
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": str(brokers),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "6",
    }
    with KaldaProcess(directory, settings=settings, brokers=brokers, start_timeout_seconds=120) as process:
        _set_quotas(process.bootstrap)
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, brokers)]).values():
            created.result(30)
        produce(process.bootstrap, RECORDS)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": process.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([TOPIC])
            consumed = 0
            while consumed < RECORDS // 2:
                message = consumer.poll(30)
                assert message is not None, "no records within 30 s"
                assert message.error() is None, message.error()
                consumed += 1
            consumer.commit(asynchronous=False)
            _fail_once(process.bootstrap)
            _convert_once(process.bootstrap)
            yield ObservedCluster(process.bootstrap, [first_port + each for each in range(brokers)], consumer)
        finally:
            consumer.close()


def _set_quotas(bootstrap: str) -> None:
    """Bound every client, far above what it uses."""
    names = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    with kalda.Admin(bootstrap_servers=bootstrap) as admin:
        change = QuotaAlteration(quota_entity({"client-id": None}), dict.fromkeys(names, 1e12))
        admin.alter_client_quotas([change])


def _convert_once(bootstrap: str) -> None:
    """Have a broker convert the messages of a client of an old release."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, api_version=(0, 10, 0))
    producer.send(TOPIC, b"old").get(30)
    producer.close()


def _fail_once(bootstrap: str) -> None:
    """Have every broker count an error: a group that does not exist cannot be deleted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for number in range(12):
        for deleted in admin.delete_consumer_groups([f"no-such-group-{number}"]).values():
            with contextlib.suppress(confluent_kafka.KafkaException):
                deleted.result(30)
