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

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kalda.broker.replicas.delayed_produce import ProduceWait
from kalda.broker.replicas.partition import ACKS_ALL, Partition
from kalda.broker.requests.api import ApiHandler, Pending, RawHandle, RawReply, RawResult, RequestContext
from kalda.broker.requests.produce_preparation import HeavyBatch, prepare_all
from kalda.broker.requests.produce_results import (
    Answer,
    ProduceParts,
    Results,
    appended_result,
    error_response,
    refused_result,
    reply,
    wait_replicated,
)
from kalda.broker.requests.produced_records import RECORD_BATCHES_FROM, RefusedError, checked_batch
from kalda.broker.topics.topic_names import CLUSTER_HISTORY_TOPIC
from kalda.broker.transactions.produce_gate import Admission
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
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
    single_success_response,
)
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.storage.errors import LOG_ERRORS, HeavyBatchError
from kalda.storage.log_validator import PUT_OFF, Prepared
from kalda.storage.unified_log import LogAppendInfo

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices
    from kalda.broker.security.authorizer import Authorizer

_WITH_RESPONSE: Final = (1, ACKS_ALL)
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka's name for the only client that may write to internal topics."""


PARTITIONS_AT_ONCE: Final = 64
"""Partitions of a request that are appended to without other work in between: two to four milliseconds."""

NOTHING_DENIED: Final[Sequence[Answer]] = ()


_REFUSALS: Final = (RefusedError, ApiError, *LOG_ERRORS)
"""What a batch may be refused by."""


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
                failure = refused_result(
                    parts, context, partition, (index, records), error, partition.name_bytes
                )
                return reply(parts, context, [(topic, failure)])
            if info.converted_count:
                context.api.metrics.observe_conversion(info.conversion_seconds, info.conversion_bytes)
            if acks == ACKS_ALL and partition.log.high_watermark <= info.last_offset:
                wait = ProduceWait(partition, info.last_offset + 1)
                return wait_replicated(
                    parts, context, timeout_ms, [(topic, appended_result(index, info))], [(0, wait)]
                )
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
            unknown.append(
                (topic_id, refused_result(parts, context, None, (index, records), error, topic_id))
            )
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
    results = Results(parts, context, fields, list(denied))
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
    results: Results,
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
                results.add(name, refused_result(parts, context, partition, (index, records), error, name))
                continue
            results.add_appended(name, partition, info)


def _put_off(
    parts: ProduceParts,
    context: RequestContext,
    fields: ProduceRequestFields,
    admission: Admission | None,
    results: Results,
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
            results.answers[place] = (
                name,
                refused_result(parts, context, partition, (index, owned), error, name),
            )
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
