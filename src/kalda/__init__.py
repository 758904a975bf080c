"""Kalda: a streaming platform that speaks Apache Kafka's wire protocol.

Public names are loaded on first use, so that ``import kalda`` is quick and imports no other package::

    from kalda import Cluster, Producer

    with Cluster(brokers=3) as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("greetings", b"hello").result(10)

The clients, their values and their errors are those of `kalda.clients`; `Cluster`, `ProcessCluster`,
`KaldaProcess` and their errors are those of `kalda.testing`. `KaldaDataSource`
is the data source for Spark; it needs the extra ``[spark]`` and is therefore not in `__all__`. All other
modules are internal and may change without notice.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kalda import serializers, spark, testing
    from kalda.clients.admin.admin import Admin
    from kalda.clients.admin.admin_config import AdminOptions
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.clusters import (
        BrokerApiVersions,
        ClusterDescription,
        FeatureMetadata,
        FeatureUpdate,
        FinalizedVersionRange,
        SupportedVersionRange,
        UpgradeType,
    )
    from kalda.clients.admin.configs import (
        AlterConfigOp,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigResourceType,
        ConfigSource,
        ConfigSynonym,
    )
    from kalda.clients.admin.delegation_tokens import DelegationToken
    from kalda.clients.admin.events import BrokerEvents
    from kalda.clients.admin.faults import BrokerFaults
    from kalda.clients.admin.groups import (
        ClassicGroupDescription,
        ConsumerGroupDescription,
        GroupListing,
        GroupState,
        GroupType,
        MemberDescription,
        MemberToRemove,
    )
    from kalda.clients.admin.log_dirs import (
        LogDirDescription,
        ReplicaInfo,
        ReplicaLogDirInfo,
        TopicPartitionReplica,
    )
    from kalda.clients.admin.outcomes import Listing, Outcomes
    from kalda.clients.admin.partitions import (
        DeletedRecords,
        ElectionType,
        ListOffsetsResultInfo,
        OffsetSpec,
        PartitionReassignment,
    )
    from kalda.clients.admin.processes import ProcessDescription
    from kalda.clients.admin.quotas import QuotaAlteration, QuotaFilter, quota_entity
    from kalda.clients.admin.share_groups import (
        ShareGroupDescription,
        ShareMemberDescription,
        SharePartitionOffset,
    )
    from kalda.clients.admin.topics import (
        NewPartitions,
        NewTopic,
        TopicDescription,
        TopicListing,
        TopicMetadataAndConfig,
        TopicPartitionInfo,
    )
    from kalda.clients.admin.transactions import (
        AbortTransactionSpec,
        ProducerIdAndEpoch,
        ProducerState,
        TransactionDescription,
        TransactionListing,
        TransactionState,
    )
    from kalda.clients.admin.users import (
        ScramCredentialDeletion,
        ScramCredentialInfo,
        ScramCredentialUpsertion,
        ScramMechanism,
    )
    from kalda.clients.config.isolation_level import IsolationLevel
    from kalda.clients.consumer.assignors.partition_assignor import (
        Assignment,
        PartitionAssignor,
        RebalanceProtocol,
        Subscription,
    )
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.clients.consumer.consumer import Consumer
    from kalda.clients.consumer.consumer_config import ConsumerOptions
    from kalda.clients.consumer.consumer_errors import (
        FetchCorruptionError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetsOutOfRangeError,
        RecordDeserializationError,
        WakeupError,
    )
    from kalda.clients.consumer.deserializers import Deserializer
    from kalda.clients.consumer.group.errors import (
        AssignorError,
        CommitFailedError,
        FencedInstanceIdError,
        InconsistentGroupProtocolError,
        RebalanceInProgressError,
        RebalanceListenerError,
        RetriableCommitFailedError,
        StaleMemberEpochError,
    )
    from kalda.clients.consumer.rebalance_listener import ConsumerInterceptor, ConsumerRebalanceListener
    from kalda.clients.consumer.subscription_state import SubscriptionPattern
    from kalda.clients.errors import (
        AuthenticationError,
        BootstrapError,
        BrokerConnectionError,
        BrokerResponseError,
        BufferExhaustedError,
        ClientConfigError,
        ClientError,
        FatalTransactionError,
        IllegalStateError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RecordTooLargeError,
        RequestTimedOutError,
        SaslAuthenticationError,
        SerializationError,
        TlsError,
        TransactionAbortableError,
        TransactionAbortedError,
        TransactionError,
        UnknownTopicOrPartitionError,
        UnsupportedApiError,
    )
    from kalda.clients.metadata import PartitionMetadata, TopicMetadata
    from kalda.clients.metrics.registry import MetricName, MetricValues
    from kalda.clients.producer.arrow_future import ArrowFuture, ArrowMetadata, OffsetRange
    from kalda.clients.producer.async_producer import AsyncProducer
    from kalda.clients.producer.partitioner import Partitioner, RoundRobinPartitioner
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.producer_config import ProducerOptions
    from kalda.clients.producer.producer_identity import PreparedTxnState
    from kalda.clients.producer.producer_interceptor import ProducerInterceptor
    from kalda.clients.producer.producer_record import ProducerRecord
    from kalda.clients.producer.record_future import RecordFuture
    from kalda.clients.producer.record_metadata import RecordMetadata
    from kalda.clients.producer.serializers import Serializer
    from kalda.clients.share.acknowledgements import AcknowledgeType
    from kalda.clients.share.async_share_consumer import AsyncShareConsumer
    from kalda.clients.share.share_config import ShareConsumerOptions
    from kalda.clients.share.share_consumer import ShareConsumer
    from kalda.clients.share.share_record import ShareRecord
    from kalda.clients.share.worker import Worker, WorkerOptions, worker
    from kalda.clients.values import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
    )
    from kalda.common.api_keys import ApiKey
    from kalda.common.config_def import ConfigType
    from kalda.common.errors import ErrorCode
    from kalda.common.types import BrokerEndpoint, TopicPartition
    from kalda.events.event import CausalEvent, EventId
    from kalda.protocol.schema import VersionRange
    from kalda.records.batch import TimestampType
    from kalda.security.acl.model import (
        AccessControlEntry,
        AclBinding,
        AclFilter,
        AclOperation,
        PatternType,
        PermissionType,
        ResourcePattern,
        ResourceType,
    )
    from kalda.security.principal import KafkaPrincipal
    from kalda.spark.datasource import KaldaDataSource as KaldaDataSource
    from kalda.testing import Cluster, ClusterError, KaldaProcess, KaldaProcessError, ProcessCluster


__version__: Final = "0.1.0"

__all__ = [
    "AbortTransactionSpec",
    "AccessControlEntry",
    "AcknowledgeType",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "Admin",
    "AdminOptions",
    "AlterConfigOp",
    "AlterConfigOpType",
    "ApiKey",
    "ArrowFuture",
    "ArrowMetadata",
    "Assignment",
    "AssignorError",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "AuthenticationError",
    "BootstrapError",
    "BrokerApiVersions",
    "BrokerConnectionError",
    "BrokerEndpoint",
    "BrokerEvents",
    "BrokerFaults",
    "BrokerResponseError",
    "BufferExhaustedError",
    "CausalEvent",
    "ClassicGroupDescription",
    "ClientConfigError",
    "ClientError",
    "Cluster",
    "ClusterDescription",
    "ClusterError",
    "CommitFailedError",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerOptions",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DelegationToken",
    "DeletedRecords",
    "Deserializer",
    "ElectionType",
    "ErrorCode",
    "EventId",
    "FatalTransactionError",
    "FeatureMetadata",
    "FeatureUpdate",
    "FencedInstanceIdError",
    "FetchCorruptionError",
    "FinalizedVersionRange",
    "GroupListing",
    "GroupState",
    "GroupType",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "IsolationLevel",
    "KafkaPrincipal",
    "KaldaProcess",
    "KaldaProcessError",
    "ListOffsetsResultInfo",
    "Listing",
    "LogDirDescription",
    "LogTruncationError",
    "MemberDescription",
    "MemberToRemove",
    "MetricName",
    "MetricValues",
    "NewPartitions",
    "NewTopic",
    "NoOffsetForPartitionError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetRange",
    "OffsetSpec",
    "OffsetsOutOfRangeError",
    "Outcomes",
    "PartitionAssignor",
    "PartitionMetadata",
    "PartitionReassignment",
    "Partitioner",
    "PatternType",
    "PermissionType",
    "PreparedTxnState",
    "ProcessCluster",
    "ProcessDescription",
    "Producer",
    "ProducerFencedError",
    "ProducerIdAndEpoch",
    "ProducerInterceptor",
    "ProducerOptions",
    "ProducerRecord",
    "ProducerState",
    "QuotaAlteration",
    "QuotaFilter",
    "RebalanceInProgressError",
    "RebalanceListenerError",
    "RebalanceProtocol",
    "RecordDeserializationError",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLargeError",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "RequestTimedOutError",
    "ResourcePattern",
    "ResourceType",
    "RetriableCommitFailedError",
    "RoundRobinPartitioner",
    "SaslAuthenticationError",
    "ScramCredentialDeletion",
    "ScramCredentialInfo",
    "ScramCredentialUpsertion",
    "ScramMechanism",
    "SerializationError",
    "Serializer",
    "ShareConsumer",
    "ShareConsumerOptions",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "ShareRecord",
    "StaleMemberEpochError",
    "Subscription",
    "SubscriptionPattern",
    "SupportedVersionRange",
    "TimestampType",
    "TlsError",
    "TopicDescription",
    "TopicListing",
    "TopicMetadata",
    "TopicMetadataAndConfig",
    "TopicPartition",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionError",
    "TransactionListing",
    "TransactionState",
    "UnknownTopicOrPartitionError",
    "UnsupportedApiError",
    "UpgradeType",
    "VersionRange",
    "WakeupError",
    "Worker",
    "WorkerOptions",
    "__version__",
    "quota_entity",
    "serializers",
    "spark",
    "testing",
    "worker",
]

_MODULES: Final = {
    "AbortTransactionSpec": "kalda.clients.admin.transactions",
    "AccessControlEntry": "kalda.security.acl.model",
    "AcknowledgeType": "kalda.clients.share.acknowledgements",
    "AclBinding": "kalda.security.acl.model",
    "AclFilter": "kalda.security.acl.model",
    "AclOperation": "kalda.security.acl.model",
    "Admin": "kalda.clients.admin.admin",
    "AdminOptions": "kalda.clients.admin.admin_config",
    "AlterConfigOp": "kalda.clients.admin.configs",
    "AlterConfigOpType": "kalda.clients.admin.configs",
    "ApiKey": "kalda.common.api_keys",
    "ArrowFuture": "kalda.clients.producer.arrow_future",
    "ArrowMetadata": "kalda.clients.producer.arrow_future",
    "Assignment": "kalda.clients.consumer.assignors.partition_assignor",
    "AssignorError": "kalda.clients.consumer.group.errors",
    "AsyncAdmin": "kalda.clients.admin.async_admin",
    "AsyncConsumer": "kalda.clients.consumer.async_consumer",
    "AsyncProducer": "kalda.clients.producer.async_producer",
    "AsyncShareConsumer": "kalda.clients.share.async_share_consumer",
    "AuthenticationError": "kalda.clients.errors",
    "BootstrapError": "kalda.clients.errors",
    "BrokerApiVersions": "kalda.clients.admin.clusters",
    "BrokerConnectionError": "kalda.clients.errors",
    "BrokerEndpoint": "kalda.common.types",
    "BrokerEvents": "kalda.clients.admin.events",
    "BrokerFaults": "kalda.clients.admin.faults",
    "BrokerResponseError": "kalda.clients.errors",
    "BufferExhaustedError": "kalda.clients.errors",
    "CausalEvent": "kalda.events.event",
    "ClassicGroupDescription": "kalda.clients.admin.groups",
    "ClientConfigError": "kalda.clients.errors",
    "ClientError": "kalda.clients.errors",
    "Cluster": "kalda.testing",
    "ClusterDescription": "kalda.clients.admin.clusters",
    "ClusterError": "kalda.testing",
    "CommitFailedError": "kalda.clients.consumer.group.errors",
    "ConfigEntry": "kalda.clients.admin.configs",
    "ConfigResource": "kalda.clients.admin.configs",
    "ConfigResourceType": "kalda.clients.admin.configs",
    "ConfigSource": "kalda.clients.admin.configs",
    "ConfigSynonym": "kalda.clients.admin.configs",
    "ConfigType": "kalda.common.config_def",
    "Consumer": "kalda.clients.consumer.consumer",
    "ConsumerGroupDescription": "kalda.clients.admin.groups",
    "ConsumerGroupMetadata": "kalda.clients.values",
    "ConsumerInterceptor": "kalda.clients.consumer.rebalance_listener",
    "ConsumerOptions": "kalda.clients.consumer.consumer_config",
    "ConsumerRebalanceListener": "kalda.clients.consumer.rebalance_listener",
    "ConsumerRecord": "kalda.clients.values",
    "DelegationToken": "kalda.clients.admin.delegation_tokens",
    "DeletedRecords": "kalda.clients.admin.partitions",
    "Deserializer": "kalda.clients.consumer.deserializers",
    "ElectionType": "kalda.clients.admin.partitions",
    "ErrorCode": "kalda.common.errors",
    "EventId": "kalda.events.event",
    "FatalTransactionError": "kalda.clients.errors",
    "FeatureMetadata": "kalda.clients.admin.clusters",
    "FeatureUpdate": "kalda.clients.admin.clusters",
    "FencedInstanceIdError": "kalda.clients.consumer.group.errors",
    "FetchCorruptionError": "kalda.clients.consumer.consumer_errors",
    "FinalizedVersionRange": "kalda.clients.admin.clusters",
    "GroupListing": "kalda.clients.admin.groups",
    "GroupState": "kalda.clients.admin.groups",
    "GroupType": "kalda.clients.admin.groups",
    "IllegalStateError": "kalda.clients.errors",
    "InconsistentGroupProtocolError": "kalda.clients.consumer.group.errors",
    "IsolationLevel": "kalda.clients.config.isolation_level",
    "KafkaPrincipal": "kalda.security.principal",
    "KaldaDataSource": "kalda.spark.datasource",
    "KaldaProcess": "kalda.testing",
    "KaldaProcessError": "kalda.testing",
    "ListOffsetsResultInfo": "kalda.clients.admin.partitions",
    "Listing": "kalda.clients.admin.outcomes",
    "LogDirDescription": "kalda.clients.admin.log_dirs",
    "LogTruncationError": "kalda.clients.consumer.consumer_errors",
    "MemberDescription": "kalda.clients.admin.groups",
    "MemberToRemove": "kalda.clients.admin.groups",
    "MetricName": "kalda.clients.metrics.registry",
    "MetricValues": "kalda.clients.metrics.registry",
    "NewPartitions": "kalda.clients.admin.topics",
    "NewTopic": "kalda.clients.admin.topics",
    "NoOffsetForPartitionError": "kalda.clients.consumer.consumer_errors",
    "OffsetAndMetadata": "kalda.clients.values",
    "OffsetAndTimestamp": "kalda.clients.values",
    "OffsetOutOfRangeError": "kalda.clients.errors",
    "OffsetRange": "kalda.clients.producer.arrow_future",
    "OffsetSpec": "kalda.clients.admin.partitions",
    "OffsetsOutOfRangeError": "kalda.clients.consumer.consumer_errors",
    "Outcomes": "kalda.clients.admin.outcomes",
    "PartitionAssignor": "kalda.clients.consumer.assignors.partition_assignor",
    "PartitionMetadata": "kalda.clients.metadata",
    "PartitionReassignment": "kalda.clients.admin.partitions",
    "Partitioner": "kalda.clients.producer.partitioner",
    "PatternType": "kalda.security.acl.model",
    "PermissionType": "kalda.security.acl.model",
    "PreparedTxnState": "kalda.clients.producer.producer_identity",
    "ProcessCluster": "kalda.testing",
    "ProcessDescription": "kalda.clients.admin.processes",
    "Producer": "kalda.clients.producer.producer",
    "ProducerFencedError": "kalda.clients.errors",
    "ProducerIdAndEpoch": "kalda.clients.admin.transactions",
    "ProducerInterceptor": "kalda.clients.producer.producer_interceptor",
    "ProducerOptions": "kalda.clients.producer.producer_config",
    "ProducerRecord": "kalda.clients.producer.producer_record",
    "ProducerState": "kalda.clients.admin.transactions",
    "QuotaAlteration": "kalda.clients.admin.quotas",
    "QuotaFilter": "kalda.clients.admin.quotas",
    "RebalanceInProgressError": "kalda.clients.consumer.group.errors",
    "RebalanceListenerError": "kalda.clients.consumer.group.errors",
    "RebalanceProtocol": "kalda.clients.consumer.assignors.partition_assignor",
    "RecordDeserializationError": "kalda.clients.consumer.consumer_errors",
    "RecordFuture": "kalda.clients.producer.record_future",
    "RecordMetadata": "kalda.clients.producer.record_metadata",
    "RecordTooLargeError": "kalda.clients.errors",
    "ReplicaInfo": "kalda.clients.admin.log_dirs",
    "ReplicaLogDirInfo": "kalda.clients.admin.log_dirs",
    "RequestTimedOutError": "kalda.clients.errors",
    "ResourcePattern": "kalda.security.acl.model",
    "ResourceType": "kalda.security.acl.model",
    "RetriableCommitFailedError": "kalda.clients.consumer.group.errors",
    "RoundRobinPartitioner": "kalda.clients.producer.partitioner",
    "SaslAuthenticationError": "kalda.clients.errors",
    "ScramCredentialDeletion": "kalda.clients.admin.users",
    "ScramCredentialInfo": "kalda.clients.admin.users",
    "ScramCredentialUpsertion": "kalda.clients.admin.users",
    "ScramMechanism": "kalda.clients.admin.users",
    "SerializationError": "kalda.clients.errors",
    "Serializer": "kalda.clients.producer.serializers",
    "ShareConsumer": "kalda.clients.share.share_consumer",
    "ShareConsumerOptions": "kalda.clients.share.share_config",
    "ShareGroupDescription": "kalda.clients.admin.share_groups",
    "ShareMemberDescription": "kalda.clients.admin.share_groups",
    "SharePartitionOffset": "kalda.clients.admin.share_groups",
    "ShareRecord": "kalda.clients.share.share_record",
    "StaleMemberEpochError": "kalda.clients.consumer.group.errors",
    "Subscription": "kalda.clients.consumer.assignors.partition_assignor",
    "SubscriptionPattern": "kalda.clients.consumer.subscription_state",
    "SupportedVersionRange": "kalda.clients.admin.clusters",
    "TimestampType": "kalda.records.batch",
    "TlsError": "kalda.clients.errors",
    "TopicDescription": "kalda.clients.admin.topics",
    "TopicListing": "kalda.clients.admin.topics",
    "TopicMetadata": "kalda.clients.metadata",
    "TopicMetadataAndConfig": "kalda.clients.admin.topics",
    "TopicPartition": "kalda.common.types",
    "TopicPartitionInfo": "kalda.clients.admin.topics",
    "TopicPartitionReplica": "kalda.clients.admin.log_dirs",
    "TransactionAbortableError": "kalda.clients.errors",
    "TransactionAbortedError": "kalda.clients.errors",
    "TransactionDescription": "kalda.clients.admin.transactions",
    "TransactionError": "kalda.clients.errors",
    "TransactionListing": "kalda.clients.admin.transactions",
    "TransactionState": "kalda.clients.admin.transactions",
    "UnknownTopicOrPartitionError": "kalda.clients.errors",
    "UnsupportedApiError": "kalda.clients.errors",
    "UpgradeType": "kalda.clients.admin.clusters",
    "VersionRange": "kalda.protocol.schema",
    "WakeupError": "kalda.clients.consumer.consumer_errors",
    "Worker": "kalda.clients.share.worker",
    "WorkerOptions": "kalda.clients.share.worker",
    "quota_entity": "kalda.clients.admin.quotas",
    "serializers": "kalda.serializers",
    "spark": "kalda.spark",
    "testing": "kalda.testing",
    "worker": "kalda.clients.share.worker",
}
"""Where each public name is; a module's own name stands for the module."""


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kalda' has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("kalda"):
            raise
        text = (
            f"kalda.{name} needs the package {error.name}; "
            "install Kalda with the extra [spark], in its checkout: pip install '.[spark]'"
        )
        raise ModuleNotFoundError(text, name=error.name) from error
    value = module if module.__name__ == f"kalda.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
