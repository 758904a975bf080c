"""One interface for confluent-kafka, kafka-python and Kalda's clients: what the recipes ask of them."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import kafka.errors

import kalda

TIMEOUT_S = 60.0
"""Far above what any client needs, for a busy machine."""


class RefusedError(Exception):
    """A client raised an error; `code` is the broker's, None if the client has not got one from it."""

    def __init__(self, code: int | None, error: object) -> None:
        super().__init__(f"{code}: {error}")
        self.code = code


class Sender(ABC):
    """A producer."""

    @abstractmethod
    def send(self, topic: str, value: str, partition: int = 0) -> int:
        """Send a record and return its offset; raises `RefusedError`."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction; raises `RefusedError`."""


class Reader(ABC):
    """A member of a group that reads a topic."""

    @abstractmethod
    def poll(self) -> list[str]:
        """Return the values of some records."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the positions; raises `RefusedError`."""


class ConfluentSender(Sender):
    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.results: list[Any] = []

    def send(self, topic: str, value: str, partition: int = 0) -> int:
        self.results.clear()
        self.producer.produce(
            topic,
            value.encode(),
            partition=partition,
            on_delivery=lambda error, message: self.results.append((error, message)),
        )
        assert 0 == self.producer.flush(TIMEOUT_S)
        ((error, message),) = self.results
        if error is not None:
            raise RefusedError(error.code(), error)
        return int(message.offset())

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        try:
            self.producer.commit_transaction(TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise RefusedError(error.args[0].code(), error) from error


class ConfluentReader(Reader):
    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def poll(self) -> list[str]:
        return [
            message.value().decode() for message in self.consumer.consume(100, 0.1) if message.error() is None
        ]

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise RefusedError(error.args[0].code(), error) from error


class KafkaPythonSender(Sender):
    def __init__(self, producer: Any) -> None:
        self.producer = producer

    def send(self, topic: str, value: str, partition: int = 0) -> int:
        try:
            return int(self.producer.send(topic, value.encode(), partition=partition).get(TIMEOUT_S).offset)
        except kafka.errors.KafkaError as error:
            raise RefusedError(getattr(error, "errno", None), error) from error

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        try:
            self.producer.commit_transaction()
        except kafka.errors.KafkaError as error:
            raise RefusedError(getattr(error, "errno", None), error) from error


class KafkaPythonReader(Reader):
    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def poll(self) -> list[str]:
        found = self.consumer.poll(timeout_ms=100)
        return [record.value.decode() for records in found.values() for record in records]

    def commit(self) -> None:
        try:
            self.consumer.commit()
        except kafka.errors.KafkaError as error:
            raise RefusedError(getattr(error, "errno", None), error) from error


class OwnSender(Sender):
    def __init__(self, producer: Any) -> None:
        self.producer = producer

    def send(self, topic: str, value: str, partition: int = 0) -> int:
        try:
            future = self.producer.send(topic, value=value.encode(), partition=partition)
            return int(future.result(TIMEOUT_S).offset)
        except kalda.ClientError as error:
            raise RefusedError(getattr(error, "code", None), error) from error

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        try:
            self.producer.commit_transaction()
        except kalda.ClientError as error:
            raise RefusedError(getattr(error, "code", None), error) from error


class OwnReader(Reader):
    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def poll(self) -> list[str]:
        return [record.value.decode() for record in self.consumer.poll(timeout_s=0.1)]

    def commit(self) -> None:
        try:
            self.consumer.commit()
        except kalda.ClientError as error:
            raise RefusedError(getattr(error, "code", None), error) from error


class Client(ABC):
    """One library."""

    name: str

    @abstractmethod
    def sender(
        self, bootstrap: str, *, idempotent: bool = True, transactional_id: str | None = None
    ) -> contextlib.AbstractContextManager[Sender]:
        """Return a producer that waits for all in-sync replicas."""

    @abstractmethod
    def reader(self, bootstrap: str, topic: str, group: str) -> contextlib.AbstractContextManager[Reader]:
        """Return a consumer that joins a group, reads committed records and commits by hand."""


class Confluent(Client):
    name = "confluent-kafka"

    @contextlib.contextmanager
    def sender(
        self, bootstrap: str, *, idempotent: bool = True, transactional_id: str | None = None
    ) -> Iterator[Sender]:
        config: dict[str, Any] = {"bootstrap.servers": bootstrap, "acks": "all"}
        config |= {"enable.idempotence": idempotent, "linger.ms": 0}
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
        producer = confluent_kafka.Producer(config)
        try:
            if transactional_id is not None:
                producer.init_transactions(TIMEOUT_S)
            yield ConfluentSender(producer)
        finally:
            # A fenced producer cannot end its transaction.
            with contextlib.suppress(confluent_kafka.KafkaException):
                producer.close()

    @contextlib.contextmanager
    def reader(self, bootstrap: str, topic: str, group: str) -> Iterator[Reader]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        try:
            yield ConfluentReader(consumer)
        finally:
            consumer.close()


class KafkaPython(Client):
    name = "kafka-python"

    @contextlib.contextmanager
    def sender(
        self, bootstrap: str, *, idempotent: bool = True, transactional_id: str | None = None
    ) -> Iterator[Sender]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=idempotent,
            transactional_id=transactional_id,
        )
        if transactional_id is not None:
            producer.init_transactions()
        try:
            yield KafkaPythonSender(producer)
        finally:
            producer.close(5)

    @contextlib.contextmanager
    def reader(self, bootstrap: str, topic: str, group: str) -> Iterator[Reader]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            isolation_level="read_committed",
        )
        try:
            yield KafkaPythonReader(consumer)
        finally:
            consumer.close(autocommit=False)


class Own(Client):
    name = "kalda"

    @contextlib.contextmanager
    def sender(
        self, bootstrap: str, *, idempotent: bool = True, transactional_id: str | None = None
    ) -> Iterator[Sender]:
        producer = kalda.Producer(
            bootstrap_servers=bootstrap,
            acks="all",
            linger_ms=0,
            enable_idempotence=idempotent,
            transactional_id=transactional_id,
        )
        with producer:
            if transactional_id is not None:
                producer.init_transactions()
            yield OwnSender(producer)

    @contextlib.contextmanager
    def reader(self, bootstrap: str, topic: str, group: str) -> Iterator[Reader]:
        with kalda.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            isolation_level="read_committed",
        ) as consumer:
            yield OwnReader(consumer)


CLIENTS: list[Client] = [Confluent(), KafkaPython(), Own()]


def records_of(bootstrap: str, topic: str, count: int) -> list[str]:
    """Return all values of a partition's log, committed ones only; waits for `count`, then looks for more."""
    partition = kalda.TopicPartition(topic, 0)
    with kalda.Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        found: list[str] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [(record.value or b"").decode() for record in consumer.poll(timeout_s=0.1)]
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end and time.monotonic() < deadline:
            found += [(record.value or b"").decode() for record in consumer.poll(timeout_s=0.1)]
        return found


def read_until(reader: Reader, values: set[str]) -> list[str]:
    """Poll until all values have come; return what came, in order."""
    found: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not values <= set(found):
        assert time.monotonic() < deadline, f"only {found} of {values}"
        found += reader.poll()
    return found
