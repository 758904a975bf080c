"""Defines `JetStreamParts`, the parts of a broker that streams and consumers of JetStream use."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.nats.jetstream.later_calls import LaterCalls
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.nats_streams import NatsStreamStore
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.nats.exchange import Exchange
from kalda.nats.jetstream.shared_limits import SharedLimits
from kalda.nats.operations import Publish
from kalda.nats.routing import RoutedMessage
from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random

if TYPE_CHECKING:
    from kalda.broker.share.share_states import ShareStates

logger: Final = logging.getLogger(__name__)

QUEUED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that may wait for the client of a consumer before its next message waits in the log."""


@dataclass(slots=True)
class JetStreamCounts:
    """The counters of JetStream since the start of the broker."""

    requests: int = 0
    """Requests of the API that were answered."""
    errors: int = 0
    """Of these, those that were answered with an error."""
    stored: int = 0
    """Messages added to streams."""
    duplicates: int = 0
    """Messages that were not added, because one with their id was."""
    delivered: int = 0
    redelivered: int = 0
    """Deliveries of a message that its consumer had delivered before."""
    carried: int = 0
    """Requests, messages and acknowledgements that went to another broker."""


class OtherBrokers(Protocol):
    """The port to JetStream on other brokers."""

    def takes(self, broker_id: int) -> bool:
        """Return whether a request can be sent to a broker."""
        ...

    def send(self, broker_id: int, message: RoutedMessage) -> None:
        """Send a request to a broker that takes it."""
        ...

    def answer(self, reply: bytes, headers: bytes, payload: bytes) -> bool:
        """Answer a request of another broker; return False for the reply subject of a client."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamParts:
    """The parts of a broker that JetStream uses."""

    broker_id: int
    cache: MetadataCache
    replicas: ReplicaManager
    topic_admin: TopicAdmin
    fetches: DelayedOperationPurgatory
    """It reports appends and high watermarks of partitions."""
    cluster: ClusterStore
    store: NatsStreamStore
    states: "Callable[[], ShareStates]"
    """Returns what keeps the state of durable consumers."""
    background: Background
    clock: Clock
    random: Random
    exchange: Exchange
    others: OtherBrokers
    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup
    payload_bytes_max: int
    request_timeout_ms: int
    counts: JetStreamCounts = field(default_factory=JetStreamCounts)
    limits: SharedLimits = field(default_factory=SharedLimits)
    later: LaterCalls = field(default_factory=LaterCalls)

    def run(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run work that belongs to the broker."""
        self.tasks.create_task(_guarded(name, work), name=name)

    def send(self, subject: bytes, payload: bytes, headers: bytes = b"", reply: bytes = b"") -> bool:
        """Send a message to clients, or an answer to the broker that asks; return whether any gets it."""
        if self.others.answer(subject, headers, payload):
            return True
        return self.exchange.answer(Publish(subject, reply, headers, payload))


async def _guarded(name: str, work: Coroutine[object, object, None]) -> None:
    try:
        await work
    except Exception:
        # Not the broker's end: other clients go on.
        logger.exception("%s failed", name)
