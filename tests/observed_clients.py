"""The clients of the observed cluster: ``python -m tests.observed_clients BOOTSTRAP BROKERS``.

The program feeds the cluster and joins a group, then writes a line. For each line that it reads, it works
some more and writes another. It ends with its standard input.
"""

import contextlib
import sys
import time

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

import kalda
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity

TOPIC = "orders"
PARTITIONS = 3
GROUP = "billing"
SHARE_GROUP = "packers"
DONE = "done\n"
"""The line."""

_RECORDS = 300


def main(bootstrap: str, brokers: int) -> None:
    """Run the clients."""
    _set_quotas(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, brokers)]).values():
        created.result(30)
    _produce(bootstrap)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with contextlib.closing(consumer), contextlib.closing(_sharing(bootstrap)):
        consumer.subscribe([TOPIC])
        for _ in range(_RECORDS // 2):
            message = consumer.poll(30)
            assert message is not None, "no records within 30 s"
            assert message.error() is None, message.error()
        consumer.commit(asynchronous=False)
        _fail_once(bootstrap)
        _convert_once(bootstrap)
        _tell()
        for _ in sys.stdin:
            _work(bootstrap, consumer)
            _tell()


def _tell() -> None:
    sys.stdout.write(DONE)
    sys.stdout.flush()


def _work(bootstrap: str, consumer: confluent_kafka.Consumer) -> None:
    """Produce, fetch and commit some more."""
    _produce(bootstrap)
    for _ in range(20):
        consumer.poll(0.1)
    consumer.commit(asynchronous=False)


def _sharing(bootstrap: str) -> confluent_kafka.ShareConsumer:
    """Return a member of a share group that has acquired records."""
    earliest = kalda.AlterConfigOp.set("share.auto.offset.reset", "earliest")
    with kalda.Admin(bootstrap_servers=bootstrap) as admin:
        admin.incremental_alter_configs({kalda.ConfigResource.group(SHARE_GROUP): [earliest]})
    consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": bootstrap, "group.id": SHARE_GROUP})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + 60
    while not consumer.poll(1):
        assert time.monotonic() < deadline, "no records for the share group within 60 s"
    return consumer


def _produce(bootstrap: str) -> None:
    """Send records to the topic, and wait until they are there."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(_RECORDS):
        producer.produce(TOPIC, key=b"%d" % number, value=b"x" * 100)
    assert 0 == producer.flush(30)


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


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
