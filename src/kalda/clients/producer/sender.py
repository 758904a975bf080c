"""Sends batches: drains the accumulator by broker, and hands the responses to `ProduceResults`.

The counterpart of Java's `Sender`, but callbacks on the event loop instead of a thread: `wakeup`,
responses, new metadata and one timer lead to `_run`. It decides neither what is ready (`RecordAccumulator`)
nor what follows an error (`ProduceResults`, `TransactionManager`).

While batches are incomplete, each `_run` leaves a timer or an event that will call it again. Each batch has a
deadline, so the timer is never later than that.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.errors import (
    ClientError,
    FatalTransactionError,
    RequestTimedOutError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
    UnsupportedApiError,
)
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.network_client import NetworkClient
from kalda.clients.producer.produce_results import PartitionResult, ProduceResults
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.clients.producer.record_accumulator import ReadyCheck, RecordAccumulator
from kalda.clients.producer.transaction_driver import TransactionDriver
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.schema import Message
from kalda.records.compression import Compression
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

PRODUCE_VERSION_MIN: Final = 3
"""The first version with record batches of format 2 (Kafka 0.11)."""
PRODUCE_VERSION_MIN_ZSTD: Final = 7
"""Before it, brokers refuse zstd (KIP-110)."""
PRODUCE_VERSION_TOPIC_IDS: Final = 13
"""The first version that names topics by id (KIP-516); the one before is the last with names."""
PRODUCE_VERSION_MAX_TRANSACTION_V1: Final = 11
"""From version 12 on, Produce adds its partitions to the transaction, which only V2 may use (KIP-890)."""

InFlight = dict[TopicPartition, ProducerBatch]
_NO_IDS: Final[Mapping[UUID, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """The settings of requests."""

    acks: int
    request_timeout_ms: int
    max_in_flight: int
    transactional_id: str | None = None


class Sender:
    """Sends the batches of one producer; the event loop owns it, only `wakeup` is safe in any thread."""

    def __init__(
        self,
        settings: SenderSettings,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        results: ProduceResults,
        transactions: TransactionManager | None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self._metrics: Final = metrics
        self._settings: Final = settings
        self._client: Final = client
        self._accumulator: Final = accumulator
        self._results: Final = results
        self._transactions: Final = transactions
        self._driver: Final = (
            None if transactions is None else TransactionDriver(transactions, client, self.wakeup)
        )
        self._keeps_order: Final = settings.max_in_flight == 1
        uses_zstd = accumulator.settings.compression is Compression.ZSTD
        self._version_min: Final = PRODUCE_VERSION_MIN_ZSTD if uses_zstd else PRODUCE_VERSION_MIN
        self._in_flight: Final[list[InFlight]] = []
        self._connecting: Final[dict[int, asyncio.Task[None]]] = {}
        self._unreachable: Final[dict[int, ClientError]] = {}
        """Why a broker could not be connected to, until it can."""
        # By broker: what its connection offers, the highest version allowed, and the version that follows.
        self._versions: Final[dict[int, tuple[NodeApiVersions, int | None, int]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._is_woken = False
        self._is_inside = False
        """Whether the loop runs a method here, from which a callback of the program may be called."""
        self._is_due_after_read = False
        """Whether a response that is being read leaves something to do."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle_waiters: Final[list[asyncio.Future[None]]] = []
        self._is_closed = False
        self.request_count = 0

    def start(self) -> None:
        """Begin to send; needs the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._client.metadata.on_update.append(self._on_metadata)
        self._client.on_read = self._on_read
        self.wakeup()

    def wakeup(self) -> None:
        """Look soon for something to send; safe in any thread, and cheap while a look is due already."""
        if self._is_woken or self._loop is None or self._is_closed:
            return
        self._is_woken = True
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._on_wakeup)
            return
        try:
            self._loop.call_soon_threadsafe(self._on_wakeup)
        except RuntimeError:
            # The loop was closed, so nobody sends any more; `close` has failed the batches.
            if not self._is_closed:
                raise

    @property
    def is_idle(self) -> bool:
        """Whether a batch that begins now can be sent at once; on the loop."""
        return not (
            self._in_flight
            or self._is_woken
            or self._is_inside
            or self._is_closed
            or self._accumulator.settings.linger_s
        )

    def batch_begun(self) -> None:
        """Send a batch that has begun: at once where the loop's thread asks and nothing is in flight, else
        soon."""
        if threading.get_ident() == self._thread_id and self.is_idle:
            self._run()
        else:
            self.wakeup()

    def look_again(self) -> None:
        """Check for batches to send although no event announced any; runs on the loop.

        A caller may have been interrupted between the append and the wake-up, or within it.
        """
        if not self._is_closed and (self._is_woken or self._accumulator.has_undrained):
            self._on_wakeup()

    async def wait_idle(self) -> None:
        """Wait until no batch is incomplete and no transaction is under way."""
        while self._accumulator.has_incomplete or self._has_transaction_request:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            self.wakeup()
            await waiter

    async def close(self, error: ClientError) -> None:
        """Stop sending; incomplete batches fail with `error`."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._driver is not None:
            await self._driver.close()
        if self._transactions is not None:
            self._transactions.close()
        self._abort_all(error)
        self._wake_idle_waiters()

    @property
    def in_flight_count(self) -> int:
        """Produce requests whose responses have not arrived."""
        return len(self._in_flight)

    @property
    def _has_transaction_request(self) -> bool:
        return (
            self._transactions is not None
            and self._driver is not None
            and self._transactions.is_transactional
            and (self._driver.is_busy or self._transactions.has_pending_requests)
        )

    def _on_metadata(self, snapshot: ClusterMetadata) -> None:
        for batch in self._accumulator.take_vanished(snapshot):
            topic = batch.topic_partition.topic
            self._results.abort(
                batch,
                UnknownTopicOrPartitionError(
                    f"{batch.record_count} records for {batch.topic_partition}",
                    f"topic {topic} was deleted and created again with "
                    f"{len(snapshot.topics[topic].partitions)} partitions",
                ),
            )
        if self._accumulator.has_undrained:
            self.wakeup()

    def _on_read(self) -> None:
        """Look once after all responses that arrived together, without another turn of the loop."""
        if self._is_due_after_read:
            self._is_due_after_read = False
            self._run()

    def _run(self) -> None:
        if self._is_closed:
            return
        now = self._client.clock.monotonic()
        self._is_inside = True
        try:
            next_run = self._send_all(now)
        except Exception as error:
            # A fault of this module or its parts. Records must not wait for ever for a sender that is gone.
            logger.exception("The producer failed and drops what it has not sent")
            self._abort_all(_fault(error))
            return
        finally:
            self._is_inside = False
        if next_run != float("inf"):
            self._set_timer(max(0.0, next_run - now))
        self._wake_idle_waiters()

    def _set_timer(self, delay: float) -> None:
        """Look again after `delay` seconds; a timer that is due earlier stays."""
        assert self._loop is not None, "the sender was started"
        timer, at = self._timer, self._loop.time() + delay
        if timer is not None and not timer.cancelled() and timer.when() <= at:
            return
        if timer is not None:
            timer.cancel()
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_wakeup(self) -> None:
        self._is_woken = False
        self._run()

    def _on_timer(self) -> None:
        self._timer = None
        self._run()

    def _send_all(self, now: float) -> float:
        """Send what can be sent; return when to look again."""
        if self._transactions is not None and self._is_held_by_transactions(self._transactions):
            return self._next_expiry(now)
        client = self._client
        held: set[int] = set()
        sent: list[list[ProducerBatch]] = []
        try:
            while True:
                snapshot = client.metadata.snapshot
                check = self._accumulator.ready(snapshot, now)
                self._expire(check, now)
                nodes = [node for node in check.nodes if self._can_send(node, now)]
                drained = self._accumulator.drain(check, nodes, snapshot, now) if nodes else {}
                for node, batches in drained.items():
                    if self._send(node, batches, snapshot, now):
                        sent.append(batches)
                    if node not in held:
                        # The broker works on the first request while the others are built.
                        held.add(node)
                        client.hold_writes(node)
                if not drained:
                    return min(check.next_send, check.next_expiry, self._next_in_flight_expiry())
                if not self._accumulator.has_undrained:
                    return self._next_in_flight_expiry()
        finally:
            for node in held:
                client.write_held(node)
            if self._metrics is not None:
                # After the writes: the broker works meanwhile.
                for batches in sent:
                    _count_request(self._metrics, batches, now)

    def _expire(self, check: ReadyCheck, now: float) -> None:
        """Fail expired batches, and request metadata of partitions without a known leader."""
        for batch in check.expired:
            self._results.expire(batch, now, self._unreachable)
        self._expire_in_flight(now)
        if check.unknown_leader_topics:
            for topic in check.unknown_leader_topics:
                self._client.metadata.add_topic(topic, now)
            self._client.metadata.request_update()

    def _is_held_by_transactions(self, transactions: TransactionManager) -> bool:
        """Act on the transaction manager's state; return True if no batch may be drained now."""
        assert self._driver is not None, "idempotence has a driver"
        transactions.maybe_resolve_sequences()
        if transactions.has_fatal_error and transactions.last_error is not None:
            self._abort_all(transactions.last_error)
            self._driver.poll(self._accumulator.has_incomplete)
            return True
        refused = transactions.take_authorization_error()
        if refused is not None:
            self._abort_all(refused)
            # The next record asks for an id again; without one, asking would go on without a pause.
            return True
        if transactions.is_aborting:
            self._abort_undrained(
                TransactionAbortedError("the transaction was aborted before the record was sent")
            )
        elif transactions.last_error is not None:
            self._abort_undrained(transactions.last_error)
        transactions.bump_idempotent_epoch_and_reset_id_if_needed()
        return self._driver.poll(self._accumulator.has_incomplete)

    def _can_send(self, node: int, now: float) -> bool:
        """Whether a ready node takes a request now; begins to connect where that is missing."""
        client = self._client
        if client.is_ready(node):
            self._accumulator.node_is_stuck(node, now, is_stuck=False)
            return client.in_flight_count(node) < self._settings.max_in_flight
        self._accumulator.node_is_stuck(node, now, is_stuck=True)
        if node not in self._connecting:
            task = asyncio.get_running_loop().create_task(
                self._connect(node), name=f"kalda-producer-connect-{node}"
            )
            self._connecting[node] = task
        return False

    async def _connect(self, node: int) -> None:
        try:
            await self._client.ready(node)
            self._unreachable.pop(node, None)
        except ClientError as error:
            self._unreachable[node] = error
            # The network client backs off and asks for metadata; the batches wait for their time-out.
            logger.debug("No connection to broker %d: %s", node, error)
            await asyncio.sleep(self._client.connection_delay(node))
        finally:
            del self._connecting[node]
            self.wakeup()

    def _send(self, node: int, batches: list[ProducerBatch], snapshot: ClusterMetadata, now: float) -> bool:
        """Send one request; return whether it is in flight."""
        in_flight: InFlight = {batch.topic_partition: batch for batch in batches}
        if self._keeps_order:
            for batch in batches:
                self._accumulator.mute(batch.topic_partition, is_muted=True)
        try:
            version = self._version(node)
            request = self._request(batches, snapshot)
            names = _NO_IDS
            if version >= PRODUCE_VERSION_TOPIC_IDS:
                names = {each.topic_id: each.name for each in request.topic_data}
                if ZERO_UUID in names:
                    # The metadata came from a broker that has no ids.
                    version, names = PRODUCE_VERSION_TOPIC_IDS - 1, _NO_IDS
            self._client.send_nowait(
                node,
                request,
                version,
                self._settings.request_timeout_ms,
                lambda done: self._on_response(node, in_flight, names, done, now),
            )
        except ClientError as error:
            self._apply_failure(node, in_flight, error, now)
            return False
        self.request_count += 1
        self._in_flight.append(in_flight)
        return True

    def _version(self, node: int) -> int:
        """Return the version of Produce for a broker; raises UnsupportedApiError."""
        versions, version_max = self._client.versions(node), self._version_max
        known = self._versions.get(node)
        if known is None or known[0] is not versions or known[1] != version_max:
            version = versions.latest(ApiKey.PRODUCE, version_max, self._version_min)
            known = self._versions[node] = (versions, version_max, version)
        return known[2]

    @property
    def _version_max(self) -> int | None:
        transactions = self._transactions
        if transactions is None or not transactions.is_transactional or transactions.is_transaction_v2:
            return None
        return PRODUCE_VERSION_MAX_TRANSACTION_V1

    def _request(self, batches: list[ProducerBatch], snapshot: ClusterMetadata) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic, partition = batch.topic_partition
            data = topics.get(topic)
            if data is None:
                topic_id = snapshot.topic_id(topic)
                data = topics[topic] = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[])
            data.partition_data.append(PartitionProduceData(index=partition, records=batch.build()))
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _on_response(
        self,
        node: int,
        in_flight: InFlight,
        names: Mapping[UUID, str],
        done: "asyncio.Future[Message]",
        sent_at: float,
    ) -> None:
        self._in_flight.remove(in_flight)
        if done.cancelled():
            return
        self._is_inside = True
        try:
            self._take_response(node, in_flight, names, done, sent_at)
        finally:
            self._is_inside = False

    def _take_response(
        self,
        node: int,
        in_flight: InFlight,
        names: Mapping[UUID, str],
        done: "asyncio.Future[Message]",
        sent_at: float,
    ) -> None:
        now = self._client.clock.monotonic()
        error = done.exception()
        if error is not None:
            if not isinstance(error, ClientError):
                logger.error(
                    "A Produce request to broker %d failed in an unexpected way", node, exc_info=error
                )
                error = _fault(error)
            self._apply_failure(node, in_flight, error, now)
        elif self._settings.acks == 0:
            for batch in in_flight.values():
                self._results.apply(batch, PartitionResult(ErrorCode.NONE), now, node)
        else:
            response = done.result()
            assert isinstance(response, ProduceResponse), f"a {type(response).__name__} answers Produce"
            if self._metrics is not None:
                self._metrics.response_received(now - sent_at, response.throttle_time_ms)
            self._apply_response(node, in_flight, names, response, now)
        if self._accumulator.has_undrained or self._idle_waiters or self._transactions is not None:
            if error is None and self._settings.acks != 0:
                self._is_due_after_read = True
            else:
                self.wakeup()

    def _apply_response(
        self,
        node: int,
        in_flight: InFlight,
        names: Mapping[UUID, str],
        response: ProduceResponse,
        now: float,
    ) -> None:
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        missing = dict(in_flight)
        for topic in response.responses:
            name = names.get(topic.topic_id, str(topic.topic_id)) if names else topic.name
            for partition in topic.partition_responses:
                topic_partition = TopicPartition(name, partition.index)
                batch = missing.pop(topic_partition, None)
                if batch is None:
                    logger.warning(
                        "Broker %d answers for %s, which was not in the request", node, topic_partition
                    )
                    continue
                result = PartitionResult.of(partition)
                if result.leader is not None:
                    leaders[topic_partition] = result.leader
                self._results.apply(batch, result, now, node)
        for batch in missing.values():
            message = "the broker's response leaves the partition out"
            result = PartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR, message=message)
            self._results.apply(batch, result, now, node)
        self._results.update_leaders(leaders, response.node_endpoints)

    def _apply_failure(
        self, node: int, in_flight: Mapping[TopicPartition, ProducerBatch], error: ClientError, now: float
    ) -> None:
        """Take the failure of a whole request; a broker may have processed it."""
        if isinstance(error, UnsupportedApiError):
            code = ErrorCode.UNSUPPORTED_VERSION
        elif isinstance(error, RequestTimedOutError):
            code = ErrorCode.REQUEST_TIMED_OUT
        elif error.is_retriable:
            code = ErrorCode.NETWORK_EXCEPTION
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        result = PartitionResult(code, message=str(error), cause=error)
        for batch in in_flight.values():
            self._results.apply(batch, result, now, node)

    def _expire_in_flight(self, now: float) -> None:
        """Fail the expired batches in flight; their requests stay open until `request.timeout.ms`."""
        timeout = self._accumulator.settings.delivery_timeout_s
        for in_flight in self._in_flight:
            for batch in in_flight.values():
                if batch.created + timeout <= now and not batch.is_done:
                    self._results.expire(batch, now, self._unreachable)

    def _next_in_flight_expiry(self) -> float:
        timeout = self._accumulator.settings.delivery_timeout_s
        return min(
            (
                batch.created + timeout
                for in_flight in self._in_flight
                for batch in in_flight.values()
                if not batch.is_done
            ),
            default=float("inf"),
        )

    def _next_expiry(self, now: float) -> float:
        """Fail expired batches while draining is paused; return when the next batch expires."""
        check = self._accumulator.ready(self._client.metadata.snapshot, now)
        for batch in check.expired:
            self._results.expire(batch, now, self._unreachable)
        self._expire_in_flight(now)
        return min(check.next_expiry, self._next_in_flight_expiry())

    def _abort_undrained(self, error: ClientError) -> None:
        """Drop the batches without a sequence number; a broker may have the others already."""
        if self._accumulator.has_undrained:
            for batch in self._accumulator.take_undrained(with_sequence=False):
                self._results.abort(batch, error)

    def _abort_all(self, error: ClientError) -> None:
        for batch in self._accumulator.take_incomplete():
            self._results.abort(batch, error)

    def _wake_idle_waiters(self) -> None:
        if self._idle_waiters and not (
            (self._accumulator.has_incomplete or self._has_transaction_request) and not self._is_closed
        ):
            waiters, self._idle_waiters[:] = list(self._idle_waiters), []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


def _fault(error: BaseException) -> ClientError:
    fault = FatalTransactionError(
        f"the producer failed by a fault of its own: {error!r}; please report it", None
    )
    fault.__cause__ = error
    return fault


def _count_request(metrics: ProducerMetrics, batches: list[ProducerBatch], now: float) -> None:
    for batch in batches:
        metrics.batch_sent(
            batch.topic_partition.topic,
            record_count=batch.record_count,
            batch_bytes=batch.size,
            uncompressed_bytes=batch.uncompressed_bytes or batch.size,
            queue_time_s=now - batch.created,
        )
    metrics.request_sent(sum(batch.record_count for batch in batches))
