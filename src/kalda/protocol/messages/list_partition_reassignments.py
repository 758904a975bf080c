"""ListPartitionReassignments (key 46): which partitions are being moved, and how far along (KIP-455)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, Struct, array, wire


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partition_indexes: list[int] = wire(array(INT32), "0+")


class ListPartitionReassignmentsRequest(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """Partitions to look at; None means all that are being moved."""

    timeout_ms: int = wire(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        array(ListPartitionReassignmentsTopics), "0+", nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """A partition on the move; `replicas` are the old ones and the new ones together."""

    partition_index: int = wire(INT32, "0+")
    replicas: list[int] = wire(array(INT32), "0+")
    adding_replicas: list[int] = wire(array(INT32), "0+")
    removing_replicas: list[int] = wire(array(INT32), "0+")


class OngoingTopicReassignment(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = wire(array(OngoingPartitionReassignment), "0+")


class ListPartitionReassignmentsResponse(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """The partitions that are being moved."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default="")
    topics: list[OngoingTopicReassignment] = wire(array(OngoingTopicReassignment), "0+")
