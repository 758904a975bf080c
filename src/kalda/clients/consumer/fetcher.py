"""Keeps fetches in flight: sends what `FetchPlanner` plans and puts what arrives into the `FetchBuffer`.

It runs on the consumer's loop; `wake` is the only method for other threads. One fetch at a time goes to each
broker. Failures of partitions that the user has to know of are passed to `on_error`; all others are retried.

Every change that could allow another fetch calls `wake`: a response, room in the buffer, a position, an
assignment, new metadata, the end of a back-off.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.consumer.completed_fetch import CompletedFetch
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_errors import FetchCorruptionError, OffsetsOutOfRangeError
from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.fetch_planner import (
    Asked,
    FetchPlan,
    FetchPlanner,
    NodeFetch,
    Outcome,
    data_of,
    leader_of,
    outcome_of,
)
from kalda.clients.consumer.fetch_session import FetchSession, SessionRequest
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import BrokerConnectionError, ClientError, UnsupportedApiError, error_for
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.metrics.consumer_metrics import FetchMetrics, ResponseMetrics
from kalda.clients.network_client import NetworkClient
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import Pacer
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kalda.protocol.schema import Message
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_FETCH_VERSION_MIN: Final = 2
"""The first version with timestamps, that of Kafka 0.10.0; older brokers do not negotiate versions."""
_READ_COMMITTED_VERSION: Final = 4
"""The first version with transactions: Kafka 0.11."""
_VALIDATION_VERSION: Final = 3
"""The first version of OffsetForLeaderEpoch that consumers may use (KIP-320)."""
_FRUITLESS_FREE: Final = 10
"""Early responses in a row without records: preferred replicas, moved leaders and new sessions cause some."""
_SMALL_BYTES: Final = 16 * 1024
"""Records of a response up to which the consumer counts as one that has caught up."""
_ANSWER_MARGIN_MS: Final = 5_000
"""Time for a response to arrive, beyond what the broker may wait for data."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A fetch in flight."""

    node: int
    session: FetchSession
    fetch: NodeFetch
    is_full: bool
    """Whether it starts a session, or asks for none."""
    at: float
    """The loop's time when it was sent."""


class Fetcher:
    """The fetches of one consumer.

    Args:
        config: The consumer's settings.
        network: The connections.
        subscription: The positions to fetch from.
        buffer: Where fetched records go.
        on_ready: Called on the loop when the buffer has new records.
        on_error: Called on the loop with an error that the user's next `poll` raises.
        shares_loop: Whether a task of the user takes the records on this loop.
        metrics: Counts requests, records and lag; None leaves that out.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        network: NetworkClient,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        *,
        on_ready: Callable[[], None],
        on_error: Callable[[ClientError], None],
        shares_loop: bool = False,
        metrics: FetchMetrics | None = None,
    ) -> None:
        self._shares_loop: Final = shares_loop
        self._metrics: Final = metrics
        self.needs_room = False
        """Whether something is not fetched before the user has read some records; see `wake`."""
        self._config: Final = config
        self._network: Final = network
        self._subscription: Final = subscription
        self._buffer: Final = buffer
        self._on_ready: Final = on_ready
        self._on_error: Final = on_error
        self._planner: Final = FetchPlanner(config, subscription)
        self._loop: Final = asyncio.get_running_loop()
        self._sessions: Final[dict[int, FetchSession]] = {}
        # When a broker that refused a full fetch may be asked again, by the loop's time.
        self._not_before: Final[dict[int, float]] = {}
        self._in_flight: Final[dict[int, asyncio.Future[Message]]] = {}
        self._connecting: Final[dict[int, asyncio.Task[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False
        self._is_closed = False
        self._backoff: Final = network.retry_backoff
        # By broker: paces responses that bring nothing before `fetch.max.wait.ms`, and refused sessions.
        self._pacers: Final[dict[int, Pacer]] = {}
        self._read_committed: Final = config.isolation is IsolationLevel.READ_COMMITTED
        self._version_min: Final = _READ_COMMITTED_VERSION if self._read_committed else _FETCH_VERSION_MIN
        subscription.topic_id_of = lambda name: network.metadata.snapshot.topic_id(name)
        network.metadata.on_update.append(self._on_metadata)

    def wake(self) -> None:
        """Look soon for something to fetch; on the loop's thread."""
        if not self._is_woken and not self._is_closed:
            self._is_woken = True
            self._loop.call_soon(self._send)

    async def close(self, timeout_s: float) -> None:
        """Close the fetch sessions at the brokers and end the tasks; takes `timeout_s` at most."""
        self._is_closed = True
        self._network.metadata.on_update.remove(self._on_metadata)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._connecting.values():
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        # A fetch in flight may wait at the broker for longer than closing should take, and a session is
        # evicted by itself. So only idle connections carry the request that closes the session.
        idle = [
            (node, session)
            for node, session in self._sessions.items()
            if session.is_open and node not in self._in_flight and self._network.is_ready(node)
        ]
        if idle and timeout_s > 0:
            closing = [self._loop.create_task(self._close_session(*each)) for each in idle]
            _, late = await asyncio.wait(closing, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for future in self._in_flight.values():
            future.cancel()
        self._in_flight.clear()
        self._buffer.clear()

    def _send(self) -> None:
        self._is_woken = False
        if self._is_closed:
            return
        now = self._loop.time()
        network = self._network
        snapshot = network.metadata.snapshot
        unread = self._buffer.unread_bytes()
        for partition in self._planner.excess(unread):
            # It is paused; it is fetched again when it is resumed.
            self._subscription.refetch(partition)
            self._buffer.drop_stale()
        plan = self._plan(snapshot, now, unread)
        if plan.needs_metadata and self._learn_leaders(snapshot, now):
            plan = self._plan(snapshot, now, unread)
        self.needs_room = plan.needs_room
        if plan.needs_metadata:
            network.metadata.request_update()
        for node, fetch in plan.fetches.items():
            if network.is_ready(node):
                self._fetch(node, fetch, self._planner.bytes_wanted(unread))
            else:
                self._connect(node)
        self._set_timer(plan.retry_at, now)

    def _plan(self, snapshot: ClusterMetadata, now: float, unread: Mapping[TopicPartition, int]) -> FetchPlan:
        return self._planner.plan(
            snapshot,
            now,
            unread=unread,
            busy=self._in_flight.keys() | self._connecting.keys(),
            is_reachable=lambda node: self._delay(node, now) <= 0,
        )

    def _learn_leaders(self, snapshot: ClusterMetadata, now: float) -> bool:
        """Give positions set before the metadata was known their leaders; return whether there are any."""
        without = [each for each in self._subscription.fetchable(now) if each.position.leader.leader_id < 0]
        for each in without:
            self._change_leader(snapshot, each.topic_partition)
        return bool(without)

    def _on_metadata(self, snapshot: ClusterMetadata) -> None:
        for partition in self._subscription.assigned():
            self._change_leader(snapshot, partition)
        self.wake()

    def _change_leader(self, snapshot: ClusterMetadata, partition: TopicPartition) -> None:
        if self._subscription.change_topic_id(partition, snapshot.topic_id(partition.topic)):
            logger.warning(
                "Topic %s was deleted and created again; the position in %s is looked up again, and "
                "`auto.offset.reset`=%s applies.",
                partition.topic,
                partition,
                self._subscription.default_reset,
            )
            self._buffer.drop_stale()
            self._on_ready()
        leader = leader_of(snapshot, partition)
        network = self._network
        can_validate = not network.is_ready(leader.leader_id) or network.versions(leader.leader_id).supports(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, _VALIDATION_VERSION
        )
        self._subscription.change_leader(partition, leader, can_validate=can_validate)

    def _fetch(self, node: int, fetch: NodeFetch, bytes_max: int) -> None:
        session = self._sessions.setdefault(node, FetchSession())
        config = self._config
        try:
            version = self._network.versions(node).latest(ApiKey.FETCH, version_min=self._version_min)
        except UnsupportedApiError as error:
            # The broker may be replaced by a newer one.
            self._not_before[node] = self._loop.time() + self._backoff.seconds(1)
            self._on_error(error)
            return
        request = session.next_request(fetch.targets, version)
        sent = _Sent(node, session, fetch, request.is_full, self._loop.time())
        try:
            self._in_flight[node] = self._network.send_nowait(
                node,
                self._request(request, bytes_max),
                request.version,
                max(config.request_timeout_ms, config.fetch_max_wait_ms + _ANSWER_MARGIN_MS),
                lambda done: self._on_response(sent, done),
            )
        except BrokerConnectionError as error:
            self._failed(node, session, error)

    def _request(self, request: SessionRequest, bytes_max: int) -> FetchRequest:
        config = self._config
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=bytes_max,
            isolation_level=int(config.isolation),
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten_topics_data=request.forgotten,
            rack_id=config.client_rack,
        )

    def _on_response(self, sent: _Sent, future: "asyncio.Future[Message]") -> None:
        if self._is_closed:
            if not future.cancelled():
                future.exception()
            return
        del self._in_flight[sent.node]
        failure = future.exception()
        if failure is not None:
            if not isinstance(failure, ClientError):
                raise failure
            self._failed(sent.node, sent.session, failure)
            return
        response = future.result()
        assert isinstance(response, FetchResponse), f"a {type(response).__name__}"
        if self._metrics is not None:
            self._metrics.response_received(self._loop.time() - sent.at, response.throttle_time_ms)
        found = sent.session.received(response)
        new_bytes = 0
        if found is None:
            self._refused(sent, response)
        else:
            new_bytes = self._take(sent.node, found, sent.fetch, response)
        self._pace(sent, has_new=new_bytes > 0)
        if self._shares_loop and 0 < new_bytes <= _SMALL_BYTES:
            # The user's task first. There is little to fetch while it works on these records.
            self._on_ready()
            self.wake()
            return
        if not self._is_woken:
            self._send()
        if new_bytes:
            # Last: the user's thread could not run before this one waits again, and would be woken twice.
            self._on_ready()

    def _pace(self, sent: _Sent, *, has_new: bool) -> None:
        """Hold the next fetch back if the broker keeps answering at once without records."""
        now = self._loop.time()
        pacer = self._pacers.get(sent.node)
        if has_new or now - sent.at >= self._config.fetch_max_wait_ms / 2000:
            if pacer is not None:
                pacer.reset()
            return
        if pacer is None:
            pacer = self._pacers[sent.node] = Pacer(self._backoff, _FRUITLESS_FREE)
        wait = pacer.seconds()
        if wait:
            self._not_before[sent.node] = max(self._not_before.get(sent.node, 0.0), now + wait)

    def _refused(self, sent: _Sent, response: FetchResponse) -> None:
        """Start the session over: at once, unless the broker refused the very request that starts one."""
        if response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._network.metadata.request_update()
        logger.debug("Fetch session with broker %d starts over: error %d.", sent.node, response.error_code)
        if sent.is_full:
            self._not_before[sent.node] = self._loop.time() + self._backoff.seconds(1)

    def _take(
        self, node: int, found: dict[TopicPartition, PartitionData], fetch: NodeFetch, response: FetchResponse
    ) -> int:
        """Take the partitions of a response; return the bytes of new records."""
        new_bytes = 0
        response_metrics = self._response_metrics(found)
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        for partition, data in found.items():
            asked = fetch.asked[partition]
            code = ErrorCode.of(data.error_code)
            if code == ErrorCode.NONE:
                new_bytes += self._take_records(partition, asked, data, response_metrics)
                continue
            if data.current_leader.leader_id >= 0 and data.current_leader.leader_epoch >= 0:
                leaders[partition] = data.current_leader.leader_id, data.current_leader.leader_epoch
            if self._planner.is_wanted(partition, asked):
                self._partition_failed(node, partition, asked, code)
        if leaders:
            endpoints = [
                BrokerEndpoint(each.node_id, each.host, each.port, each.rack)
                for each in response.node_endpoints
            ]
            self._network.metadata.update_leaders(leaders, endpoints)
        return new_bytes

    def _response_metrics(self, found: dict[TopicPartition, PartitionData]) -> ResponseMetrics | None:
        with_data = sum(1 for data in found.values() if data.records)
        return None if self._metrics is None or not with_data else ResponseMetrics(self._metrics, with_data)

    def _take_records(
        self,
        partition: TopicPartition,
        asked: Asked,
        data: PartitionData,
        response_metrics: ResponseMetrics | None,
    ) -> int:
        fetch = self._completed(partition, asked, data, response_metrics)
        if fetch is not None:
            self._buffer.add(fetch)
            return fetch.size
        if response_metrics is not None and data.records:
            response_metrics.drained(partition.topic, 0, 0)
        return 0

    def _completed(
        self,
        partition: TopicPartition,
        asked: Asked,
        data: PartitionData,
        response_metrics: ResponseMetrics | None,
    ) -> CompletedFetch | None:
        """Return the records of one partition; None if there are none that are wanted."""
        subscription = self._subscription
        if not self._planner.is_wanted(partition, asked):
            return None
        subscription.update_end(
            partition,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
        )
        if data.preferred_read_replica >= 0:
            lease = self._config.metadata_max_age_ms / 1000
            subscription.set_preferred_replica(
                partition, data.preferred_read_replica, self._loop.time() + lease
            )
            if self._metrics is not None:
                self._metrics.read_replica(partition, data.preferred_read_replica)
        records = data_of(data)
        if not records:
            return None
        reason = self._planner.received(partition, asked, records)
        if reason is not None:
            self._planner.failed(partition, self._loop.time(), self._backoff)
            self._on_error(FetchCorruptionError(partition, asked.offset, reason))
            return None
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        return CompletedFetch(
            partition,
            asked.generation,
            asked.offset,
            records,
            aborted if self._read_committed else (),
            check_crcs=self._config.check_crcs,
            response_metrics=response_metrics,
        )

    def _partition_failed(self, node: int, partition: TopicPartition, asked: Asked, code: ErrorCode) -> None:
        self._planner.failed(partition, self._loop.time(), self._backoff)
        outcome = outcome_of(code)
        if outcome is Outcome.OUT_OF_RANGE:
            self._out_of_range(partition, asked)
            return
        self._subscription.clear_preferred_replica(partition)
        if outcome is Outcome.REFRESH_METADATA:
            logger.debug("Fetch of %s at offset %d: %s.", partition, asked.offset, code.name)
            self._network.metadata.request_update()
        elif outcome is Outcome.RETRY:
            logger.info("Fetch of %s at offset %d: %s; retrying.", partition, asked.offset, code.name)
        else:
            broker = self._network.metadata.snapshot.broker_text(node)
            self._on_error(error_for(code, f"fetch of {partition} at offset {asked.offset} from {broker}"))

    def _out_of_range(self, partition: TopicPartition, asked: Asked) -> None:
        subscription = self._subscription
        if subscription.clear_preferred_replica(partition) is not None:
            # A follower may lag behind; the leader decides.
            return
        position = subscription.next_position(partition, asked.generation)
        if position is None or position.offset != asked.offset:
            # Records before that offset are fetched and unread; the leader is asked again after them.
            return
        if subscription.has_default_reset:
            logger.info(
                "Offset %d of %s is out of range; resetting to %s.",
                asked.offset,
                partition,
                subscription.default_reset,
            )
            subscription.reset_out_of_range(partition)
            self._on_ready()
        else:
            self._on_error(OffsetsOutOfRangeError({partition: asked.offset}))

    def _failed(self, node: int, session: FetchSession, error: ClientError) -> None:
        logger.debug("Fetch from broker %d failed: %s", node, error)
        for partition in session.partitions:
            self._subscription.clear_preferred_replica(partition)
        session.restart()
        self._network.metadata.request_update()
        self.wake()

    def _connect(self, node: int) -> None:
        self._connecting[node] = self._loop.create_task(self._ready(node), name=f"fetcher connects to {node}")

    async def _ready(self, node: int) -> None:
        try:
            await self._network.ready(node)
        except ClientError as error:
            logger.debug("Broker %d cannot be reached: %s", node, error)
            self._set_timer(self._loop.time() + self._backoff.seconds(1), self._loop.time())
        finally:
            del self._connecting[node]
            self.wake()

    def _delay(self, node: int, now: float) -> float:
        """Return for how many seconds no fetch may go to a broker; 0 or less for now."""
        return max(self._network.connection_delay(node), self._not_before.get(node, 0.0) - now)

    def _set_timer(self, retry_at: float | None, now: float) -> None:
        """Wake up when a partition or a broker may be asked again."""
        delays = [
            delay for node in self._network.metadata.snapshot.brokers if (delay := self._delay(node, now)) > 0
        ]
        if retry_at is not None:
            delays.append(retry_at - now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delays:
            self._timer = self._loop.call_later(max(min(delays), 0.001), self.wake)

    async def _close_session(self, node: int, session: FetchSession) -> None:
        version = self._network.versions(node).latest(ApiKey.FETCH, version_min=self._version_min)
        request = session.closing_request(version)
        try:
            await self._network.send_nowait(
                node, self._request(request, 1), request.version, self._config.request_timeout_ms
            )
        except ClientError as error:
            logger.debug("Fetch session with broker %d was not closed: %s", node, error)
