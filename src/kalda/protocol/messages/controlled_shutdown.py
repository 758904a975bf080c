"""ControlledShutdown (key 7): a broker that is about to stop asks the controller to move its leaderships.

v0 has a request header without a client id: the only one of its kind. v1 has the usual header. v2 adds the
broker epoch (KIP-380). v3 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, wire


class ControlledShutdownRequest(Message, api_key=ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+"):
    """The broker that wants to stop."""

    broker_id: int = wire(INT32, "0+")
    broker_epoch: int = wire(INT64, "2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = wire(STRING, "0+")
    partition_index: int = wire(INT32, "0+")


class ControlledShutdownResponse(Message, api_key=ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+"):
    """The partitions that the broker still leads; it may stop when there are none."""

    error_code: int = wire(INT16, "0+")
    remaining_partitions: list[RemainingPartition] = wire(array(RemainingPartition), "0+")
