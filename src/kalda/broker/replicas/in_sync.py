"""What a leader knows of its followers, and the change of in-sync replicas that it may ask for.

Values and small rules only: `kalda.broker.replicas.partition` applies them,
`kalda.broker.replicas.isr_changes` writes the changes to coordination.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.common.clock import Clock
from kalda.common.types import TopicPartition
from kalda.zk.client.schema import PartitionState

NEVER: Final = -math.inf
"""Monotonic seconds before any other."""


class FollowerState:
    """What the leader knows of one follower from its fetches."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up",
        "last_fetch",
        "last_fetch_leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up: float = NEVER) -> None:
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_caught_up = last_caught_up
        """Monotonic seconds of the last moment at which it had all that the leader had."""
        self.last_fetch = NEVER
        self.last_fetch_leader_end_offset = -1
        self.broker_epoch = -1
        """The newest registration of the broker that fetched (KIP-903); -1 while it names none."""

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now: float) -> None:
        """Take note of a fetch from `offset`: everything below it is on the follower's disk."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self.last_fetch_leader_end_offset:
            # It has what the leader had at its previous fetch, so it was caught up then: a follower of a
            # busy leader is always a little behind the end.
            self.last_caught_up = max(self.last_caught_up, self.last_fetch)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch = now
        if leader_end_offset > self.last_fetch_leader_end_offset:
            self.last_fetch_leader_end_offset = leader_end_offset

    def begin_epoch(self, leader_end_offset: int, now: float, *, is_in_sync: bool) -> None:
        """Start the clocks anew for a leader that was elected again; what is on its disk stays known."""
        moment = now if is_in_sync else NEVER
        self.last_caught_up = moment
        self.last_fetch = moment
        self.last_fetch_leader_end_offset = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now: float, lag_seconds: float) -> bool:
        """Return whether it has everything, or had at some moment of the last `lag_seconds`."""
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= lag_seconds


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """What all partitions of a broker go by."""

    clock: Clock
    lag_seconds: float
    """``replica.lag.time.max.ms``."""
    is_alive: Callable[[int], bool]
    """Whether a broker is registered, as far as this one was told: only such a one may join an ISR."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """One change that a leader wants; under way until it is known to have taken effect or been refused.

    Compared by identity: a partition knows by it whether an outcome is that of its present change.
    """

    topic_partition: TopicPartition
    wanted: PartitionState
    """The whole new state; its `version` is the one that the znode must still have."""
    is_expansion: bool

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas that are wanted."""
        return self.wanted.isr
