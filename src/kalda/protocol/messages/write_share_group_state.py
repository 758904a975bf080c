"""WriteShareGroupState (key 85): write changes of share partitions (KIP-932).

v1 adds the count of deliveries that are complete (KIP-1226).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class StateBatch(Struct):
    """A range of offsets in one delivery state, delivered equally often.

    State 0 is available, 2 acknowledged and 4 archived.
    """

    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")
    delivery_state: int = wire(INT8, "0+")
    delivery_count: int = wire(INT16, "0+")


class PartitionData(Struct):
    """The changes of one partition."""

    partition: int = wire(INT32, "0+")
    state_epoch: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")
    delivery_complete_count: int = wire(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = wire(array(StateBatch), "0+")


class WriteStateData(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class WriteShareGroupStateRequest(
    Message, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"
):
    """The changes of share partitions of one group."""

    group_id: str = wire(STRING, "0+")
    topics: list[WriteStateData] = wire(array(WriteStateData), "0+")


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class WriteStateResult(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionResult] = wire(array(PartitionResult), "0+")


class WriteShareGroupStateResponse(
    Message, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"
):
    """The outcome for each partition."""

    results: list[WriteStateResult] = wire(array(WriteStateResult), "0+")
