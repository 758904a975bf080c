"""Holds what a consumer knows about one assigned partition: its position, its state, and why it is not read.

The states, as in Java's client::

    INITIALIZING ──> AWAIT_RESET ──> FETCHING <──> AWAIT_VALIDATION
         └──────────────────────────────^

A partition starts in INITIALIZING, where the committed offset is looked up. AWAIT_RESET asks the leader for
an offset by `auto.offset.reset` or for a seek to the beginning or the end. AWAIT_VALIDATION asks the leader
whether it still holds the log up to the position (KIP-320).

What a maintainer must not break: `generation` changes whenever records that were fetched before must not be
returned any more. Fetched data carries the generation of its request.
"""

from enum import Enum

from kalda.clients.consumer.fetch_position import NO_LEADER, NO_LEADER_EPOCH, FetchPosition, LeaderAndEpoch
from kalda.clients.consumer.offset_reset import OffsetReset


class FetchState(Enum):
    """What has to happen before records of a partition can be returned."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"


class PartitionState:
    """One assigned partition. `SubscriptionState` guards it with its lock."""

    __slots__ = (
        "continued_from",
        "generation",
        "high_watermark",
        "is_awaiting_callback",
        "is_paused",
        "is_pending_revocation",
        "last_stable_offset",
        "log_start_offset",
        "position",
        "preferred_replica",
        "preferred_replica_until",
        "reset",
        "retry_at",
        "state",
    )

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.continued_from = generation
        """The first generation since the assignment or the last move by the user. From this one on, positions
        differ only by what was read and by what the log did."""
        self.state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.reset: OffsetReset | None = None
        """What AWAIT_RESET looks up; None in the other states."""
        self.retry_at = 0.0
        """Monotonic seconds before which a look-up or validation is not tried again."""
        self.is_paused = False
        self.is_pending_revocation = False
        self.is_awaiting_callback = False
        """Assigned, but `on_partitions_assigned` has not returned yet: it may seek first."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_replica: int | None = None
        self.preferred_replica_until = 0.0

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be fetched and returned now."""
        return (
            self.state is FetchState.FETCHING
            and not self.is_paused
            and not self.is_pending_revocation
            and not self.is_awaiting_callback
        )

    def seek(self, position: FetchPosition, generation: int) -> None:
        """Go to a position that needs no validation."""
        self.state = FetchState.FETCHING
        self.position = position
        self.reset = None
        self.retry_at = 0.0
        self.generation = generation

    def seek_unvalidated(self, position: FetchPosition, generation: int) -> None:
        """Go to a position, and validate it if its epoch and the leader's are known."""
        self.seek(position, generation)
        if position.offset_epoch != NO_LEADER_EPOCH and position.leader.epoch != NO_LEADER_EPOCH:
            self.state = FetchState.AWAIT_VALIDATION

    def await_reset(self, reset: OffsetReset, generation: int) -> None:
        """Give up the position; the next one comes from the leader."""
        self.state = FetchState.AWAIT_RESET
        self.position = None
        self.reset = reset
        self.retry_at = 0.0
        self.generation = generation

    def change_leader(self, leader: LeaderAndEpoch, generation: int, *, can_validate: bool) -> bool:
        """Process the leader that the metadata names; return whether the position changed.

        Records fetched from the previous leader are given up: where the new leader's log is shorter, they
        may not exist any more.
        """
        position = self.position
        if position is None or leader.leader_id == NO_LEADER or position.leader == leader:
            return False
        self.preferred_replica = None
        moved = FetchPosition(position.offset, position.offset_epoch, leader)
        if can_validate:
            self.seek_unvalidated(moved, generation)
        else:
            self.seek(moved, generation)
        return True

    def complete_validation(self) -> None:
        """Go on fetching: the leader holds the log up to the position."""
        assert self.state is FetchState.AWAIT_VALIDATION, f"validated in state {self.state.value}"
        self.state = FetchState.FETCHING
        self.retry_at = 0.0

    def current_replica(self, now: float) -> int | None:
        """Return the replica that the leader named for readers of this rack, while its lease lasts."""
        if self.preferred_replica is not None and now >= self.preferred_replica_until:
            self.preferred_replica = None
        return self.preferred_replica

    def lag(self, *, read_committed: bool) -> int | None:
        """Return how many offsets lie between the position and the end as of the last fetch, if known."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end is None:
            return None
        return max(end - self.position.offset, 0)
