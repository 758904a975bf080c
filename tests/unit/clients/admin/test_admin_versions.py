"""Each request of the admin client can be sent in each version, or is refused with the reason."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest

from kalda.clients.admin.admin_call import AdminOperation, RequestContext
from kalda.clients.admin.clusters import (
    DescribeApiVersions,
    DescribeCluster,
    DescribeFeatures,
    FeatureUpdate,
    UpdateFeatures,
    UpgradeType,
)
from kalda.clients.admin.configs import (
    AlterConfigOp,
    AlterConfigs,
    ConfigResource,
    ConfigResourceType,
    DescribeConfigs,
    ListConfigResources,
)
from kalda.clients.admin.group_members import DescribeClassicGroups, DescribeConsumerGroups, RemoveMembers
from kalda.clients.admin.group_offsets import AlterGroupOffsets, DeleteGroupOffsets, ListGroupOffsets
from kalda.clients.admin.groups import (
    DeleteGroups,
    GroupState,
    GroupType,
    ListGroups,
    MemberToRemove,
)
from kalda.clients.admin.log_dirs import (
    AlterReplicaLogDirs,
    DescribeLogDirs,
    DescribeReplicaLogDirs,
    TopicPartitionReplica,
)
from kalda.clients.admin.partitions import (
    AlterPartitionReassignments,
    DeleteRecords,
    ElectAllLeaders,
    ElectionType,
    ElectLeaders,
    ListOffsets,
    ListPartitionReassignments,
    OffsetSpec,
)
from kalda.clients.admin.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeTopics,
    ListTopics,
    NewPartitions,
    NewTopic,
)
from kalda.clients.admin.transactions import (
    AbortTransactions,
    AbortTransactionSpec,
    DescribeProducers,
    DescribeTransactions,
    FenceProducers,
    ListTransactions,
    TransactionState,
)
from kalda.clients.errors import UnsupportedApiError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.api_keys import ApiKey
from kalda.common.types import TopicPartition
from kalda.protocol import codec, registry
from tests.unit.clients.admin.scripted_broker import all_versions

TP = TopicPartition("flights", 0)
REPLICA = TopicPartitionReplica("flights", 0, 5)
TOPIC = ConfigResource.topic("flights")
SPEC = AbortTransactionSpec(TP, 7, 0, 0)
SPECS = (
    OffsetSpec.latest(),
    OffsetSpec.max_timestamp(),
    OffsetSpec.earliest_local(),
    OffsetSpec.latest_tiered(),
    OffsetSpec.earliest_pending_upload(),
)

Case = tuple[AdminOperation[Any, Any], list[Any], tuple[ApiKey, ...], tuple[int, ...]]


def cases() -> Iterator[Case]:
    """Operations with their keys, the APIs that they use, and the oldest version that can express each."""
    new_topic = NewTopic("flights", config={"retention.ms": 1})
    counted = NewTopic("flights", partitions=3, replication_factor=2)
    yield CreateTopics([new_topic], True), ["flights"], (ApiKey.CREATE_TOPICS,), (4,)
    yield CreateTopics([counted], False), ["flights"], (ApiKey.CREATE_TOPICS,), (0,)
    yield DeleteTopics(), ["flights"], (ApiKey.DELETE_TOPICS,), (0,)
    yield DeleteTopics(), [UUID(int=7)], (ApiKey.DELETE_TOPICS,), (6,)
    yield (
        CreatePartitions({"flights": NewPartitions(3, [[1]])}, True),
        ["flights"],
        (ApiKey.CREATE_PARTITIONS,),
        (0,),
    )
    yield ListTopics(), [None], (ApiKey.METADATA,), (1,)
    yield DescribeTopics(False, 10), ["flights"], (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS), (1, 0)
    yield DescribeTopics(True, 10), [UUID(int=7)], (ApiKey.METADATA,), (12,)
    yield DescribeConfigs({TOPIC: ["x"]}, True, True), [TOPIC], (ApiKey.DESCRIBE_CONFIGS,), (1,)
    yield (
        AlterConfigs({TOPIC: [AlterConfigOp.set("x", 1)]}, True),
        [TOPIC],
        (ApiKey.INCREMENTAL_ALTER_CONFIGS,),
        (0,),
    )
    yield ListGroups([GroupState.EMPTY], [GroupType.CLASSIC]), [5], (ApiKey.LIST_GROUPS,), (4,)
    yield ListGroups([], [GroupType.CONSUMER]), [5], (ApiKey.LIST_GROUPS,), (0,)
    yield DescribeClassicGroups(True), ["g"], (ApiKey.DESCRIBE_GROUPS,), (3,)
    yield DescribeConsumerGroups(False), ["g"], (ApiKey.CONSUMER_GROUP_DESCRIBE,), (0,)
    yield DeleteGroups(), ["g"], (ApiKey.DELETE_GROUPS,), (0,)
    static = {"g": [MemberToRemove(group_instance_id="i"), MemberToRemove("m")]}
    yield RemoveMembers(static, "why"), ["g"], (ApiKey.LEAVE_GROUP,), (3,)
    yield RemoveMembers({"g": [MemberToRemove("m")]}, "why"), ["g"], (ApiKey.LEAVE_GROUP,), (0,)
    yield ListGroupOffsets({"g": None, "h": [TP]}, False), ["g", "h"], (ApiKey.OFFSET_FETCH,), (2,)
    yield ListGroupOffsets({"g": None}, True), ["g"], (ApiKey.OFFSET_FETCH,), (7,)
    yield AlterGroupOffsets({"g": {TP: OffsetAndMetadata(1, "m", 2)}}), ["g"], (ApiKey.OFFSET_COMMIT,), (0,)
    yield DeleteGroupOffsets({"g": [TP]}), ["g"], (ApiKey.OFFSET_DELETE,), (0,)
    for spec, oldest in zip(SPECS, (0, 7, 8, 9, 11), strict=True):
        yield ListOffsets({TP: spec}, 0), [TP], (ApiKey.LIST_OFFSETS,), (oldest,)
    yield DeleteRecords({TP: 1}), [TP], (ApiKey.DELETE_RECORDS,), (0,)
    yield ElectLeaders(ElectionType.PREFERRED), [TP], (ApiKey.ELECT_LEADERS,), (0,)
    yield ElectAllLeaders(ElectionType.UNCLEAN), [None], (ApiKey.ELECT_LEADERS,), (1,)
    yield AlterPartitionReassignments({TP: None}), [TP], (ApiKey.ALTER_PARTITION_REASSIGNMENTS,), (0,)
    same = AlterPartitionReassignments({TP: [1]}, allow_replication_factor_change=False)
    yield same, [TP], (ApiKey.ALTER_PARTITION_REASSIGNMENTS,), (1,)
    yield ListConfigResources([]), [None], (ApiKey.LIST_CONFIG_RESOURCES,), (1,)
    metrics = ListConfigResources([ConfigResourceType.CLIENT_METRICS])
    yield metrics, [None], (ApiKey.LIST_CONFIG_RESOURCES,), (0,)
    yield ListPartitionReassignments([TP]), [None], (ApiKey.LIST_PARTITION_REASSIGNMENTS,), (0,)
    yield DescribeCluster(True), [None], (ApiKey.DESCRIBE_CLUSTER,), (0,)
    yield DescribeFeatures(), [None], (ApiKey.API_VERSIONS,), (0,)
    yield DescribeApiVersions(), [5], (ApiKey.API_VERSIONS,), (0,)
    safe, unsafe = (
        FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE),
        FeatureUpdate(1, UpgradeType.UNSAFE_DOWNGRADE),
    )
    yield UpdateFeatures({"f": safe}, False), ["f"], (ApiKey.UPDATE_FEATURES,), (0,)
    yield UpdateFeatures({"f": unsafe}, False), ["f"], (ApiKey.UPDATE_FEATURES,), (1,)
    yield UpdateFeatures({"f": safe}, True), ["f"], (ApiKey.UPDATE_FEATURES,), (1,)
    yield DescribeLogDirs([TP]), [5], (ApiKey.DESCRIBE_LOG_DIRS,), (0,)
    yield DescribeReplicaLogDirs(), [REPLICA], (ApiKey.DESCRIBE_LOG_DIRS,), (0,)
    yield AlterReplicaLogDirs({REPLICA: "/d"}), [REPLICA], (ApiKey.ALTER_REPLICA_LOG_DIRS,), (0,)
    yield (
        ListTransactions([TransactionState.ONGOING], [1], None, "t.*"),
        [5],
        (ApiKey.LIST_TRANSACTIONS,),
        (0,),
    )
    yield ListTransactions([], [], 10, None), [5], (ApiKey.LIST_TRANSACTIONS,), (1,)
    yield DescribeTransactions(), ["t"], (ApiKey.DESCRIBE_TRANSACTIONS,), (0,)
    yield DescribeProducers(None), [TP], (ApiKey.DESCRIBE_PRODUCERS,), (0,)
    yield AbortTransactions(), [SPEC], (ApiKey.WRITE_TXN_MARKERS,), (0,)
    yield FenceProducers(), ["t"], (ApiKey.INIT_PRODUCER_ID,), (0,)


KAFKA_2_1 = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.METADATA: 7,
    ApiKey.OFFSET_COMMIT: 6,
    ApiKey.OFFSET_FETCH: 5,
}
"""The highest versions of the oldest broker that the client supports; later releases added the other APIs."""


def versions_of(api_keys: Iterable[ApiKey], oldest: Iterable[int]) -> Iterator[tuple[ApiKey, int, int]]:
    for api_key, first in zip(api_keys, oldest, strict=True):
        for version in range(KAFKA_2_1.get(api_key, 0), registry.spec(api_key).versions.highest + 1):
            yield api_key, first, version


ALL = [
    pytest.param(
        operation, keys, api_key, oldest, version, id=f"{number}-{operation.title}-{api_key.title}-v{version}"
    )
    for number, (operation, keys, api_keys, first) in enumerate(cases())
    for api_key, oldest, version in versions_of(api_keys, first)
]


@pytest.mark.parametrize(("operation", "keys", "api_key", "oldest", "version"), ALL)
def test_each_version_is_encoded_or_refused(
    operation: AdminOperation[Any, Any], keys: list[Any], api_key: ApiKey, oldest: int, version: int
) -> None:
    """A field that the version cannot carry would fail in the codec, long after the caller's mistake."""
    limits: dict[str, int | None] = {api_key.name.lower(): version}
    if api_key is ApiKey.METADATA:
        limits["describe_topic_partitions"] = None
    offered = all_versions(**limits)
    context = RequestContext(5, offered, 1000)

    def encoded() -> int:
        refusals = [operation.refusal(key, context) for key in keys]
        if any(refusals):
            raise next(error for error in refusals if error is not None)
        count = 0
        for request in operation.requests(keys, context):
            used = request.message.SCHEMA.api_key
            assert used is not None
            codec.encode(request.message, offered.latest(used))
            count += len(request.keys)
        return count

    if version < oldest:
        with pytest.raises(UnsupportedApiError, match=r"brokers? (is older than|before) \d|older than"):
            encoded()
    else:
        assert len(keys) == encoded()
