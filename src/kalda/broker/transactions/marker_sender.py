"""Sends the markers of ended transactions to the leaders of their partitions until all are written.

Implements `MarkerSender` for the transaction coordinator; Kafka's class is TransactionMarkerChannelManager.
A marker is sent again, to the leader of that time, while the leader refuses it for a passing reason or cannot
be reached. Only a partition that no longer exists is skipped. Writing a marker twice does no harm.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.transactions.marker_appends import Codes, Marker, MarkerAppends
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, by_topic
from kalda.coordinator.transaction.transaction_coordinator import MarkerWork
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

ROUND_SECONDS: Final = 0.1
"""The time between two looks for markers to send again, so that those for one broker share a request."""
_BACKOFF_MS: Final = (100, 1_000)
"""The waits before retries. Leaders change within seconds, and producers wait for the markers."""

UNKNOWN_SECONDS_MAX: Final = 5.0
"""How long a partition is unknown before it counts as deleted, unless ZooKeeper says so earlier. A broker may
get the leadership of the transaction state before the metadata of all partitions."""

DeletedTopics: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns those of some topics that are deleted or marked for deletion; raises `ZooKeeperError`."""

FENCED: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""Another coordinator has taken the transaction over."""
LEFT_OUT: Final = frozenset((ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION))
"""A log that cannot hold markers has no records of transactions either."""


@dataclass(eq=False, slots=True)
class _Job:
    """The markers of one transaction that are not written yet."""

    work: MarkerWork
    is_dropped: bool = False
    unknown_since: dict[TopicPartition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The markers of a job that one broker writes."""

    job: _Job
    partitions: tuple[TopicPartition, ...]
    failures: int = 0
    """Attempts in a row that failed."""

    def marker(self) -> Marker:
        """Return the marker to write."""
        work = self.job.work
        return Marker(
            work.metadata.producer_id,
            work.metadata.producer_epoch,
            work.metadata.is_commit,
            work.coordinator_epoch,
            self.partitions,
            work.metadata.client_version,
        )


class TransactionMarkers:
    """Sends the markers of the transactions that this broker coordinates."""

    def __init__(
        self,
        broker_id: int,
        metadata_cache: MetadataCache,
        appends: MarkerAppends,
        clock: Clock,
        random: Random,
        dialer: Dialer,
        *,
        listener: str,
        timeout_ms: int,
        deleted_topics: DeletedTopics,
    ) -> None:
        self._broker_id: Final = broker_id
        self._deleted_topics: Final = deleted_topics
        self._cache: Final = metadata_cache
        self._appends: Final = appends
        self._clock: Final = clock
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, random.uniform)
        self._timeout_seconds: Final = timeout_ms / 1000
        self._jobs: Final[dict[int, set[_Job]]] = {}
        """By partition of ``__transaction_state``."""
        self._retries: list[tuple[float, _Piece]] = []
        """With the monotonic second from which each may be sent again."""
        self._has_retries: Final = asyncio.Event()
        self._peers: Final = PeerBatches[_Piece](
            "transaction markers",
            dialer,
            broker_id,
            metadata_cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._request,
            failed=self._retry_all,
        )

    @property
    def waiting_count(self) -> int:
        """Transactions with markers that are not written."""
        return sum(map(len, self._jobs.values()))

    def send(self, work: MarkerWork) -> None:
        """Start to write the markers of a transaction."""
        job = _Job(work)
        self._jobs.setdefault(work.state_partition, set()).add(job)
        self._dispatch(job, tuple(sorted(work.remaining)))

    def drop(self, state_partition: int) -> None:
        """Drop the transactions of a partition that another broker coordinates from now on."""
        for job in self._jobs.pop(state_partition, ()):
            job.is_dropped = True

    async def run(self) -> None:
        """Send markers to other brokers and retry, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._peers.run(), name="transaction markers to brokers")
            while True:
                await self._has_retries.wait()
                await self.leave_out_deleted()
                await asyncio.sleep(ROUND_SECONDS)
                self.retry_due(self._clock.monotonic())

    async def leave_out_deleted(self) -> None:
        """Leave out the partitions without metadata whose topic is deleted, which ZooKeeper knows."""
        jobs = [job for jobs in self._jobs.values() for job in jobs if job.unknown_since]
        topics = {each.topic for job in jobs for each in job.unknown_since}
        if not topics:
            return
        try:
            deleted = await self._deleted_topics(topics)
        except ZooKeeperError as error:
            logger.debug("deleted topics cannot be looked up: %s", error)
            return
        for job in jobs:
            for topic_partition in [each for each in job.unknown_since if each.topic in deleted]:
                if not job.is_dropped:
                    self._leave_out(job, topic_partition)

    def retry_due(self, now: float) -> None:
        """Retry the markers that were not written and whose wait is over, at the leaders of now."""
        waiting, self._retries = self._retries, []
        self._has_retries.clear()
        for due, piece in waiting:
            if due <= now:
                self._dispatch(piece.job, piece.partitions, piece.failures)
            else:
                self._retries.append((due, piece))
        if self._retries:
            self._has_retries.set()

    def _dispatch(self, job: _Job, partitions: tuple[TopicPartition, ...], failures: int = 0) -> None:
        """Pass each marker to the present leader of its partition."""
        if job.is_dropped:
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        unknown = []
        for topic_partition in partitions:
            if topic_partition not in job.work.remaining:
                continue
            leadership = self._cache.partition(topic_partition)
            if leadership is None:
                unknown.append(topic_partition)
            else:
                job.unknown_since.pop(topic_partition, None)
                by_leader.setdefault(leadership.leader, []).append(topic_partition)
        self._look_for(job, unknown, failures)
        for leader, led in by_leader.items():
            piece = _Piece(job, tuple(led), failures)
            if leader == self._broker_id:
                self._appends.write([piece.marker()], partial(self._take_own, piece))
            elif leader < 0:
                self._retry_all([piece])
            else:
                self._peers.submit(leader, piece)

    def _look_for(self, job: _Job, unknown: list[TopicPartition], failures: int) -> None:
        """Retry partitions that are not in the metadata; after a while, treat them as deleted."""
        now = self._clock.monotonic()
        missing = []
        for topic_partition in unknown:
            since = job.unknown_since.setdefault(topic_partition, now)
            if now - since < UNKNOWN_SECONDS_MAX:
                missing.append(topic_partition)
            else:
                self._leave_out(job, topic_partition)
        if missing:
            self._retry_all([_Piece(job, tuple(missing), failures)])

    def _leave_out(self, job: _Job, topic_partition: TopicPartition) -> None:
        logger.info(
            '%s does not exist any more: the transaction of "%s" ends without its marker',
            topic_partition,
            job.work.metadata.transactional_id,
        )
        del job.unknown_since[topic_partition]
        self._written(job, topic_partition)

    async def _request(self, connection: PeerConnection, pieces: list[_Piece]) -> None:
        live = [piece for piece in pieces if not piece.job.is_dropped]
        if not live:
            return
        request = WriteTxnMarkersRequest(markers=[_wire(piece.marker()) for piece in live])
        response = await connection.request(request, timeout_seconds=self._timeout_seconds)
        if not isinstance(response, WriteTxnMarkersResponse) or len(response.markers) != len(live):
            connection.close()
            raise ConnectionError("the response to WriteTxnMarkers names other markers than the request")
        for piece, result in zip(live, response.markers, strict=True):
            self.take(
                piece,
                {
                    TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
                    for topic in result.topics
                    for each in topic.partitions
                },
            )

    def take(self, piece: _Piece, codes: Codes) -> None:
        """Apply the results of the markers of one broker."""
        job = piece.job
        again = []
        for topic_partition in piece.partitions:
            if job.is_dropped:
                return
            code = codes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is ErrorCode.NONE or code in LEFT_OUT:
                self._written(job, topic_partition)
            elif code in FENCED:
                self._give_up(job, topic_partition, code)
            else:
                logger.debug("the marker for %s will be sent again: %s", topic_partition, code.name)
                again.append(topic_partition)
        if again:
            self._retry_all([_Piece(job, tuple(again), piece.failures)])

    def _take_own(self, piece: _Piece, codes: list[Codes]) -> None:
        (only,) = codes
        self.take(piece, only)

    def _written(self, job: _Job, topic_partition: TopicPartition) -> None:
        work = job.work
        work.remaining.discard(topic_partition)
        if not work.remaining and not job.is_dropped:
            self._forget(job)
            work.on_done(work)

    def _give_up(self, job: _Job, topic_partition: TopicPartition, code: ErrorCode) -> None:
        logger.warning(
            'another coordinator completes the transaction of "%s": %s refused its marker with %s',
            job.work.metadata.transactional_id,
            topic_partition,
            code.name,
        )
        self._forget(job)

    def _forget(self, job: _Job) -> None:
        job.is_dropped = True
        jobs = self._jobs.get(job.work.state_partition)
        if jobs is not None:
            jobs.discard(job)

    def _retry_all(self, pieces: list[_Piece]) -> None:
        now = self._clock.monotonic()
        for piece in pieces:
            if not piece.job.is_dropped:
                failures = piece.failures + 1
                again = replace(piece, failures=failures)
                self._retries.append((now + self._backoff.seconds(failures), again))
                self._has_retries.set()


def _wire(marker: Marker) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=[each.partition for each in group])
            for topic, group in by_topic(marker.partitions).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
