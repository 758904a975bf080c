"""The transport of kombu on share groups; `Exchange` does the work."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual

from kalda.celery.exchange import (
    REPLIES,
    WAITING_MAX,
    Arrived,
    Exchange,
    ShareQueue,
    SingleArrivals,
    topic_name,
)
from kalda.clients.errors import (
    BootstrapError,
    BrokerConnectionError,
    ClientConfigError,
    ClientError,
    IllegalStateError,
    RequestTimedOutError,
)
from kalda.clients.share.acknowledgements import AcknowledgeType, reason_of
from kalda.clients.share.task_topics import DELAYED, TaskTopics
from kalda.common.overriding import override
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_EVENTS: Final = "celeryev"
"""Celery's exchange of events is durable, and its queues are not: all readers get all events."""
_LOOK_SECONDS: Final = 1.0
"""How often a thread that waits without a time-out can be interrupted."""
_GET_SECONDS: Final = 5.0
"""How long `basic_get` waits for a message of a queue that has some: they may all be under way, elsewhere."""


class QoS(virtual.QoS):  # type: ignore[misc]  # kombu has no types
    """Settles messages; counting those under way is the channel's."""

    restore_at_shutdown = False

    @override
    def can_consume(self) -> bool:
        return True

    @override
    def append(self, message: Any, delivery_tag: str) -> None:
        """Keep nothing: the broker has the message until it is settled."""

    @override
    def ack(self, delivery_tag: str) -> None:
        self.channel.settle(delivery_tag, AcknowledgeType.ACCEPT)

    @override
    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.settle(delivery_tag, AcknowledgeType.RELEASE if requeue else AcknowledgeType.REJECT)

    @override
    def restore_unacked(self) -> list[Any]:
        self.channel.release_all()
        return []

    @override
    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Do nothing: the broker gives the messages to others when the connection ends."""


class Channel(virtual.Channel):  # type: ignore[misc]  # kombu has no types
    """A channel: queues that are read, and the messages of them that are under way."""

    QoS = QoS
    do_restore = False
    supports_fanout = True

    def __init__(self, connection: "Transport", **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._exchange: Final = connection.exchange
        self._reading: Final[dict[str, ShareQueue]] = {}
        self._unsettled: Final[dict[str, tuple[ShareQueue, int]]] = {}
        """What was delivered, by delivery tag. Threads of the pool settle, too; each change is one call."""
        self._no_ack: Final[set[str]] = set()
        self._getters: Final[dict[str, tuple[ShareQueue, SingleArrivals]]] = {}
        """Where `basic_get` takes messages, by queue."""

    # Exchanges

    @override
    def exchange_declare(
        self, exchange: str | None = None, type: str = "direct", durable: bool = False, **kwargs: Any
    ) -> None:
        super().exchange_declare(exchange, type, durable, **kwargs)
        if exchange and self._is_broadcast(exchange):
            self._exchange.call(self._exchange.declare_broadcast(self._prefixed(exchange)))

    def _is_broadcast(self, exchange: str) -> bool:
        """Whether each queue that is bound to it gets its messages, wherever it was declared."""
        declared = self.state.exchanges.get(exchange)
        return exchange in self.connection.broadcast_exchanges or (
            declared is not None and (declared["type"] == "fanout" or not declared["durable"])
        )

    @override
    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        super().queue_bind(queue, exchange, routing_key, arguments, **kwargs)
        if not exchange or not self._is_broadcast(exchange):
            return
        if not self._exchange.is_temporary(queue):
            raise ClientConfigError(
                f"the queue {queue!r} cannot be bound to the exchange {exchange!r}, which sends to all its "
                "queues: declare the queue with auto_delete=True or exclusive=True"
            )
        takes = self._filter(exchange, routing_key)
        self._exchange.call(
            self._exchange.bind_temporary(queue, self._prefixed(exchange), routing_key, takes)
        )

    def _filter(self, exchange: str, routing_key: str) -> Callable[[str], bool]:
        kind = self.typeof(exchange)
        if kind.type == "fanout":
            return lambda key: True
        if kind.type == "topic":
            pattern = kind.key_to_pattern(routing_key)
            return lambda key: bool(kind._match(pattern, key))
        return lambda key: key == routing_key

    @override
    def _queue_bind(self, *args: Any) -> None:
        """Do nothing: `queue_bind` has done it."""

    @override
    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        if exchange and self._is_broadcast(exchange):
            self._inplace_augment_message(message, exchange, routing_key)
            topic = topic_name(self._prefixed(exchange))
            self._exchange.call(self._exchange.publish(topic, message, routing_key or ""))
        else:
            super().basic_publish(message, exchange, routing_key, **kwargs)

    # Queues

    def _prefixed(self, name: str) -> str:
        return f"{self.connection.queue_name_prefix}{name}"

    @override
    def _new_queue(
        self, queue: str, auto_delete: bool = False, exclusive: bool = False, **kwargs: Any
    ) -> None:
        exchange = self._exchange
        if auto_delete or exclusive:
            exchange.call(exchange.declare_temporary(queue))
        else:
            exchange.call(exchange.declare_queue(self._prefixed(queue)))

    @override
    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        exchange = self._exchange
        return exchange.is_temporary(queue) or exchange.call(exchange.has_queue(self._prefixed(queue)))

    @override
    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        exchange = self._exchange
        if exchange.is_temporary(queue) or not self._has_queue(queue):
            # It is a temporary queue, of this connection or another one.
            exchange.call(exchange.declare_broadcast(REPLIES))
            exchange.call(exchange.publish(REPLIES, message, queue))
            return
        at_ms = delivery_time(message)
        topic = topic_name(self._prefixed(queue)) + ("" if at_ms is None else DELAYED)
        exchange.call(exchange.publish(topic, message, "", at_ms))

    @override
    def _size(self, queue: str) -> int:
        exchange = self._exchange
        return 0 if exchange.is_temporary(queue) else exchange.call(exchange.size(self._prefixed(queue)))

    @override
    def _purge(self, queue: str) -> int:
        exchange = self._exchange
        return 0 if exchange.is_temporary(queue) else exchange.call(exchange.purge(self._prefixed(queue)))

    @override
    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        exchange = self._exchange
        if exchange.is_temporary(queue):
            exchange.call(exchange.delete_temporary(queue))
        elif not if_empty or not self._size(queue):
            exchange.call(exchange.delete_queue(self._prefixed(queue)))
        self.state.queue_bindings_delete(queue)

    @override
    def after_reply_message_received(self, queue: str) -> None:
        """Keep the queue: a mailbox declares it once for all its calls."""

    # Messages

    @override
    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self._no_ack.add(queue)
        else:
            self._no_ack.discard(queue)
        exchange = self._exchange
        if exchange.is_temporary(queue):
            exchange.call(exchange.read_temporary(queue))
        elif queue in self._reading:
            exchange.thread.call_soon(self._reading[queue].intake.resume)
        else:
            self._read(queue)

    def _read(self, queue: str) -> ShareQueue:
        exchange = self._exchange
        found = self._reading[queue] = exchange.call(
            exchange.read_queue(self._prefixed(queue), self._room, exchange.arrived)
        )
        return found

    @override
    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return a message of a queue, or None."""
        while True:
            if self._exchange.is_temporary(queue):
                arrived = self._exchange.call(self._exchange.get_temporary(queue))
            else:
                arrived = self._get_one(queue)
            if arrived is None:
                return None
            tag = arrived.message["properties"].get("delivery_tag", "")
            if arrived.source is not None:
                self._unsettled[tag] = arrived.source, arrived.number
            if not self.can_read(arrived.message, tag):
                continue
            if no_ack:
                self.settle(tag, AcknowledgeType.ACCEPT)
            return self.Message(arrived.message, channel=self)

    def _get_one(self, queue: str) -> Arrived | None:
        if not self._size(queue):
            return None
        exchange = self._exchange
        if queue not in self._getters:
            arrivals = SingleArrivals()
            reading = exchange.read_queue(self._prefixed(queue), lambda: arrivals.room, arrivals)
            self._getters[queue] = exchange.call(reading), arrivals
        source, arrivals = self._getters[queue]
        return arrivals.get(lambda: exchange.thread.call_soon(source.intake.look), _GET_SECONDS)

    def _room(self) -> int:
        """Return how many more messages may be under way; on the loop."""
        held = sum(each.intake.held_count for each in list(self._reading.values()))
        return (self.qos.prefetch_count or WAITING_MAX) - held

    @override
    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        for each in list(self._reading.values()):
            self._exchange.thread.call_soon(each.intake.look)

    @override
    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues or not self._exchange.thread.is_usable:
            return
        if self._exchange.is_temporary(queue):
            self._exchange.call(self._exchange.stop_temporary(queue))
        elif queue in self._reading:
            # Those that were delivered can still be settled.
            self._exchange.thread.call_soon(self._reading[queue].intake.stop)

    def deliver(self, arrived: Arrived) -> None:
        """Note who settles a message."""
        source = arrived.source
        if source is not None:
            tag = arrived.message["properties"]["delivery_tag"]
            self._unsettled[tag] = source, arrived.number
            if arrived.queue in self._no_ack:
                self.settle(tag, AcknowledgeType.ACCEPT)

    def can_read(self, message: dict[str, Any], delivery_tag: str) -> bool:
        """Return whether kombu understands a message, and reject it if not: another program may have sent it.

        Its exceptions would end a worker, and then the next one, to which the message is delivered.
        """
        try:
            self.Message(message, channel=self)
        except Exception as error:
            logger.error("A message is rejected that kombu cannot read: %r", error)
            self.settle(delivery_tag, AcknowledgeType.REJECT, reason_of(error))
            return False
        return True

    def settle(self, delivery_tag: str, kind: AcknowledgeType, reason: str | None = None) -> None:
        """Acknowledge a message; from any thread."""
        found = self._unsettled.pop(delivery_tag, None)
        if found is not None:
            source, number = found
            self._exchange.thread.call_soon(source.intake.settle, number, kind, None, reason)

    def release_all(self) -> None:
        """Have all messages under way delivered again."""
        for tag in list(self._unsettled):
            self.settle(tag, AcknowledgeType.RELEASE)

    @override
    def close(self) -> None:
        if not self.closed and self._exchange.thread.is_usable:
            for queue in [*self._reading.values(), *(source for source, _ in self._getters.values())]:
                self._exchange.call(self._exchange.close_queue(queue))
        self._reading.clear()
        self._getters.clear()
        self._unsettled.clear()
        super().close()


class Transport(virtual.Transport):  # type: ignore[misc]  # kombu has no types
    """The transport of ``kalda://`` URLs.

    Options (`broker_transport_options` in Celery): `client_options` are settings of all clients, such as
    `security_protocol`; `producer_options` those of the producer; `topic` has `partitions`,
    `replication_factor` and `config` of topics that are created; `group_config` settings of the share groups;
    `queue_name_prefix` begins the name of each topic and group; `broadcast_exchanges` are durable exchanges
    whose queues are all temporary.
    """

    Channel = Channel
    default_port = 9092
    driver_type = "kalda"
    driver_name = "kalda"
    connection_errors = (
        *virtual.Transport.connection_errors,
        BootstrapError,
        BrokerConnectionError,
        IllegalStateError,
        RequestTimedOutError,
    )
    channel_errors = (*virtual.Transport.channel_errors, ClientError)
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(["direct", "topic", "fanout"]))

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options: Mapping[str, Any] = client.transport_options
        self.queue_name_prefix: Final[str] = options.get("queue_name_prefix", "")
        self.broadcast_exchanges: Final[Iterable[str]] = frozenset(
            options.get("broadcast_exchanges", [_EVENTS])
        )
        self._open: Exchange | None = None

    @property
    def exchange(self) -> Exchange:
        """The connection to the cluster."""
        if self._open is None:
            raise IllegalStateError("this connection is not established")
        return self._open

    @override
    def driver_version(self) -> str:
        from kalda import __version__

        return __version__

    @override
    def establish_connection(self) -> "Transport":
        options: Mapping[str, Any] = self.client.transport_options
        topic = options.get("topic", {})
        client_options = self._client_options()
        exchange = Exchange(
            f"{client_options['bootstrap_servers']}/{self.queue_name_prefix}",
            client_options,
            options.get("producer_options", {}),
            TaskTopics(
                topic.get("partitions"),
                topic.get("replication_factor"),
                topic.get("config", {}),
                options.get("group_config", {}),
            ),
        )
        try:
            exchange.call(exchange.start())
        except BaseException:
            exchange.thread.close()
            raise
        self._open = exchange
        super().establish_connection()
        return self

    def _client_options(self) -> dict[str, Any]:
        client = self.client
        options = {
            "bootstrap_servers": f"{client.hostname or 'localhost'}:{client.port or self.default_port}",
            **client.transport_options.get("client_options", {}),
        }
        if client.userid:
            options.setdefault("sasl_username", client.userid)
            options.setdefault("sasl_password", client.password)
            options.setdefault("sasl_mechanism", "SCRAM-SHA-256")
            options.setdefault("security_protocol", "SASL_SSL" if client.ssl else "SASL_PLAINTEXT")
        elif client.ssl:
            options.setdefault("security_protocol", "SSL")
        return options

    @override
    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        exchange, self._open = self._open, None
        if exchange is not None:
            try:
                if exchange.thread.is_usable:
                    exchange.call(exchange.close())
            finally:
                exchange.thread.close()

    @override
    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        while True:
            try:
                arrived = self.exchange.arrived.next(_LOOK_SECONDS if timeout is None else timeout)
                break
            except Empty:
                if timeout is not None:
                    raise TimeoutError("no message in time") from None
        self._pass_on(arrived)

    def _pass_on(self, arrived: Arrived) -> None:
        queue = arrived.queue.removeprefix(self.queue_name_prefix) if arrived.source else arrived.queue
        arrived.queue = queue
        callback = self._callbacks.get(queue)
        channel = next((each for each in self.channels if queue in each._active_queues), None)
        if callback is None or channel is None:
            if arrived.source is not None:
                # The consumer was cancelled meanwhile.
                intake = arrived.source.intake
                self.exchange.thread.call_soon(intake.settle, arrived.number, AcknowledgeType.RELEASE)
            return
        channel.deliver(arrived)
        if channel.can_read(arrived.message, arrived.message["properties"].get("delivery_tag", "")):
            callback(arrived.message)


def delivery_time(message: Mapping[str, Any]) -> int | None:
    """Return the time of a task with a countdown or an eta, in milliseconds since 1970.

    >>> delivery_time({"headers": {"eta": "2026-01-01T00:00:00+00:00"}})
    1767225600000
    """
    headers = message.get("headers")
    eta = headers.get("eta") if isinstance(headers, dict) else None
    if not isinstance(eta, str):
        return None
    try:
        time = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
