"""Emits events about records that a leader refuses, for `kalda why`.

Clients cause these events and can repeat them at will, so each is emitted seldom.
"""

from typing import Final

from kalda.broker.replicas.delayed_produce import ProduceWait
from kalda.broker.replicas.partition import Partition
from kalda.broker.requests.api import RequestContext
from kalda.common.errors import ApiError, ErrorCode
from kalda.events.event import EventKind, EventSink
from kalda.records.batch import read_producer


def emit_refused_records(
    events: EventSink, context: RequestContext, partition: Partition, error: Exception
) -> None:
    """Emit that records were refused, for a reason that an operator may have to act on."""
    code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
    if code in _OPERATORS_REASONS:
        events.emit_seldom(
            EventKind.RECORDS_REFUSED,
            _subject(context, partition),
            {"reason": code.name, "text": error.message if isinstance(error, ApiError) else str(error)},
        )


def emit_not_replicated(events: EventSink, context: RequestContext, wait: ProduceWait) -> None:
    """Emit that the in-sync replicas did not get records in time; other failures of a wait are no refusal."""
    if wait.code in _NOT_REPLICATED:
        partition = wait.partition
        text = (
            "The records are in the log of the leader, and not in that of each in-sync replica "
            f"{list(partition.isr)} in time; "
            f"min.insync.replicas={partition.log.config.min_insync_replicas}."
        )
        emit_refused_records(events, context, partition, ApiError(wait.code, text))


def emit_refused_producer(
    events: EventSink,
    context: RequestContext,
    partition: Partition,
    records: memoryview,
    code: ErrorCode,
    text: str,
) -> None:
    """Emit that a producer was refused, such as one that another one has fenced."""
    producer_id, epoch, _ = read_producer(records)
    events.emit_seldom(
        EventKind.PRODUCER_REFUSED,
        {"producer": producer_id, **_subject(context, partition)},
        {"reason": code.name, "producer_epoch": epoch, "request": "produce", "text": text},
    )


def _subject(context: RequestContext, partition: Partition) -> dict[str, str | int]:
    topic, number = partition.topic_partition
    return {
        "topic": topic,
        "partition": number,
        "client": context.client_id or "",
        "user": context.principal.name,
    }


_NOT_REPLICATED: Final = frozenset((ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

_OPERATORS_REASONS: Final = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
