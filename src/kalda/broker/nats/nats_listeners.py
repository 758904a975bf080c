"""Opens the NATS listeners of a broker at its start and closes them at its end."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.nats.mapped_subjects import MappedSubjects
from kalda.broker.nats.nats_access import RemoteClients
from kalda.broker.nats.nats_client import PENDING_CHECK_PARTS
from kalda.broker.nats.nats_routes import NatsRoutes
from kalda.broker.nats.nats_server import NatsLimits, NatsServer, ServerIdentity
from kalda.broker.nats.password_check import PasswordCheck
from kalda.broker.nats.topic_reader import TopicReader
from kalda.broker.nats.topic_writer import ProducerIdSource, TopicWriter
from kalda.common.types import TopicPartition
from kalda.nats.exchange import RUN_BYTES_MAX, Exchange
from kalda.nats.routing import Routing
from kalda.nats.subject_rules import SubjectRules
from kalda.net.listener_security import ListenerSecurity
from kalda.settings import ListenerConfig
from kalda.storage.descriptors import descriptors_max

if TYPE_CHECKING:
    from kalda.broker.nats.jetstream.jetstream import JetStream

logger: Final = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 1.0
"""How long a shutdown waits until clients have read what they were sent."""

DESCRIPTORS_SHARE: Final = 3
"""NATS's connections use one in this many descriptors, as logs do; the others serve Kafka's clients."""


def connections_limit(setting: int) -> int:
    """Return the limit of connections: the setting's, or less where open files do not suffice."""
    descriptors = descriptors_max()
    if descriptors is None or setting * DESCRIPTORS_SHARE <= descriptors:
        return setting
    share = max(1, descriptors // DESCRIPTORS_SHARE)
    logger.info(
        "NATS clients get at most %d connections, a third of the %d open files of this process (ulimit -n), "
        "instead of kalda.nats.max.connections=%d",
        share,
        descriptors,
        setting,
    )
    return share


JetStreamFactory = Callable[[Exchange, NatsRoutes, RemoteClients, asyncio.TaskGroup], "JetStream"]


class NatsListeners:
    """The NATS listeners of one broker and the messages between their clients."""

    def __init__(
        self,
        context: BrokerContext,
        cache: MetadataCache,
        producer_ids: ProducerIdSource,
        tasks: asyncio.TaskGroup,
        jetstream: "JetStreamFactory | None" = None,
    ) -> None:
        """`jetstream` makes what serves streams; None if they are not served."""
        config, access = context.config, context.access
        exchange = Exchange(context.runtime.random.randrange)
        exchange.run_bytes_max = min(
            RUN_BYTES_MAX, max(1, config.kalda_nats_max_pending // PENDING_CHECK_PARTS)
        )
        self._tasks: Final = tasks
        self._running: Final[list[asyncio.Task[None]]] = []
        self._listeners: Final[Sequence[ListenerConfig]] = config.nats_listeners
        self._tls: Final = access.tls
        self.server: Final = NatsServer(
            NatsLimits(
                connections_max=connections_limit(config.kalda_nats_max_connections),
                payload_bytes_max=config.kalda_nats_max_payload,
                pending_bytes_max=config.kalda_nats_max_pending,
                subscriptions_max=config.kalda_nats_max_subscriptions,
                ping_seconds=config.kalda_nats_ping_interval_ms / 1000,
            ),
            ServerIdentity(broker_id=context.broker_id, cluster_id=context.cluster_id),
            exchange,
            PasswordCheck(access.scram_credentials.find, context.runtime.background),
            access.authorizer,
            context.runtime.network,
            tasks,
            has_jetstream=jetstream is not None,
        )
        self.server.on_login = access.audit.login
        self.server.register_metrics(context.metrics)
        routing = Routing(context.broker_id, exchange, context.runtime.random.randrange)
        self.routes: Final = NatsRoutes(
            context.broker_id,
            routing,
            cache,
            context.brokers,
            context.dialer,
            context.clock,
            context.runtime.random,
            listener=config.inter_broker_listener_name,
            pending_bytes_max=config.kalda_nats_max_pending,
        )
        self.routes.register_metrics(context.metrics)
        self._mapped: Final = _map_subjects(context, cache, producer_ids, exchange, routing)
        if self._mapped is not None:
            self.server.rules, self.server.mapped = self._mapped
            self._mapped[1].register_metrics(context.metrics)
        # After those that observe the exchange from its first subscription on.
        clients = RemoteClients(access.authorizer, self.server.rules)
        self.jetstream: Final = (
            None if jetstream is None else jetstream(exchange, self.routes, clients, tasks)
        )
        if self.jetstream is not None:
            self.jetstream.register_metrics(context.metrics)
            self.routes.on_lost = self.jetstream.lost
            self.routes.on_carried(self.jetstream.take_carried)
            self.routes.on_interest(self.jetstream.on_subscription)
        self.ports: Final[dict[str, int]] = {}
        """The bound port of each listener that is open."""

    async def open(self) -> None:
        """Open the listeners; their connections wait until `accept`.

        Raises:
            OSError: an address cannot be bound; the message names it.
        """
        self._running.append(self._tasks.create_task(self.routes.run(), name="NATS routes"))
        if self._mapped is not None:
            self._running.append(self._tasks.create_task(self._mapped[1].run(), name="NATS and topics"))
        for each in self._listeners:
            security = ListenerSecurity(tls=self._tls.listener(each.name))
            try:
                port = await self.server.open(
                    each.name, each.host, each.port, security=security, needs_login=each.uses_sasl
                )
            except OSError as error:
                text = f"listener {each} cannot be opened: {error.strerror or error}"
                raise OSError(error.errno, text) from error
            self.ports[each.name] = port
            logger.info("listener %s serves clients of NATS at port %d", each, port)

    def cluster_known(self) -> None:
        """Note that the broker has the cluster's metadata."""
        if self._mapped is not None:
            self._mapped[1].cluster_known()

    async def accept(self) -> None:
        """Serve the clients, who find the streams that the cluster has."""
        if self.jetstream is not None:
            await self.jetstream.wait_ready()
        self.server.start_accepting()

    async def close(self) -> None:
        """Close the listeners and the connections of their clients."""
        if self.jetstream is not None:
            self.jetstream.close()
        self.server.begin_to_close()
        await self.server.close(DRAIN_SECONDS)
        if self._mapped is not None:
            await self._mapped[1].drain()
        await self.routes.drain(DRAIN_SECONDS)
        self._cancel()

    def abort(self) -> None:
        """Close everything at once."""
        if self.jetstream is not None:
            self.jetstream.close()
        self.server.begin_to_close()
        self.server.abort()
        self._cancel()

    def _cancel(self) -> None:
        for each in self._running:
            each.cancel()


def _map_subjects(
    context: BrokerContext,
    cache: MetadataCache,
    producer_ids: ProducerIdSource,
    exchange: Exchange,
    routing: Routing,
) -> tuple[SubjectRules, MappedSubjects] | None:
    """Return the rules and the mapped subjects made from them; None without rules."""
    config, runtime = context.config, context.runtime
    rules = SubjectRules(config.kalda_nats_subjects)
    if not rules:
        return None

    def takes_queue(subject: bytes, queue: bytes, name: TopicPartition) -> bool:
        return routing.serves(subject, queue, str(name).encode())

    listener, timeout_ms = config.inter_broker_listener_name, config.request_timeout_ms
    writer = TopicWriter(
        context.broker_id,
        cache,
        producer_ids,
        context.dialer,
        runtime.clock,
        runtime.random,
        listener=listener,
        timeout_ms=timeout_ms,
    )
    reader = TopicReader(
        context.broker_id,
        cache,
        exchange,
        rules,
        takes_queue,
        context.dialer,
        runtime.background,
        runtime.random,
        listener=listener,
        timeout_ms=timeout_ms,
        payload_bytes_max=config.kalda_nats_max_payload,
    )
    return rules, MappedSubjects(rules, exchange, writer, reader)
