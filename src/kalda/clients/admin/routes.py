"""Defines the broker that each thing's requests go to, and the errors that mean that it is another one now.

`call_runner` looks the broker up, with the request for leaders that is here; `admin_call` decides when to
look again. The module does no I/O.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import ClientError, error_for
from kalda.clients.metadata import ClusterMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

K = TypeVar("K")

_ANY_MOVED: Final[frozenset[ErrorCode]] = frozenset()
_CONTROLLER_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER})
_COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """Every broker can answer."""

    moved_codes: ClassVar = _ANY_MOVED
    retry_codes: ClassVar = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller, as metadata names it; in a KRaft cluster any broker, which forwards the request."""

    moved_codes: ClassVar = _CONTROLLER_MOVED
    retry_codes: ClassVar = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Broker(Generic[K]):
    """The broker that the key implies, e.g. the one whose settings are asked for, or any."""

    broker_id: Callable[[K], int | None]

    moved_codes: ClassVar = _ANY_MOVED
    retry_codes: ClassVar = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Coordinator(Generic[K]):
    """The coordinator of the group or transactional id that the key implies."""

    kind: CoordinatorType
    id_of: Callable[[K], str]

    moved_codes: ClassVar = _COORDINATOR_MOVED
    retry_codes: ClassVar = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


@dataclass(frozen=True, slots=True)
class PartitionLeader(Generic[K]):
    """The leader of the partition that the key implies."""

    partition_of: Callable[[K], TopicPartition]

    moved_codes: ClassVar = _LEADER_MOVED
    retry_codes: ClassVar = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})


BROKER_WITH_ID: Final[Broker[int]] = Broker(lambda broker_id: broker_id)
COORDINATOR_OF_GROUP: Final[Coordinator[str]] = Coordinator(CoordinatorType.GROUP, lambda group_id: group_id)
LEADER_OF_PARTITION: Final[PartitionLeader[TopicPartition]] = PartitionLeader(lambda partition: partition)

Route: TypeAlias = AnyBroker | Controller | Broker[K] | Coordinator[K] | PartitionLeader[K]


def leaders_request(partitions: Iterable[TopicPartition]) -> MetadataRequest:
    """Ask for the topics of the partitions; none is created by that."""
    topics = sorted({partition.topic for partition in partitions})
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
    )


def leaders_in(
    response: MetadataResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ClientError]:
    """Return the broker id of each partition's leader, or the error that stands in its place."""
    cluster = ClusterMetadata.from_response(response)
    return {partition: _leader(cluster, partition) for partition in partitions}


def _leader(cluster: ClusterMetadata, partition: TopicPartition) -> int | ClientError:
    what = f"find the leader of {partition}"
    topic = cluster.topics.get(partition.topic)
    if topic is not None and topic.error is not ErrorCode.NONE:
        return error_for(topic.error, what)
    found = cluster.partition(partition)
    if found is None:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    # A partition with a leader may have an error that concerns its other replicas only.
    if found.leader_id not in cluster.brokers:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, what)
    return found.leader_id
