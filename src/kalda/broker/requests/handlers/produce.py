"""Handles Produce (key 0), versions 0-13: appends record batches.

`handle_produce` is the path of the usual request, with one batch for one partition: it parses, looks up,
appends and responds, and makes nothing per record. `_handle_general` handles every other request.

Versions 0-2 carry message sets of the formats before 0.11, which the log converts to its own. What takes
long, there or because a topic needs the records of a batch, is done by the conversion pool first
(`produce_preparation`). A partition that a request names twice is refused: INVALID_REQUEST. Below version 7
the broker refuses zstd (KIP-110). A transactional batch waits until its coordinator has confirmed that the
transaction is open (KIP-890), unless the log has the transaction; without a transactional id in the request
it gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED. From version 12 on, the first batch of a transaction adds the
partition to it (transactions V2). From version 13 on, requests and responses name topics by id, so that a
batch for a topic that was deleted is not appended to another one of the same name.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.delayed_produce import DelayedProduce, ProduceWait
from kalda.broker.replicas.partition import ACKS_ALL, Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, Pending, RawHandle, RawReply, RawResult, RequestContext
from kalda.broker.requests.node_endpoints import node_endpoints
from kalda.broker.requests.produce_events import (
    emit_not_replicated,
    emit_refused_producer,
    emit_refused_records,
)
from kalda.broker.requests.produce_preparation import HeavyBatch, prepare_all
from kalda.broker.requests.produced_records import RECORD_BATCHES_FROM, RefusedError, checked_batch
from kalda.broker.requests.refused_batches import RefusedBatches
from kalda.broker.requests.throttling import throttle_ms
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.topics.topic_names import CLUSTER_HISTORY_TOPIC
from kalda.broker.transactions.produce_gate import Admission, ProduceGate
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.turns import Steps, Turns, result_of
from kalda.common.types import TopicPartition
from kalda.protocol.fast.produce import (
    TOPIC_IDS_FROM,
    PartitionProduceResult,
    ProduceRequestFields,
    as_fields,
    is_plain,
    parse_general,
    parse_usual,
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
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.storage.errors import LOG_ERRORS, HeavyBatchError, OutOfOrderSequenceError
from kalda.storage.log_resources import LogResources
from kalda.storage.log_validator import PUT_OFF, Prepared
from kalda.storage.unified_log import LogAppendInfo

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices
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
_WITH_RESPONSE: Final = (1, ACKS_ALL)
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka's name for the only client that may write to internal topics."""


PARTITIONS_AT_ONCE: Final = 64
"""Partitions of a request that are appended to without other work in between: two to four milliseconds."""

Answer = tuple[bytes, PartitionProduceResult]
NOTHING_DENIED: Final[Sequence[Answer]] = ()


_REFUSALS: Final = (RefusedError, ApiError, *LOG_ERRORS)
"""What a batch may be refused by."""


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


def handle_produce(
    parts: ProduceParts, context: RequestContext, frame: memoryview, body_position: int
) -> RawResult:
    """Append the batches of a request and respond as its acks requires."""
    version = context.api_version
    authorizer, throttle = parts.authorizer, parts.throttle
    usual = parse_usual(frame, body_position, version)
    if usual is not None:
        acks, timeout_ms, topic, index, records, is_plain = usual
        if version < TOPIC_IDS_FROM:
            partition = parts.replicas.find(topic, index)
        else:
            partition = parts.replicas.find_by_id(topic, index)
        if (
            partition is not None
            and not partition.is_internal
            and acks in _WITH_RESPONSE
            and (authorizer is None or partition.name_bytes in context.connection.writable_names)
            and not throttle.is_active
        ):
            try:
                checked = records if is_plain else checked_batch(records, version, None)
                if parts.refused_batches.by_producer:
                    _check_order(parts, partition, checked)
                info = parts.replicas.append(partition, checked, acks, PUT_OFF)
            except HeavyBatchError:
                return _handle_heavy(parts, context, as_fields(usual))
            except _REFUSALS as error:
                failure = _refused(parts, context, partition, (index, records), error, partition.name_bytes)
                return _reply(parts, context, [(topic, failure)])
            if info.converted_count:
                context.api.metrics.observe_conversion(info.conversion_seconds, info.conversion_bytes)
            if acks == ACKS_ALL and partition.log.high_watermark <= info.last_offset:
                wait = ProduceWait(partition, info.last_offset + 1)
                return _wait(parts, context, timeout_ms, [(topic, _appended(index, info))], [(0, wait)])
            return single_success_response(
                context.correlation_id,
                version,
                topic,
                index,
                info.first_offset,
                info.log_append_time_ms,
                info.log_start_offset,
            )
        fields = as_fields(usual)
    else:
        fields = parse_general(frame, body_position, version)
    if throttle.is_active:
        context.throttle_seconds = throttle.produced(context.connection, context.client_id, len(frame))
    denied = NOTHING_DENIED
    if version >= TOPIC_IDS_FROM:
        denied = _name_topics(parts, context, fields)
    topics = fields.topics
    if authorizer is not None and (
        fields.transactional_id is not None
        or len(topics) != 1
        or topics[0][0] not in context.connection.writable_names
    ):
        denied = [*denied, *_take_denied(authorizer, context, fields)]
    if fields.transactional_id is not None and fields.topics:
        return _handle_transactional(parts, context, fields, denied)
    return _handle_general(parts, context, fields, denied=denied)


def _handle_heavy(parts: ProduceParts, context: RequestContext, fields: ProduceRequestFields) -> RawResult:
    """Handle a request with one batch that takes long; its client may write to the topic."""
    denied = _name_topics(parts, context, fields) if context.api_version >= TOPIC_IDS_FROM else NOTHING_DENIED
    return _handle_general(parts, context, fields, denied=denied)


def _name_topics(
    parts: ProduceParts, context: RequestContext, fields: ProduceRequestFields
) -> Sequence[Answer]:
    """Replace the topic ids of a request by names; take the unknown ones out and return their results."""
    topics, unknown = [], []
    ids = context.topic_ids = {}
    for topic_id, partitions in fields.topics:
        name = parts.cache.topic_name_by_bytes(topic_id)
        if name is not None:
            encoded = name.encode()
            ids[encoded] = topic_id
            topics.append((encoded, partitions))
            continue
        for index, records in partitions:
            error = RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
            unknown.append((topic_id, _refused(parts, context, None, (index, records), error, topic_id)))
    fields.topics = topics
    return unknown


def _find(parts: ProduceParts, context: RequestContext, name: bytes, index: int) -> Partition | None:
    """Return the partition that a request names, if this broker hosts it.

    Raises:
        RefusedError: UNKNOWN_TOPIC_ID, another topic had the name when the request named it by id.
    """
    replicas = parts.replicas
    topic_id = context.topic_ids.get(name)
    if topic_id is None:
        return replicas.find(name, index)
    partition = replicas.find_by_id(topic_id, index)
    if partition is None and replicas.find(name, index) is not None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
    return partition


def _take_denied(
    authorizer: "Authorizer", context: RequestContext, fields: ProduceRequestFields
) -> Sequence[Answer]:
    """Take the topics that the client may not write out of a request; return their results."""
    connection, topics = context.connection, fields.topics
    transactional_id = fields.transactional_id
    if transactional_id is not None and not authorizer.allows(
        connection,
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        transactional_id.decode(errors="replace"),
    ):
        code, fields.topics = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, []
    else:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        names = {name for name, _ in topics if not authorizer.allows_write(connection, name)}
        if not names:
            return NOTHING_DENIED
        fields.topics = [each for each in topics if each[0] not in names]
        topics = [each for each in topics if each[0] in names]
    return [
        (name, PartitionProduceResult(index, int(code)))
        for name, partitions in topics
        for index, _ in partitions
    ]


def _handle_transactional(
    parts: ProduceParts,
    context: RequestContext,
    fields: ProduceRequestFields,
    denied: Sequence[Answer],
) -> RawResult:
    """Handle a request of a transaction, which may first wait for the transaction's coordinator."""
    admission = parts.gate.admit(fields, context.api_version)
    if admission is None or not admission.waits:
        return _handle_general(parts, context, fields, admission, denied)
    _own_records(fields)
    pending: Pending[RawReply | None] = Pending()

    def resume() -> None:
        try:
            result = _handle_general(parts, context, fields, admission, denied)
        except Exception as error:
            # What failed before the first append has not ended it.
            admission.end()
            pending.fail(error)
        else:
            _complete(pending, result)

    parts.gate.wait(admission, fields.transactional_id or b"", resume)
    return pending


def _complete(pending: "Pending[RawReply | None]", result: RawResult) -> None:
    if isinstance(result, Pending):
        pending.on_abandoned = result.on_abandoned
        result.add_done(partial(_pass_on, pending))
    else:
        pending.complete(result)


def _own_records(fields: ProduceRequestFields) -> None:
    """Copy the records, because the frame is no longer valid when the request continues."""
    fields.topics = [
        (name, [(index, None if records is None else _owned(records)) for index, records in partitions])
        for name, partitions in fields.topics
    ]


def _owned(records: memoryview) -> memoryview:
    return memoryview(bytearray(records))


def _handle_general(
    parts: ProduceParts,
    context: RequestContext,
    fields: ProduceRequestFields,
    admission: Admission | None = None,
    denied: Sequence[Answer] = (),
) -> RawResult:
    """Handle any request: many partitions, acks=0, invalid acks.

    `denied` are the results of partitions that were taken out of the request.
    """
    is_long = fields.partition_count > PARTITIONS_AT_ONCE
    if is_long:
        _own_records(fields)
    steps = _append_each(parts, context, fields, admission, denied, is_long=is_long)
    if not is_long:
        return result_of(steps)
    pending: Pending[RawReply | None] = Pending()
    context.connection.hold_frames()
    Turns.of_running_loop().run(steps).add_done(partial(_pass_on, pending))
    return pending


def _pass_on(
    pending: "Pending[RawReply | None]", done: "Pending[RawResult] | Pending[RawReply | None]"
) -> None:
    if done.error is not None:
        pending.fail(done.error)
    else:
        _complete(pending, done.value)


def _append_each(
    parts: ProduceParts,
    context: RequestContext,
    fields: ProduceRequestFields,
    admission: Admission | None,
    denied: Sequence[Answer],
    *,
    is_long: bool,
) -> Steps[RawResult]:
    """Handle a request, where it is long in as many steps as there are partitions."""
    results = _Results(parts, context, fields, list(denied))
    heavy: list[HeavyBatch] = []
    try:
        yield from _append_light(parts, context, fields, admission, results, heavy, is_long=is_long)
    except BaseException:
        _end(admission)
        raise
    if not heavy:
        _end(admission)
        return results.answer()
    pending: Pending[RawReply | None] = Pending()

    def appended(error: Exception | None) -> None:
        _end(admission)
        if error is None:
            _complete(pending, results.answer())
        else:
            pending.fail(error)

    context.connection.hold_frames()
    prepare_all(parts.clock, parts.resources.conversions, context.connection, heavy, appended)
    return pending


def _end(admission: Admission | None) -> None:
    if admission is not None:
        admission.end()


def _append_light(
    parts: ProduceParts,
    context: RequestContext,
    fields: ProduceRequestFields,
    admission: Admission | None,
    results: "_Results",
    heavy: list[HeavyBatch],
    *,
    is_long: bool,
) -> Steps[None]:
    """Append what does not take long, and add the other batches to `heavy`."""
    acks = fields.acks
    named_twice = fields.named_twice()
    is_by_id = context.api_version >= TOPIC_IDS_FROM
    find = partial(_find, parts, context) if is_by_id else parts.replicas.find
    keep = partial(_put_off, parts, context, fields, admission, results)
    put_off = Prepared()
    for name, partitions in fields.topics:
        for index, records in partitions:
            if is_long:
                yield
            if acks not in (-1, 0, 1):
                results.add(name, PartitionProduceResult(index, int(ErrorCode.INVALID_REQUIRED_ACKS)))
                continue
            partition = None
            try:
                if named_twice and (name, index) in named_twice:
                    raise RefusedError(
                        ErrorCode.INVALID_REQUEST,
                        f"The request names partition {index} of the topic twice; send one batch for each.",
                    )
                partition = find(name, index)
                if partition is None:
                    topic_partition = TopicPartition(name.decode(errors="replace"), index)
                    raise RefusedError(parts.replicas.absence_error(topic_partition))
                try:
                    info = _append(parts, context, partition, records, fields, admission, put_off)
                except HeavyBatchError:
                    heavy.append(keep(name, partition, records))
                    continue
            except _REFUSALS as error:
                results.add(name, _refused(parts, context, partition, (index, records), error, name))
                continue
            results.add_appended(name, partition, info)


class _Results:
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
        answer = name, _appended(partition.topic_partition.partition, info)
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
            return _wait(parts, context, self._fields.timeout_ms, self.answers, self._waits)
        return _reply(parts, context, self.answers)


def _put_off(
    parts: ProduceParts,
    context: RequestContext,
    fields: ProduceRequestFields,
    admission: Admission | None,
    results: _Results,
    name: bytes,
    partition: Partition,
    records: memoryview | None,
) -> HeavyBatch:
    """Keep the place of a batch that is appended when it is prepared.

    Raises:
        RefusedError: too many bytes wait to be prepared.
    """
    assert records is not None, "nothing is not heavy"
    index = partition.topic_partition.partition
    if not parts.resources.conversions.has_room(len(records)):
        raise RefusedError(
            ErrorCode.NOT_ENOUGH_REPLICAS, "Too many batches wait until the broker has opened them; retry."
        )
    place = results.add(name, PartitionProduceResult(index, int(ErrorCode.NONE)))
    owned = _owned(records)

    def append(prepared: Prepared) -> None:
        try:
            info = _append(parts, context, partition, owned, fields, admission, prepared)
        except _REFUSALS as error:
            results.answers[place] = name, _refused(parts, context, partition, (index, owned), error, name)
        else:
            results.add_appended(name, partition, info, place)

    return HeavyBatch(partition, owned, append)


def _append(
    parts: ProduceParts,
    context: RequestContext,
    partition: Partition,
    records: memoryview | None,
    fields: ProduceRequestFields,
    admission: Admission | None,
    prepared: Prepared,
) -> LogAppendInfo:
    refusal = None if admission is None else admission.refusal(partition)
    if refusal is not None:
        raise RefusedError(*refusal)
    if partition.is_internal and not _may_write(partition, context):
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    version = context.api_version
    checked = records if is_plain(records) else checked_batch(records, version, fields.transactional_id)
    if parts.refused_batches.by_producer and version >= RECORD_BATCHES_FROM:
        _check_order(parts, partition, checked)
    info = parts.replicas.append(partition, checked, fields.acks, prepared)
    if info.converted_count:
        context.api.metrics.observe_conversion(info.conversion_seconds, info.conversion_bytes)
    return info


def _may_write(internal: Partition, context: RequestContext) -> bool:
    """Return whether a client may write to an internal topic: the admin client may, but not the history."""
    is_history = internal.topic_partition.topic == CLUSTER_HISTORY_TOPIC
    return context.client_id == ADMIN_CLIENT_ID and not is_history


def _check_order(parts: ProduceParts, partition: Partition, records: memoryview) -> None:
    """Refuse a batch after one that was refused and that the producer has not sent again yet."""
    code = parts.refused_batches.refusal(partition, records)
    if code is not None:
        raise RefusedError(code, "A batch that the producer sent before this one was refused.")


# Responses.


def _refused(
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


def _appended(index: int, info: LogAppendInfo) -> PartitionProduceResult:
    # Made of all fields, which takes half of what the constructor does.
    fields = (index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset, (), None, None)
    return PartitionProduceResult._make(fields)


def _reply(parts: ProduceParts, context: RequestContext, answers: list[Answer]) -> bytes:
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


def _wait(
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
        pending.complete(_reply(parts, context, answers))

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


def _build(services: "BrokerServices") -> RawHandle:
    return partial(
        handle_produce,
        ProduceParts(
            authorizer=services.access.authorizer,
            throttle=services.access.throttle,
            cache=services.metadata_cache,
            clock=services.clock,
            gate=services.produce_gate,
            purgatory=services.purgatories["produce"],
            refused_batches=services.refused_batches,
            replicas=services.replica_manager,
            resources=services.log_manager.resources,
        ),
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.PRODUCE,
    versions=(0, 13),
    build_raw=_build,
    error_response=error_response,
    access=None,
)
