"""Transactional producers of four clients behind one face, and a reader of what is committed."""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

import kalda
from kalda.clients.errors import ProducerFencedError, TransactionAbortableError

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

    def is_fenced(self, error: Exception) -> bool:
        """Whether the client says by this error that another producer has its id."""
        ...


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
        # Its own `close` fails where it was fenced, and waits where something is left to be sent.
        self._producer.purge()
        del self._producer

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and bool(error.args[0].code() == KafkaError._FENCED)


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        try:
            self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

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
        self._producer.close(TIMEOUT_SECONDS)

    def is_fenced(self, error: Exception) -> bool:
        # It says so only in the text of what it raises.
        return isinstance(error, kafka.errors.KafkaError) and "ProducerFencedError" in str(error)


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
        try:
            self._run(self._producer.stop())
        finally:
            self._loop.close()
            # Its tasks keep errors that nobody asked for, which the collector reports. It is to do so here:
            # where it comes in the middle of an import, CPython 3.11 fails to parse the module.
            del self._producer
            gc.collect()

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, aiokafka.errors.ProducerFenced)


class KaldaProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kalda.Producer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        try:
            self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str) -> None:
        self._producer.send(topic, value.encode())

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_SECONDS)

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except TransactionAbortableError:
            # A partition's leader knows only that the epoch is old; the coordinator says why.
            self._producer.abort_transaction()
            raise

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(TIMEOUT_SECONDS)

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProducerFencedError)


MakeProducer = Callable[[str, str, int], TransactionalProducer]

PRODUCERS: dict[str, MakeProducer] = {
    "confluent": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
    "kalda": KaldaProducer,
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
    values: list[str] = []
    ended: set[int] = set()
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ended) < partitions:
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"{len(ended)} of {partitions} partitions were read"
            error = message.error()
            if error is None:
                values.append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            # Of anything else librdkafka only tells; it goes on by itself.
    return values
