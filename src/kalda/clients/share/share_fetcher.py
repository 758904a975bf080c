"""Sends ShareFetch and ShareAcknowledge requests: one task and one session for each broker.

A broker gets one request at a time, because the epochs of a session count. Records are fetched only while a
poll waits for some (`fetch`): their locks run while they are buffered. Acknowledgements go with a fetch, or
alone where none is due. Each gets exactly one outcome; none is sent twice, because a session that may have
lost a request is replaced, and what the former session had acquired is left to the broker.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kalda.clients.consumer.fetch_planner import Outcome, outcome_of
from kalda.clients.errors import ClientError, RequestTimedOutError, UnsupportedApiError, error_for
from kalda.clients.metrics.share_metrics import ShareFetchMetrics
from kalda.clients.network_client import NetworkClient
from kalda.clients.share.acknowledgements import (
    Acknowledgements,
    CommitTicket,
    PartitionAcknowledgements,
    SharePartition,
)
from kalda.clients.share.acquired_records import AcquiredRecords
from kalda.clients.share.share_config import ShareConsumerConfig
from kalda.clients.share.share_session import RENEWS_FROM, FetchLimits, ShareSession
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import Pacer
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, BrokerEndpoint, TopicPartition
from kalda.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from kalda.protocol.messages.share_fetch import AcquiredRecords as AcquiredRange
from kalda.protocol.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_FRUITLESS_FREE: Final = 5
"""Early responses in a row without records: moved leaders and new sessions cause some."""
_ANSWER_MARGIN_MS: Final = 5_000
"""Time for a response to arrive, beyond what the broker may wait for records."""
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors of a partition with which a broker names the leader."""
_SESSION_GONE: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""The errors after which another session is opened at once."""

Decided = tuple[AcquiredRecords, PartitionAcknowledgements]
OnOutcome = Callable[[TopicPartition, list[int], ClientError | None], None]
Leaders = Mapping[int, Mapping[SharePartition, None]]


class _Broker:
    """The session and the queued acknowledgements of one broker."""

    def __init__(self, broker_id: int, session: ShareSession, pacer: Pacer) -> None:
        self.id: Final = broker_id
        self.session: Final = session
        self.pacer: Final = pacer
        self.changed: Final = asyncio.Event()
        self.pending: Final[deque[Acknowledgements]] = deque()
        """To be sent in turn: a renewal is sent before a later acknowledgement of the same record."""
        self.sent: Acknowledgements = {}
        """Those of the request under way."""
        self.fetch_limit = 0
        """How many records the fetch under way may bring; 0 without one."""
        self.turn = 0
        """When it fetched last, among the brokers."""
        self.not_before = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class ShareFetcher:
    """The share sessions of one consumer.

    Args:
        config: The settings.
        network: The connections.
        member_id: The member that the sessions are of.
        metrics: Where fetches and acknowledgements are counted.
        leaders: Returns the assigned partitions by their leaders.
        on_records: Called with what was acquired.
        on_outcome: Called with the outcome of acknowledged records.
        on_error: Called with an error that the user's next poll raises.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        network: NetworkClient,
        member_id: str,
        *,
        metrics: ShareFetchMetrics,
        leaders: Callable[[], Leaders],
        on_records: Callable[[AcquiredRecords], None],
        on_outcome: OnOutcome,
        on_error: Callable[[ClientError], None],
    ) -> None:
        self._config: Final = config
        self._network: Final = network
        self._member_id: Final = member_id
        self._metrics: Final = metrics
        self._leaders: Final = leaders
        self._on_records: Final = on_records
        self._on_outcome: Final = on_outcome
        self._on_error: Final = on_error
        self._loop: Final = asyncio.get_running_loop()
        self._brokers: Final[dict[int, _Broker]] = {}
        self._wanted_count = 0
        """How many records a poll waits for; 0 while none waits."""
        self.lock_s = 0.0
        """How long locks last, as brokers say; 0 before the first response."""
        self._is_closing = False
        self._turn = 0

    def fetch(self, count: int) -> None:
        """Fetch records until some arrive; a poll waits for up to `count`."""
        self._wanted_count = count
        self.wake()

    def wake(self) -> None:
        """Look for something to send: leaders or the assignment may have changed."""
        for broker_id in self._leaders():
            self._broker(broker_id)
        for broker in self._brokers.values():
            broker.changed.set()

    def submit(self, decided: Iterable[Decided], ticket: CommitTicket | None = None) -> None:
        """Send acknowledgements soon."""
        for acquired, acknowledgements in decided:
            if ticket is not None:
                acknowledgements.await_by(ticket)
            broker = self._broker(acquired.node)
            if not self.is_held(acquired):
                error = error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, _what({acquired.source: None}))
                self._finish({acquired.source: acknowledgements}, error)
                continue
            last = broker.pending[-1] if broker.pending else None
            if last is None or any(each.renews for each in last.values()):
                last = {}
                broker.pending.append(last)
            known = last.setdefault(acquired.source, acknowledgements)
            if known is not acknowledgements:
                known.add(acknowledgements)
            broker.changed.set()

    def is_held(self, acquired: AcquiredRecords) -> bool:
        """Whether the session that acquired records goes on. Safe in any thread."""
        session = self._brokers[acquired.node].session
        return session.is_open and session.number == acquired.session_number

    async def commit(self, ticket: CommitTicket, timeout_s: float) -> None:
        """Wait for the outcome of all acknowledgements, those of earlier calls included.

        After `timeout_s` those without an outcome have a `RequestTimedOutError`; they may succeed later.
        """
        for broker in self._brokers.values():
            for acknowledgements in (broker.sent, *broker.pending):
                for each in acknowledgements.values():
                    each.await_by(ticket)
        if not ticket.open_count:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await ticket.done.wait()
        except TimeoutError:
            late = RequestTimedOutError(f"no broker confirmed the acknowledgements within {timeout_s:g} s")
            for broker in self._brokers.values():
                for acknowledgements in (broker.sent, *broker.pending):
                    for source, each in acknowledgements.items():
                        if ticket in each.tickets:
                            each.tickets.remove(ticket)
                            ticket.finished(source.partition, late)

    async def close(self, timeout_s: float) -> None:
        """Send what is outstanding and close the sessions, which releases all other records."""
        self._is_closing = True
        tasks = []
        for broker in self._brokers.values():
            broker.changed.set()
            if broker.timer is not None:
                broker.timer.cancel()
            if broker.task is not None:
                tasks.append(broker.task)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=max(timeout_s, 0))
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for broker in self._brokers.values():
            self._refuse(broker, RequestTimedOutError("the consumer was closed before the acknowledgement"))

    # One broker

    def _broker(self, broker_id: int) -> _Broker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            session = ShareSession(self._config.group_id, self._member_id)
            pacer = Pacer(self._network.retry_backoff, _FRUITLESS_FREE)
            broker = self._brokers[broker_id] = _Broker(broker_id, session, pacer)
            broker.task = self._loop.create_task(self._run(broker), name=f"share session with {broker_id}")
        return broker

    async def _run(self, broker: _Broker) -> None:
        while True:
            broker.changed.clear()
            try:
                await self._send_due(broker)
            except Exception as error:
                # A fault of this program. Without this task, polls would find nothing for ever.
                logger.exception("A share session failed and starts over.")
                self._request_failed(
                    broker, ClientError(f"share session with {self._text(broker)}: {error!r}")
                )
            if self._is_closing and not broker.pending and not broker.session.is_open:
                return
            if not self._is_closing:
                await broker.changed.wait()

    async def _send_due(self, broker: _Broker) -> None:
        while True:
            session, pending = broker.session, broker.pending
            wanted = {} if self._is_closing else self._leaders().get(broker.id, {})
            alone = bool(pending) and _go_alone(pending[0], wanted)
            if self._is_closing and len(pending) <= 1 and session.is_open:
                await self._acknowledge(broker, closes=True)
            elif alone:
                await self._acknowledge(broker)
            elif limit := self._fetch_limit(broker, wanted):
                await self._fetch(broker, wanted, limit)
            elif pending:
                await self._acknowledge(broker)
            else:
                return

    def _fetch_limit(self, broker: _Broker, wanted: Mapping[SharePartition, None]) -> int:
        """Return how many records to fetch from a broker now; 0 for no fetch."""
        if self._is_closing or broker.fetch_limit:
            return 0
        if not wanted:
            # The session has to forget its partitions, and acquires nothing by that.
            return 1 if broker.session.partitions else 0
        count = self._wanted_count
        if not count:
            return 0
        delay = broker.not_before - self._loop.time()
        if delay > 0:
            if broker.timer is not None:
                broker.timer.cancel()
            broker.timer = self._loop.call_later(delay, broker.changed.set)
            return 0
        if not self._config.is_strict:
            return self._config.max_poll_records
        # All fetches under way together bring no more than one poll returns. The brokers take turns where
        # that is less than one record for each.
        left = count - sum(each.fetch_limit for each in self._brokers.values())
        idle = [each for each in map(self._brokers.get, self._leaders()) if each and not each.fetch_limit]
        if left < len(idle):
            first = sorted(idle, key=lambda each: each.turn)[: max(left, 0)]
            return int(broker in first)
        return left // len(idle)

    async def _fetch(self, broker: _Broker, wanted: Mapping[SharePartition, None], limit: int) -> None:
        config, session = self._config, broker.session
        acknowledgements = self._take(broker)
        asked = {**wanted, **dict.fromkeys(acknowledgements)}
        limits = FetchLimits(
            max_wait_ms=config.fetch_max_wait_ms if wanted else 0,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max(config.fetch_max_bytes, 1),
            max_records=limit,
            is_strict=config.is_strict,
        )

        def build(version: int) -> ShareFetchRequest:
            return session.fetch_request(wanted, acknowledgements, limits, version)

        self._turn += 1
        broker.turn, broker.fetch_limit = self._turn, limit if wanted else 0
        began = self._loop.time()
        try:
            response = await self._network.send(
                broker.id,
                VersionedRequest(ApiKey.SHARE_FETCH, build),
                ShareFetchResponse,
                timeout_ms=max(config.request_timeout_ms, config.fetch_max_wait_ms + _ANSWER_MARGIN_MS),
            )
        except ClientError as error:
            self._request_failed(broker, error)
            return
        finally:
            if broker.fetch_limit:
                broker.fetch_limit = 0
                self._wake_others(broker)
        self._metrics.response_received(self._loop.time() - began, response.throttle_time_ms)
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._session_refused(broker, code, response.error_message)
            return
        session.answered()
        has_records = self._take_response(broker, response, asked)
        if has_records:
            self._wanted_count = 0
            broker.pacer.reset()
        elif wanted and self._loop.time() - began < config.fetch_max_wait_ms / 2000:
            broker.not_before = self._loop.time() + broker.pacer.seconds()
        else:
            broker.pacer.reset()

    async def _acknowledge(self, broker: _Broker, *, closes: bool = False) -> None:
        session = broker.session
        acknowledgements = self._take(broker)
        renews = any(each.renews for each in acknowledgements.values())
        try:
            response = await self._network.send(
                broker.id,
                VersionedRequest(
                    ApiKey.SHARE_ACKNOWLEDGE,
                    lambda _: session.acknowledge_request(acknowledgements, closes=closes),
                    version_min=RENEWS_FROM if renews else 0,
                ),
                ShareAcknowledgeResponse,
            )
        except UnsupportedApiError as error:
            # Nothing was sent: the session goes on.
            self._finish_sent(broker, error)
            if closes:
                session.restart()
            return
        except ClientError as error:
            self._request_failed(broker, error)
            return
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._session_refused(broker, code, response.error_message)
            return
        if closes:
            session.restart()
        else:
            session.answered()
        outcomes: dict[tuple[UUID, int], ClientError | None] = {}
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        known = {(each.topic_id, each.partition.partition): each for each in acknowledgements}
        for topic in response.responses:
            for data in topic.partitions:
                source = known.get((topic.topic_id, data.partition_index))
                if source is None:
                    continue
                outcomes[topic.topic_id, data.partition_index] = _error(
                    data.error_code, data.error_message, source
                )
                if data.error_code in _MOVED:
                    leader = data.current_leader
                    leaders[source.partition] = leader.leader_id, leader.leader_epoch
        self._acknowledged(broker, outcomes)
        self._learn_leaders(leaders, response)

    def _take(self, broker: _Broker) -> Acknowledgements:
        broker.sent = broker.pending.popleft() if broker.pending else {}
        if broker.sent:
            self._metrics.acknowledged(sum(each.count for each in broker.sent.values()))
        return broker.sent

    # Responses

    def _take_response(
        self, broker: _Broker, response: ShareFetchResponse, asked: Mapping[SharePartition, None]
    ) -> bool:
        """Take the partitions of a response; return whether there are records."""
        outcomes: dict[tuple[UUID, int], ClientError | None] = {}
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        known = {(each.topic_id, each.partition.partition): each for each in asked}
        self.lock_s = max(response.acquisition_lock_timeout_ms, 0) / 1000
        expires_at = self._loop.time() + self.lock_s if self.lock_s else float("inf")
        byte_count = record_count = 0
        for topic in response.responses:
            for data in topic.partitions:
                source = known.get((topic.topic_id, data.partition_index))
                if source is None:
                    continue
                outcomes[topic.topic_id, data.partition_index] = _error(
                    data.acknowledge_error_code, data.acknowledge_error_message, source
                )
                if data.error_code in _MOVED or data.acknowledge_error_code in _MOVED:
                    leader = data.current_leader
                    leaders[source.partition] = leader.leader_id, leader.leader_epoch
                code = ErrorCode.of(data.error_code)
                if code is not ErrorCode.NONE:
                    self._partition_failed(broker, source, code, data.error_message)
                elif data.acquired_records:
                    count, size = self._acquired(broker, source, data, expires_at)
                    record_count += count
                    byte_count += size
        has_records = record_count > 0
        if has_records:
            self._metrics.fetched(byte_count, record_count)
        self._acknowledged(broker, outcomes)
        self._learn_leaders(leaders, response)
        return has_records

    def _acquired(
        self, broker: _Broker, source: SharePartition, data: PartitionData, expires_at: float
    ) -> tuple[int, int]:
        """Take what was acquired of a partition; return how many offsets and bytes that are."""
        ranges = _checked(data.acquired_records)
        records = data.records
        if ranges is None or not isinstance(records, bytes | bytearray | memoryview | None):
            logger.warning(
                "Broker %d answered a share fetch of %s with ranges that overlap: %s; they are left to "
                "their locks.",
                broker.id,
                source.partition,
                [(each.first_offset, each.last_offset) for each in data.acquired_records[:5]],
            )
            return 0, 0
        batches = memoryview(records or b"")
        self._on_records(
            AcquiredRecords(
                source,
                broker.id,
                broker.session.number,
                ranges,
                batches,
                expires_at=expires_at,
                check_crcs=self._config.check_crcs,
            )
        )
        return sum(last - first + 1 for first, last, _ in ranges), len(batches)

    def _partition_failed(
        self, broker: _Broker, source: SharePartition, code: ErrorCode, message: str | None
    ) -> None:
        outcome = outcome_of(code)
        if outcome is Outcome.FAIL and not code.retriable:
            what = f"share fetch of {source.partition} from {self._text(broker)}"
            self._on_error(error_for(code, what, message))
            return
        logger.debug("Share fetch of %s from broker %d: %s.", source.partition, broker.id, code.name)
        if outcome is Outcome.REFRESH_METADATA:
            self._network.metadata.request_update()

    def _learn_leaders(
        self,
        leaders: dict[TopicPartition, tuple[int, int]],
        response: ShareFetchResponse | ShareAcknowledgeResponse,
    ) -> None:
        if leaders:
            self._network.metadata.update_leaders(
                leaders,
                [
                    BrokerEndpoint(each.node_id, each.host, each.port, each.rack)
                    for each in response.node_endpoints
                ],
            )
            self._network.metadata.request_update()

    def _request_failed(self, broker: _Broker, error: ClientError) -> None:
        """Start the session over: nothing shows whether the broker has seen the request."""
        logger.debug("A request to broker %d failed: %s", broker.id, error)
        if not error.is_retriable:
            self._on_error(error)
        self._network.metadata.request_update()
        self._restart(broker, error)
        broker.not_before = self._loop.time() + broker.pacer.seconds()

    def _session_refused(self, broker: _Broker, code: ErrorCode, message: str | None) -> None:
        error = error_for(code, f"share session with {self._text(broker)}", message)
        logger.info("Share group %s: %s; another session is opened.", self._config.group_id, error)
        if not code.retriable and code not in (*_SESSION_GONE, ErrorCode.SHARE_SESSION_LIMIT_REACHED):
            self._on_error(error)
        self._restart(broker, error)
        wait = broker.pacer.seconds()
        if code not in _SESSION_GONE:
            wait = max(wait, self._network.retry_backoff.seconds(1))
        broker.not_before = self._loop.time() + wait

    def _restart(self, broker: _Broker, error: ClientError) -> None:
        broker.session.restart()
        self._refuse(broker, error)

    # Outcomes

    def _refuse(self, broker: _Broker, error: ClientError) -> None:
        """Fail all acknowledgements of a session that has ended."""
        self._finish_sent(broker, error)
        while broker.pending:
            self._finish(broker.pending.popleft(), error)

    def _finish_sent(self, broker: _Broker, error: ClientError) -> None:
        sent, broker.sent = broker.sent, {}
        self._finish(sent, error)

    def _acknowledged(self, broker: _Broker, outcomes: Mapping[tuple[UUID, int], ClientError | None]) -> None:
        sent, broker.sent = broker.sent, {}
        for source, each in sent.items():
            name = (source.topic_id, source.partition.partition)
            left_out = f"{_what([source])} (the answer leaves it out)"
            missing = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, left_out)
            self._finish({source: each}, outcomes.get(name, missing))

    def _finish(self, acknowledgements: Acknowledgements, error: ClientError | None) -> None:
        if error is not None and acknowledgements:
            self._metrics.not_acknowledged(sum(each.count for each in acknowledgements.values()))
        for source, each in acknowledgements.items():
            for ticket in each.tickets:
                ticket.finished(source.partition, error)
            if not each.offsets:
                continue
            try:
                self._on_outcome(source.partition, each.offsets, error)
            except Exception:
                logger.exception("on_acknowledged raised an exception; it is ignored")

    def _wake_others(self, broker: _Broker) -> None:
        for each in self._brokers.values():
            if each is not broker:
                each.changed.set()

    def _text(self, broker: _Broker) -> str:
        return self._network.metadata.snapshot.broker_text(broker.id)


def _checked(acquired: Iterable[AcquiredRange]) -> list[tuple[int, int, int]] | None:
    """Return the ranges; None if they are not in order or overlap."""
    found: list[tuple[int, int, int]] = []
    end = 0
    for each in acquired:
        if not end <= each.first_offset <= each.last_offset:
            return None
        found.append((each.first_offset, each.last_offset, max(each.delivery_count, 1)))
        end = each.last_offset + 1
    return found


def _error(code: int, message: str | None, source: SharePartition) -> ClientError | None:
    if code == ErrorCode.NONE:
        return None
    return error_for(ErrorCode.of(code), _what([source]), message)


def _go_alone(acknowledgements: Acknowledgements, wanted: Mapping[SharePartition, None]) -> bool:
    """Return whether acknowledgements are no part of a fetch.

    A fetch has the session fetch each partition that it names. One that is not the member's any more would be
    acquired and released again and again, until its records are given up.
    """
    return any(each.renews or source not in wanted for source, each in acknowledgements.items())


def _what(sources: Iterable[SharePartition]) -> str:
    return f"acknowledgement of records of {', '.join(str(each.partition) for each in sources)}"
