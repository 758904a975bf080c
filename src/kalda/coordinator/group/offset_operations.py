"""Commits, fetches, deletes and expires offsets: decisions over one shard.

Each operation returns records to write and a response; the offsets change when the records are replayed. The
group decides whether the operation is allowed (`kalda.coordinator.group.group.Group`). Kafka's counterpart is
``OffsetMetadataManager``.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.coordinator.group.group import Group, GroupType
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.offset_events import (
    NO_OFFSET,
    GetAuthor,
    note_deleted,
    note_reset,
    when_written,
)
from kalda.coordinator.group.offset_records import (
    NO_EXPIRY,
    OffsetAndMetadata,
    offset_commit_record,
    offset_commit_tombstone,
)
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

logger: Final = logging.getLogger(__name__)

Wanted = TypeVar("Wanted", OffsetCommitRequestPartition, TxnOffsetCommitRequestPartition)

GROUP_ID_NOT_FOUND_FROM: Final = 9
"""The version of OffsetCommit from which an unknown group has this code; before: ILLEGAL_GENERATION."""
TRANSACTIONAL_ERRORS_FROM: Final = 6
"""The version of TxnOffsetCommit from which producers know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH, which
are ILLEGAL_GENERATION before (KIP-1319)."""

TOMBSTONES_MAX: Final = 5000
"""The most tombstones in one write of housekeeping. They are one batch, which `max.message.bytes` limits to
1 MiB by default: this allows 200 bytes for each."""

COMMITTED_MAX: Final = 25_000
"""The most offsets of one commit. They are one batch, in which each takes 44 bytes or more: by default
`max.message.bytes` allows fewer than these, but only after all have been encoded."""

_TIMESTAMP_MS_MAX: Final = 2**63 - 1

SLICE_MAX: Final = 2000
"""How many offsets one slice of housekeeping examines: one or two milliseconds of the event loop."""

FetchedOffset: TypeAlias = tuple[int, OffsetAndMetadata | None, ErrorCode]
"""Partition, committed offset, and UNSTABLE_OFFSET_COMMIT if an open transaction may replace it."""


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """The offsets of one group, or an error."""

    group_id: str
    topics: Sequence[tuple[str, Sequence[FetchedOffset]]] = ()
    error: ErrorCode = ErrorCode.NONE


# Committing.


def commit(
    shard: GroupShardState, request: OffsetCommitRequest, version: int, author: GetAuthor | None = None
) -> Result[OffsetCommitResponse]:
    """Commit offsets of a member, or of a simple consumer while the group is empty.

    An event names the `author` of a commit that resets offsets.

    Raises:
        ApiError: the commit is refused as a whole.
    """
    _validate_commit(shard, request, version)
    _refuse_too_many(request.topics)
    now_ms = shard.context.time_ms()
    retention_ms = request.retention_time_ms
    expiry_ms = NO_EXPIRY if retention_ms < 0 else min(now_ms + retention_ms, _TIMESTAMP_MS_MAX)

    def read(each: OffsetCommitRequestPartition, metadata: str) -> OffsetAndMetadata:
        written_ms = each.commit_timestamp if each.commit_timestamp >= 0 else now_ms
        return OffsetAndMetadata(
            each.committed_offset, each.committed_leader_epoch, metadata, written_ms, expiry_ms
        )

    records: list[CoordinatorRecord] = []
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition, error_code=code)
                for partition, code in _commit_topic(
                    shard, request.group_id, topic.name, topic.partitions, read, records
                )
            ],
        )
        for topic in request.topics
    ]
    response = OffsetCommitResponse(topics=topics)
    if request.generation_id_or_member_epoch >= 0:
        shard.offsets.advanced.pop(request.group_id, None)
        return Result(records, response)
    resets = _resets(shard, request, topics)
    if not resets:
        return Result(records, response)
    is_simple = shard.group(request.group_id).protocol_type is None

    def note() -> None:
        for topic, changes in resets:
            note_reset(shard.events, request.group_id, topic, changes, author, is_often=is_simple)

    return Result(records, response, when_written(note))


def _resets(
    shard: GroupShardState, request: OffsetCommitRequest, topics: Iterable[OffsetCommitResponseTopic]
) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Return the offsets that a client that is no member resets: by topic, the one before and the new one.

    A simple consumer, which assigns itself partitions, commits all the time and forward: of its group only
    steps back count. The offsets of a group that members use come from these, and any other is set by a tool,
    unless such a consumer uses the id of that group. Of several steps forward without a member's commit or a
    step back in between, only the first counts.
    """
    group = shard.groups.get(request.group_id)
    if group is None:
        return []
    is_simple = group.protocol_type is None
    store = shard.offsets
    found = []
    for topic, answered in zip(request.topics, topics, strict=True):
        changes = []
        for each, result in zip(topic.partitions, answered.partitions, strict=True):
            partition, offset = each.partition_index, each.committed_offset
            known = store.get(request.group_id, topic.name, partition)
            before = NO_OFFSET if known is None else known.offset
            if result.error_code or offset == before:
                continue
            if offset < before:
                store.forget_advance(request.group_id, topic.name, partition)
            elif is_simple or not store.note_advance(request.group_id, topic.name, partition):
                continue
            changes.append((partition, before, offset))
        if changes:
            found.append((topic.name, changes))
    return found


def _validate_commit(shard: GroupShardState, request: OffsetCommitRequest, version: int) -> None:
    epoch = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is not None:
        group.validate_offset_commit(
            request.member_id, request.group_instance_id, epoch, transactional=False, api_version=version
        )
    elif epoch >= 0:
        unknown = version >= GROUP_ID_NOT_FOUND_FROM
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if unknown else ErrorCode.ILLEGAL_GENERATION)


def _refuse_too_many(
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
) -> None:
    count = sum(len(topic.partitions) for topic in topics)
    if count > COMMITTED_MAX:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{count} offsets are more than {COMMITTED_MAX}")


def transactional_commit(
    shard: GroupShardState, request: TxnOffsetCommitRequest, version: int
) -> Result[TxnOffsetCommitResponse]:
    """Commit offsets that take effect when the producer's transaction is committed.

    Raises:
        ApiError: the commit is refused as a whole.
    """
    group = shard.groups.get(request.group_id)
    if group is not None:
        try:
            group.validate_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                transactional=True,
                api_version=version,
            )
        except ApiError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH and version < TRANSACTIONAL_ERRORS_FROM:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION) from None
            raise
    elif request.generation_id >= 0:
        unknown = version >= TRANSACTIONAL_ERRORS_FROM
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if unknown else ErrorCode.ILLEGAL_GENERATION)
    _refuse_too_many(request.topics)
    shard.offsets.advanced.pop(request.group_id, None)
    now_ms = shard.context.time_ms()

    def read(each: TxnOffsetCommitRequestPartition, metadata: str) -> OffsetAndMetadata:
        return OffsetAndMetadata(each.committed_offset, each.committed_leader_epoch, metadata, now_ms)

    records: list[CoordinatorRecord] = []
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition, error_code=code)
                for partition, code in _commit_topic(
                    shard, request.group_id, topic.name, topic.partitions, read, records
                )
            ],
        )
        for topic in request.topics
    ]
    return Result(records, TxnOffsetCommitResponse(topics=topics))


def _commit_topic(
    shard: GroupShardState,
    group_id: str,
    topic: str,
    partitions: Iterable[Wanted],
    read: Callable[[Wanted, str], OffsetAndMetadata],
    records: list[CoordinatorRecord],
) -> Iterator[tuple[int, ErrorCode]]:
    """Append the commits of one topic to `records`; yield the outcome for each partition."""
    metadata_max = shard.config.offset_metadata_max_bytes
    for each in partitions:
        metadata = each.committed_metadata or ""
        if len(metadata) > metadata_max:
            yield each.partition_index, ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            records.append(offset_commit_record(group_id, topic, each.partition_index, read(each, metadata)))
            yield each.partition_index, ErrorCode.NONE


# Fetching.


def fetch(
    shard: GroupShardState,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    *,
    member_id: str | None = None,
    epoch: int = -1,
    require_stable: bool = False,
) -> FetchedOffsets:
    """Fetch the committed offsets of a group, all if `topics` is None; an unknown group has none.

    Raises:
        ApiError: this member may not fetch offsets.
    """
    offsets = shard.offsets
    group = shard.groups.get(group_id)
    if group is not None:
        group.validate_offset_fetch(member_id, epoch)
    committed = offsets.of_group(group_id)
    wanted: Iterable[tuple[str, Iterable[int]]] = committed.items() if topics is None else topics
    check_pending = require_stable and offsets.has_pending(group_id)
    found = []
    for topic, partitions in wanted:
        here = committed.get(topic, {})
        results: list[FetchedOffset] = []
        for partition in partitions:
            if check_pending and offsets.is_pending(group_id, topic, partition):
                results.append((partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                results.append((partition, here.get(partition), ErrorCode.NONE))
        found.append((topic, results))
    return FetchedOffsets(group_id, found)


# Deleting.


def delete(
    shard: GroupShardState, request: OffsetDeleteRequest, author: GetAuthor | None = None
) -> Result[OffsetDeleteResponse]:
    """Delete the offsets of topics to which no member of the group subscribes.

    Raises:
        ApiError: the group does not exist, or none of its offsets may be deleted.
    """
    group = shard.group(request.group_id)
    group.validate_offset_delete()
    records = []
    topics = []
    deleted: list[tuple[str, str]] = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed(topic.name)
        results = []
        for each in topic.partitions:
            partition = each.partition_index
            if not is_subscribed and _is_known(shard, group.group_id, topic.name, partition):
                deleted.append((group.group_id, topic.name))
                records.append(offset_commit_tombstone(group.group_id, topic.name, partition))
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
            results.append(OffsetDeleteResponsePartition(partition_index=partition, error_code=code))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    reason = "a client deleted them (OffsetDelete)"
    return Result(
        records,
        OffsetDeleteResponse(topics=topics),
        when_written(lambda: note_deleted(shard.events, deleted, reason, author)),
    )


def delete_all(shard: GroupShardState, group_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of all offsets of a group, including pending ones."""
    partitions = {
        (topic, partition): None
        for topic, of_topic in shard.offsets.of_group(group_id).items()
        for partition in of_topic
    }
    partitions.update(dict.fromkeys(shard.offsets.pending_of_group(group_id)))
    return [offset_commit_tombstone(group_id, topic, partition) for topic, partition in partitions]


def delete_topics(shard: GroupShardState, deleted: Collection[str]) -> Result[bool]:
    """Delete the offsets of deleted topics, at most `TOMBSTONES_MAX`; return whether more may be left."""

    def found() -> Iterator[tuple[str, str, int]]:
        for group_id in shard.groups:
            of_group = shard.offsets.of_group(group_id)
            partitions = {
                (topic, partition): None for topic in deleted for partition in of_group.get(topic, ())
            }
            if shard.offsets.has_pending(group_id):
                pending = shard.offsets.pending_of_group(group_id)
                partitions.update((each, None) for each in pending if each[0] in deleted)
            for topic, partition in partitions:
                yield group_id, topic, partition

    offsets = list(islice(found(), TOMBSTONES_MAX))
    topics = [(group_id, topic) for group_id, topic, _ in offsets]
    return Result(
        [offset_commit_tombstone(*each) for each in offsets],
        len(offsets) >= TOMBSTONES_MAX,
        when_written(lambda: note_deleted(shard.events, topics, "the topic was deleted")),
    )


# Expiring.


@dataclass(slots=True)
class Cleanup:
    """The tombstones of one slice of housekeeping, and group and topic of the offsets that have expired."""

    records: list[CoordinatorRecord]
    expired: list[tuple[str, str]]

    def note(self, shard: GroupShardState) -> None:
        """Emit that the offsets are deleted."""
        minutes = shard.config.offsets_retention_minutes
        note_deleted(shard.events, self.expired, f"nothing used them for offsets.retention.minutes={minutes}")


def cleanup(shard: GroupShardState, group_ids: deque[str]) -> Cleanup:
    """Delete expired offsets, and groups that have neither members nor offsets.

    Takes groups from `group_ids` until the slice is full: as many offsets as can be examined without delaying
    requests, or as many tombstones as one write may have. A group with more than that is finished in the next
    round.
    """
    found = Cleanup([], [])
    now_ms = shard.context.time_ms()
    seen = 0
    while group_ids and seen < SLICE_MAX and len(found.records) < TOMBSTONES_MAX:
        group_id = group_ids.popleft()
        group = shard.groups.get(group_id)
        if group is None:
            continue
        expired, remaining = _expired(shard, group, now_ms)
        tombstones = [offset_commit_tombstone(group_id, topic, partition) for topic, partition in expired]
        if not remaining and _is_unused(group) and not shard.offsets.has_pending(group_id):
            tombstones.extend(group.tombstones())
        room = TOMBSTONES_MAX - len(found.records)
        found.records.extend(tombstones[:room])
        found.expired.extend((group_id, topic) for topic, _ in expired[:room])
        seen += 1 + len(expired) + remaining
    return found


def _expired(shard: GroupShardState, group: Group, now_ms: int) -> tuple[list[tuple[str, int]], int]:
    """Return the offsets of a group that have expired, and how many others remain."""
    retention_ms = shard.config.offsets_retention_ms
    has_pending = shard.offsets.has_pending(group.group_id)
    expired = []
    remaining = 0
    for topic, partitions in shard.offsets.of_group(group.group_id).items():
        if group.is_subscribed(topic):
            remaining += len(partitions)
            continue
        for partition, committed in partitions.items():
            since = group.offsets_expire_since(committed.commit_timestamp_ms)
            # Clients before Kafka 2.1 may send a retention with the commit; it takes precedence.
            end_ms = committed.expire_timestamp_ms
            if end_ms == NO_EXPIRY and since is not None:
                end_ms = since + retention_ms
            is_pending = has_pending and shard.offsets.is_pending(group.group_id, topic, partition)
            if since is None or now_ms < end_ms or is_pending:
                remaining += 1
            else:
                expired.append((topic, partition))
    return expired, remaining


def _is_unused(group: Group) -> bool:
    if isinstance(group, ClassicGroup) and group.pending_join:
        return False
    if group.kind is GroupType.SHARE:
        # Its start offsets are at share coordinators, and outlive its members.
        return False
    return group.is_empty


def _is_known(shard: GroupShardState, group_id: str, topic: str, partition: int) -> bool:
    offsets = shard.offsets
    return offsets.get(group_id, topic, partition) is not None or offsets.is_pending(
        group_id, topic, partition
    )
