"""Requests the log start and end offsets of partitions from their leader, after an offset out of range.

It takes three requests: ListOffsets for the start and for the end (a replica gets the log end offset, not the
high watermark), and OffsetForLeaderEpoch for the end of the follower's last epoch. They are rare: after an
unclean election, or for a follower that was away while its leader deleted the log below it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kalda.broker.replicas.follower.fetch_state import FetchState
from kalda.broker.replicas.follower.ports import LeaderConnection
from kalda.broker.replicas.follower.truncation import LeaderOffsets
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import (
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

_LATEST: Final = -1
_EARLIEST: Final = -2

Answers = Mapping[TopicPartition, tuple[int, int, int]]
"""Error code, epoch and offset by partition."""


async def ask_leader_bounds(
    connection: LeaderConnection, broker_id: int, states: Sequence[FetchState], timeout_seconds: float
) -> list[tuple[FetchState, LeaderOffsets | int]]:
    """Return the leader's bounds of each partition, or its error code.

    Raises:
        ConnectionError: the connection failed, or a response lacks a partition.
    """
    starts = await _list_offsets(connection, broker_id, states, _EARLIEST, timeout_seconds)
    ends = await _list_offsets(connection, broker_id, states, _LATEST, timeout_seconds)
    # Read only now; this fetcher alone changes the end of a followed log.
    epochs = {
        state.topic_partition: state.partition.log.leader_epochs.latest_epoch
        for state in states
        if state.partition.log.leader_epochs.latest_epoch >= 0
    }
    asked = [state for state in states if state.topic_partition in epochs]
    epoch_ends = await _epoch_ends(connection, broker_id, asked, epochs, timeout_seconds) if asked else {}
    found: list[tuple[FetchState, LeaderOffsets | int]] = []
    for state in states:
        name = state.topic_partition
        if name not in starts or name not in ends or (name in epochs and name not in epoch_ends):
            raise ConnectionError(f"the leader's responses lack {name}")
        start, end = starts[name], ends[name]
        epoch_end = epoch_ends.get(name, (0, -1, -1))
        code = start[0] or end[0] or epoch_end[0]
        if not code and (start[2] < 0 or end[2] < start[2]):
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        found.append((state, code or LeaderOffsets(start[2], end[2], epoch_end[1], epoch_end[2])))
    return found


async def _list_offsets(
    connection: LeaderConnection,
    broker_id: int,
    states: Sequence[FetchState],
    timestamp: int,
    timeout_seconds: float,
) -> Answers:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for state in states:
        by_topic.setdefault(state.topic_partition.topic, []).append(
            ListOffsetsPartition(
                partition_index=state.index, current_leader_epoch=state.leader_epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=broker_id,
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
    )
    response = await connection.request(request, timeout_seconds=timeout_seconds)
    assert isinstance(response, ListOffsetsResponse), f"a {type(response).__name__}"
    return {
        TopicPartition(topic.name, each.partition_index): (each.error_code, each.leader_epoch, each.offset)
        for topic in response.topics
        for each in topic.partitions
    }


async def _epoch_ends(
    connection: LeaderConnection,
    broker_id: int,
    states: Sequence[FetchState],
    epochs: Mapping[TopicPartition, int],
    timeout_seconds: float,
) -> Answers:
    by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
    for state in states:
        by_topic.setdefault(state.topic_partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=state.index,
                current_leader_epoch=state.leader_epoch,
                leader_epoch=epochs[state.topic_partition],
            )
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=broker_id,
        topics=[OffsetForLeaderTopic(topic=name, partitions=parts) for name, parts in by_topic.items()],
    )
    response = await connection.request(request, timeout_seconds=timeout_seconds)
    assert isinstance(response, OffsetForLeaderEpochResponse), f"a {type(response).__name__}"
    return {
        TopicPartition(topic.topic, each.partition): (each.error_code, each.leader_epoch, each.end_offset)
        for topic in response.topics
        for each in topic.partitions
    }
