"""DeleteShareGroupState (key 86): delete the state of share partitions (KIP-932)."""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class PartitionData(Struct):
    """One partition."""

    partition: int = wire(INT32, "0+")


class DeleteStateData(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class DeleteShareGroupStateRequest(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    """Names share partitions."""

    group_id: str = wire(STRING, "0+")
    topics: list[DeleteStateData] = wire(array(DeleteStateData), "0+")


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class DeleteStateResult(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionResult] = wire(array(PartitionResult), "0+")


class DeleteShareGroupStateResponse(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    """The outcome for each partition."""

    results: list[DeleteStateResult] = wire(array(DeleteStateResult), "0+")
