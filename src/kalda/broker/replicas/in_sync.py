"""Keeps a leader's state of each follower, and decides the change of the ISR that it may propose.

These are values and small rules: `kalda.broker.replicas.partition` applies them, and
`kalda.broker.replicas.isr_changes` writes the changes to ZooKeeper.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.cluster.schema import PartitionState
from kalda.common.types import TopicPartition
from kalda.runtime.clock import Clock

NEVER: Final = -math.inf
"""A moment before all others, in monotonic seconds."""


@dataclass(slots=True, eq=False)
class FollowerState:
    """The state of one follower at its leader, from the follower's fetches."""

    last_caught_up: float = NEVER
    """The last moment at which it had everything that the leader had, in monotonic seconds."""
    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch: float = NEVER
    last_fetch_leader_end_offset: int = -1
    broker_epoch: int = -1
    """The broker epoch of the newest registration that fetched (KIP-903); -1 before a fetch with one."""

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now: float) -> None:
        """Note a fetch from `offset`: the follower has everything below it."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self.last_fetch_leader_end_offset:
            # It has what the leader had at the previous fetch, so it was caught up then. A follower of a busy
            # leader is always a little behind the end.
            self.last_caught_up = max(self.last_caught_up, self.last_fetch)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch = now
        if leader_end_offset > self.last_fetch_leader_end_offset:
            self.last_fetch_leader_end_offset = leader_end_offset

    def begin_epoch(self, leader_end_offset: int, now: float, *, is_in_sync: bool) -> None:
        """Restart the clocks for a new epoch of the same leader; the follower's offsets stay known."""
        moment = now if is_in_sync else NEVER
        self.last_caught_up = moment
        self.last_fetch = moment
        self.last_fetch_leader_end_offset = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now: float, lag_seconds: float) -> bool:
        """Return whether it has everything, or had everything within the last `lag_seconds`."""
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= lag_seconds


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The inputs that all partitions of a broker share: clock, allowed lag, live brokers."""

    clock: Clock
    lag_seconds: float
    """``replica.lag.time.max.ms``."""
    is_alive: Callable[[int], bool]
    """Whether a broker is registered according to the metadata: only such a broker may join an ISR."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """One change of the ISR that a leader proposes; pending until it has taken effect or was refused.

    Changes are compared by identity: an outcome counts only for the change that the partition has pending.
    """

    topic_partition: TopicPartition
    wanted: PartitionState
    """The complete new state; its `version` is the version that the znode must still have."""
    is_expansion: bool

    @property
    def isr(self) -> tuple[int, ...]:
        """The proposed in-sync replicas."""
        return self.wanted.isr
