"""Groups ListOffsets and OffsetForLeaderEpoch requests by leader, and reads the responses. Sans-IO."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kalda.clients.fetch_position import FetchPosition
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.values import OffsetAndTimestamp
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_REPLICA_ID: Final = -1

_VERSION_MIN: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9}
"""The first version of ListOffsets that knows a special timestamp."""
_TIMES_VERSION_MIN: Final = 1
"""The first version that returns one offset for a timestamp."""
_ISOLATION_VERSION_MIN: Final = 2
"""The first version with isolation levels."""

_STALE_LEADER: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors after which the metadata is asked again and the look-up retried."""


@dataclass(slots=True)
class ByLeader:
    """Partitions by the broker that leads them."""

    known: dict[int, list[TopicPartition]] = field(default_factory=dict)
    unknown: list[TopicPartition] = field(default_factory=list)
    """Partitions without a leader in the metadata."""


@dataclass(slots=True)
class Offsets:
    """The offsets and errors of one or several ListOffsets responses."""

    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    """None where the log has no record with such a timestamp."""
    stale: list[TopicPartition] = field(default_factory=list)
    """Partitions to look up again after the metadata was refreshed."""
    failed: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(slots=True)
class EpochEnds:
    """The end offsets and errors of an OffsetForLeaderEpoch response."""

    ends: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """(leader epoch, end offset); -1 and -1 where the epoch is not known."""
    stale: list[TopicPartition] = field(default_factory=list)
    failed: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


def by_leader(snapshot: ClusterMetadata, partitions: Iterable[TopicPartition]) -> ByLeader:
    """Group partitions by their leaders."""
    grouped = ByLeader()
    for partition in partitions:
        leader = snapshot.leader(partition)
        if leader is None:
            grouped.unknown.append(partition)
        else:
            grouped.known.setdefault(leader.id, []).append(partition)
    return grouped


def list_offsets_version_min(timestamps: Iterable[int], *, read_committed: bool) -> int:
    """Return the lowest version of ListOffsets that can express the look-up."""
    lowest = _ISOLATION_VERSION_MIN if read_committed else _TIMES_VERSION_MIN
    return max((_VERSION_MIN.get(timestamp, lowest) for timestamp in timestamps), default=lowest)


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], snapshot: ClusterMetadata, isolation: int
) -> ListOffsetsRequest:
    """Build the request for partitions that one broker leads."""
    topics = []
    for name, partitions in by_topic(timestamps).items():
        topic = ListOffsetsTopic(name=name, partitions=[])
        for partition in partitions:
            known = snapshot.partition(partition)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=-1 if known is None else known.leader_epoch,
                    timestamp=timestamps[partition],
                )
            )
        topics.append(topic)
    return ListOffsetsRequest(replica_id=CONSUMER_REPLICA_ID, isolation_level=isolation, topics=topics)


def read_list_offsets(response: ListOffsetsResponse, into: Offsets, asked: Container[TopicPartition]) -> None:
    """Add a response's offsets and errors for the requested partitions."""
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if partition not in asked:
                continue
            code = ErrorCode.of(each.error_code)
            if code == ErrorCode.NONE:
                epoch = None if each.leader_epoch < 0 else each.leader_epoch
                offset = OffsetAndTimestamp(each.offset, each.timestamp, epoch)
                into.found[partition] = None if each.offset < 0 else offset
            elif code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                # A log in the format of before 0.10 has no timestamps.
                into.found[partition] = None
            elif code in _STALE_LEADER or code.retriable:
                into.stale.append(partition)
            else:
                into.failed[partition] = code


def epochs_request(positions: Mapping[TopicPartition, FetchPosition]) -> OffsetForLeaderEpochRequest:
    """Build the request that asks where the epochs of positions ended."""
    topics = []
    for name, partitions in by_topic(positions).items():
        topic = OffsetForLeaderTopic(topic=name, partitions=[])
        for partition in partitions:
            position = positions[partition]
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=position.leader.epoch,
                    leader_epoch=position.offset_epoch,
                )
            )
        topics.append(topic)
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics)


def read_epochs(response: OffsetForLeaderEpochResponse, asked: Container[TopicPartition]) -> EpochEnds:
    """Return the ends of epochs of the partitions that were asked for, and their errors."""
    ends = EpochEnds()
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic, each.partition)
            if partition not in asked:
                continue
            code = ErrorCode.of(each.error_code)
            if code == ErrorCode.NONE:
                ends.ends[partition] = each.leader_epoch, each.end_offset
            elif code in _STALE_LEADER or code.retriable:
                ends.stale.append(partition)
            else:
                ends.failed[partition] = code
    return ends


EPOCHS_VERSION_MIN: Final = 3
"""The first version of OffsetForLeaderEpoch that needs no right to the cluster (KIP-320)."""
