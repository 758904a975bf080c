"""A worker of a share group, for `share_rounds`: it notes each delivery on stdout, then acknowledges it.

A line has the partition, the offset, the delivery count, what the worker does, and the time in milliseconds.
Every 50th number is rejected, and some are released at their first delivery; all others are accepted.
"""

import argparse
import contextlib
import os
import sys
import time
from typing import Final

import confluent_kafka

from kalda import AcknowledgeType, ClientError, ShareConsumer
from tests.chaos.copier_clients import KALDA, LIBRDKAFKA

REJECT_EVERY: Final = 50
RELEASE_EVERY: Final = 20
COMMIT_SECONDS: Final = 10.0
ACCEPT, RELEASE, REJECT = "accept", "release", "reject"


def decide(value: bytes | None, deliveries: int) -> str:
    """Return what to do with a record.

    >>> [decide(value, 1) for value in (b"100", b"21", b"22")], decide(b"21", 2)
    (['reject', 'release', 'accept'], 'accept')
    """
    number = int(value or b"0")
    if number % REJECT_EVERY == 0:
        return REJECT
    return RELEASE if number % RELEASE_EVERY == 1 and deliveries == 1 else ACCEPT


def note(partition: int, offset: int, deliveries: int, outcome: str) -> None:
    """Write a line at once: the process may be killed at any time."""
    os.write(1, b"%d %d %d %s %d\n" % (partition, offset, deliveries, outcome.encode(), time.time() * 1000))


def run_kalda(bootstrap: str, topic: str, group: str) -> None:
    """Work with Kalda's client."""
    kinds = {
        ACCEPT: AcknowledgeType.ACCEPT,
        RELEASE: AcknowledgeType.RELEASE,
        REJECT: AcknowledgeType.REJECT,
    }
    with ShareConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode="explicit"
    ) as consumer:
        while True:
            try:
                for record in consumer.poll(1.0, max_records=50):
                    outcome = decide(record.value, record.delivery_count)
                    note(record.partition, record.offset, record.delivery_count, outcome)
                    consumer.acknowledge(record, kinds[outcome])
                consumer.commit(timeout_s=COMMIT_SECONDS)
            except ClientError as error:
                print(repr(error), file=sys.stderr, flush=True)


def run_librdkafka(bootstrap: str, topic: str, group: str) -> None:
    """Work with confluent-kafka's client."""
    kinds = {
        ACCEPT: confluent_kafka.AcknowledgeType.ACCEPT,
        RELEASE: confluent_kafka.AcknowledgeType.RELEASE,
        REJECT: confluent_kafka.AcknowledgeType.REJECT,
    }
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 50,
        }
    )
    consumer.subscribe([topic])
    with contextlib.closing(consumer):
        while True:
            try:
                for message in consumer.poll(1.0):
                    if message.error() is not None:
                        print(message.error(), file=sys.stderr, flush=True)
                        continue
                    outcome = decide(message.value(), message.delivery_count())
                    note(message.partition(), message.offset(), message.delivery_count(), outcome)
                    consumer.acknowledge(message, kinds[outcome])
                consumer.commit_sync(COMMIT_SECONDS)
            except confluent_kafka.KafkaException as error:
                print(repr(error), file=sys.stderr, flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=(KALDA, LIBRDKAFKA), required=True)
    for name in ("bootstrap", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    run = run_kalda if options.client == KALDA else run_librdkafka
    run(options.bootstrap, options.topic, options.group)


if __name__ == "__main__":
    main()
