"""Implements the producer of Kafka 0.7 and 0.8: `Producer.send` of `ProducerData`, sync or async.

It wires the parts together; see the package for what each of them decides.
"""

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from kalda.clients.argument_checks import check_object, check_topic_name
from kalda.clients.errors import ClientError, IllegalStateError, SerializationError
from kalda.clients.legacy.class_names import object_of
from kalda.clients.legacy.message_set import Message
from kalda.clients.legacy.producer.discovery import BrokerListDiscovery, Discovery
from kalda.clients.legacy.producer.dispatcher import Dispatcher, PlacedMessage
from kalda.clients.legacy.producer.encoder import Encode, encoder_of
from kalda.clients.legacy.producer.event_queue import EventQueue
from kalda.clients.legacy.producer.handlers import CallbackHandler, EventHandler, QueueItem
from kalda.clients.legacy.producer.partitioner import PartitionFunction, partitioner_of
from kalda.clients.legacy.producer.producer_config import ProducerConfig
from kalda.clients.legacy.producer.producer_data import ProducerData
from kalda.clients.legacy.producer.producer_errors import (
    MessageSizeTooLargeError,
    NoBrokersForPartitionError,
    QueueClosedError,
    QueueFullError,
)
from kalda.clients.legacy.producer.send_thread import ProducerSendThread
from kalda.clients.legacy.producer.sync_producer import ProducerPool, SyncProducer
from kalda.clients.loop_thread import LoopThread
from kalda.common.api_keys import ApiKey
from kalda.common.public import public_in
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.runtime import client_runtime

logger: Final = loop_logger(__name__)

H = TypeVar("H")


@public_in("kalda.clients.legacy")
class Producer:
    """Sends messages to the partitions of topics; safe for many threads.

    >>> producer = Producer(ProducerConfig({"zk.connect": "127.0.0.1:2181",
    ...                                     "serializer.class": "kafka.serializer.StringEncoder"}))
    >>> producer.send(ProducerData("test-topic", "test-message"))
    >>> producer.close()

    Args:
        config: The settings, or a mapping with them.

    Raises:
        ClientConfigError: a setting is not allowed, or names a class that is none.
        BrokerConnectionError: ZooKeeper (`zk.connect`) cannot be reached.
    """

    def __init__(self, config: ProducerConfig | dict[str, object]) -> None:
        config = config if isinstance(config, ProducerConfig) else ProducerConfig(config)
        self._config: Final = config
        parts = _Plugins(config)
        self._encode: Final = parts.encode
        self._encode_key: Final = parts.encode_key
        self._event_handler: Final = parts.event_handler
        self._callbacks: Final = parts.callbacks
        self._runtime: Final = client_runtime()
        self._connections: Final = config.connections()
        # Reentrant: a signal handler may close a producer that is being closed.
        self._close_lock: Final = threading.RLock()
        self._is_closed = False
        self._loop_thread: Final = LoopThread(f"legacy producer {config.client_id}".rstrip())
        self._pool: Final = ProducerPool(self._new_producer)
        try:
            self._discovery: Final[Discovery] = self._loop_thread.call(self._discover())
        except BaseException:
            self._loop_thread.close()
            raise
        self._dispatcher: Final = Dispatcher(
            config, self._discovery, parts.partition, self._pool.producer, self._runtime
        )
        self._queue: Final[EventQueue[QueueItem]] = EventQueue(config.queue_buffering_max_messages)
        self._send_thread: Final = ProducerSendThread(
            f"ProducerSendThread-{config.client_id}",
            self._queue,
            self._handle,
            self._callbacks,
            config.batch_num_messages,
            config.queue_buffering_max_ms,
            self._runtime.clock,
        )
        if not config.is_sync:
            self._event_handler.init(config.handler_properties("event.handler.props"))
            self._callbacks.init(config.handler_properties("callback.handler.props"))
            self._send_thread.start()

    def send(self, *producer_data: ProducerData | Iterable[ProducerData]) -> None:
        """Send messages: wait for the brokers, or with `producer.type`=async add them to the queue.

        Args:
            producer_data: Messages for any topics and partitions; a list of them counts as its elements.

        Raises:
            FailedToSendMessageError: sync only: not all messages were acknowledged, after every retry.
            NoBrokersForPartitionError: a topic has no partition with a live leader.
            InvalidPartitionError: the partitioner chose a partition that is not there.
            SerializationError, MessageSizeTooLargeError: sync only; nothing was sent.
            QueueFullError, QueueClosedError: async only: the queue is full, or the producer closed. Events
                before that one are in the queue.
            IllegalStateError: the producer is closed, or was made by the parent of this process.
        """
        data = [
            item for each in producer_data for item in ([each] if isinstance(each, ProducerData) else each)
        ]
        for each in data:
            check_topic_name(each.topic)
        if self._config.is_sync:
            self._send_now(data)
        else:
            self._enqueue(data)

    def close(self) -> None:
        """Send the queued messages, then close the connections; a second call does nothing.

        Raises:
            IllegalStateError: a handler called it in the producer's own thread, or a signal handler that
                interrupted `send` while it adds to the queue; it would wait for itself, and stays open.
        """
        if self._send_thread.is_current:
            raise IllegalStateError(
                "the producer was closed by one of its own handlers; hand the call to another thread"
            )
        self._queue.check_not_inside()
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._queue.close()
        if not self._config.is_sync and self._loop_thread.is_usable:
            self._send_thread.join()
            for close in (self._event_handler.close, self._callbacks.close):
                try:
                    close()
                except Exception:
                    logger.exception("A handler of the producer failed to close")
        if self._loop_thread.is_usable:
            self._loop_thread.call(self._close_connections())
        self._loop_thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Sending.

    def _send_now(self, data: Sequence[ProducerData]) -> None:
        if self._is_closed:
            raise IllegalStateError("the producer is closed")
        self._loop_thread.check_usable()
        # All messages are encoded and placed before the first is sent.
        encoded = [(each, [self._message(each.key, one) for one in each.data]) for each in data]
        placed = [
            PlacedMessage(partition, message, self._is_movable(each.key))
            for each, messages in encoded
            for partition in [self._partition(each.topic, each.key)]
            for message in messages
        ]
        if placed:
            self._loop_thread.call(self._dispatcher.send(placed))

    def _enqueue(self, data: Sequence[ProducerData]) -> None:
        if self._is_closed:
            raise QueueClosedError("the producer is closed; the event was not added to its queue")
        self._loop_thread.check_usable()
        timeout_ms = self._config.queue_enqueue_timeout_ms
        for each in data:
            partition = self._partition(each.topic, each.key).partition
            for one in each.data:
                item = self._callbacks.before_enqueue(QueueItem(one, each.topic, partition, each.key))
                is_added = self._queue.put(item, timeout_ms)
                self._callbacks.after_enqueue(item, is_added)
                if not is_added:
                    raise QueueFullError(
                        f"the queue is full with {self._config.queue_buffering_max_messages} events; one for "
                        f"topic {each.topic} was not added"
                    )

    def _is_movable(self, key: object) -> bool:
        return key is None or bool(self._config.broker_list)

    def _partition(self, topic: str, key: object) -> TopicPartition:
        try:
            return self._dispatcher.place_now(topic, key)
        except NoBrokersForPartitionError:
            return self._loop_thread.call(self._dispatcher.place(topic, key))

    def _message(self, key: object, data: object) -> Message:
        message = self._encode(data)
        if message.key is None and key is not None:
            message = message._replace(key=self._encode_key(key).payload)
        size = len(message.payload or b"")
        if size > self._config.max_message_size:
            raise MessageSizeTooLargeError(
                f"a message of {size} bytes is larger than `max.message.size`={self._config.max_message_size}"
            )
        return message

    # The thread of an async producer.

    def _handle(self, items: Sequence[QueueItem]) -> None:
        placed = [(self._placed(each), each) for each in items]
        if self._config.given("event.handler") is None:
            messages = [
                PlacedMessage(at, message, self._is_movable(each.key))
                for at, each in placed
                if (message := self._encoded(each)) is not None
            ]
            if messages:
                self._loop_thread.call(self._dispatcher.send(messages))
            return
        for leader, partitions in self._dispatcher.by_leader(dict.fromkeys(at for at, _ in placed)).items():
            own = set(partitions)
            events = [each for at, each in placed if at in own]
            if leader is None:
                logger.error("%d events were dropped: %s have no live leader", len(events), partitions)
                self._loop_thread.call_soon(self._discovery.mark_stale)
                continue
            try:
                self._event_handler.handle(
                    events, self._loop_thread.call(self._producer(leader)), self._encode
                )
            except Exception as error:
                logger.error(
                    "%d events were dropped by the event handler: %s", len(events), error, exc_info=error
                )

    def _placed(self, item: QueueItem) -> TopicPartition:
        if item.partition >= 0:
            return TopicPartition(item.topic, item.partition)
        return self._partition(item.topic, None)

    def _encoded(self, item: QueueItem) -> Message | None:
        try:
            return self._message(item.key, item.data)
        except (SerializationError, MessageSizeTooLargeError) as error:
            logger.error("An event for topic %s was dropped: %s", item.topic, error)
            return None

    # The loop.

    async def _discover(self) -> Discovery:
        config = self._config
        if not config.zk_connect:
            return BrokerListDiscovery(self._connections, self._runtime)
        # Imported here: only this needs ZooKeeper.
        from kalda.clients.legacy.producer.zookeeper_discovery import open_zookeeper

        return await open_zookeeper(config, self._runtime, self._create_topics)

    async def _create_topics(self, broker: BrokerEndpoint, topics: Iterable[str]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=True
        )
        await self._pool.producer(broker).ask(request, ApiKey.METADATA)

    async def _producer(self, broker: BrokerEndpoint) -> SyncProducer:
        return self._pool.producer(broker)

    def _new_producer(self, broker: BrokerEndpoint) -> SyncProducer:
        return SyncProducer(
            broker, self._config, self._connections, self._loop_thread, self._runtime.clock, self._on_failure
        )

    def _on_failure(self) -> None:
        self._discovery.mark_stale()

    async def _close_connections(self) -> None:
        self._pool.close()
        try:
            await self._discovery.close()
        except ClientError as error:
            logger.info("The producer's session did not close: %s", error)


class _Plugins:
    """The objects that the settings name."""

    def __init__(self, config: ProducerConfig) -> None:
        encoding = config.serializer_encoding
        value = config.given("serializer.class") or config.serializer_class
        self.encode: Final[Encode] = encoder_of("serializer.class", value, encoding)
        key = config.given("key.serializer.class") or value
        self.encode_key: Final[Encode] = encoder_of("key.serializer.class", key, encoding)
        self.partition: Final[PartitionFunction] = partitioner_of(
            config.given("partitioner.class") or config.partitioner_class
        )
        self.event_handler: Final = _handler(config, "event.handler", EventHandler)
        self.callbacks: Final = _handler(config, "callback.handler", CallbackHandler)


def _handler(config: ProducerConfig, name: str, base: type[H]) -> H:
    """Return the object that a setting names, which has the methods of `base`."""
    given = config.given(name)
    if given is None:
        return base()
    made = object_of(name, given, {})
    check_object(name, made, [each for each in vars(base) if not each.startswith("_")])
    return cast(H, made)
