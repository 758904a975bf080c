"""InitializeShareGroupState (key 83): create the state of share partitions (KIP-932)."""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class PartitionData(Struct):
    """One partition; start offset -1 leaves the choice to the partition's leader."""

    partition: int = wire(INT32, "0+")
    state_epoch: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")


class InitializeStateData(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class InitializeShareGroupStateRequest(
    Message, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    """Names share partitions with their first state."""

    group_id: str = wire(STRING, "0+")
    topics: list[InitializeStateData] = wire(array(InitializeStateData), "0+")


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class InitializeStateResult(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionResult] = wire(array(PartitionResult), "0+")


class InitializeShareGroupStateResponse(
    Message, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    """The outcome for each partition."""

    results: list[InitializeStateResult] = wire(array(InitializeStateResult), "0+")
