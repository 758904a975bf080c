"""Defines `Kafka`, a test's part of a shared cluster, and `KafkaCluster`, a test's own brokers.

Both make clients, which are closed at the end of the test, and topics, and check what the tested application
has done: records, committed offsets, transactions.
"""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, Unpack

from kalda.broker.process.secure import ADMINISTRATOR
from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.admin.transactions import TransactionListing, TransactionState
from kalda.clients.errors import UnknownTopicOrPartitionError
from kalda.clients.serde import ConfiguredK, ConfiguredV
from kalda.common.overriding import override
from kalda.common.public import public_in
from kalda.testing.cluster import Cluster
from kalda.testing.committed_offsets import unmet_offsets
from kalda.testing.record_matching import (
    ANYTHING,
    Expected,
    ExpectedHeaders,
    Record,
    RecordPattern,
    explain_missing,
)
from kalda.testing.security import ClientConfigs
from kalda.testing.snapshots import check_snapshot, snapshot_text

if TYPE_CHECKING:
    # Imported where they are used: the first test waits for the admin client alone.
    from kalda.clients.admin.admin_config import AdminOptions
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.clients.consumer.consumer import Consumer
    from kalda.clients.consumer.consumer_config import ConsumerOptions
    from kalda.clients.consumer.deserializers import Deserializer
    from kalda.clients.producer.async_producer import AsyncProducer
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.producer_config import ProducerOptions
    from kalda.clients.producer.serializers import Serializer
    from kalda.testing.topic_reader import Isolation, TopicReader

logger: Final = logging.getLogger(__name__)

WITHIN_S: Final = 5.0
"""How long an assertion waits by default for what an application does in the background."""

CLOSE_SECONDS_MAX: Final = 10.0
"""How long the clients of a test may take to close, all together, such as after their broker was killed."""

_CLOSE_ONE_SECONDS_MAX: Final = 3.0
_REQUEST_TIMEOUT_MS: Final = 5_000
_API_TIMEOUT_MS: Final = 10_000
_POLL_SECONDS: Final = 0.02
OPEN_STATES: Final = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)
"""The states of transactions that are not over."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunningTest:
    """What the facilities have to know of the test that uses them."""

    name: str = "test"
    snapshots: Path = Path("snapshots")
    """The directory of the test's golden files."""
    is_update: bool = False
    """Whether golden files are rewritten."""


class _Client(Protocol):
    def close(self, timeout_s: float) -> None: ...


class _AsyncClient(Protocol):
    async def close(self, timeout_s: float) -> None: ...


@dataclass(slots=True)
class _Opened:
    """What a test has opened."""

    test: RunningTest = field(default_factory=RunningTest)
    lock: threading.RLock = field(default_factory=threading.RLock)
    admin: Admin | None = None
    readers: "dict[tuple[str, Isolation], TopicReader]" = field(default_factory=dict)
    clients: list[_Client] = field(default_factory=list)
    async_clients: list[_AsyncClient] = field(default_factory=list)
    topics_made: int = 0


class KafkaFacilities(ClientConfigs):
    """Clients, topics and assertions, for a test that runs against brokers.

    Methods block until they are done; in asynchronous tests use `aio`, which has them as coroutines.
    """

    _opened: _Opened

    @property
    def aio(self) -> "AsyncView":
        """The same for asynchronous tests."""
        return AsyncView(self)

    @property
    def size(self) -> int:
        """How many brokers there are, those that are down included."""
        raise NotImplementedError

    # Clients.

    def producer(
        self,
        *,
        user: str = ADMINISTRATOR,
        key_serializer: "Serializer[ConfiguredK] | Callable[[ConfiguredK], bytes | None] | None" = None,
        value_serializer: "Serializer[ConfiguredV] | Callable[[ConfiguredV], bytes | None] | None" = None,
        **options: "Unpack[ProducerOptions]",
    ) -> "Producer[ConfiguredK, ConfiguredV]":
        """Return a producer, which is closed at the end of the test.

        Args:
            user: Who it connects as, where the brokers demand logins.
            key_serializer: As of `Producer`.
            value_serializer: As of `Producer`.
            options: Settings of the producer, such as ``transactional_id="orders"``.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
            ValueError: there is no such user.
        """
        from kalda.clients.producer.producer import Producer

        producer = Producer.from_config(
            self.client_config(user),
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            **options,
        )
        self._opened.clients.append(producer)
        return producer

    def consumer(
        self,
        *topics: str,
        user: str = ADMINISTRATOR,
        key_deserializer: "Deserializer[ConfiguredK] | Callable[[bytes], ConfiguredK] | None" = None,
        value_deserializer: "Deserializer[ConfiguredV] | Callable[[bytes], ConfiguredV] | None" = None,
        **options: "Unpack[ConsumerOptions]",
    ) -> "Consumer[ConfiguredK, ConfiguredV]":
        """Return a consumer of `topics`, which is closed at the end of the test.

        It starts at the beginning of a partition without a committed offset (``auto_offset_reset``): what a
        test has produced before is what it wants to read.

        Args:
            topics: What it subscribes to; it may subscribe or assign later.
            user: Who it connects as, where the brokers demand logins.
            key_deserializer: As of `Consumer`.
            value_deserializer: As of `Consumer`.
            options: Settings of the consumer, such as ``group_id="billing"``.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
            ValueError: there is no such user.
        """
        from kalda.clients.consumer.consumer import Consumer

        options.setdefault("auto_offset_reset", "earliest")
        consumer = Consumer.from_config(
            self.client_config(user),
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **options,
        )
        self._opened.clients.append(consumer)
        return consumer

    def admin(self, *, user: str = ADMINISTRATOR, **options: "Unpack[AdminOptions]") -> Admin:
        """Return an admin client, which is closed at the end of the test.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
            ValueError: there is no such user.
        """
        admin = Admin.from_config(self.client_config(user), **options)
        self._opened.clients.append(admin)
        return admin

    # Topics.

    def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str | int | float | bool] | None = None,
    ) -> str:
        """Create a topic and return its name; the brokers know it then.

        Args:
            name: Its name; ``topic-1``, ``topic-2``, … if not given.
            partitions: How many partitions it has.
            replication_factor: How many replicas each has; one for each broker, 3 at most, if not given.
            config: Settings of the topic by Kafka's names.

        Raises:
            ClientError: it could not be created, such as when it exists.
        """
        if name is None:
            self._opened.topics_made += 1
            name = f"topic-{self._opened.topics_made}"
        replicas = min(_REPLICAS_MAX, self.size) if replication_factor is None else replication_factor
        self._admin().create_topics([NewTopic(name, partitions, replicas, config=config or {})])
        return name

    def records(self, topic: str, *, uncommitted: bool = False) -> list[Record]:
        """Return all records that a topic has now, by partition and offset, with keys and values as bytes.

        Args:
            topic: The topic.
            uncommitted: Whether records of open and aborted transactions are among them.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            ClientError, TimeoutError: the topic cannot be read.
        """
        with self._opened.lock:
            return self._reader(topic, _isolation(uncommitted)).records()

    # Assertions.

    def assert_produced(
        self,
        topic: str,
        *,
        key: Expected = ANYTHING,
        value: Expected = ANYTHING,
        headers: ExpectedHeaders | None = None,
        partition: int | None = None,
        within_s: float = WITHIN_S,
        uncommitted: bool = False,
    ) -> Record:
        """Return the first record that is as expected, waiting for it; the topic may not exist yet.

        Keys, values and the values of headers may be bytes, None, a text (compared as UTF-8), a mapping, list
        or number (compared with the JSON that the record holds), or a function that gets the bytes and
        returns whether it accepts them.

        Args:
            topic: The topic.
            key: What the record's key must be; not given, any.
            value: What the record's value must be; not given, any.
            headers: Headers that the record must have, by name; it may have others.
            partition: The partition that the record must be in.
            within_s: How many seconds to wait at most.
            uncommitted: Whether records of open and aborted transactions count.

        Raises:
            AssertionError: there is no such record in time; the message shows the nearest ones and how each
                differs.
        """
        __tracebackhide__ = True
        pattern = RecordPattern(key, value, headers, partition)
        isolation = _isolation(uncommitted)
        deadline = time.monotonic() + within_s
        with self._opened.lock:
            while True:
                records = self._known_records(topic, isolation)
                for record in records or ():
                    if pattern.matches(record):
                        return record
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                if records is None:
                    time.sleep(min(left, _POLL_SECONDS))
                else:
                    self._reader(topic, isolation).wait(left)
            waited = f" (waited {within_s:g} s)" if within_s else ""
            if records is None:
                known = ", ".join(sorted(self._admin().list_topics()))
                there = f"only: {known}" if known else "and no other"
                raise AssertionError(
                    f"no record of {topic!r} has {pattern}{waited}\n  there is no such topic, {there}"
                )
            raise AssertionError(explain_missing(topic, pattern, records, waited))

    def assert_committed(
        self,
        group: str,
        topic: str,
        *,
        records: int | None = None,
        offsets: Mapping[int, int] | None = None,
        within_s: float = WITHIN_S,
    ) -> None:
        """Check what a group has committed for a topic, waiting until it has.

        Without `records` and `offsets` the group must have committed all records that the topic has.

        Args:
            group: The group.
            topic: The topic.
            records: How many records must be before the committed offsets, in all partitions together.
            offsets: The offset that must be committed for each partition, by its number.
            within_s: How many seconds to wait at most.

        Raises:
            AssertionError: it has not in time; the message has the committed offsets.
            ValueError: both `records` and `offsets` are given.
        """
        __tracebackhide__ = True
        if records is not None and offsets is not None:
            raise ValueError(
                f"assert_committed has records={records} and offsets={dict(offsets)}; give one of them"
            )
        deadline = time.monotonic() + within_s
        with self._opened.lock:
            while lines := self._unmet(group, topic, records, offsets):
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_SECONDS)
        if not lines:
            return
        what = "all records" if records is None else f"{records} records"
        what = what if offsets is None else f"the offsets {dict(offsets)}"
        waited = f" (waited {within_s:g} s)" if within_s else ""
        raise AssertionError(
            "\n  ".join([f"group {group!r} has not committed {what} of {topic!r}{waited}", *lines])
        )

    def assert_no_open_transactions(self, *, within_s: float = WITHIN_S) -> None:
        """Check that no transaction is open, waiting until none is; needs brokers as of Kafka 3.0.

        Raises:
            AssertionError: some are still open; the message describes them.
        """
        __tracebackhide__ = True
        deadline = time.monotonic() + within_s
        with self._opened.lock:
            while found := self._admin().list_transactions(states=OPEN_STATES).all():
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_SECONDS)
            if not found:
                return
            lines = transaction_lines(self._admin(), found)
        waited = f" (waited {within_s:g} s)" if within_s else ""
        raise AssertionError("\n  ".join([f"transactions are open{waited}:", *lines]))

    def snapshot(self, topic: str, *, name: str | None = None, without: Collection[str] = ()) -> None:
        """Compare the committed records of a topic with a golden file.

        The files are in ``snapshots`` beside the test's file, and ``pytest --kafka-update`` writes them. They
        have keys, values and headers, JSON and text where they are that, by partition and offset, and neither
        offsets nor timestamps.

        Args:
            topic: The topic.
            name: The file's name, without ``.json``; the test's name and the topic if not given.
            without: Names of fields that are left out of JSON objects at every depth, such as ``["id"]``.

        Raises:
            AssertionError: they differ, or there is no file; the message has the difference.
            UnknownTopicOrPartitionError: there is no such topic.
        """
        __tracebackhide__ = True
        test = self._opened.test
        stem = _file_name(f"{test.name}.{topic}" if name is None else name)
        check_snapshot(
            test.snapshots / f"{stem}.json",
            snapshot_text(self.records(topic), without),
            is_update=test.is_update,
        )

    # Internals.

    def _admin(self) -> Admin:
        if self._opened.admin is None:
            self._opened.admin = Admin.from_config(
                self.client_config(),
                request_timeout_ms=_REQUEST_TIMEOUT_MS,
                default_api_timeout_ms=_API_TIMEOUT_MS,
                enable_metrics_push=False,
            )
        return self._opened.admin

    def _reader(self, topic: str, isolation: "Isolation") -> "TopicReader":
        from kalda.testing.topic_reader import TopicReader

        reader = self._opened.readers.get((topic, isolation))
        if reader is None:
            reader = TopicReader(topic, self._admin(), self.client_config(), isolation)
            self._opened.readers[topic, isolation] = reader
        return reader

    def _known_records(self, topic: str, isolation: "Isolation") -> list[Record] | None:
        """Return the records of a topic; None if there is no such topic."""
        try:
            return self._reader(topic, isolation).records()
        except UnknownTopicOrPartitionError:
            return None

    def _unmet(
        self, group: str, topic: str, number: int | None, offsets: Mapping[int, int] | None
    ) -> list[str]:
        # First the offsets: what is produced meanwhile is not missing in them.
        committed = {
            partition.partition: entry.offset
            for partition, entry in self._admin().list_consumer_group_offsets([group])[group].items()
            if partition.topic == topic and entry is not None
        }
        records = self._known_records(topic, "read_committed")
        if records is None:
            return [f"there is no topic {topic!r}"]
        return unmet_offsets(committed, records, offsets, number)

    def _begin(self, test: RunningTest) -> None:
        """Start a test."""
        self._opened = _Opened(test)

    def _end(self) -> None:
        """Close what the test has opened, within a bounded time."""
        opened = self._opened
        deadline = time.monotonic() + CLOSE_SECONDS_MAX
        closing: list[_Client] = [*opened.clients, *opened.readers.values()]
        if opened.admin is not None:
            closing.append(opened.admin)
        for each in closing:
            left = max(0.0, min(deadline - time.monotonic(), _CLOSE_ONE_SECONDS_MAX))
            try:
                each.close(left)
            except Exception as error:
                # Such as records that a killed broker did not get: it is up to the test to check deliveries.
                logger.debug("%r did not close well: %s", each, error)
        self._opened = _Opened(opened.test)

    async def _end_async(self) -> None:
        """Close the asynchronous clients of a test, on its event loop."""
        clients, self._opened.async_clients = self._opened.async_clients, []
        deadline = time.monotonic() + CLOSE_SECONDS_MAX
        for each in clients:
            left = max(0.0, min(deadline - time.monotonic(), _CLOSE_ONE_SECONDS_MAX))
            try:
                await asyncio.wait_for(each.close(left), left + _CLOSE_ONE_SECONDS_MAX)
            except Exception as error:
                logger.debug("%r did not close well: %s", each, error)


def _in_thread(
    method: Callable[Concatenate[KafkaFacilities, P], R],
) -> "Callable[Concatenate[AsyncView, P], Coroutine[Any, Any, R]]":
    """Return a blocking method as one that other tasks run beside."""

    @wraps(method)
    async def call(self: "AsyncView", /, *args: P.args, **options: P.kwargs) -> R:
        __tracebackhide__ = True
        return await asyncio.to_thread(method, self._facilities, *args, **options)

    return call


@public_in("kalda.testing")
class AsyncView:
    """The clients and assertions of a `Kafka` or `KafkaCluster` for asynchronous tests, as its `aio`.

    What blocks there is a coroutine here, so that the application under test runs meanwhile, on the same
    loop. The clients belong to the event loop of the test and are closed when the test's function ends.
    """

    def __init__(self, facilities: KafkaFacilities) -> None:
        self._facilities: Final = facilities

    async def producer(
        self,
        *,
        user: str = ADMINISTRATOR,
        key_serializer: "Serializer[ConfiguredK] | Callable[[ConfiguredK], bytes | None] | None" = None,
        value_serializer: "Serializer[ConfiguredV] | Callable[[ConfiguredV], bytes | None] | None" = None,
        **options: "Unpack[ProducerOptions]",
    ) -> "AsyncProducer[ConfiguredK, ConfiguredV]":
        """Return an `AsyncProducer` that is started; see `Kafka.producer`."""
        from kalda.clients.producer.async_producer import AsyncProducer

        producer = AsyncProducer.from_config(
            self._facilities.client_config(user),
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            **options,
        )
        self._facilities._opened.async_clients.append(producer)
        await producer.start()
        return producer

    async def consumer(
        self,
        *topics: str,
        user: str = ADMINISTRATOR,
        key_deserializer: "Deserializer[ConfiguredK] | Callable[[bytes], ConfiguredK] | None" = None,
        value_deserializer: "Deserializer[ConfiguredV] | Callable[[bytes], ConfiguredV] | None" = None,
        **options: "Unpack[ConsumerOptions]",
    ) -> "AsyncConsumer[ConfiguredK, ConfiguredV]":
        """Return an `AsyncConsumer` that is started; see `Kafka.consumer`."""
        from kalda.clients.consumer.async_consumer import AsyncConsumer

        options.setdefault("auto_offset_reset", "earliest")
        consumer = AsyncConsumer.from_config(
            self._facilities.client_config(user),
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **options,
        )
        self._facilities._opened.async_clients.append(consumer)
        await consumer.start()
        return consumer

    async def admin(self, *, user: str = ADMINISTRATOR, **options: "Unpack[AdminOptions]") -> "AsyncAdmin":
        """Return an `AsyncAdmin`; see `Kafka.admin`."""
        from kalda.clients.admin.async_admin import AsyncAdmin

        admin = AsyncAdmin.from_config(self._facilities.client_config(user), **options)
        self._facilities._opened.async_clients.append(admin)
        return admin

    topic = _in_thread(KafkaFacilities.topic)
    records = _in_thread(KafkaFacilities.records)
    assert_produced = _in_thread(KafkaFacilities.assert_produced)
    assert_committed = _in_thread(KafkaFacilities.assert_committed)
    assert_no_open_transactions = _in_thread(KafkaFacilities.assert_no_open_transactions)
    snapshot = _in_thread(KafkaFacilities.snapshot)


@public_in("kalda.testing")
class Kafka(KafkaFacilities):
    """A part of a shared cluster that belongs to one test, as the fixture `kafka` gives it.

    Its topics, groups, transactional ids and users are seen by no other test, under the names that the test
    gives them.
    """

    def __init__(self, target: ClientConfigs, brokers: int) -> None:
        super().__init__()
        self.secured = target.secured
        self._target: Final = target
        self._brokers: Final = brokers
        self._begin(RunningTest())

    @property
    @override
    def bootstrap(self) -> str:
        return self._target.bootstrap

    @property
    @override
    def size(self) -> int:
        return self._brokers


@public_in("kalda.testing")
class KafkaCluster(KafkaFacilities, Cluster):
    """Brokers of one test, which it may kill, pause or cut off, as the fixture `kafka_cluster` gives them.

    It is a `Cluster`, with clients, topics and assertions; outside pytest it is used as one, in a ``with``
    block.
    """

    @override
    def __enter__(self) -> Self:
        self._begin(RunningTest())
        return super().__enter__()

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        super().__exit__(kind, error, trace)

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end_async()
        await super().__aexit__(kind, error, trace)

    @property
    @override
    def size(self) -> int:
        return self._brokers


def transaction_lines(admin: Admin, listings: Iterable[TransactionListing]) -> list[str]:
    """Return a line for each transaction, with what it contains where the brokers say so."""
    ids = [each.transactional_id for each in listings]
    described = admin.describe_transactions(ids, outcomes=True).results
    lines = []
    for each in listings:
        line = f"{each.transactional_id!r}: {each.state.value}, producer id {each.producer_id}"
        if (description := described.get(each.transactional_id)) is not None:
            partitions = sorted(f"{part.topic}-{part.partition}" for part in description.topic_partitions)
            line += f", epoch {description.producer_epoch}, partitions {', '.join(partitions) or 'none'}"
            if description.transaction_start_time_ms is not None:
                age = time.time() - description.transaction_start_time_ms / 1000
                line += f", open for {max(age, 0.0):.1f} s"
        lines.append(line)
    return lines


def _isolation(uncommitted: bool) -> "Isolation":
    return "read_uncommitted" if uncommitted else "read_committed"


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-")[:_FILE_NAME_CHARACTERS_MAX]


_REPLICAS_MAX: Final = 3
_FILE_NAME_CHARACTERS_MAX: Final = 150
