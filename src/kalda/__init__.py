"""Kalda: a streaming platform that speaks Apache Kafka's wire protocol.

Public names are loaded on first use, so that ``import kalda`` is quick and imports no other package::

    from kalda import Cluster

    with Cluster(brokers=3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

`Cluster`, `ProcessCluster`, `KaldaProcess` and their errors are those of `kalda.testing`. `KaldaDataSource`
is the data source for Spark; it needs the extra ``kalda[spark]`` and is therefore not in `__all__`. All other
modules are internal and may change without notice.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kalda import spark, testing
    from kalda.clients.admin.acl_operation import AclOperation
    from kalda.clients.admin.admin import Admin
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.configs import (
        AlterConfigOp,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigResourceType,
        ConfigSource,
        ConfigSynonym,
    )
    from kalda.clients.admin.groups import (
        ClassicGroupDescription,
        ConsumerGroupDescription,
        GroupListing,
        GroupState,
        GroupType,
        MemberDescription,
        MemberToRemove,
    )
    from kalda.clients.admin.outcomes import Listing, Outcomes
    from kalda.clients.admin.topics import (
        NewPartitions,
        NewTopic,
        TopicDescription,
        TopicListing,
        TopicMetadataAndConfig,
        TopicPartitionInfo,
    )
    from kalda.clients.errors import ClientError
    from kalda.clients.producer.async_producer import AsyncProducer
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.producer_record import ProducerRecord
    from kalda.clients.producer.record_future import RecordFuture
    from kalda.clients.producer.record_metadata import RecordMetadata
    from kalda.common.types import TopicPartition
    from kalda.spark.datasource import KaldaDataSource as KaldaDataSource
    from kalda.testing import Cluster, ClusterError, KaldaProcess, KaldaProcessError, ProcessCluster

__version__: Final = "0.1.0"

__all__ = [
    "AclOperation",
    "Admin",
    "AlterConfigOp",
    "AlterConfigOpType",
    "AsyncAdmin",
    "AsyncProducer",
    "ClassicGroupDescription",
    "ClientError",
    "Cluster",
    "ClusterError",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConsumerGroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "KaldaProcess",
    "KaldaProcessError",
    "Listing",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "Outcomes",
    "ProcessCluster",
    "Producer",
    "ProducerRecord",
    "RecordFuture",
    "RecordMetadata",
    "TopicDescription",
    "TopicListing",
    "TopicMetadataAndConfig",
    "TopicPartition",
    "TopicPartitionInfo",
    "__version__",
    "spark",
    "testing",
]

_MODULES: Final = {
    "AclOperation": "kalda.clients.admin.acl_operation",
    "Admin": "kalda.clients.admin.admin",
    "AlterConfigOp": "kalda.clients.admin.configs",
    "AlterConfigOpType": "kalda.clients.admin.configs",
    "AsyncAdmin": "kalda.clients.admin.async_admin",
    "ClassicGroupDescription": "kalda.clients.admin.groups",
    "AsyncProducer": "kalda.clients.producer.async_producer",
    "ClientError": "kalda.clients.errors",
    "Cluster": "kalda.testing",
    "ClusterError": "kalda.testing",
    "ConfigEntry": "kalda.clients.admin.configs",
    "ConfigResource": "kalda.clients.admin.configs",
    "ConfigResourceType": "kalda.clients.admin.configs",
    "ConfigSource": "kalda.clients.admin.configs",
    "ConfigSynonym": "kalda.clients.admin.configs",
    "ConsumerGroupDescription": "kalda.clients.admin.groups",
    "GroupListing": "kalda.clients.admin.groups",
    "GroupState": "kalda.clients.admin.groups",
    "GroupType": "kalda.clients.admin.groups",
    "KaldaDataSource": "kalda.spark.datasource",
    "KaldaProcess": "kalda.testing",
    "KaldaProcessError": "kalda.testing",
    "Listing": "kalda.clients.admin.outcomes",
    "MemberDescription": "kalda.clients.admin.groups",
    "MemberToRemove": "kalda.clients.admin.groups",
    "NewPartitions": "kalda.clients.admin.topics",
    "NewTopic": "kalda.clients.admin.topics",
    "Outcomes": "kalda.clients.admin.outcomes",
    "ProcessCluster": "kalda.testing",
    "Producer": "kalda.clients.producer.producer",
    "ProducerRecord": "kalda.clients.producer.producer_record",
    "RecordFuture": "kalda.clients.producer.record_future",
    "RecordMetadata": "kalda.clients.producer.record_metadata",
    "TopicDescription": "kalda.clients.admin.topics",
    "TopicListing": "kalda.clients.admin.topics",
    "TopicMetadataAndConfig": "kalda.clients.admin.topics",
    "TopicPartition": "kalda.common.types",
    "TopicPartitionInfo": "kalda.clients.admin.topics",
    "spark": "kalda.spark",
    "testing": "kalda.testing",
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
        text = f"kalda.{name} needs the package {error.name}; install kalda with the extra: kalda[spark]"
        raise ModuleNotFoundError(text, name=error.name) from error
    value = module if module.__name__ == f"kalda.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
