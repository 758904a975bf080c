"""UpdateMetadata (key 6): the controller sends a broker the metadata for clients: brokers, leaders, replicas.

v1 gives brokers several endpoints. v2 adds racks, v3 listener names, v4 offline replicas. v5 adds the broker
epoch (KIP-380) and groups partitions by topic. v6 is flexible. v7 adds topic ids (KIP-516). v8 adds whether
the controller is a KRaft one, and whether this is all metadata (KIP-866).
"""

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


class UpdateMetadataPartitionState(Struct):
    """One partition; a leader of -2 means that its topic is being deleted."""

    topic_name: str = wire(STRING, "0-4", ignorable=True)
    partition_index: int = wire(INT32, "0+")
    controller_epoch: int = wire(INT32, "0+")
    leader: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    isr: list[int] = wire(array(INT32), "0+")
    zk_version: int = wire(INT32, "0+")
    replicas: list[int] = wire(array(INT32), "0+")
    offline_replicas: list[int] = wire(array(INT32), "4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "5+")
    topic_id: UUID = wire(UUID_KIND, "7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = wire(array(UpdateMetadataPartitionState), "5+")


class UpdateMetadataEndpoint(Struct):
    """Where one listener of a broker is reached; before v3 its name is that of the security protocol."""

    port: int = wire(INT32, "1+")
    host: str = wire(STRING, "1+")
    listener: str = wire(STRING, "3+", ignorable=True)
    security_protocol: int = wire(INT16, "1+")


class UpdateMetadataBroker(Struct):
    """One live broker."""

    id: int = wire(INT32, "0+")
    v0_host: str = wire(STRING, "0", ignorable=True)
    v0_port: int = wire(INT32, "0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = wire(array(UpdateMetadataEndpoint), "1+", ignorable=True)
    rack: str | None = wire(STRING, "2+", nullable="0+", default="", ignorable=True)


class UpdateMetadataRequest(Message, api_key=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"):
    """Partitions that changed, and all live brokers."""

    controller_id: int = wire(INT32, "0+")
    is_kraft_controller: bool = wire(BOOL, "8+")
    type: int = wire(INT8, "8+", tag=0)
    controller_epoch: int = wire(INT32, "0+")
    broker_epoch: int = wire(INT64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = wire(
        array(UpdateMetadataPartitionState), "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = wire(array(UpdateMetadataTopicState), "5+")
    live_brokers: list[UpdateMetadataBroker] = wire(array(UpdateMetadataBroker), "0+")


class UpdateMetadataResponse(Message, api_key=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"):
    """Whether the broker took it."""

    error_code: int = wire(INT16, "0+")
