"""Copies one topic into another in transactions, in a process of its own, so that it can die anywhere.

    python copier_process.py '{"client": "confluent", "bootstrap": ..., "group": ..., "source": ..., ...}'

Each transaction holds the copies of what was read and the offsets behind it. confluent-kafka shares the
partitions out by a group, and is fenced by the member's generation (KIP-447). aiokafka sends no generation
and does not wait for offsets that are about to be committed, so a partition always belongs to one
transactional id, whose next life ends what the one before had begun. It writes ``copied`` after each
transaction. SIGTERM ends it between two.
"""

import asyncio
import contextlib
import json
import signal
import sys
from typing import Any

BATCH = 20
SOCKET_MS = 8_000
"""A request to a broker that died may be waited for so long; by default it is a minute."""
_is_ended = False


def end(*_: object) -> None:
    global _is_ended
    _is_ended = True


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_confluent(options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    consumer = Consumer(
        {
            "bootstrap.servers": options["bootstrap"],
            "group.id": options["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 200,
            "socket.timeout.ms": SOCKET_MS,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "transactional.id": options["transactional_id"],
            "transaction.timeout.ms": 10_000,
            "socket.timeout.ms": SOCKET_MS,
        }
    )
    producer.init_transactions(30)
    consumer.subscribe([options["source"]])
    while not _is_ended:
        messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(options["target"], message.value(), message.key())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            producer.commit_transaction(30)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            # The group rebalanced in between: somebody else copies these.
            producer.abort_transaction(30)
            rewind_confluent(consumer)
        else:
            tell("copied")
    consumer.close()


def rewind_confluent(consumer: Any) -> None:
    from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

    assigned = consumer.assignment()
    for each in consumer.committed(assigned, timeout=30) if assigned else ():
        offset = each.offset if each.offset >= 0 else OFFSET_BEGINNING
        with contextlib.suppress(KafkaException):
            consumer.seek(TopicPartition(each.topic, each.partition, offset))


async def run_aiokafka(options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError, ProducerFenced

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.assign([TopicPartition(options["source"], number) for number in options["partitions"]])
    producer = AIOKafkaProducer(
        bootstrap_servers=options["bootstrap"],
        transactional_id=options["transactional_id"],
        transaction_timeout_ms=10_000,
    )
    # In this order: the offsets of the life before are final only then.
    await producer.start()
    await consumer.start()
    while not _is_ended:
        found = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        if not found:
            continue
        offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
        try:
            async with producer.transaction():
                for records in found.values():
                    for record in records:
                        await producer.send(options["target"], record.value, record.key)
                await producer.send_offsets_to_transaction(offsets, options["group"])
        except ProducerFenced:
            raise
        except KafkaError:
            await consumer.seek_to_committed()
        else:
            tell("copied")
    await consumer.stop()
    await producer.stop()


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    options = json.loads(sys.argv[1])
    if options["client"] == "confluent":
        run_confluent(options)
    else:
        asyncio.run(run_aiokafka(options))


if __name__ == "__main__":
    main()
