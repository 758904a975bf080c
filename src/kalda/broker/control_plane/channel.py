"""Sends the controller's requests to brokers: over one connection to each, and by a call to its own.

`ControllerChannel` implements `kalda.controller.ports.BrokerChannel`: it delivers requests in order, at least
once. The controller's driver retries, and gives up on brokers that have left. The channel opens a connection
again when it failed, when the broker registered again, or when its endpoint changed.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, assert_never

from kalda.broker.control_plane.request_builders import (
    leader_and_isr_request,
    read_leader_and_isr_response,
    read_stop_replica_response,
    stop_replica_request,
    update_metadata_request,
)
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kalda.protocol.messages.stop_replica import StopReplicaResponse
from kalda.protocol.messages.update_metadata import UpdateMetadataResponse
from kalda.protocol.schema import Message

logger: Final = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST: Final = 1000
"""The most partitions of one request. Encoding or decoding them blocks the event loop for some five
milliseconds, and a broker with a slow disk can create that many logs before the request times out."""

Errors = dict[TopicPartition, ErrorCode]


class _Link(NamedTuple):
    """A connection and the broker registration that it was opened for."""

    connection: PeerConnection
    endpoint: ListenerEndpoint
    epoch: int


class ControllerRoute(NamedTuple):
    """A listener of brokers on which the controller sends its requests, and how to connect to it."""

    listener: str
    dialer: Dialer


class ControllerChannel:
    """Delivers the controller's requests to brokers; a `kalda.controller.ports.BrokerChannel`."""

    def __init__(
        self,
        broker_id: int,
        requests: ControllerRequests,
        routes: Sequence[ControllerRoute],
        *,
        timeout_ms: int,
    ) -> None:
        """Use the first of the `routes` whose listener a broker has; the last is the inter-broker listener.

        `requests` receives the requests for this broker.
        """
        self._broker_id: Final = broker_id
        self._requests: Final = requests
        self._routes: Final = tuple(routes)
        self._listener: Final = routes[-1].listener
        self._timeout_seconds: Final = timeout_ms / 1000
        self._links: Final[dict[int, _Link]] = {}
        self._brokers: dict[int, BrokerInfo] = {}
        """The live brokers of the last UpdateMetadata; LeaderAndIsr carries the addresses of leaders."""

    async def send(self, broker: BrokerInfo, request: BrokerRequest) -> Errors:
        """Deliver one request; see `BrokerChannel`.

        Raises:
            ConnectionError: the broker cannot be reached or did not answer.
        """
        if isinstance(request, UpdateMetadata):
            self._brokers = {each.id: each for each in request.brokers}
        if broker.id == self._broker_id:
            return await self._apply(broker, request)
        errors: Errors = {}
        for part in _split(request):
            errors.update(await self._send_part(broker, part))
        return errors

    def close(self) -> None:
        """Close every connection; requests in flight fail."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    async def _apply(self, broker: BrokerInfo, request: BrokerRequest) -> Errors:
        try:
            return await self._requests.apply(request, broker.epoch)
        except ApiError as error:
            return _refused(broker, request, error.code)

    async def _send_part(self, broker: BrokerInfo, part: BrokerRequest) -> Errors:
        link = await self._link(broker)
        response = await link.connection.request(
            self._message(broker, part, link.connection), timeout_seconds=self._timeout_seconds
        )
        code = ErrorCode.of(getattr(response, "error_code", ErrorCode.NONE))
        if code is not ErrorCode.NONE:
            return _refused(broker, part, code)
        if isinstance(response, LeaderAndIsrResponse):
            assert isinstance(part, LeaderAndIsr), f"an answer to {part}"
            errors = read_leader_and_isr_response(part, response)
            if not broker.is_kalda:
                # Kafka's answer for a leader epoch that it has already: a new controller sends all of them.
                # To a controller that was replaced, it answers so for the whole request.
                errors = {
                    p: each for p, each in errors.items() if each is not ErrorCode.STALE_CONTROLLER_EPOCH
                }
            return errors
        if isinstance(response, StopReplicaResponse):
            return read_stop_replica_response(response)
        assert isinstance(response, UpdateMetadataResponse), f"a {type(response).__name__}"
        return {}

    def _message(self, broker: BrokerInfo, part: BrokerRequest, connection: PeerConnection) -> Message:
        if isinstance(part, LeaderAndIsr):
            leaders = sorted({each.leader for each in part.partitions if each.leader in self._brokers})
            addresses = {leader: self._brokers[leader].endpoint(self._listener) for leader in leaders}
            version = connection.version_of(ApiKey.LEADER_AND_ISR)
            return leader_and_isr_request(part, broker.epoch, addresses, version)
        if isinstance(part, StopReplica):
            return stop_replica_request(part, broker.epoch)
        if isinstance(part, UpdateMetadata):
            version = connection.version_of(ApiKey.UPDATE_METADATA)
            return update_metadata_request(part, broker.epoch, version)
        assert_never(part)

    async def _link(self, broker: BrokerInfo) -> _Link:
        """Return the connection to a broker under its present registration; open one if there is none."""
        endpoint, dialer = self._way(broker)
        link = self._links.get(broker.id)
        if link is not None:
            if not link.connection.is_closed and (link.endpoint, link.epoch) == (endpoint, broker.epoch):
                return link
            link.connection.close()
            del self._links[broker.id]
        connection = await dialer.dial(
            endpoint.host,
            endpoint.port,
            DialOptions(client_id=str(self._broker_id), timeout_seconds=self._timeout_seconds),
        )
        link = self._links[broker.id] = _Link(connection, endpoint, broker.epoch)
        return link

    def _way(self, broker: BrokerInfo) -> tuple[ListenerEndpoint, Dialer]:
        # A broker that was not restarted since the control plane was set up has the last listener only.
        for route in self._routes:
            endpoint = broker.endpoint(route.listener)
            if endpoint is not None:
                return endpoint, route.dialer
        raise ConnectionError(f"broker {broker.id} has no listener {self._listener}")


def _split(request: BrokerRequest) -> Iterator[BrokerRequest]:
    """Split a large request; a full LeaderAndIsr stays whole, because its receiver needs all roles at once.

    Only the last part of a full UpdateMetadata is full, since with it the receiver has every partition.
    """
    count = len(request.partitions)
    if count <= PARTITIONS_PER_REQUEST or (isinstance(request, LeaderAndIsr) and request.is_full):
        yield request
        return
    for start in range(0, count, PARTITIONS_PER_REQUEST):
        end = start + PARTITIONS_PER_REQUEST
        # Three branches for mypy: the classes of `partitions` differ.
        if isinstance(request, StopReplica):
            yield replace(request, partitions=request.partitions[start:end])
        elif isinstance(request, UpdateMetadata):
            is_full = request.is_full and end >= count
            yield replace(request, partitions=request.partitions[start:end], is_full=is_full)
        else:
            yield replace(request, partitions=request.partitions[start:end])


def _refused(broker: BrokerInfo, request: BrokerRequest, code: ErrorCode) -> Errors:
    """Return the error of a refused request for each of its partitions.

    Raises:
        ConnectionError: the broker can apply the request later.
    """
    name = type(request).__name__
    if code is ErrorCode.BROKER_NOT_AVAILABLE:
        raise ConnectionError(f"broker {broker.id} cannot take {name} now: {code.message}")
    # This controller was replaced, or the broker has restarted; a watch notifies the driver of either.
    logger.warning("broker %d refused %s: %s", broker.id, name, code.name)
    if isinstance(request, UpdateMetadata):
        return {}
    partitions = (
        request.partitions
        if isinstance(request, StopReplica)
        else [each.topic_partition for each in request.partitions]
    )
    return dict.fromkeys(partitions, code)
