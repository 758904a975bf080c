"""The replica state machine: the legal transitions of one replica on one broker."""

from enum import Enum
from typing import Final


class ReplicaStatus(Enum):
    """Where a replica stands."""

    NON_EXISTENT = "NonExistentReplica"
    """Not assigned, or deleted."""
    NEW = "NewReplica"
    """Assigned, not told yet what to be."""
    ONLINE = "OnlineReplica"
    """Its broker lives and has been told to lead or to follow."""
    OFFLINE = "OfflineReplica"
    """Its broker is dead, or it was told to stop."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was told to delete it and has not answered."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted it."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Its topic is to be deleted but its broker is dead or failed to; tried again when the broker is back."""


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
