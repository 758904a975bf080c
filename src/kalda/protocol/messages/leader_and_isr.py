"""LeaderAndIsr (key 4): the controller sends a broker each replica's role and the leader that it follows.

v1 adds `is_new`. v2 adds the broker epoch (KIP-380) and groups partitions by topic. v3 adds the replicas that
a reassignment adds and removes (KIP-455). v4 is flexible. v5 adds topic ids and the type, and answers by
topic id (KIP-516). v6 adds the leader recovery state (KIP-704). v7 adds whether the controller is a KRaft
one, in a cluster that migrates (KIP-866).
"""

from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_KIND,
    Message,
    Struct,
    array,
    wire,
)

TYPE_INCREMENTAL: Final = 1
TYPE_FULL: Final = 2
"""The request names every partition of the receiver: the first of a controller's term. 0 is unknown."""


class LeaderAndIsrPartitionState(Struct):
    """One partition; `partition_epoch` is the version of its state's znode."""

    topic_name: str = wire(STRING, "0-1", ignorable=True)
    partition_index: int = wire(INT32, "0+")
    controller_epoch: int = wire(INT32, "0+")
    leader: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    isr: list[int] = wire(array(INT32), "0+")
    partition_epoch: int = wire(INT32, "0+")
    replicas: list[int] = wire(array(INT32), "0+")
    adding_replicas: list[int] = wire(array(INT32), "3+", ignorable=True)
    removing_replicas: list[int] = wire(array(INT32), "3+", ignorable=True)
    is_new: bool = wire(BOOL, "1+", ignorable=True)
    leader_recovery_state: int = wire(INT8, "6+")


class LeaderAndIsrTopicState(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "2+")
    topic_id: UUID = wire(UUID_KIND, "5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = wire(array(LeaderAndIsrPartitionState), "2+")


class LeaderAndIsrLiveLeader(Struct):
    """Where a leader that the request names is reached."""

    broker_id: int = wire(INT32, "0+")
    host_name: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")


class LeaderAndIsrRequest(Message, api_key=ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+"):
    """Partitions to lead and to follow; `type` is whether they are all that the broker has."""

    controller_id: int = wire(INT32, "0+")
    is_kraft_controller: bool = wire(BOOL, "7+")
    controller_epoch: int = wire(INT32, "0+")
    broker_epoch: int = wire(INT64, "2+", default=-1, ignorable=True)
    type: int = wire(INT8, "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = wire(
        array(LeaderAndIsrPartitionState), "0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = wire(array(LeaderAndIsrTopicState), "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = wire(array(LeaderAndIsrLiveLeader), "0+")


class LeaderAndIsrPartitionError(Struct):
    """The result for one partition."""

    topic_name: str = wire(STRING, "0-4", ignorable=True)
    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class LeaderAndIsrTopicError(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "5+")
    partition_errors: list[LeaderAndIsrPartitionError] = wire(array(LeaderAndIsrPartitionError), "5+")


class LeaderAndIsrResponse(Message, api_key=ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+"):
    """The result for each partition."""

    error_code: int = wire(INT16, "0+")
    partition_errors: list[LeaderAndIsrPartitionError] = wire(array(LeaderAndIsrPartitionError), "0-4")
    topics: list[LeaderAndIsrTopicError] = wire(array(LeaderAndIsrTopicError), "5+")
