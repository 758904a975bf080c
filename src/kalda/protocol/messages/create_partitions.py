"""CreatePartitions (key 37): grow topics.

v1 throttles after the response. v2 is flexible. v3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, wire


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = wire(array(INT32), "0+")


class CreatePartitionsTopic(Struct):
    """One topic and its new total count of partitions.

    `assignments` places the new partitions only, one entry each in order; None leaves it to the broker.
    """

    name: str = wire(STRING, "0+")
    count: int = wire(INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = wire(
        array(CreatePartitionsAssignment), "0+", nullable="0+"
    )


class CreatePartitionsRequest(Message, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    """Topics to grow, and how long to wait for it."""

    topics: list[CreatePartitionsTopic] = wire(array(CreatePartitionsTopic), "0+")
    timeout_ms: int = wire(INT32, "0+")
    validate_only: bool = wire(BOOL, "0+")


class CreatePartitionsTopicResult(Struct):
    """One topic."""

    name: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, "0+")
    results: list[CreatePartitionsTopicResult] = wire(array(CreatePartitionsTopicResult), "0+")
