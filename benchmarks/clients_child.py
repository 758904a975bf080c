"""One measurement of one client, in a process of its own: ``CLIENT VERB BOOTSTRAP TOPIC SIZE COUNT``.

It prints one JSON object: ``seconds`` of ``produce`` and ``consume``, ``p50_ms`` and ``p99_ms`` of
``acknowledged`` (until the broker's answer) and ``received`` (until the record is in a consumer's hands).
"""

import asyncio
import importlib
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any, Final

_TIMEOUT_SECONDS: Final = 120.0
_WARM_UP_ROUNDS: Final = 200


def values(size: int, count: int) -> list[bytes]:
    """Return `count` values; sizes vary by 40 %, because equal sizes flatter decoders."""
    generator = random.Random(7)
    data = generator.randbytes(2 * size)
    pool = [data[: generator.randint(size * 4 // 5, size * 6 // 5)] for _ in range(1_000)]
    return [pool[number % len(pool)] for number in range(count)]


def kalda_send(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Send record by record and keep every future."""
    from kalda import Producer

    data = values(size, count)
    with Producer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, linger_ms=5) as producer:
        producer.partitions_for(topic)
        send = producer.send
        begin = time.perf_counter()
        futures = [send(topic, value) for value in data]
        producer.flush(_TIMEOUT_SECONDS)
        seconds = time.perf_counter() - begin
        assert count == sum(future.result(0).offset >= 0 for future in futures)
    return seconds


def kafka_python_send(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Send record by record and keep every future."""
    from kafka import KafkaProducer

    data = values(size, count)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks=1,
        enable_idempotence=False,
        linger_ms=5,
        max_block_ms=int(_TIMEOUT_SECONDS * 1000),
    )
    producer.partitions_for(topic)
    send = producer.send
    begin = time.perf_counter()
    futures = [send(topic, value) for value in data]
    producer.flush(_TIMEOUT_SECONDS)
    seconds = time.perf_counter() - begin
    assert all(future.succeeded() for future in futures)
    producer.close()
    return seconds


def aiokafka_send(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Send record by record and keep every future."""
    from aiokafka import AIOKafkaProducer

    data = values(size, count)

    async def run() -> float:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=5)
        await producer.start()
        await producer.partitions_for(topic)
        send = producer.send
        begin = time.perf_counter()
        futures = [await send(topic, value) for value in data]
        await producer.flush()
        seconds = time.perf_counter() - begin
        assert all(future.result().offset >= 0 for future in futures)
        await producer.stop()
        return seconds

    return asyncio.run(run())


def kalda_send_arrow(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Send the rows in batches of 10,000."""
    import pyarrow as pa

    from kalda import Producer

    data = values(size, count)
    batches = [
        pa.record_batch({"value": pa.array(data[start : start + 10_000], pa.binary())})
        for start in range(0, count, 10_000)
    ]
    with Producer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, linger_ms=5) as producer:
        producer.partitions_for(topic)
        producer.send_arrow(topic, batches[0].slice(0, 1)).result(_TIMEOUT_SECONDS)  # imports what it needs
        begin = time.perf_counter()
        futures = [producer.send_arrow(topic, batch) for batch in batches]
        producer.flush(_TIMEOUT_SECONDS)
        seconds = time.perf_counter() - begin
        for future in futures:
            future.result(0)
    return seconds


def confluent_produce(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Produce record by record; only failures call back, so that Python does not bound the figure."""
    import confluent_kafka

    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            "error_cb": failed.append,
        }
    )
    data = values(size, count)
    producer.list_topics(topic, _TIMEOUT_SECONDS)
    produce = producer.produce
    begin = time.perf_counter()
    for value in data:
        produce(topic, value)
    left = producer.flush(_TIMEOUT_SECONDS)
    seconds = time.perf_counter() - begin
    if left or failed:
        raise RuntimeError(f"{left} messages were not acknowledged; errors: {failed[:3]}")
    return seconds


def kalda_records(bootstrap: str, topic: str, _size: int, count: int) -> float:
    """Iterate over the records."""
    from kalda import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        begin = time.perf_counter()
        for found, _record in enumerate(consumer, 1):
            if found == count:
                break
        return time.perf_counter() - begin


def kafka_python_records(bootstrap: str, topic: str, _size: int, count: int) -> float:
    """Iterate over the records."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    begin = time.perf_counter()
    for found, _record in enumerate(consumer, 1):
        if found == count:
            break
    seconds = time.perf_counter() - begin
    consumer.close()
    return seconds


def aiokafka_records(bootstrap: str, topic: str, _size: int, count: int) -> float:
    """Iterate over the records."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        begin = time.perf_counter()
        found = 0
        async for _record in consumer:
            found += 1
            if found == count:
                break
        seconds = time.perf_counter() - begin
        await consumer.stop()
        return seconds

    return asyncio.run(run())


def kalda_poll_arrow(bootstrap: str, topic: str, _size: int, count: int) -> float:
    """Take what is there as Arrow batches."""
    from kalda import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        # A program that reads columns imports this once.
        importlib.import_module("kalda.records.columnar")
        consumer.assign([TopicPartition(topic, 0)])
        begin = time.perf_counter()
        found = 0
        while found < count:
            batch = consumer.poll_arrow(timeout_s=_TIMEOUT_SECONDS, max_records=100_000)
            assert batch is not None, f"{found} of {count} records arrived"
            found += batch.num_rows
        return time.perf_counter() - begin


def confluent_consume(bootstrap: str, topic: str, _size: int, count: int) -> float:
    """Take what is there as lists of messages."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            # With its defaults librdkafka pauses for a second whenever 100,000 messages wait.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    begin = time.perf_counter()
    found = 0
    while found < count:
        batch = consumer.consume(10_000, timeout=1.0)
        found += len(batch)
    seconds = time.perf_counter() - begin
    consumer.close()
    return seconds


def kalda_acknowledged(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `send` to its result, one record at a time."""
    from kalda import Producer

    found = []
    value = bytes(size)
    with Producer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, linger_ms=0) as producer:
        for _ in range(count + _WARM_UP_ROUNDS):
            begin = time.perf_counter()
            producer.send(topic, value, partition=0).result(_TIMEOUT_SECONDS)
            found.append(time.perf_counter() - begin)
    return found


def confluent_acknowledged(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `produce` to its delivery report, one message at a time."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0})
    found = []
    value = bytes(size)
    for _ in range(count + _WARM_UP_ROUNDS):
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        left = producer.flush(_TIMEOUT_SECONDS)
        found.append(time.perf_counter() - begin)
        assert not left
    return found


def kalda_received(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `send` to the record in the consumer's hands, one at a time."""
    from kalda import Consumer, Producer, TopicPartition

    found = []
    value = bytes(size)
    with (
        Producer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, linger_ms=0) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        for _ in range(count + _WARM_UP_ROUNDS):
            begin = time.perf_counter()
            producer.send(topic, value, partition=0)
            records = consumer.poll(_TIMEOUT_SECONDS)
            found.append(time.perf_counter() - begin)
            assert len(records) == 1
    return found


def confluent_received(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `produce` to the message in the consumer's hands, one at a time."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0})
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    value = bytes(size)
    for _ in range(count + _WARM_UP_ROUNDS):
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        message = consumer.poll(_TIMEOUT_SECONDS)
        found.append(time.perf_counter() - begin)
        producer.poll(0)
        assert message is not None
        assert message.error() is None, message.error()
    consumer.close()
    producer.flush(_TIMEOUT_SECONDS)
    return found


def kalda_asyncio_acknowledged(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `send` to its result on one event loop, one record at a time."""
    from kalda import AsyncProducer

    value = bytes(size)

    async def run() -> list[float]:
        found = []
        async with AsyncProducer(
            bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, linger_ms=0
        ) as producer:
            for _ in range(count + _WARM_UP_ROUNDS):
                begin = time.perf_counter()
                await (await producer.send(topic, value, partition=0))
                found.append(time.perf_counter() - begin)
        return found

    return asyncio.run(run())


def aiokafka_acknowledged(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `send` to its result on one event loop, one record at a time."""
    from aiokafka import AIOKafkaProducer

    value = bytes(size)

    async def run() -> list[float]:
        found = []
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=0) as producer:
            for _ in range(count + _WARM_UP_ROUNDS):
                begin = time.perf_counter()
                await producer.send_and_wait(topic, value, partition=0)
                found.append(time.perf_counter() - begin)
        return found

    return asyncio.run(run())


def kalda_asyncio_received(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `send` to the record in the consumer's hands, one at a time."""
    from kalda import AsyncConsumer, AsyncProducer, TopicPartition

    value = bytes(size)

    async def run() -> list[float]:
        found = []
        async with (
            AsyncProducer(
                bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, linger_ms=0
            ) as producer,
            AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            await consumer.assign([TopicPartition(topic, 0)])
            for _ in range(count + _WARM_UP_ROUNDS):
                begin = time.perf_counter()
                await producer.send(topic, value, partition=0)
                records = await consumer.poll(_TIMEOUT_SECONDS)
                found.append(time.perf_counter() - begin)
                assert len(records) == 1
        return found

    return asyncio.run(run())


def aiokafka_received(bootstrap: str, topic: str, size: int, count: int) -> list[float]:
    """Return the seconds from `send` to the record in the consumer's hands, one at a time."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    value = bytes(size)

    async def run() -> list[float]:
        found = []
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, 0)])
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=0) as producer, consumer:
            for _ in range(count + _WARM_UP_ROUNDS):
                begin = time.perf_counter()
                await producer.send(topic, value, partition=0)
                await consumer.getone()
                found.append(time.perf_counter() - begin)
        return found

    return asyncio.run(run())


_THROUGHPUT: Final[dict[str, Callable[[str, str, int, int], float]]] = {
    "kalda send": kalda_send,
    "kafka-python send": kafka_python_send,
    "aiokafka send": aiokafka_send,
    "kalda send_arrow": kalda_send_arrow,
    "confluent produce": confluent_produce,
    "kalda records": kalda_records,
    "kafka-python records": kafka_python_records,
    "aiokafka records": aiokafka_records,
    "kalda poll_arrow": kalda_poll_arrow,
    "confluent consume": confluent_consume,
}
_LATENCY: Final[dict[tuple[str, str], Callable[[str, str, int, int], list[float]]]] = {
    ("kalda", "acknowledged"): kalda_acknowledged,
    ("confluent", "acknowledged"): confluent_acknowledged,
    ("kalda", "received"): kalda_received,
    ("confluent", "received"): confluent_received,
    ("kalda asyncio", "acknowledged"): kalda_asyncio_acknowledged,
    ("kalda asyncio", "received"): kalda_asyncio_received,
    ("aiokafka", "acknowledged"): aiokafka_acknowledged,
    ("aiokafka", "received"): aiokafka_received,
}


def main(arguments: list[str]) -> None:
    """Run one measurement and print its figures."""
    client, verb, bootstrap, topic, size, count = arguments
    result: dict[str, Any]
    if (client, verb) in _LATENCY:
        measure = _LATENCY[client, verb]
        seconds = sorted(measure(bootstrap, topic, int(size), int(count))[_WARM_UP_ROUNDS:])
        result = {
            "p50_ms": seconds[len(seconds) // 2] * 1000,
            "p99_ms": seconds[len(seconds) * 99 // 100] * 1000,
        }
    else:
        result = {"seconds": _THROUGHPUT[client](bootstrap, topic, int(size), int(count))}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
