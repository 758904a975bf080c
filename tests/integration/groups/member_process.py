"""A member of a group in a process of its own, so that it can die as processes do.

    python member_process.py '{"client": "confluent", "bootstrap": ..., "group": ..., "topic": ..., ...}'

It tells what happens to it as lines of JSON: ``{"assigned": [0, 2]}`` whenever its partitions changed,
``{"records": [[partition, offset, "value"], ...]}`` when it has processed and committed some. SIGTERM makes
it leave the group; SIGKILL is a crash.
"""

import asyncio
import importlib
import json
import signal
import sys
from typing import Any

POLL_SECONDS = 0.1
ASSIGNORS = {
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
    "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
}
_is_ended = False


def tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def end(*_: object) -> None:
    global _is_ended
    _is_ended = True


class Teller:
    """Tells of partitions only when they changed."""

    def __init__(self) -> None:
        self._last: list[int] | None = None

    def assigned(self, partitions: list[int]) -> None:
        if partitions != self._last:
            self._last = partitions
            tell(assigned=partitions)


def run_confluent(options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if options.get("protocol") == "consumer":
        config["group.protocol"] = "consumer"
        if options.get("assignor"):
            config["group.remote.assignor"] = options["assignor"]
    else:
        config["session.timeout.ms"] = options["session_ms"]
        config["heartbeat.interval.ms"] = 200
        config["partition.assignment.strategy"] = options.get("assignor") or "range"
    if options.get("instance"):
        config["group.instance.id"] = options["instance"]
    consumer = Consumer(config)
    consumer.subscribe([options["topic"]])
    teller = Teller()
    while not _is_ended:
        messages = consumer.consume(500, POLL_SECONDS)
        if any(message.error() and message.error().code() == KafkaError._FATAL for message in messages):
            sys.exit("fenced")
        good = [message for message in messages if message.error() is None]
        if good:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                # A rebalance came between; whoever has the partitions now reads the records again.
                tell(refused=error.args[0].name())
                if error.args[0].code() == KafkaError._NO_OFFSET:
                    raise
            else:
                tell(records=[[each.partition(), each.offset(), each.value().decode()] for each in good])
        teller.assigned(sorted(each.partition for each in consumer.assignment()))
    consumer.close()


def consumer_options(package: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of kafka-python's consumer, which aiokafka's takes too."""
    module, _, name = ASSIGNORS[options.get("assignor") or "range"].rpartition(".")
    assignors = importlib.import_module(f"{package}.coordinator.assignors.{module}")
    return {
        "bootstrap_servers": options["bootstrap"],
        "group_id": options["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": options["session_ms"],
        "heartbeat_interval_ms": 200,
        "partition_assignment_strategy": [getattr(assignors, name)],
        "group_instance_id": options.get("instance"),
    }


def run_kafka_python(options: dict[str, Any]) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import CommitFailedError, KafkaError

    consumer = KafkaConsumer(options["topic"], **consumer_options("kafka", options))
    teller = Teller()
    while not _is_ended:
        found = consumer.poll(round(POLL_SECONDS * 1000))
        records = [each for batch in found.values() for each in batch]
        if records:
            try:
                consumer.commit()
            except (CommitFailedError, KafkaError) as error:
                tell(refused=type(error).__name__)
            else:
                tell(records=[[each.partition, each.offset, each.value.decode()] for each in records])
        teller.assigned(sorted(each.partition for each in consumer.assignment()))
    consumer.close()


async def run_aiokafka(options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(options["topic"], **consumer_options("aiokafka", options))
    await consumer.start()
    teller = Teller()
    while not _is_ended:
        found = await consumer.getmany(timeout_ms=round(POLL_SECONDS * 1000))
        records = [each for batch in found.values() for each in batch]
        if records:
            try:
                await consumer.commit()
            except KafkaError as error:
                tell(refused=type(error).__name__)
            else:
                tell(records=[[each.partition, each.offset, each.value.decode()] for each in records])
        teller.assigned(sorted(each.partition for each in consumer.assignment()))
    await consumer.stop()


def run_kalda(options: dict[str, Any]) -> None:
    from kalda.clients.consumer.consumer import Consumer
    from kalda.clients.consumer.group.errors import (
        CommitFailedError,
        FencedInstanceIdError,
        RebalanceInProgressError,
    )

    config: dict[str, Any] = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": bool(options.get("auto_commit")),
    }
    if options.get("protocol") == "consumer":
        config["group.protocol"] = "consumer"
        if options.get("assignor"):
            config["group.remote.assignor"] = options["assignor"]
    else:
        config["session.timeout.ms"] = options["session_ms"]
        config["heartbeat.interval.ms"] = 200
        config["partition.assignment.strategy"] = options.get("assignor") or "range"
    if options.get("instance"):
        config["group.instance.id"] = options["instance"]
    config |= options.get("settings", {})
    consumer = Consumer.from_config(config)
    consumer.subscribe([options["topic"]])
    teller = Teller()
    # A cooperative member goes on with its partitions in a rebalance; a later commit covers these records.
    processed: list[Any] = []
    while not _is_ended:
        try:
            records = consumer.poll(timeout_s=POLL_SECONDS)
        except FencedInstanceIdError:
            sys.exit("fenced")
        if records:
            try:
                if not options.get("auto_commit"):
                    consumer.commit()
            except RebalanceInProgressError:
                tell(refused="rebalance in progress")
                processed += records
            except CommitFailedError:
                tell(refused="removed from the group")
                processed.clear()
            else:
                kept = set(consumer.assignment())
                records = [each for each in processed if each.topic_partition in kept] + list(records)
                processed.clear()
                tell(records=[[each.partition, each.offset, each.value.decode()] for each in records])
        teller.assigned(sorted(each.partition for each in consumer.assignment()))
    consumer.close()


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    options = json.loads(sys.argv[1])
    if options["client"] == "confluent":
        run_confluent(options)
    elif options["client"] == "kalda":
        run_kalda(options)
    elif options["client"] == "kafka-python":
        run_kafka_python(options)
    else:
        asyncio.run(run_aiokafka(options))


if __name__ == "__main__":
    main()
