"""Sends the requests of one group to its coordinator, and forgets a coordinator that cannot be reached."""

import asyncio
from typing import Final, TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import BrokerConnectionError, RequestTimedOutError
from kalda.clients.metrics.consumer_metrics import CoordinatorMetrics, HeartbeatMetrics
from kalda.clients.network_client import NetworkClient, broker_id_of
from kalda.clients.versioned_request import VersionedRequest
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kalda.protocol.messages.heartbeat import HeartbeatResponse
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.messages.offset_commit import OffsetCommitResponse
from kalda.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse
from kalda.protocol.schema import Message

R = TypeVar("R", bound=Message)

_HEARTBEATS: Final = (HeartbeatResponse, ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)


class GroupRequests:
    """Requests of one group."""

    def __init__(self, client: NetworkClient, group_id: str, metrics: HeartbeatMetrics | None = None) -> None:
        self._metrics: Final = metrics
        self.client: Final = client
        self.group_id: Final = group_id
        self._coordinator_id = -1
        """The broker that the last request was for."""
        self._may_be_held = False
        """Whether a JoinGroup or SyncGroup has no response yet, even if no task awaits one."""

    async def find_coordinator(self) -> None:
        """Look the coordinator up unless it is known. One attempt.

        Raises:
            ClientError: there is none now, or the client may not use the group.
        """
        await self.client.coordinator(self.group_id, CoordinatorType.GROUP)

    def coordinator_text(self) -> str:
        """Return the broker of the last request, as messages name it."""
        return self.client.metadata.snapshot.broker_text(self._coordinator_id)

    def forget_coordinator(self) -> None:
        """Look the coordinator up again before the next request."""
        self.client.forget_coordinator(self.group_id, CoordinatorType.GROUP)

    async def send(
        self,
        request: Message | VersionedRequest,
        response_class: type[R],
        *,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request to the coordinator; one attempt.

        The time-out, `request.timeout.ms` unless given, bounds the look-up of the coordinator as well.

        Behind a JoinGroup or SyncGroup, which the coordinator may hold for minutes, it goes over the broker's
        other connection: a broker answers the requests of one connection in turn.

        Raises:
            ClientError: as `NetworkClient.coordinator` and `NetworkClient.send`.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = self.client.config.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                node_id = await self.client.coordinator(self.group_id, CoordinatorType.GROUP)
        except TimeoutError:
            raise RequestTimedOutError(
                f"no broker named the coordinator of group {self.group_id} within {timeout_ms} ms"
            ) from None
        broker_id = self._coordinator_id = broker_id_of(node_id)
        is_held = response_class in (JoinGroupResponse, SyncGroupResponse)
        is_behind = self._may_be_held and not is_held and self.client.in_flight_count(node_id) > 0
        if is_behind and broker_id in self.client.metadata.snapshot.brokers:
            node_id = broker_id
        self._may_be_held |= is_held
        sent_at = self.client.clock.monotonic()
        if self._metrics is not None and response_class in _HEARTBEATS:
            self._metrics.heartbeat_sent()
        try:
            response = await self.client.send(
                node_id,
                request,
                response_class,
                timeout_ms=max(round((deadline - loop.time()) * 1000), 1),
            )
        except (BrokerConnectionError, RequestTimedOutError):
            self.forget_coordinator()
            raise
        self._may_be_held &= not is_held
        if self._metrics is not None:
            _count(self._metrics, response, self.client.clock.monotonic() - sent_at)
        return response


def _count(metrics: HeartbeatMetrics, response: Message, latency_s: float) -> None:
    if isinstance(response, _HEARTBEATS):
        metrics.heartbeat_answered(latency_s)
    elif isinstance(metrics, CoordinatorMetrics):
        match response:
            case JoinGroupResponse():
                metrics.joined(latency_s)
            case SyncGroupResponse():
                metrics.synced(latency_s)
            case OffsetCommitResponse():
                metrics.committed(latency_s)
