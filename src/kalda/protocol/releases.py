"""The versions of requests that each release of Apache Kafka served, with ZooKeeper, from 0.8.2 to 3.9.

Every release served its APIs from version 0 on, so the highest version says all. APIs that a broker serves
only when it is configured for them (client telemetry) are left out, as are those of KRaft alone.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from kalda.common.api_keys import ApiKey

_CHANGES: Final = {
    "0.8.2": (
        "Produce 0, Fetch 0, ListOffsets 0, Metadata 0, LeaderAndIsr 0, StopReplica 0, UpdateMetadata 0, "
        "ControlledShutdown 0, OffsetCommit 1, OffsetFetch 1, FindCoordinator 0, JoinGroup 0, "
        "Heartbeat 0"
    ),
    "0.9.0": (
        "Produce 1, Fetch 1, UpdateMetadata 1, ControlledShutdown 1, OffsetCommit 2, LeaveGroup 0, "
        "SyncGroup 0, DescribeGroups 0, ListGroups 0"
    ),
    "0.10.0": ("Produce 2, Fetch 2, Metadata 1, UpdateMetadata 2, SaslHandshake 0, ApiVersions 0"),
    "0.10.1": ("Fetch 3, ListOffsets 1, Metadata 2, JoinGroup 1, CreateTopics 0, DeleteTopics 0"),
    "0.10.2": ("UpdateMetadata 3, CreateTopics 1"),
    "0.11.0": (
        "Produce 3, Fetch 5, ListOffsets 2, Metadata 4, OffsetCommit 3, OffsetFetch 3, "
        "FindCoordinator 1, JoinGroup 2, Heartbeat 1, LeaveGroup 1, SyncGroup 1, DescribeGroups 1, "
        "ListGroups 1, ApiVersions 1, CreateTopics 2, DeleteTopics 1, DeleteRecords 0, InitProducerId 0, "
        "OffsetForLeaderEpoch 0, AddPartitionsToTxn 0, AddOffsetsToTxn 0, EndTxn 0, WriteTxnMarkers 0, "
        "TxnOffsetCommit 0, DescribeAcls 0, CreateAcls 0, DeleteAcls 0, DescribeConfigs 0, "
        "AlterConfigs 0"
    ),
    "1.0": (
        "Produce 5, Fetch 6, Metadata 5, LeaderAndIsr 1, UpdateMetadata 4, SaslHandshake 1, "
        "AlterReplicaLogDirs 0, DescribeLogDirs 0, SaslAuthenticate 0, CreatePartitions 0"
    ),
    "1.1": (
        "Fetch 7, DescribeConfigs 1, CreateDelegationToken 0, RenewDelegationToken 0, "
        "ExpireDelegationToken 0, DescribeDelegationToken 0, DeleteGroups 0"
    ),
    "2.0": (
        "Produce 6, Fetch 8, ListOffsets 3, Metadata 6, OffsetCommit 4, OffsetFetch 4, "
        "FindCoordinator 2, JoinGroup 3, Heartbeat 2, LeaveGroup 2, SyncGroup 2, DescribeGroups 2, "
        "ListGroups 2, ApiVersions 2, CreateTopics 3, DeleteTopics 2, DeleteRecords 1, InitProducerId 1, "
        "OffsetForLeaderEpoch 1, AddPartitionsToTxn 1, AddOffsetsToTxn 1, EndTxn 1, TxnOffsetCommit 1, "
        "DescribeAcls 1, CreateAcls 1, DeleteAcls 1, DescribeConfigs 2, AlterConfigs 1, "
        "AlterReplicaLogDirs 1, DescribeLogDirs 1, CreatePartitions 1, CreateDelegationToken 1, "
        "RenewDelegationToken 1, ExpireDelegationToken 1, DescribeDelegationToken 1, DeleteGroups 1"
    ),
    "2.1": (
        "Produce 7, Fetch 10, ListOffsets 4, Metadata 7, OffsetCommit 6, OffsetFetch 5, DeleteTopics 3, "
        "OffsetForLeaderEpoch 2, TxnOffsetCommit 2"
    ),
    "2.2": (
        "ListOffsets 5, LeaderAndIsr 2, StopReplica 1, UpdateMetadata 5, ControlledShutdown 2, "
        "JoinGroup 4, SaslAuthenticate 1, ElectLeaders 0"
    ),
    "2.3": (
        "Fetch 11, Metadata 8, OffsetCommit 7, JoinGroup 5, Heartbeat 3, SyncGroup 3, DescribeGroups 3, "
        "OffsetForLeaderEpoch 3, IncrementalAlterConfigs 0"
    ),
    "2.4": (
        "Produce 8, Metadata 9, LeaderAndIsr 4, StopReplica 2, UpdateMetadata 6, ControlledShutdown 3, "
        "OffsetCommit 8, OffsetFetch 6, FindCoordinator 3, JoinGroup 6, Heartbeat 4, LeaveGroup 4, "
        "SyncGroup 4, DescribeGroups 5, ListGroups 3, ApiVersions 3, CreateTopics 5, DeleteTopics 4, "
        "InitProducerId 2, CreateDelegationToken 2, DeleteGroups 2, ElectLeaders 2, "
        "IncrementalAlterConfigs 1, AlterPartitionReassignments 0, ListPartitionReassignments 0, "
        "OffsetDelete 0"
    ),
    "2.5": (
        "OffsetFetch 7, JoinGroup 7, SyncGroup 5, InitProducerId 3, TxnOffsetCommit 3, DescribeAcls 2, "
        "CreateAcls 2, DeleteAcls 2, SaslAuthenticate 2, CreatePartitions 2, RenewDelegationToken 2, "
        "ExpireDelegationToken 2, DescribeDelegationToken 2"
    ),
    "2.6": (
        "StopReplica 3, ListGroups 4, DeleteRecords 2, DescribeConfigs 3, DescribeLogDirs 2, "
        "DescribeClientQuotas 0, AlterClientQuotas 0"
    ),
    "2.7": (
        "Fetch 12, CreateTopics 6, DeleteTopics 5, InitProducerId 4, AddPartitionsToTxn 2, "
        "AddOffsetsToTxn 2, EndTxn 2, CreatePartitions 3, DescribeUserScramCredentials 0, "
        "AlterUserScramCredentials 0, AlterPartition 0, UpdateFeatures 0"
    ),
    "2.8": (
        "Produce 9, ListOffsets 6, Metadata 11, LeaderAndIsr 5, UpdateMetadata 7, CreateTopics 7, "
        "DeleteTopics 6, OffsetForLeaderEpoch 4, AddPartitionsToTxn 3, AddOffsetsToTxn 3, EndTxn 3, "
        "WriteTxnMarkers 1, DescribeConfigs 4, AlterConfigs 2, AlterReplicaLogDirs 2, "
        "DescribeClientQuotas 1, AlterClientQuotas 1, DescribeCluster 0, DescribeProducers 0"
    ),
    "3.0": (
        "ListOffsets 7, OffsetFetch 8, FindCoordinator 4, DescribeTransactions 0, ListTransactions 0, "
        "AllocateProducerIds 0"
    ),
    "3.1": ("Fetch 13, Metadata 12"),
    "3.2": ("LeaderAndIsr 6, JoinGroup 9, LeaveGroup 5, DescribeLogDirs 3, AlterPartition 1"),
    "3.3": (
        "DescribeAcls 3, CreateAcls 3, DeleteAcls 3, DescribeLogDirs 4, CreateDelegationToken 3, "
        "DescribeDelegationToken 3, AlterPartition 2, UpdateFeatures 1"
    ),
    "3.4": ("LeaderAndIsr 7, StopReplica 4, UpdateMetadata 8, Envelope 0"),
    "3.5": ("Fetch 15, ListOffsets 8, AlterPartition 3"),
    "3.6": ("AddPartitionsToTxn 4"),
    "3.7": (
        "Produce 10, Fetch 16, OffsetCommit 9, OffsetFetch 9, DescribeCluster 1, ConsumerGroupHeartbeat 0"
    ),
    "3.8": (
        "Produce 11, FindCoordinator 5, ListGroups 5, InitProducerId 5, AddPartitionsToTxn 5, "
        "AddOffsetsToTxn 4, EndTxn 4, TxnOffsetCommit 4, ListTransactions 1, ConsumerGroupDescribe 0"
    ),
    "3.9": ("Fetch 17, ListOffsets 9, FindCoordinator 6, ApiVersions 4"),
}
"""By release, oldest first: the APIs that are new or have new versions, with the highest of them."""

_NAME: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:-IV\d+)?")
"""A release as operators write it: ``2.8``, ``2.8.1``, ``0.10.2.2``, or with Kafka's internal ``-IV1``."""


def release_names() -> tuple[str, ...]:
    """Return the releases that are known, oldest first."""
    return tuple(_CHANGES)


def find_release(text: str) -> str | None:
    """Return the known release that `text` stands for, or None.

    >>> find_release("2.8.1"), find_release("0.10.2.2"), find_release("0.9"), find_release("4.0")
    ('2.8', '0.10.2', '0.9.0', None)
    """
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = match.groups()
    name = f"0.{minor}.{patch or 0}" if major == "0" else f"{major}.{minor}"
    return name if name in _CHANGES else None


def is_at_least(release: str, other: str) -> bool:
    """Whether `release` is `other` or a later one; both are known."""
    names = release_names()
    return names.index(release) >= names.index(other)


@cache
def versions_of(release: str) -> Mapping[ApiKey, int]:
    """Return the APIs of a known release with the highest version of each."""
    titles = {key.title: key for key in ApiKey}
    versions: dict[ApiKey, int] = {}
    for name, changes in _CHANGES.items():
        for title, version in (change.split(" ") for change in changes.split(", ")):
            versions[titles[title]] = int(version)
        if name == release:
            break
    return versions
