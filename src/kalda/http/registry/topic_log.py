"""Reads the schema topic into the state, and writes changes to it.

A write returns when its records were read back: a reader of the state sees it from then on.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.admin.created_topics import describe_created
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.errors import (
    BrokerResponseError,
    ClientError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.shared_properties import settings_for
from kalda.common.backoff import ExponentialBackoff
from kalda.common.config_def import ConfigError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.http.registry.errors import schema_too_large, store_failed, timed_out
from kalda.http.registry.records import Change
from kalda.http.registry.state import State
from kalda.http.settings import RegistrySettings
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
RECORDS_PER_POLL: Final = 500
"""Records that are applied before the loop does something else."""

_BACKOFF_MS: Final = (100, 5_000)
_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""What the producer allows; what the topic allows is up to its `max.message.bytes`."""


class TopicLog:
    """The topic of one registry. `state` is replaced only if the topic was created again."""

    def __init__(self, settings: RegistrySettings, client: Mapping[str, str]) -> None:
        self.state = State()
        self.is_loaded = False
        """Whether the state has all records that the topic had at the start."""
        self._settings: Final = settings
        self._client: Final = client
        self._partition: Final = TopicPartition(settings.kafkastore_topic, 0)
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, SYSTEM_RANDOM.uniform)
        self._consumer: AsyncConsumer[bytes, bytes] | None = None
        self._producer: AsyncProducer[bytes, bytes] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._position = 0
        """The offset of the next record to apply."""
        self._waiting: Final[deque[tuple[int, asyncio.Future[None]]]] = deque()

    @property
    def applied_offset(self) -> int:
        """The offset of the last record that the state has; -1 before the first."""
        return self._position - 1

    async def start(self) -> None:
        """Create or check the topic, and read all that it has.

        Raises:
            ConfigError: the topic is not compacted, or has several partitions.
            ClientError: the cluster cannot be reached in time, or refuses what the registry needs.
            HttpError: the topic cannot be read in time.
        """
        timeout_ms = self._settings.kafkastore_init_timeout_ms
        admin_settings = {"client.id": "kalda-registry", **settings_for(AdminConfig, self._client)}
        async with AsyncAdmin.from_config(admin_settings) as admin:
            await ensure_topic(admin, self._settings, timeout_ms)
        producer = {
            "client.id": "kalda-registry",
            "acks": "all",
            "linger.ms": "0",
            "max.request.size": str(_REQUEST_BYTES),
            "max.block.ms": str(self._settings.kafkastore_timeout_ms),
            "delivery.timeout.ms": str(max(self._settings.kafkastore_timeout_ms, 1_000)),
            "request.timeout.ms": str(max(self._settings.kafkastore_timeout_ms, 1_000)),
            "enable.metrics.push": "false",
        }
        self._producer = AsyncProducer.from_config({**settings_for(ProducerConfig, self._client), **producer})
        await self._open_consumer()
        self._reader = asyncio.create_task(self._read(), name="schema topic reader")
        await self.catch_up(timeout_ms)
        self.is_loaded = True
        logger.info(
            "the schema topic %s is read up to offset %d: %d subjects",
            self._settings.kafkastore_topic,
            self.applied_offset,
            len(self.state.subjects),
        )

    async def close(self) -> None:
        """Stop reading and writing."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        for _, future in self._waiting:
            future.cancel()
        for client in (self._producer, self._consumer):
            if client is not None:
                with contextlib.suppress(ClientError):
                    await client.close()

    async def write(self, changes: Sequence[Change]) -> None:
        """Write records in their order, and return when the state has them.

        Raises:
            HttpError: a record is too large (42209), the topic refuses it (50001), or it was not written and
                read back in time (50002); it may still be written then.
        """
        if not changes:
            return
        assert self._producer is not None, "it was started"
        topic = self._settings.kafkastore_topic
        last = -1
        try:
            async with asyncio.timeout(self._settings.kafkastore_timeout_ms / 1000):
                for change in changes:
                    for key in self._forms(change):
                        sent = await self._producer.send(topic, change.value, key, partition=0)
                        last = (await sent).offset
                await self._applied(last)
        except TimeoutError:
            raise timed_out(
                f"the change was not written to {topic} and read back within "
                f"`kafkastore.timeout.ms`={self._settings.kafkastore_timeout_ms}"
            ) from None
        except RecordTooLargeError:
            raise schema_too_large() from None
        except ClientError as error:
            raise store_failed(f"the change could not be written to {topic}: {error}") from None

    async def catch_up(self, timeout_ms: int | None = None) -> None:
        """Return when the state has all records that the topic has now.

        Raises:
            HttpError: that takes too long (50002), or the end of the topic cannot be asked for (50001).
        """
        assert self._consumer is not None, "it was started"
        limit_ms = self._settings.kafkastore_timeout_ms if timeout_ms is None else timeout_ms
        topic = self._settings.kafkastore_topic
        try:
            async with asyncio.timeout(limit_ms / 1000):
                ends = await self._consumer.end_offsets([self._partition])
                await self._applied(ends[self._partition] - 1)
        except TimeoutError:
            raise timed_out(f"{topic} was not read up to its end within {limit_ms} ms") from None
        except ClientError as error:
            raise store_failed(f"the end of {topic} cannot be asked for: {error}") from None

    # Internals.

    def _forms(self, change: Change) -> list[bytes]:
        """Return the keys to write: a tombstone goes to each form of the key that is in the topic."""
        own = change.key.encode()
        return [*self.state.other_keys.get(change.key, ()), own] if change.value is None else [own]

    async def _applied(self, offset: int) -> None:
        if offset < self._position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        await future

    async def _open_consumer(self) -> None:
        settings = {
            "client.id": "kalda-registry",
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
            # A change waits for its own record, and a follower for the writer's.
            "fetch.min.bytes": "1",
            "max.poll.records": str(RECORDS_PER_POLL),
            "enable.metrics.push": "false",
        }
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer.from_config(
            {**settings_for(ConsumerConfig, self._client), **settings}
        )
        self._consumer = consumer
        await consumer.start()
        await consumer.assign([self._partition])
        await self._rewind()

    async def _rewind(self) -> None:
        """Begin with the first record that the topic has."""
        assert self._consumer is not None, "it is open"
        first = (await self._consumer.beginning_offsets([self._partition]))[self._partition]
        await self._consumer.seek(self._partition, first)
        self._position = first

    async def _read(self) -> None:
        failures = 0
        while True:
            try:
                await self._read_some()
                failures = 0
            except OffsetOutOfRangeError:
                logger.error("the schema topic was truncated or created again; it is read from its beginning")
                epoch = self.state.epoch
                self.state = State()
                self.state.epoch = epoch + 1
                with contextlib.suppress(ClientError):
                    await self._rewind()
            except ClientError as error:
                failures += 1
                seconds = self._backoff.seconds(failures)
                logger.warning("the schema topic cannot be read, next attempt in %.1f s: %s", seconds, error)
                await asyncio.sleep(seconds)
            except Exception:
                failures += 1
                logger.exception("the reader of the schema topic failed; it goes on")
                await asyncio.sleep(self._backoff.seconds(failures))

    async def _read_some(self) -> None:
        consumer = self._consumer
        assert consumer is not None, "it is open"
        records = await consumer.poll(timeout_s=POLL_SECONDS, max_records=RECORDS_PER_POLL)
        for record in records:
            self.state.apply(record.key, record.value, record.timestamp_ms)
        # Also past offsets without records: those of control batches, and of what was compacted.
        self._position = max(self._position, await consumer.position(self._partition))
        while self._waiting:
            due = [each for each in self._waiting if each[0] < self._position or each[1].done()]
            if not due:
                break
            for each in due:
                self._waiting.remove(each)
                if not each[1].done():
                    each[1].set_result(None)


async def ensure_topic(admin: AsyncAdmin, settings: RegistrySettings, timeout_ms: int) -> None:
    """Create the topic if it does not exist, and check it if it does.

    Raises:
        ConfigError: it is not compacted, or has several partitions.
        ClientError: the cluster refuses, or cannot be reached in time.
    """
    topic = settings.kafkastore_topic
    try:
        described = (await admin.describe_topics([topic], timeout_ms=timeout_ms))[topic]
    except UnknownTopicOrPartitionError:
        brokers = len((await admin.describe_cluster(timeout_ms=timeout_ms)).nodes)
        replicas = max(1, min(brokers, settings.kafkastore_topic_replication_factor))
        if replicas < settings.kafkastore_topic_replication_factor:
            logger.warning(
                "the schema topic %s is created with %d replicas, since there are %d brokers; "
                "`kafkastore.topic.replication.factor` is %d",
                topic,
                replicas,
                brokers,
                settings.kafkastore_topic_replication_factor,
            )
        new = NewTopic(topic, 1, replicas, config={"cleanup.policy": "compact"})
        try:
            await admin.create_topics([new], timeout_ms=timeout_ms)
            return
        except BrokerResponseError as error:
            # Another process may have created it at the same moment.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        described = await describe_created(admin, topic, timeout_ms)
    if len(described.partitions) != 1:
        raise ConfigError(
            "kafkastore.topic",
            f"the schema topic {topic} has {len(described.partitions)} partitions; it must have 1, since the "
            "order of all its records counts",
        )
    resource = ConfigResource.topic(topic)
    entries = (await admin.describe_configs({resource: ("cleanup.policy",)}, timeout_ms=timeout_ms))[resource]
    policy = entries["cleanup.policy"].value
    if policy != "compact":
        raise ConfigError(
            "kafkastore.topic",
            f"the schema topic {topic} has cleanup.policy={policy}; it must be compact, or schemas are lost: "
            f"`kalda configs alter --topic {topic} --add-config cleanup.policy=compact`",
        )
