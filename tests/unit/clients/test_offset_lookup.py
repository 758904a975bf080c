"""ListOffsets and OffsetForLeaderEpoch: what is asked, and what responses mean."""

import pytest

from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.clients.offset_lookup import (
    Offsets,
    by_leader,
    epochs_request,
    list_offsets_request,
    list_offsets_version_min,
    read_epochs,
    read_list_offsets,
)
from kalda.clients.values import OffsetAndTimestamp
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kalda.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.unit.clients.consumer.test_fetch_planner import A0, A1, B0, cluster


def test_partitions_go_to_their_leaders() -> None:
    missing = TopicPartition("missing", 0)
    grouped = by_leader(cluster(), [A0, A1, B0, missing])
    assert {1: [A0, B0], 2: [A1]} == grouped.known
    assert [missing] == grouped.unknown


def test_a_request_names_the_leaders_epoch() -> None:
    """A broker that leads no longer, or not yet, refuses it."""
    request = list_offsets_request({A0: -1, B0: 1_000}, cluster(), 1)
    assert (-1, 1) == (request.replica_id, request.isolation_level)
    assert [("a", [(0, 5, -1)]), ("b", [(0, 5, 1_000)])] == [
        (
            topic.name,
            [(each.partition_index, each.current_leader_epoch, each.timestamp) for each in topic.partitions],
        )
        for topic in request.topics
    ]


@pytest.mark.parametrize(
    ("timestamps", "read_committed", "version"),
    [([5], False, 1), ([-1, -2], True, 2), ([5, -3], False, 7), ([-4], True, 8), ([-5, -3], False, 9)],
)
def test_special_timestamps_need_brokers_that_know_them(
    timestamps: list[int], read_committed: bool, version: int
) -> None:
    assert version == list_offsets_version_min(timestamps, read_committed=read_committed)


def test_responses_are_found_stale_or_failed() -> None:
    outcomes = [
        (0, ErrorCode.NONE, 7),
        (1, ErrorCode.NONE, -1),
        (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (3, ErrorCode.OFFSET_NOT_AVAILABLE, -1),
        (4, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1),
        (5, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1),
        # Partitions that nobody asked for.
        (6, ErrorCode.NONE, 7),
        (7, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (8, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1),
    ]
    partitions = [
        ListOffsetsPartitionResponse(
            partition_index=number, error_code=code, offset=offset, timestamp=1_000, leader_epoch=3
        )
        for number, code, offset in outcomes
    ]
    found = Offsets()
    names = [TopicPartition("t", number) for number in range(6)]
    read_list_offsets(
        ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)]), found, names
    )
    assert {names[0]: OffsetAndTimestamp(7, 1_000, 3), names[1]: None, names[5]: None} == found.found
    assert [names[2], names[3]] == found.stale
    assert {names[4]: ErrorCode.TOPIC_AUTHORIZATION_FAILED} == found.failed


def test_epochs_are_asked_for_with_the_leaders_own() -> None:
    request = epochs_request({A0: FetchPosition(31, 4, LeaderAndEpoch(1, 5))})
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (-1, "a", 0, 5, 4) == (
        request.replica_id,
        topic.topic,
        partition.partition,
        partition.current_leader_epoch,
        partition.leader_epoch,
    )


def test_ends_of_epochs_are_read() -> None:
    outcomes = [
        (0, ErrorCode.NONE, 4, 20),
        (1, ErrorCode.FENCED_LEADER_EPOCH, -1, -1),
        (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1),
        # Partitions that nobody asked for.
        (3, ErrorCode.NONE, 4, 20),
        (4, ErrorCode.FENCED_LEADER_EPOCH, -1, -1),
        (5, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1),
    ]
    partitions = [
        EpochEndOffset(partition=number, error_code=code, leader_epoch=epoch, end_offset=end)
        for number, code, epoch, end in outcomes
    ]
    ends = read_epochs(
        OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=partitions)]),
        [TopicPartition("t", number) for number in range(3)],
    )
    assert {TopicPartition("t", 0): (4, 20)} == ends.ends
    assert [TopicPartition("t", 1)] == ends.stale
    assert {TopicPartition("t", 2): ErrorCode.TOPIC_AUTHORIZATION_FAILED} == ends.failed
