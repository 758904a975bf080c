"""Decides what follows from the result of a batch: complete, retry, split or fail. Sans-IO.

The half of Java's `Sender` that knows error codes. `Sender` is the driver: it sends the requests and passes
their responses here, one partition at a time. The event loop owns it.

Each drained batch ends in exactly one of the four ways for each time it was sent. A batch that expired while
it was in flight has its result already, so its late response only frees what the batch held.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from kalda.clients.error_hints import explained
from kalda.clients.errors import (
    BrokerConnectionError,
    BrokerResponseError,
    ClientError,
    RequestTimedOutError,
    UnsupportedApiError,
    error_for,
)
from kalda.clients.metadata import Metadata
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.produce import NodeEndpoint, PartitionProduceResponse
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which the leader may be another broker."""


UNCERTAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which a broker may nevertheless have appended the batch, or a later leader may have it."""


class PartitionResult(NamedTuple):
    """The result of one request for one batch."""

    code: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    """The broker's words, or how the request failed."""
    record_errors: Mapping[int, str | None] | None = None
    leader: tuple[int, int] | None = None
    """Id and epoch of the leader to go to instead (KIP-951)."""
    cause: ClientError | None = None
    """The failure of the request, where no broker answered."""

    @classmethod
    def of(cls, response: PartitionProduceResponse) -> "PartitionResult":
        """Read a partition of a response."""
        leader = response.current_leader
        return cls(
            ErrorCode.of(response.error_code),
            response.base_offset,
            response.log_append_time_ms,
            response.log_start_offset,
            response.error_message,
            {each.batch_index: each.batch_index_error_message for each in response.record_errors}
            if response.record_errors
            else None,
            None
            if leader.leader_id < 0 or leader.leader_epoch < 0
            else (leader.leader_id, leader.leader_epoch),
        )


class ProduceResults:
    """Applies results to batches.

    Args:
        accumulator: Takes batches that have to be sent again.
        metadata: Asked for an update where leaders may have changed.
        transactions: The transaction manager; None without idempotence.
        retries: How often a batch may be sent again.
        keeps_order: Whether partitions are muted while a batch is in flight.
        metrics: Counts retries, errors and splits; None leaves that out.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        transactions: TransactionManager | None,
        *,
        retries: int,
        keeps_order: bool,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self._metrics: Final = metrics
        self.retry_count = 0
        """Records that had to be sent again."""
        self.error_count = 0
        """Records that failed."""
        self.split_count = 0
        """Batches that were split."""
        self._accumulator: Final = accumulator
        self._metadata: Final = metadata
        self._transactions: Final = transactions
        self._retries: Final = retries
        self._keeps_order: Final = keeps_order
        self._delivery_timeout_s: Final = accumulator.settings.delivery_timeout_s

    def apply(
        self, batch: ProducerBatch, result: PartitionResult, now: float, node: int | None = None
    ) -> None:
        """Take the result of one attempt to send a batch to a broker; errors name the broker."""
        code = result.code
        batch.is_in_request = False
        if code in UNCERTAIN:
            batch.may_be_written = True
        batch.is_out_of_order = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if code is ErrorCode.NONE:
            self._complete(batch, result)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.is_done:
            self._split(batch)
        elif self._is_duplicate(batch, code):
            # The broker has the batch but no longer knows its offset.
            self._complete(batch, result)
        elif self._can_retry(batch, result, now):
            self._log_retry(batch, result, node)
            self._accumulator.reenqueue(batch, now)
            self.retry_count += batch.record_count
            if self._metrics is not None:
                self._metrics.batch_retried(batch.topic_partition.topic, batch.record_count)
        else:
            self._fail(batch, result, node)
        if code in STALE_METADATA:
            self._metadata.request_update()
        if self._keeps_order:
            self._accumulator.mute(batch.topic_partition, is_muted=False)

    def update_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], endpoints: list[NodeEndpoint]
    ) -> None:
        """Take the leaders that a response named instead of the one that was asked (KIP-951)."""
        if leaders:
            brokers = [BrokerEndpoint(each.node_id, each.host, each.port, each.rack) for each in endpoints]
            self._metadata.update_leaders(leaders, brokers)

    def expire(self, batch: ProducerBatch, now: float, unreachable: Mapping[int, ClientError]) -> None:
        """Fail a batch that was not delivered within `delivery.timeout.ms`.

        `unreachable` has the last failure of each broker that could not be connected to.
        """
        what = (
            f"{batch.record_count} records for {batch.topic_partition} were not delivered within "
            f"{round((now - batch.created) * 1000)} ms (`delivery.timeout.ms`="
            f"{round(self._delivery_timeout_s * 1000)})"
        )
        if batch.has_sequence:
            what += "; they were sent, and the broker may have written them"
            batch.may_be_written = True
        what += f"; {self._reason_of_delay(batch, unreachable)}"
        error = RequestTimedOutError(what)
        self._fail_with(batch, error, {})

    def abort(self, batch: ProducerBatch, error: ClientError) -> None:
        """Fail a batch because the producer closes, the transaction ends, or sending is impossible."""
        if batch.is_done:
            return
        self._count_errors(batch)
        if self._transactions is not None and batch.has_sequence:
            self._transactions.sequences.remove_in_flight(batch)
        batch.fail(error)
        self._accumulator.completed(batch)

    def _reason_of_delay(self, batch: ProducerBatch, unreachable: Mapping[int, ClientError]) -> str:
        """Return the known cause of a batch's delay and the remedy, as text."""
        snapshot = self._metadata.snapshot
        leader = snapshot.leader(batch.topic_partition)
        if leader is None:
            return "the partition has no leader now: look whether its brokers run"
        broker = snapshot.broker_text(leader.id)
        failure = unreachable.get(leader.id)
        if failure is not None:
            return f"its leader, {broker}, cannot be reached: {failure}"
        if batch.last_failure:
            return f"its leader is {broker}; last: {batch.last_failure}"
        return (
            f"its leader, {broker}, is slower than the records come, or does not answer: "
            "raise `delivery.timeout.ms`, or lower `request.timeout.ms` to try again sooner"
        )

    def _count_errors(self, batch: ProducerBatch) -> None:
        self.error_count += batch.record_count
        if self._metrics is not None:
            self._metrics.batch_failed(batch.topic_partition.topic, batch.record_count)

    def _is_duplicate(self, batch: ProducerBatch, code: ErrorCode) -> bool:
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return True
        transactions = self._transactions
        return (
            code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and batch.may_be_written
            and transactions is not None
            and transactions.sequences.is_surely_written(batch)
        )

    def _can_retry(self, batch: ProducerBatch, result: PartitionResult, now: float) -> bool:
        if batch.is_done or batch.attempts >= self._retries:
            return False
        if now - batch.created >= self._delivery_timeout_s:
            return False
        if self._transactions is None:
            return result.code.retriable
        return self._transactions.can_retry(result.code, batch, result.log_start_offset)

    def _complete(self, batch: ProducerBatch, result: PartitionResult) -> None:
        if self._transactions is not None:
            self._transactions.handle_completed_batch(batch, result.base_offset)
        if not batch.is_done:
            batch.complete(result.base_offset, result.log_append_time_ms)
            self._accumulator.completed(batch)

    def _split(self, batch: ProducerBatch) -> None:
        size = batch.size
        if self._transactions is not None:
            self._transactions.sequences.remove_in_flight(batch)
        parts = self._accumulator.split_and_reenqueue(batch)
        self.split_count += 1
        if self._metrics is not None:
            self._metrics.batch_split()
        logger.warning(
            "%s refused a batch of %d bytes as too large; it is sent again in %d parts. Lower batch.size, "
            "or raise max.message.bytes of the topic.",
            batch.topic_partition,
            size,
            len(parts),
        )

    def _fail(self, batch: ProducerBatch, result: PartitionResult, node: int | None) -> None:
        broker = "" if node is None else f" at {self._metadata.snapshot.broker_text(node)}"
        what = f"records for {batch.topic_partition}{broker}"
        if result.cause is not None:
            error: ClientError = _with_topic(result.cause, what)
        else:
            error = _error(result.code, what, result.message)
        record_errors: dict[int, Exception] = {}
        if result.record_errors:
            for index, message in result.record_errors.items():
                record_errors[index] = _error(
                    result.code, f"a record for {batch.topic_partition}{broker}", message
                )
            error = _error(
                result.code,
                what,
                "the record is valid itself, but another one of its batch is not"
                + ("" if result.message is None else f": {result.message}"),
            )
        self._fail_with(batch, error, record_errors)

    def _fail_with(
        self, batch: ProducerBatch, error: ClientError, record_errors: Mapping[int, Exception]
    ) -> None:
        if batch.is_done:
            if self._transactions is not None:
                self._transactions.sequences.remove_in_flight(batch)
            return
        self._count_errors(batch)
        transactions = self._transactions
        if transactions is not None:
            # Renumbering what is in flight is right only if the broker surely has none of it. (Java's client
            # renumbers after a time-out too, which can write records twice.)
            is_certain = not batch.may_be_written and not self._has_uncertain_before(batch, transactions)
            transactions.handle_failed_batch(
                batch, error, adjusts_sequences=is_certain and batch.has_sequence
            )
            if batch.has_sequence and not is_certain:
                # No batch gets a new sequence before it is known whether the broker has this one.
                transactions.sequences.mark_unresolved(batch)
        batch.fail(error, record_errors)
        self._accumulator.completed(batch)

    def _has_uncertain_before(self, failed: ProducerBatch, transactions: TransactionManager) -> bool:
        """Whether the broker may have a batch in flight that was numbered before the failed one."""
        entry = transactions.sequences.find(failed.topic_partition)
        for batch in () if entry is None else entry.in_flight:
            if batch is failed:
                break
            if isinstance(batch, ProducerBatch) and (batch.may_be_written or batch.is_in_request):
                return True
        return False

    def _log_retry(self, batch: ProducerBatch, result: PartitionResult, node: int | None) -> None:
        broker = "" if node is None else f" from {self._metadata.snapshot.broker_text(node)}"
        batch.last_failure = f"{result.code.name}{broker}: {result.message or explained(result.code)}"
        # The first retry of a batch is routine while leaders move.
        level = logging.DEBUG if batch.attempts == 0 else logging.WARNING
        logger.log(
            level,
            "%d records for %s are sent again (attempt %d): %s",
            batch.record_count,
            batch.topic_partition,
            batch.attempts + 2,
            batch.last_failure,
        )


def _with_topic(cause: ClientError, what: str) -> ClientError:
    """Return an error of the same class as a request's, for the records of one partition."""
    kind = type(cause)
    if kind not in (BrokerConnectionError, RequestTimedOutError, UnsupportedApiError):
        return cause
    error = kind(f"{what}: {cause}")
    error.__cause__ = cause
    return error


def _error(code: ErrorCode, what: str, message: str | None) -> BrokerResponseError:
    return error_for(code, what, message)
