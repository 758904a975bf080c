"""Metadata (key 3): returns the brokers, and for topics their partitions, leaders and replicas.

In v0 an empty list of topics stands for all topics; from v1 an empty list is none and null is all. v1 adds
racks, the controller and whether topics are internal. v2 adds the cluster id, v3 the throttle time. v4
lets the client forbid auto-creation. v5 adds offline replicas. v6 throttles after the response. v7 adds
leader epochs (KIP-320). v8 adds authorised operations on request (KIP-430). v9 is flexible. v10 adds topic
ids to responses (KIP-516). v11 moves the cluster's authorised operations to DescribeCluster (KIP-700). v12
lets a request name topics by id. v13 adds an error for the whole response (KIP-1102).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.schema import BOOL, INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class MetadataRequestTopic(Struct):
    """One topic asked for; the name is None when the id is what counts."""

    topic_id: UUID = wire(UUID_KIND, "10+", ignorable=True)
    name: str | None = wire(STRING, "0+", nullable="10+")


class MetadataRequest(Message, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """Asks for topics by name (or, from v12, by id); None means every topic.

    `allow_auto_topic_creation` is always true below v4, which does not have the field.
    """

    topics: list[MetadataRequestTopic] | None = wire(array(MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")


class MetadataResponseBroker(Struct):
    """Where one live broker can be reached on the listener of the request."""

    node_id: int = wire(INT32, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    rack: str | None = wire(STRING, "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """One partition; the leader is -1 while there is none."""

    error_code: int = wire(INT16, "0+")
    partition_index: int = wire(INT32, "0+")
    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire(array(INT32), "0+")
    isr_nodes: list[int] = wire(array(INT32), "0+")
    offline_replicas: list[int] = wire(array(INT32), "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """One topic, or the error that stands in its place."""

    error_code: int = wire(INT16, "0+")
    name: str | None = wire(STRING, "0+", nullable="12+")
    topic_id: UUID = wire(UUID_KIND, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = wire(INT32, "8+", default=AUTHORIZED_OPERATIONS_UNKNOWN)


class MetadataResponse(Message, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """The cluster according to the broker's metadata cache.

    Authorised operations are bit sets over the ACL operations; `AUTHORIZED_OPERATIONS_UNKNOWN` when not
    asked for. `error_code` is REBOOTSTRAP_REQUIRED where the client has to ask its bootstrap servers again.
    """

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(array(MetadataResponseBroker), "0+")
    cluster_id: str | None = wire(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = wire(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire(array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = wire(INT32, "8-10", default=AUTHORIZED_OPERATIONS_UNKNOWN)
    error_code: int = wire(INT16, "13+", ignorable=True)
