"""Transactional producers of three clients behind one face, and a reader of what is committed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

T = TypeVar("T")
TIMEOUT_SECONDS = 30


class TransactionalProducer(Protocol):
    """What the tests do with a producer; every method raises the client's own errors."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: str) -> None: ...

    def flush(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
            }
        )
        self._producer.init_transactions(TIMEOUT_SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value)

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_SECONDS)

    def close(self) -> None:
        self._producer.purge()


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str) -> None:
        self._producer.send(topic, value.encode())

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(0)


class AiokafkaProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = asyncio.new_event_loop()

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_SECONDS))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: str) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode()))

    def flush(self) -> None:
        self._run(self._producer.flush())

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.close()


MakeProducer = Callable[[str, str, int], TransactionalProducer]

PRODUCERS: dict[str, MakeProducer] = {
    "confluent": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
}


def read_all(bootstrap: str, topic: str, partitions: int, *, committed: bool) -> list[str]:
    """Read everything that is there at present, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[str] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None, f"{len(ended)} of {partitions} partitions were read"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            values.append(message.value().decode())
    consumer.close()
    return values
