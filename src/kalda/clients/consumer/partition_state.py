"""Holds what a consumer knows about one assigned partition: its position, its state, and why it is not read.

The states, as in Java's client::

    INITIALIZING ──> AWAIT_RESET ──> FETCHING <──> AWAIT_VALIDATION
         └──────────────────────────────^

A partition starts in INITIALIZING, where the committed offset is looked up. AWAIT_RESET asks the leader for
an offset by `auto.offset.reset` or for a seek to the beginning or the end. AWAIT_VALIDATION asks the leader
whether it still holds the log up to the position (KIP-320).

`generation` changes whenever records that were fetched before must not be returned any more. Fetched data
carries the generation of its request.

A position belongs to one topic id (KIP-516). When the metadata names another id, the topic was deleted and
created again: its log has other records, and the position says nothing about them.
"""

from enum import Enum
from typing import Final

from kalda.clients.consumer.offset_reset import OffsetReset, ResetKind
from kalda.clients.fetch_position import NO_LEADER, NO_LEADER_EPOCH, FetchPosition, LeaderAndEpoch
from kalda.common.types import UUID, ZERO_UUID

_FORMER_POSITIONS_MAX: Final = 4
"""Positions of earlier topics of the same name that are kept, for brokers whose metadata lags behind."""


class FetchState(Enum):
    """The step that is missing before records of a partition can be returned."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"


class PartitionState:
    """One assigned partition. `SubscriptionState` guards it with its lock."""

    __slots__ = (
        "continued_from",
        "former_positions",
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
        "topic_id",
    )

    def __init__(self, generation: int, topic_id: UUID = ZERO_UUID) -> None:
        self.generation = generation
        self.continued_from = generation
        """The first generation since the assignment or the last move by the user. From this one on, positions
        differ only by what was read and by what the log did."""
        self.state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.topic_id = topic_id
        """The id of the topic that the position belongs to; zero while it is not known."""
        self.former_positions: dict[UUID, FetchPosition] = {}
        """The last positions under other topic ids: a broker that lags behind may name such an id again."""
        self.reset: OffsetReset | None = None
        """The position that AWAIT_RESET looks up; None in the other states."""
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
        """Drop the position; the next one comes from the leader."""
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

    def change_topic_id(self, topic_id: UUID, default_reset: OffsetReset, generation: int) -> bool:
        """Process the topic id that the metadata names; return whether the topic was created again.

        The position of the deleted topic is given up for what `auto.offset.reset` says, as if nothing had
        been read of the partition before; without a reset, the committed offset is looked up again.
        """
        known = self.topic_id
        if topic_id in (ZERO_UUID, known):
            return False
        self.topic_id = topic_id
        if known == ZERO_UUID:
            return False
        position, self.preferred_replica = self.position, None
        self.high_watermark = self.last_stable_offset = self.log_start_offset = None
        self.generation = self.continued_from = generation
        if position is not None:
            self.former_positions[known] = position
            if len(self.former_positions) > _FORMER_POSITIONS_MAX:
                del self.former_positions[next(iter(self.former_positions))]
        former = self.former_positions.pop(topic_id, None)
        if former is not None:
            self.seek_unvalidated(former, generation)
        elif default_reset.kind is not ResetKind.NONE:
            if self.state is not FetchState.INITIALIZING:
                self.await_reset(self.reset or default_reset, generation)
        else:
            self.state, self.position, self.reset = FetchState.INITIALIZING, None, None
        return True

    def complete_validation(self) -> None:
        """Resume fetching: the leader holds the log up to the position."""
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
