"""Defines the legal transitions of one replica on one broker: the replica state machine."""

from enum import Enum
from typing import Final


class ReplicaStatus(Enum):
    """The states of Kafka's replica state machine."""

    NON_EXISTENT = "NonExistentReplica"
    """Not assigned, or deleted."""
    NEW = "NewReplica"
    """Assigned; its broker has not been sent a LeaderAndIsr yet."""
    ONLINE = "OnlineReplica"
    """Its broker is live and has been sent a LeaderAndIsr."""
    OFFLINE = "OfflineReplica"
    """Its broker is dead, or was sent a StopReplica."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was sent a StopReplica with deletion and has not responded."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted it."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Its topic is being deleted, but its broker is dead or failed to; retried when the broker is back."""


VALID_PREVIOUS: Final = {
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: frozenset(
        {
            ReplicaStatus.NEW,
            ReplicaStatus.ONLINE,
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_INELIGIBLE,
        }
    ),
    ReplicaStatus.OFFLINE: frozenset(
        {
            ReplicaStatus.NEW,
            ReplicaStatus.ONLINE,
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_INELIGIBLE,
        }
    ),
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
}
