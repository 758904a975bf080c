"""ReadShareGroupState (key 84): read the state of share partitions (KIP-932)."""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class PartitionData(Struct):
    """One partition."""

    partition: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")


class ReadStateData(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class ReadShareGroupStateRequest(Message, api_key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """Names share partitions, each with the leader epoch of the reader."""

    group_id: str = wire(STRING, "0+")
    topics: list[ReadStateData] = wire(array(ReadStateData), "0+")


class StateBatch(Struct):
    """A range of offsets in one delivery state, delivered equally often.

    State 0 is available, 2 acknowledged and 4 archived.
    """

    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")
    delivery_state: int = wire(INT8, "0+")
    delivery_count: int = wire(INT16, "0+")


class PartitionResult(Struct):
    """The state of one partition."""

    partition: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    state_epoch: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")
    state_batches: list[StateBatch] = wire(array(StateBatch), "0+")


class ReadStateResult(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionResult] = wire(array(PartitionResult), "0+")


class ReadShareGroupStateResponse(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    """The state of each partition."""

    results: list[ReadStateResult] = wire(array(ReadStateResult), "0+")
