"""CreateTopics (key 19): create topics, or only check that they could be created.

v1 adds `validate_only` and error messages, v2 the throttle time. v3 throttles after the response. v4 lets
-1 stand for the broker's default partition count and replication factor (KIP-464). v5 is flexible and
returns the effective configs (KIP-525). v6 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599). v7 returns the
topic id (KIP-516).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, the preferred leader first."""

    partition_index: int = wire(INT32, "0+")
    broker_ids: list[int] = wire(array(INT32), "0+")


class CreatableTopicConfig(Struct):
    """One topic-level setting."""

    name: str = wire(STRING, "0+")
    value: str | None = wire(STRING, "0+", nullable="0+")


class CreatableTopic(Struct):
    """One topic: either counts, or an assignment of replicas by hand with both counts -1."""

    name: str = wire(STRING, "0+")
    num_partitions: int = wire(INT32, "0+")
    replication_factor: int = wire(INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = wire(array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = wire(array(CreatableTopicConfig), "0+")


class CreateTopicsRequest(Message, api_key=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    """Topics to create, and how long to wait until every broker has their metadata."""

    topics: list[CreatableTopic] = wire(array(CreatableTopic), "0+")
    timeout_ms: int = wire(INT32, "0+", default=60000)
    validate_only: bool = wire(BOOL, "1+")


class CreatableTopicConfigs(Struct):
    """One setting in force; `config_source` as in DescribeConfigs."""

    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, "5+")


class CreatableTopicResult(Struct):
    """One topic's result.

    `configs` is None, with the reason in `topic_config_error_code`, when the client may not describe configs.
    """

    name: str = wire(STRING, "0+")
    topic_id: UUID = wire(UUID_KIND, "7+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = wire(INT16, "5+", ignorable=True, tag=0)
    num_partitions: int = wire(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire(
        array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = wire(array(CreatableTopicResult), "0+")
