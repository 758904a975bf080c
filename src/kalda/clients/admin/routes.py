"""Names the broker that each thing's requests go to, and the errors that mean that it is another one now.

Values only: `call_runner` looks the broker up, `admin_call` decides when to look again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition

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


Route: TypeAlias = AnyBroker | Controller | Broker[K] | Coordinator[K] | PartitionLeader[K]
