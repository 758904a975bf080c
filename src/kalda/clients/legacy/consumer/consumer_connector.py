"""The high-level consumer: `Consumer.create` makes a `ConsumerConnector`, which makes streams of messages."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from kalda.clients.argument_checks import check_topic_name
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.errors import BrokerConnectionError, ClientConfigError, ClientError, IllegalStateError
from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.decoder import decoder_of
from kalda.clients.legacy.consumer.kafka_stream import KafkaStream
from kalda.clients.legacy.consumer.pause_guard import PauseGuard
from kalda.clients.legacy.consumer.rebalancer import Rebalancer
from kalda.clients.legacy.consumer.stream_reading import StreamOf, StreamReading
from kalda.clients.legacy.consumer.topic_count import (
    STREAMS_MAX,
    ThreadId,
    TopicCount,
    TopicFilter,
    by_filter,
)
from kalda.clients.loop_thread import LoopThread
from kalda.common.public import public_in
from kalda.common.types import TopicPartition
from kalda.runtime.clock import Clock
from kalda.runtime.random import new_uuid
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import BadArgumentsError, ZooKeeperError

logger: Final = loop_logger(__name__)

Stream = KafkaStream[Any, Any]


@public_in("kalda.clients.legacy")
class ConsumerConnector:
    """One consumer of a group that shares partitions through ZooKeeper.

    >>> connector = Consumer.create({"zk.connect": "127.0.0.1:2181", "groupid": "test-group"})
    >>> for stream in connector.create_message_streams({"test": 2})["test"]:
    ...     threading.Thread(target=consume, args=[stream]).start()

    Args:
        properties: The settings with Kafka's names, of 0.7 or 0.8, or the path of a properties file.
        options: The same with underscores for dots.

    Raises:
        ClientConfigError: a setting is unknown, missing or not allowed.
        BrokerConnectionError: ZooKeeper cannot be reached.
    """

    def __init__(
        self, properties: PropertiesSource | ConsumerConfig | None = None, /, **options: object
    ) -> None:
        if isinstance(properties, ConsumerConfig):
            if options:
                raise ClientConfigError("give either a ConsumerConfig or settings by name")
            self._config = properties
        else:
            self._config = ConsumerConfig(properties, **options)
        config = self._config
        self._clock: Final[Clock] = SystemClock()
        unique = config.consumer_id or (
            f"{SYSTEM_NETWORK.host_name()}-{self._clock.time_ms()}-{new_uuid(SYSTEM_RANDOM).hex[:8]}"
        )
        self.consumer_id: Final = f"{config.group}_{unique}"
        """The name of this consumer in the group."""
        self._streams: list[Stream] = []
        self._reading: StreamReading | None = None
        self._rebalancer: Rebalancer | None = None
        self._auto_commit: asyncio.Task[None] | None = None
        self._guard: Final = PauseGuard(config.zookeeper_session_timeout_ms / 1000)
        self._beats: asyncio.Task[None] | None = None
        self._thread: Final = LoopThread(f"consumer {self.consumer_id}")
        try:
            self._zookeeper: Final = self._thread.call(self._connect())
        except BaseException:
            self._thread.close()
            raise

    def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        key_decoder: object = None,
        value_decoder: object = None,
    ) -> dict[str, list[Stream]]:
        """Join the group; return as many streams of each topic as asked for.

        Args:
            topic_count_map: By topic: the number of streams. More streams than partitions stay empty.
            key_decoder, value_decoder: What `decoder.decoder_of` takes; bytes without one.

        Raises:
            IllegalStateError: the connector has streams already, or is shut down.
            ValueError: there are no topics, or a name or number is not allowed.
            ConsumerRebalanceFailedError: no attempt to get partitions succeeded. The connector has left the
                group, and can be asked again.
        """
        if not topic_count_map:
            raise ValueError("create_message_streams needs at least one topic")
        for topic, count in topic_count_map.items():
            check_topic_name(topic)
            _check_count(f"streams of topic {topic}", count)
        streams: dict[str, list[Stream]] = {
            topic: self._new_streams(count, key_decoder, value_decoder)
            for topic, count in topic_count_map.items()
        }

        def stream_of(partition: TopicPartition, thread: ThreadId) -> Stream:
            return streams[partition.topic][thread.number]

        self._join(
            TopicCount(dict(topic_count_map)), [s for each in streams.values() for s in each], stream_of
        )
        return streams

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: object = None,
        value_decoder: object = None,
    ) -> list[Stream]:
        """Join the group for all topics that a `Whitelist` or `Blacklist` allows, also those of later.

        Raises:
            As `create_message_streams`.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise TypeError(
                f"topic_filter is a {type(topic_filter).__name__}; it takes a Whitelist or Blacklist"
            )
        _check_count("num_streams", num_streams)
        streams = self._new_streams(num_streams, key_decoder, value_decoder)
        self._join(by_filter(topic_filter, num_streams), streams, lambda _, thread: streams[thread.number])
        return streams

    def set_before_release(self, is_processed: Callable[[], bool]) -> None:
        """Set a function that decides whether consumed offsets are committed before partitions are released.

        It is for programs that commit themselves because consumed messages are processed later. It is
        called in a thread of its own, while all streams stand still and the group waits. If it returns
        True, what was consumed before the call is committed.

        Raises:
            IllegalStateError: there are no streams.
        """
        if self._reading is None:
            raise IllegalStateError("set_before_release needs streams; create them first")
        self._reading.is_processed = is_processed

    def commit_offsets(self) -> None:
        """Commit the offsets of all messages consumed so far.

        The message that the calling thread has is counted as consumed; those that other threads still work
        on are not.

        Raises:
            ClientError: the offsets could not be written everywhere.
            IllegalStateError: the connector is shut down, or a signal handler interrupted a stream's iterator
                in the short time in which it cannot wait for the connector.
        """
        self._settle()
        reading = self._reading
        if reading is None:
            self._thread.check_usable()
            return
        try:
            self._thread.call(reading.commit())
        except ZooKeeperError as error:
            raise BrokerConnectionError(
                f"offsets of {self._config.group} were not committed: {error}"
            ) from error

    def shutdown(self) -> None:
        """Commit if commits are automatic, leave the group, end the streams; harmless twice.

        Raises:
            IllegalStateError: a signal handler interrupted a stream's iterator in the short time in which it
                cannot wait for the connector, which stays open.
        """
        if not self._thread.is_usable:
            return
        self._settle()
        try:
            self._thread.call(self._close())
        finally:
            self._thread.close()
            for stream in self._streams:
                stream.shut()

    createMessageStreams = create_message_streams  # noqa: N815 - the names in the documents
    createMessageStreamsByFilter = create_message_streams_by_filter  # noqa: N815
    commitOffsets = commit_offsets  # noqa: N815

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a ConsumerConnector cannot be pickled: it has connections; create one in each process"
        )

    def _settle(self) -> None:
        for stream in self._streams:
            stream.check_not_inside()
        for stream in self._streams:
            stream.settle()

    def _new_streams(self, count: int, key_decoder: object, value_decoder: object) -> list[Stream]:
        config = self._config
        decode_key = decoder_of("key_decoder", key_decoder)
        decode_value = decoder_of("value_decoder", value_decoder)
        timeout_s = None if config.consumer_timeout_ms < 0 else config.consumer_timeout_ms / 1000
        return [
            KafkaStream(
                ThreadId(self.consumer_id, number),
                decode_key,
                decode_value,
                chunks_max=config.queued_max_message_chunks,
                timeout_s=timeout_s,
                on_room=self._on_room,
                is_paused=self._guard.is_paused,
            )
            for number in range(count)
        ]

    def _join(self, wanted: TopicCount, streams: list[Stream], stream_of: StreamOf) -> None:
        self._thread.check_usable()
        if self._streams:
            raise IllegalStateError("this connector has streams already; create another connector")
        self._streams = streams
        try:
            self._thread.call(self._start(wanted, stream_of))
        except BaseException:
            self._streams = []
            raise

    async def _connect(self) -> EnsembleClient:
        config = self._config
        assert config.zookeeper_connect is not None, "checked"
        timeout_ms = config.zookeeper_session_timeout_ms
        try:
            client = await EnsembleClient.connect(
                config.zookeeper_connect,
                session_timeout_ms=timeout_ms,
                connection_timeout_ms=config.zookeeper_connection_timeout_ms or timeout_ms,
                creates_chroot=False,
            )
            has_chroot = await client.exists("/") is not None
        except BadArgumentsError as error:
            raise ClientConfigError(
                f"`zookeeper.connect`={config.zookeeper_connect} is not allowed: {error}"
            ) from error
        except ZooKeeperError as error:
            raise BrokerConnectionError(str(error)) from error
        if not has_chroot:
            await client.close()
            raise ClientConfigError(
                f"`zookeeper.connect`={config.zookeeper_connect} is not allowed: the chroot does not exist"
            )
        return client

    async def _start(self, wanted: TopicCount, stream_of: StreamOf) -> None:
        reading = StreamReading(self._config, self._zookeeper, self._streams, stream_of)
        self._reading = reading
        self._guard.beat()
        self._beats = asyncio.create_task(self._beat())
        self._rebalancer = reading.rebalancer = Rebalancer(
            self._config, self.consumer_id, wanted, self._zookeeper, reading, self._clock
        )
        try:
            await self._rebalancer.start()
        except Exception:
            # Else the group would give partitions to a consumer that does not read.
            await self._leave()
            raise
        if self._config.auto_commit_enable:
            self._auto_commit = asyncio.create_task(self._commit_in_intervals())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._guard.interval_s)
            if self._guard.is_paused():
                logger.warning("Consumer %s was paused, its partitions may be another's", self.consumer_id)
                if not await self._knows_owners():
                    continue
            self._guard.beat()
            for stream in self._streams:
                stream.wake()

    async def _knows_owners(self) -> bool:
        assert self._rebalancer is not None, "started"
        try:
            await self._rebalancer.check_ownership()
        except ZooKeeperError as error:
            logger.debug("Consumer %s: %s", self.consumer_id, error)
            return False
        return True

    async def _commit_in_intervals(self) -> None:
        assert self._reading is not None, "started"
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            try:
                await self._reading.commit()
            except (ZooKeeperError, ClientError) as error:
                logger.warning("Consumer %s: offsets were not committed: %s", self.consumer_id, error)

    async def _close(self) -> None:
        if self._auto_commit is not None:
            self._auto_commit.cancel()
        try:
            await self._leave()
        finally:
            # The end of the session deletes what is left of the registration and the owners.
            await self._zookeeper.close()

    async def _leave(self) -> None:
        """Commit if commits are automatic, leave the group, close the connections to brokers."""
        rebalancer, reading = self._rebalancer, self._reading
        if rebalancer is None or reading is None:
            return
        if self._beats is not None:
            self._beats.cancel()
        try:
            await rebalancer.stop()
            await reading.stop()
            await rebalancer.leave()
        except (ZooKeeperError, ClientError) as error:
            logger.warning("Consumer %s: %s", self.consumer_id, error)
        finally:
            await reading.close()
            self._rebalancer = self._reading = None

    def _on_room(self, stream: Stream) -> None:
        if self._reading is not None:
            self._thread.call_soon(self._reading.on_room, stream)


@public_in("kalda.clients.legacy")
class Consumer:
    """Where the documents' programs get their connectors from."""

    @staticmethod
    def create(
        properties: PropertiesSource | ConsumerConfig | None = None, /, **options: object
    ) -> ConsumerConnector:
        """Return a connector; see `ConsumerConnector`."""
        return ConsumerConnector(properties, **options)

    createJavaConsumerConnector = create  # noqa: N815 - the name in the documents


def _check_count(what: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= STREAMS_MAX:
        raise ValueError(f"{what}: {count!r} is not allowed; it takes 1 to {STREAMS_MAX}")
