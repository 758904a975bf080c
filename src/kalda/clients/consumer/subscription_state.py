"""Tracks what a consumer subscribes to, which partitions are assigned, and the position in each of them.

It does no I/O and has no clock. The user's thread, the fetcher and the group's membership share one
instance, so every method takes the lock; none of them waits for anything else while holding it.

Subscribed topics, a pattern and assigned partitions exclude each other until `unsubscribe`. A partition that
stays assigned keeps its position.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

from kalda.clients.consumer.consumer_errors import NoOffsetForPartitionError
from kalda.clients.consumer.offset_reset import OffsetReset, ResetKind
from kalda.clients.consumer.partition_state import FetchState, PartitionState
from kalda.clients.errors import IllegalStateError
from kalda.clients.fetch_position import NO_LEADER_EPOCH, FetchPosition, LeaderAndEpoch
from kalda.clients.held_lock import Reentrant, check_not_held
from kalda.clients.values import OffsetAndMetadata
from kalda.common.public import public
from kalda.common.types import UUID, ZERO_UUID, TopicPartition


class SubscriptionType(Enum):
    """How the partitions of a consumer are chosen."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    RE2 = "a pattern that the broker evaluates"
    ASSIGNED = "partitions"


@public
@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2's syntax that the broker evaluates (KIP-848).

    Only for `group.protocol=consumer`. Unlike an `re.Pattern`, it costs the client no metadata of all topics.
    """

    pattern: str


@dataclass(frozen=True, slots=True)
class LogTruncation:
    """A position past the point where the leader's log diverges from what was consumed (KIP-320)."""

    topic_partition: TopicPartition
    position: FetchPosition
    divergent_offset: OffsetAndMetadata | None
    """The first offset that differs; None if the leader does not know the position's epoch."""


@dataclass(frozen=True, slots=True)
class Fetchable:
    """A partition that may be fetched."""

    topic_partition: TopicPartition
    topic_id: UUID
    """The topic that the position belongs to; zero where its id is not known."""
    position: FetchPosition
    generation: int
    preferred_replica: int | None


class SubscriptionState:
    """The subscription and the assigned partitions of one consumer."""

    def __init__(self, default_reset: OffsetReset) -> None:
        """Start without a subscription; `default_reset` is `auto.offset.reset`."""
        self.default_reset: Final = default_reset
        self.topic_id_of: Callable[[str], UUID] = lambda _: ZERO_UUID
        """Returns the id of a topic as the metadata has it now; zero where that is not known."""
        self._lock: Final = threading.RLock()
        self._type = SubscriptionType.NONE
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._re2: SubscriptionPattern | None = None
        # Insertion order is the order in which partitions are asked for; see `move_to_end`.
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._last_generation = 0

    def check_not_inside(self) -> None:
        """Check that the caller did not interrupt a method here, whose lock the loop needs.

        Raises:
            IllegalStateError: it did.
        """
        check_not_held(cast(Reentrant, self._lock), "consumer", "a call of the consumer")

    # Subscription

    @property
    def type(self) -> SubscriptionType:
        """How the partitions are chosen."""
        return self._type

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; for an `re.Pattern` those that match, for assigned partitions none."""
        with self._lock:
            return self._topics if self.is_group_managed else frozenset()

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern of `subscribe_pattern`."""
        return self._pattern

    @property
    def re2_pattern(self) -> SubscriptionPattern | None:
        """The pattern of `subscribe_re2`."""
        return self._re2

    @property
    def is_group_managed(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN, SubscriptionType.RE2)

    @property
    def metadata_topics(self) -> frozenset[str]:
        """The topics whose metadata this consumer needs: its own and, for a group's leader, all members'."""
        with self._lock:
            return self._topics | self._group_topics

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to topics by name; return whether that changed the topics.

        Raises:
            IllegalStateError: a pattern or assigned partitions are in use.
        """
        with self._lock:
            self._set_type(SubscriptionType.TOPICS)
            return self._change_topics(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to all topics that match as a whole; `subscribe_from_pattern` follows with the names.

        Raises:
            IllegalStateError: topics or assigned partitions are in use.
        """
        with self._lock:
            self._set_type(SubscriptionType.PATTERN)
            self._pattern = pattern

    def subscribe_re2(self, pattern: SubscriptionPattern) -> bool:
        """Subscribe to the topics that the broker finds; return whether the pattern changed.

        Raises:
            IllegalStateError: topics or assigned partitions are in use.
        """
        with self._lock:
            self._set_type(SubscriptionType.RE2)
            changed = self._re2 != pattern
            self._re2 = pattern
            return changed

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Set the topics that match the pattern now; return whether they changed."""
        with self._lock:
            assert self._type is SubscriptionType.PATTERN, f"subscribed to {self._type.value}, not a pattern"
            return self._change_topics(topics)

    def matches_pattern(self, topic: str) -> bool:
        """Whether the `re.Pattern` subscribed to matches the topic's whole name."""
        pattern = self._pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Set the topics of all members, which a group's leader watches; return whether some are new."""
        with self._lock:
            assert self.is_group_managed, "a group's topics without a group"
            self._group_topics = frozenset(topics)
            return not self._group_topics <= self._topics

    def reset_group_subscription(self) -> None:
        """Forget the other members' topics: this member leads the group no longer."""
        with self._lock:
            self._group_topics = frozenset()

    def unsubscribe(self) -> None:
        """Forget the subscription and all partitions."""
        with self._lock:
            self._type = SubscriptionType.NONE
            self._topics = self._group_topics = frozenset()
            self._pattern = self._re2 = None
            self._partitions = {}

    # Assignment

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Set the partitions that the user chose; return whether they changed.

        Raises:
            IllegalStateError: topics or a pattern are subscribed to.
        """
        with self._lock:
            self._set_type(SubscriptionType.ASSIGNED)
            assigned = dict.fromkeys(partitions)
            if assigned.keys() == self._partitions.keys():
                return False
            self._topics = frozenset(partition.topic for partition in assigned)
            self._set_partitions(assigned)
            return True

    def assign_from_subscribed(
        self, partitions: Collection[TopicPartition], awaiting_callback: Iterable[TopicPartition] = ()
    ) -> None:
        """Set the partitions that the group assigned; those that stay keep their positions.

        `awaiting_callback` are not fetched until `callback_returned`: the user may seek in the callback.
        """
        with self._lock:
            assert self.is_group_managed, f"the group assigned partitions while {self._type.value} is in use"
            self._set_partitions(partitions)
            for partition in awaiting_callback:
                self._partitions[partition].is_awaiting_callback = True

    def callback_returned(self, partitions: Iterable[TopicPartition]) -> None:
        """Allow fetching partitions whose `on_partitions_assigned` has returned."""
        with self._lock:
            for partition in partitions:
                if (state := self._partitions.get(partition)) is not None:
                    state.is_awaiting_callback = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning and fetching records of partitions that are about to be revoked."""
        with self._lock:
            for partition in partitions:
                if (state := self._partitions.get(partition)) is not None:
                    state.is_pending_revocation = True

    def unmatched(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose topics are not subscribed to; always none for `SubscriptionPattern`."""
        with self._lock:
            if self._type is SubscriptionType.RE2:
                return []
            if self._type is SubscriptionType.PATTERN:
                return [each for each in partitions if not self.matches_pattern(each.topic)]
            return [each for each in partitions if each.topic not in self._topics]

    def assigned(self) -> list[TopicPartition]:
        """Return the assigned partitions, in the order in which they are asked for."""
        with self._lock:
            return list(self._partitions)

    def move_to_end(self, partition: TopicPartition) -> None:
        """Ask for the partition last from now on, so that every partition gets its turn."""
        with self._lock:
            if (state := self._partitions.pop(partition, None)) is not None:
                self._partitions[partition] = state

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of partitions until `resume`.

        Raises:
            IllegalStateError: a partition is not assigned; none is paused then.
        """
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalStateError: a partition is not assigned; none is resumed then.
        """
        self._set_paused(partitions, False)

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return self._where(lambda state: state.is_paused)

    # Positions

    def seek(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Set a position; it is validated first if it has an epoch and its leader is known.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        with self._lock:
            state = self._state(partition)
            state.seek_unvalidated(position, self._next_generation())
            state.continued_from = state.generation

    def request_reset(self, partition: TopicPartition, reset: OffsetReset) -> None:
        """Drop the position and look another one up, as the user requested.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        with self._lock:
            state = self._state(partition)
            state.await_reset(reset, self._next_generation())
            state.continued_from = state.generation

    def reset_out_of_range(self, partition: TopicPartition) -> None:
        """Drop a position outside of the log, and look one up by `auto.offset.reset`."""
        with self._lock:
            if (state := self._partitions.get(partition)) is not None:
                state.await_reset(self.default_reset, self._next_generation())

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Return the position, also while it is being validated; None while it is looked up.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        with self._lock:
            return self._state(partition).position

    def valid_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Return the position if no look-up or validation is needed.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        with self._lock:
            state = self._state(partition)
            return state.position if state.state is FetchState.FETCHING else None

    def advance(self, partition: TopicPartition, generation: int, position: FetchPosition) -> bool:
        """Move the position behind records that are being returned.

        Returns False if the partition's records of that generation must not be returned (any more).
        """
        with self._lock:
            state = self._partitions.get(partition)
            if state is None or state.generation != generation or not state.is_fetchable:
                return False
            state.position = position
            return True

    def rewind(self, partition: TopicPartition, generation: int, position: FetchPosition) -> bool:
        """Move the position back before records that `advance` counted and that were not handed out.

        Returns False if records fetched under `generation` must not be returned any more. The position moves
        back all the same, unless the user has moved it: a new leader, or a reset of the position ahead, is no
        reason to skip what was not handed out.
        """
        with self._lock:
            state = self._partitions.get(partition)
            if state is None or generation < state.continued_from:
                return False
            if state.generation == generation and state.state is FetchState.FETCHING:
                state.position = position
                return True
            present = state.position
            if present is None or present.offset > position.offset:
                leader = position.leader if present is None else present.leader
                target = FetchPosition(position.offset, position.offset_epoch, leader)
                is_valid = state.state is FetchState.FETCHING
                state.seek(target, self._next_generation())
                if not is_valid:
                    state.seek_unvalidated(target, state.generation)
            return False

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit: the position of every partition that has a valid one.

        Positions in topics that the metadata does not have any more are left out. The name may belong to a
        new topic by the time of the commit, whose records up to that offset would be skipped.
        """
        with self._lock:
            consumed: dict[TopicPartition, OffsetAndMetadata] = {}
            for partition, state in self._partitions.items():
                if state.topic_id not in (ZERO_UUID, self.topic_id_of(partition.topic)):
                    continue
                if state.state is FetchState.FETCHING and state.position is not None:
                    epoch = state.position.offset_epoch
                    leader_epoch = None if epoch == NO_LEADER_EPOCH else epoch
                    consumed[partition] = OffsetAndMetadata(state.position.offset, "", leader_epoch)
            return consumed

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        """Return the id of each topic: of the one that is read, else of the one that has the name now."""
        with self._lock:
            found: dict[str, UUID] = {}
            for each in partitions:
                state = self._partitions.get(each)
                read = ZERO_UUID if state is None else state.topic_id
                found[each.topic] = self.topic_id_of(each.topic) if read == ZERO_UUID else read
            return found

    def all_positions(self) -> dict[TopicPartition, int]:
        """Return the offset of every partition that has a position, valid or not."""
        with self._lock:
            return {
                partition: state.position.offset
                for partition, state in self._partitions.items()
                if state.position is not None
            }

    def initializing(self) -> dict[TopicPartition, int]:
        """Return the partitions whose committed offset has not been looked up yet, with their generations."""
        with self._lock:
            return {
                partition: state.generation
                for partition, state in self._partitions.items()
                if state.state is FetchState.INITIALIZING
            }

    def seek_to_committed(
        self, committed: Mapping[TopicPartition, FetchPosition], asked: Mapping[TopicPartition, int]
    ) -> None:
        """Set positions from committed offsets, where the partition still has none.

        `asked` is what `initializing` returned before the offsets were asked for: a partition that was given
        up and came back meanwhile waits for another answer, because its owner in between may have committed.
        """
        with self._lock:
            for partition, position in committed.items():
                state = self._partitions.get(partition)
                if state is not None and _is_waiting(state, asked[partition]):
                    state.seek_unvalidated(position, self._next_generation())

    def reset_initializing(self, asked: Mapping[TopicPartition, int]) -> None:
        """Apply `auto.offset.reset` to the given partitions that have no position.

        `asked` is what `initializing` returned before committed offsets were asked for.

        Raises:
            NoOffsetForPartitionError: `auto.offset.reset` is none, and some have no committed offset.
        """
        with self._lock:
            without: list[TopicPartition] = []
            for partition, generation in asked.items():
                state = self._partitions.get(partition)
                if state is None or not _is_waiting(state, generation):
                    continue
                if self.has_default_reset:
                    state.await_reset(self.default_reset, self._next_generation())
                else:
                    without.append(partition)
        if without:
            raise NoOffsetForPartitionError(without)

    @property
    def has_default_reset(self) -> bool:
        """Whether `auto.offset.reset` is something other than none."""
        return self.default_reset.kind is not ResetKind.NONE

    def has_all_positions(self) -> bool:
        """Whether every assigned partition has a validated position to fetch from."""
        with self._lock:
            return all(state.state is FetchState.FETCHING for state in self._partitions.values())

    # Look-ups and validation

    def needing_reset(self, now: float) -> dict[TopicPartition, OffsetReset]:
        """Return the partitions to look an offset up for now, and which."""
        with self._lock:
            return {
                partition: state.reset
                for partition, state in self._partitions.items()
                if state.reset is not None and state.retry_at <= now
            }

    def complete_reset(self, partition: TopicPartition, reset: OffsetReset, position: FetchPosition) -> bool:
        """Set the offset that was looked up, unless the partition no longer waits for this reset."""
        with self._lock:
            state = self._partitions.get(partition)
            if state is None or state.reset != reset:
                return False
            # The leader itself named the offset, so there is nothing to validate.
            state.seek(position, self._next_generation())
            return True

    def needing_validation(self, now: float) -> dict[TopicPartition, FetchPosition]:
        """Return the positions to validate now with their leaders."""
        with self._lock:
            return {
                partition: state.position
                for partition, state in self._partitions.items()
                if state.state is FetchState.AWAIT_VALIDATION
                and state.position is not None
                and state.retry_at <= now
            }

    def change_topic_id(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Process the topic id in new metadata; return whether the topic was deleted and created again.

        The position is given up then; see `PartitionState.change_topic_id`.
        """
        with self._lock:
            state = self._partitions.get(partition)
            if state is None:
                return False
            return state.change_topic_id(topic_id, self.default_reset, self._next_generation())

    def change_leader(self, partition: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool) -> bool:
        """Process the leader in new metadata; return whether the position has to be looked at again.

        `can_validate` is False if the leader is too old for OffsetForLeaderEpoch with leader epochs.
        """
        with self._lock:
            state = self._partitions.get(partition)
            if state is None:
                return False
            return state.change_leader(leader, self._next_generation(), can_validate=can_validate)

    def complete_validation(
        self, partition: TopicPartition, asked: FetchPosition, epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """Process the leader's answer: the largest epoch up to the position's, and where it ended.

        Both are -1 if the leader knows no such epoch. A truncated log resets the position as
        `auto.offset.reset` says, or to the point of divergence where that is known. Returns the truncation
        only where `auto.offset.reset` is none: the user has to decide.

        Example: the position is offset 31 with epoch 4, the leader's epoch 4 ended at 20: go on at 20.

        Where epoch 4 is that of the leader itself, no election can have truncated the log: it is another
        topic of the same name, or lost its records. The position is out of range then.
        """
        with self._lock:
            state = self._partitions.get(partition)
            if state is None or state.state is not FetchState.AWAIT_VALIDATION or state.position != asked:
                return None
            is_unknown = epoch < 0 or end_offset < 0
            if not is_unknown and end_offset >= asked.offset:
                state.complete_validation()
                return None
            if not self.has_default_reset:
                divergent = None if is_unknown else OffsetAndMetadata(end_offset, "", epoch)
                return LogTruncation(partition, asked, divergent)
            if is_unknown or epoch == asked.leader.epoch:
                state.await_reset(self.default_reset, self._next_generation())
            else:
                state.seek(FetchPosition(end_offset, epoch, asked.leader), self._next_generation())
            return None

    def retry_later(self, partitions: Iterable[TopicPartition], retry_at: float) -> None:
        """Delay the next look-up or validation of partitions whose last one failed."""
        with self._lock:
            for partition in partitions:
                if (state := self._partitions.get(partition)) is not None:
                    state.retry_at = retry_at

    def next_retry_at(self) -> float | None:
        """Return when the first delayed look-up or validation is due; None if none is needed."""
        with self._lock:
            waiting = (FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION)
            times = [state.retry_at for state in self._partitions.values() if state.state in waiting]
            return min(times, default=None)

    # Fetching

    def fetchable(self, now: float) -> list[Fetchable]:
        """Return the partitions to fetch, in the order in which they are asked for."""
        with self._lock:
            return [
                Fetchable(each, state.topic_id, state.position, state.generation, state.current_replica(now))
                for each, state in self._partitions.items()
                if state.is_fetchable and state.position is not None
            ]

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Whether records of the partition may be fetched and returned now."""
        state = self._partitions.get(partition)
        return state is not None and state.is_fetchable

    def next_position(self, partition: TopicPartition, generation: int) -> FetchPosition | None:
        """Return the position, if records fetched under `generation` may be returned now."""
        with self._lock:
            state = self._partitions.get(partition)
            if state is None or state.generation != generation or not state.is_fetchable:
                return None
            return state.position

    def refetch(self, partition: TopicPartition, generation: int | None = None) -> None:
        """Fetch from the position on again: records fetched under `generation`, or all, were dropped."""
        with self._lock:
            state = self._partitions.get(partition)
            if state is not None and generation in (None, state.generation):
                state.generation = self._next_generation()

    def is_current(self, partition: TopicPartition, generation: int) -> bool:
        """Whether records fetched under `generation` may still be returned, now or after a pause."""
        state = self._partitions.get(partition)
        return state is not None and state.generation == generation

    def update_end(
        self,
        partition: TopicPartition,
        *,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> None:
        """Store the log's end offsets from a response; negative ones are unknown and ignored."""
        with self._lock:
            if (state := self._partitions.get(partition)) is None:
                return
            if high_watermark >= 0:
                state.high_watermark = high_watermark
            if last_stable_offset >= 0:
                state.last_stable_offset = last_stable_offset
            if log_start_offset >= 0:
                state.log_start_offset = log_start_offset

    def set_preferred_replica(self, partition: TopicPartition, replica: int, until: float) -> None:
        """Read from a replica that is closer than the leader (KIP-392), up to `until` at most."""
        with self._lock:
            state = self._partitions.get(partition)
            if state is not None and state.preferred_replica != replica:
                state.preferred_replica = replica
                state.preferred_replica_until = until

    def clear_preferred_replica(self, partition: TopicPartition) -> int | None:
        """Read from the leader again; return the replica that was preferred."""
        with self._lock:
            state = self._partitions.get(partition)
            if state is None:
                return None
            replica, state.preferred_replica = state.preferred_replica, None
            return replica

    def lag(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        """Return the offsets between position and end as of the last fetch; None before that.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        with self._lock:
            return self._state(partition).lag(read_committed=read_committed)

    def lead(self, partition: TopicPartition) -> int | None:
        """Return the offsets between the log's start and the position; None before the first fetch.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        with self._lock:
            state = self._state(partition)
            if state.position is None or state.log_start_offset is None:
                return None
            return max(state.position.offset - state.log_start_offset, 0)

    # Internals

    def _set_type(self, wanted: SubscriptionType) -> None:
        if self._type is SubscriptionType.NONE:
            self._type = wanted
        elif self._type is not wanted:
            raise IllegalStateError(
                f"cannot use {wanted.value} while {self._type.value} are in use: a consumer subscribes to "
                f"topics, subscribes to a pattern, or is assigned partitions; call unsubscribe() first"
            )

    def _change_topics(self, topics: Iterable[str]) -> bool:
        changed = frozenset(topics)
        if changed == self._topics:
            return False
        self._topics = changed
        return True

    def _set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        kept = self._partitions
        self._partitions = {
            partition: kept.get(partition)
            or PartitionState(self._next_generation(), self.topic_id_of(partition.topic))
            for partition in partitions
        }
        for state in self._partitions.values():
            state.is_pending_revocation = False

    def _set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        with self._lock:
            for state in [self._state(partition) for partition in partitions]:
                state.is_paused = is_paused

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._partitions.get(partition)
        if state is None:
            raise IllegalStateError(
                f"{partition} is not assigned to this consumer; "
                f"assign() it, or wait until the group assigns it"
            )
        return state

    def _where(self, condition: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        with self._lock:
            return [partition for partition, state in self._partitions.items() if condition(state)]

    def _next_generation(self) -> int:
        self._last_generation += 1
        return self._last_generation


def _is_waiting(state: PartitionState, generation: int) -> bool:
    return state.state is FetchState.INITIALIZING and state.generation == generation
