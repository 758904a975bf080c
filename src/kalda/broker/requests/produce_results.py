"""Makes the responses of Produce requests: results of appended and refused batches, waits for replicas."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.delayed_produce import DelayedProduce, ProduceWait
from kalda.broker.replicas.partition import ACKS_ALL, Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import Pending, RawReply, RawResult, RequestContext
from kalda.broker.requests.node_endpoints import node_endpoints
from kalda.broker.requests.produce_events import (
    emit_not_replicated,
    emit_refused_producer,
    emit_refused_records,
)
from kalda.broker.requests.produced_records import RefusedError
from kalda.broker.requests.refused_batches import RefusedBatches
from kalda.broker.requests.throttling import throttle_ms
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.protocol.fast.produce import (
    TOPIC_IDS_FROM,
    PartitionProduceResult,
    ProduceRequestFields,
    produce_response,
    single_success_response,
)
from kalda.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kalda.records.errors import InvalidRecordError
from kalda.records.format_conversion import is_message_set
from kalda.runtime.clock import Clock
from kalda.storage.errors import OutOfOrderSequenceError
from kalda.storage.log_resources import LogResources
from kalda.storage.unified_log import LogAppendInfo

if TYPE_CHECKING:
    from kalda.broker.security.authorizer import Authorizer

logger: Final = logging.getLogger(__name__)

_WITHOUT_LOG_START: Final = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    )
)
"""Errors that Kafka returns without the log start offset; responses with the others contain it."""

Answer = tuple[bytes, PartitionProduceResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceParts:
    """The parts of a broker that Produce requests need."""

    authorizer: "Authorizer | None"
    throttle: ClientThrottle
    cache: MetadataCache
    clock: Clock
    gate: ProduceGate
    purgatory: DelayedOperationPurgatory
    """Of the requests with acks=all."""
    refused_batches: RefusedBatches
    replicas: ReplicaManager
    resources: LogResources


class Results:
    """The results of a request's partitions so far."""

    __slots__ = ("_context", "_fields", "_is_acks_all", "_parts", "_waits", "answers")

    def __init__(
        self,
        parts: ProduceParts,
        context: RequestContext,
        fields: ProduceRequestFields,
        answers: list[Answer],
    ) -> None:
        self._parts = parts
        self._context = context
        self._fields = fields
        self._is_acks_all = fields.acks == ACKS_ALL
        self.answers = answers
        """In the order of the request, with those of denied topics first."""
        self._waits: list[tuple[int, ProduceWait]] = []

    def add(self, name: bytes, result: PartitionProduceResult) -> int:
        """Add a partition's result; return its place."""
        self.answers.append((name, result))
        return len(self.answers) - 1

    def add_appended(
        self, name: bytes, partition: Partition, info: LogAppendInfo, place: int | None = None
    ) -> None:
        """Add the result of an append, for which the request may wait, or put it at the place of another."""
        answer = name, appended_result(partition.topic_partition.partition, info)
        if place is None:
            self.answers.append(answer)
        else:
            self.answers[place] = answer
        if self._is_acks_all and partition.log.high_watermark <= info.last_offset:
            at = len(self.answers) - 1 if place is None else place
            self._waits.append((at, ProduceWait(partition, info.last_offset + 1)))

    def answer(self) -> RawResult:
        """Return the reply to the request, or the operation that it waits for."""
        parts, context = self._parts, self._context
        if context.api_version >= TOPIC_IDS_FROM:
            self.answers = [(context.topic_ids.get(name, name), result) for name, result in self.answers]
        if self._fields.acks == 0:
            _close_on_error(context, self.answers)
            throttle = parts.throttle
            if throttle.is_active:
                # No response could name the time; the connection is muted for it.
                throttle_ms(throttle, context)
            return None
        if self._waits:
            return wait_replicated(parts, context, self._fields.timeout_ms, self.answers, self._waits)
        return reply(parts, context, self.answers)


def refused_result(
    parts: ProduceParts,
    context: RequestContext,
    partition: Partition | None,
    batch: tuple[int, memoryview | None],
    error: Exception,
    name: bytes,
) -> PartitionProduceResult:
    """Return the answer for a refused batch, and note the refusal for the producer's later batches."""
    index, records = batch
    if partition is not None and not isinstance(error, RefusedError):
        emit_refused_records(parts.resources.events, context, partition, error)
    if records is not None and is_message_set(records):
        # Messages have no producer id.
        return _failure(partition, index, error)
    if (
        isinstance(error, OutOfOrderSequenceError)
        and partition is not None
        and records is not None
        and parts.refused_batches.is_early(partition, records)
    ):
        early = "A batch that the producer sent before this one has not reached this leader yet."
        error = RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, early)
    failure = _failure(partition, index, error)
    parts.refused_batches.note(name, index, records, failure.error_code)
    if failure.error_code in _FENCED and records is not None and partition is not None:
        code = ErrorCode(failure.error_code)
        emit_refused_producer(parts.resources.events, context, partition, records, code, str(error))
    return failure


_FENCED: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
    )
)
"""Refusals after which a producer cannot go on by sending the batch again."""


def _failure(partition: Partition | None, index: int, error: Exception) -> PartitionProduceResult:
    """Return the partition's answer for the error that refused its batch."""
    code: ErrorCode = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
    if isinstance(error, (RefusedError, ApiError)):
        message = error.message
    else:
        message = str(error)
        # The log itself logs disk errors at intervals; here it would be one line per request.
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.error("Cannot append to %s: %s", partition, error)
    leader = None
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
        leader = (partition.leader_id, partition.leader_epoch)
    log_start_offset = -1
    if partition is not None and not isinstance(error, RefusedError) and code not in _WITHOUT_LOG_START:
        log_start_offset = partition.log.log_start_offset
    return PartitionProduceResult(
        index,
        int(code),
        log_start_offset=log_start_offset,
        record_errors=error.record_errors if isinstance(error, InvalidRecordError) else (),
        error_message=message,
        current_leader=leader,
    )


def appended_result(index: int, info: LogAppendInfo) -> PartitionProduceResult:
    """Return the result of a batch that was appended."""
    # Made of all fields, which takes half of what the constructor does.
    fields = (index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset, (), None, None)
    return PartitionProduceResult._make(fields)


def reply(parts: ProduceParts, context: RequestContext, answers: list[Answer]) -> bytes:
    """Return the response frame; count its errors, and throttle the client."""
    throttle = parts.throttle
    if len(answers) == 1 and not throttle.is_active:
        ((name, result),) = answers
        if result.error_code == 0:
            index, _, base_offset, time_ms, start, *_ = result
            return single_success_response(
                context.correlation_id, context.api_version, name, index, base_offset, time_ms, start
            )
    topics: list[tuple[bytes, list[PartitionProduceResult]]] = []
    leaders: set[int] = set()
    for name, result in answers:
        if result.error_code != 0:
            context.count_error(result.error_code)
            if result.current_leader is not None:
                leaders.add(result.current_leader[0])
        if not topics or topics[-1][0] != name:
            topics.append((name, []))
        topics[-1][1].append(result)
    return produce_response(
        context.correlation_id,
        context.api_version,
        topics,
        throttle_time_ms=throttle_ms(throttle, context) if throttle.is_active else 0,
        node_endpoints=node_endpoints(parts.cache, context.listener, leaders) if leaders else (),
    )


def _close_on_error(context: RequestContext, answers: list[Answer]) -> None:
    """Close the connection after an error: with acks=0 there is no response that could report it."""
    failed = {result.error_code for _, result in answers if result.error_code != 0}
    for code in failed:
        context.count_error(code)
    if failed:
        names = ", ".join(ErrorCode(code).name for code in sorted(failed))
        context.connection.close(f"produce with acks=0 failed: {names}")


def wait_replicated(
    parts: ProduceParts,
    context: RequestContext,
    timeout_ms: int,
    answers: list[Answer],
    waits: list[tuple[int, ProduceWait]],
) -> "Pending[RawReply | None]":
    """Respond once the in-sync replicas have the records, or at the timeout."""
    pending: Pending[RawReply | None] = Pending()

    def respond() -> None:
        for at, wait in waits:
            if wait.code is not ErrorCode.NONE:
                name, result = answers[at]
                answers[at] = name, PartitionProduceResult(result.partition, int(wait.code))
                emit_not_replicated(parts.resources.events, context, wait)
        pending.complete(reply(parts, context, answers))

    operation = DelayedProduce(timeout_ms, [wait for _, wait in waits], respond)
    parts.purgatory.try_complete_else_watch(operation, operation.keys)
    return pending


def error_response(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    """Return a response with one error for every partition; None for acks=0, which has no response."""
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=int(code), base_offset=-1)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
