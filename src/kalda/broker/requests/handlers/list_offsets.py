"""Handles ListOffsets (key 2), versions 0-11: returns offsets by timestamp, or starts and ends of partitions.

v0 returns several offsets of segment starts; v1 one exact offset with its timestamp (KIP-79). v2 adds the
isolation level, v4 leader epochs, v7 the largest timestamp (KIP-734), v8 the earliest local offset and v9 the
latest tiered one (KIP-405). v10 adds a time-out for remote look-ups, v11 the earliest offset that is to be
tiered (KIP-1023). Without tiered storage the local start is the log start, nothing is tiered or to be tiered,
and no look-up is remote.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from kalda.broker.replicas.partition import DEBUGGING_REPLICA_ID, Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kalda.runtime.clock import Clock
from kalda.security.acl.model import AclOperation
from kalda.storage.errors import LOG_ERRORS, HeavyBatchError
from kalda.storage.log_manager import LogManager
from kalda.storage.log_types import TimestampAndOffset
from kalda.storage.offsets_for_times import (
    TimestampSearch,
    offset_for_max_timestamp,
    offset_for_timestamp,
    offsets_before,
)
from kalda.storage.unified_log import UnifiedLog

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_SINCE: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version with each special timestamp."""
CONSUMER_REPLICA_ID: Final = -1
_READ_COMMITTED: Final = 1
_NO_TIMESTAMP: Final = -1
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


Answer = ListOffsetsResponse | Pending[ListOffsetsResponse]


def handle(
    replicas: ReplicaManager,
    clock: Clock,
    log_manager: LogManager,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> Answer | Steps[Answer]:
    """Look up each partition; errors are returned by partition.

    A batch that takes long to search is searched by the conversion pool.
    """
    return first_turn(_look_up_each(replicas, clock, log_manager, request, context))


def _look_up_each(
    replicas: ReplicaManager,
    clock: Clock,
    log_manager: LogManager,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> Steps[Answer]:
    named: Counter[TopicPartition] = Counter()
    for topic in request.topics:
        for wanted in topic.partitions:
            named[TopicPartition(topic.name, wanted.partition_index)] += 1
            yield
    topics = []
    put_off: list[_PutOff] = []
    search = TimestampSearch()
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            yield
            topic_partition = TopicPartition(topic.name, wanted.partition_index)
            look_up = partial(
                _look_up, replicas, clock, request, wanted, topic_partition, context.api_version
            )
            try:
                if context.api_version >= 1 and named[topic_partition] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                answers.append(look_up(search))
            except HeavyBatchError:
                # It is read again when its turn comes.
                search.forget()
                put_off.append(_PutOff(answers, len(answers), look_up, search))
                answers.append(_failure(wanted.partition_index, ErrorCode.NONE))
                search = TimestampSearch()
            except (ApiError, *LOG_ERRORS) as error:
                answers.append(_failure(wanted.partition_index, error.code))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics)
    if not put_off:
        return response
    pending: Pending[ListOffsetsResponse] = Pending()
    _go_on(log_manager, context, put_off, lambda: pending.complete(response))
    return pending


class _PutOff(NamedTuple):
    """A look-up that continues after a batch has been searched."""

    answers: list[ListOffsetsPartitionResponse]
    place: int
    look_up: Callable[[TimestampSearch], ListOffsetsPartitionResponse]
    search: TimestampSearch


def _go_on(
    log_manager: LogManager, context: RequestContext, put_off: list[_PutOff], done: Callable[[], None]
) -> None:
    """Finish the look-ups that were put off, one after the other, then call `done`."""

    def fail(error: BaseException) -> None:
        each = put_off.pop()
        code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
        each.answers[each.place] = _failure(each.answers[each.place].partition_index, code)

    def searched(error: BaseException | None) -> None:
        if error is not None:
            fail(error)
        _go_on(log_manager, context, put_off, done)

    while put_off:
        each = put_off[-1]
        try:
            each.answers[each.place] = each.look_up(each.search)
            put_off.pop()
        except HeavyBatchError:
            conversions = log_manager.resources.conversions
            conversions.submit(context.connection, each.search.heavy_bytes, each.search.run, searched)
            return
        except (ApiError, *LOG_ERRORS) as error:
            fail(error)
    done()


def _look_up(
    replicas: ReplicaManager,
    clock: Clock,
    request: ListOffsetsRequest,
    wanted: ListOffsetsPartition,
    topic_partition: TopicPartition,
    version: int,
    search: TimestampSearch,
) -> ListOffsetsPartitionResponse:
    partition = replicas.partition(topic_partition)
    partition.check_leader_epoch(wanted.current_leader_epoch, request.replica_id != DEBUGGING_REPLICA_ID)
    end = _end_offset(partition, request)
    if version == 0:
        offsets = offsets_before(partition.log, wanted.timestamp, clock.time_ms(), wanted.max_num_offsets)
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            # An offset above the end that this reader may see is returned as that end.
            old_style_offsets=list(dict.fromkeys(min(offset, end) for offset in offsets)),
        )
    if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, version + 1):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    timestamp, offset, epoch = _offset(partition.log, wanted.timestamp, end, search)
    if request.replica_id == CONSUMER_REPLICA_ID and (wanted.timestamp == LATEST or offset == _NO_OFFSET):
        _check_high_watermark(partition, version)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        # The field exists since version 4.
        leader_epoch=epoch if version >= 4 else _NO_EPOCH,
    )


def _check_high_watermark(partition: Partition, version: int) -> None:
    """Refuse while the high watermark is below the start of the leader's epoch and still catching up."""
    if partition.leader_epoch_start_offset > partition.log.high_watermark:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE)


def _end_offset(partition: Partition, request: ListOffsetsRequest) -> int:
    """Return the end offset for this reader: consumers read committed records only."""
    log = partition.log
    if request.replica_id >= 0 or request.replica_id == DEBUGGING_REPLICA_ID:
        return log.log_end_offset
    if request.isolation_level == _READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _offset(log: UnifiedLog, timestamp: int, end: int, search: TimestampSearch) -> tuple[int, int, int]:
    """Return the timestamp, offset and leader epoch of the answer for one partition."""
    if timestamp == LATEST:
        return _NO_TIMESTAMP, end, _epoch_at(log, end)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _NO_TIMESTAMP, log.log_start_offset, _epoch_at(log, log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NO_TIMESTAMP, _NO_OFFSET, _NO_EPOCH
    if search.found is not None:
        found: TimestampAndOffset | None = TimestampAndOffset(*search.found, -1)
    elif timestamp == MAX_TIMESTAMP:
        found = offset_for_max_timestamp(log, search.start_offset, search)
    else:
        found = offset_for_timestamp(log, timestamp, search.start_offset, search)
    if found is None or found.offset >= end:
        return _NO_TIMESTAMP, _NO_OFFSET, _NO_EPOCH
    return found.timestamp, found.offset, _epoch_at(log, found.offset)


def _epoch_at(log: UnifiedLog, offset: int) -> int:
    epoch = log.leader_epochs.epoch_for_offset(offset)
    return _NO_EPOCH if epoch is None else epoch


def _failure(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


def error_response(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """Return a response with one error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failure(wanted.partition_index, code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_OFFSETS,
    versions=(0, 11),
    build=lambda services: partial(handle, services.replica_manager, services.clock, services.log_manager),
    error_response=error_response,
    access=topic_checks.by_name(AclOperation.DESCRIBE),
)
