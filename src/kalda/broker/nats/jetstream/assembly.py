"""Builds the JetStream of a broker from the broker's parts."""

import asyncio
from collections.abc import Callable

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.nats.jetstream.jetstream import JetStream
from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts, OtherBrokers
from kalda.broker.nats.nats_access import RemoteClients
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.share.lazy_share import LazyShare
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.cluster.nats_streams import NatsStreamStore
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.nats.exchange import Exchange


def jetstream_factory(
    context: BrokerContext,
    cache: MetadataCache,
    replicas: ReplicaManager,
    topic_admin: TopicAdmin,
    fetches: DelayedOperationPurgatory,
    share: LazyShare,
) -> Callable[[Exchange, OtherBrokers, RemoteClients, asyncio.TaskGroup], JetStream]:
    """Return what makes JetStream over an exchange; its work runs in a task group."""

    def make(
        exchange: Exchange, others: OtherBrokers, clients: RemoteClients, tasks: asyncio.TaskGroup
    ) -> JetStream:
        parts = JetStreamParts(
            broker_id=context.broker_id,
            cache=cache,
            replicas=replicas,
            topic_admin=topic_admin,
            fetches=fetches,
            cluster=context.cluster_store,
            store=NatsStreamStore(context.cluster_store.zookeeper),
            states=lambda: share.parts.states,
            background=context.runtime.background,
            clock=context.clock,
            random=context.runtime.random,
            exchange=exchange,
            others=others,
            loop=asyncio.get_running_loop(),
            tasks=tasks,
            payload_bytes_max=context.config.kalda_nats_max_payload,
            request_timeout_ms=context.config.request_timeout_ms,
        )
        return JetStream(parts, clients)

    return make
