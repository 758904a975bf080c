"""Keeps the table of read leases: which offsets of which partition are leased, and until when. Sans-IO.

Deletion asks `removable_below` and the log cleaner `begin_rewrite` before they touch a segment. A refusal is
noted: from then on no new lease covers those offsets, so that readers which come one after the other cannot
hold a deletion back for ever. The wait is at most the lifetime of the leases that exist already.

    leases [0, 100) until 12:00 and [50, 150) until 12:05; retention wants to delete below 80
    -> it may delete nothing; new leases begin at 80 or later; at 12:05 it may delete

Every lease has a deadline that renewals cannot move beyond `lifetime_ms` after its grant. Without this, a
reader could fill the disk of the broker.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.common.types import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """The bounds of the table."""

    leases_max: int
    lease_ms: int
    """How long a grant or a renewal holds."""
    lifetime_ms: int
    """How long renewals can keep a lease after its grant."""


class LeaseRefusedError(Exception):
    """The table gives no lease; the reader fetches instead."""


class ReadLease:
    """One lease of the offsets ``[start_offset, end_offset)`` of a partition."""

    __slots__ = (
        "deadline",
        "end_offset",
        "expires_at_last",
        "is_broken",
        "leader_epoch",
        "lease_id",
        "start_offset",
        "topic_partition",
    )

    def __init__(
        self,
        lease_id: int,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        leader_epoch: int,
        deadline: float,
        expires_at_last: float,
    ) -> None:
        self.lease_id: Final = lease_id
        self.topic_partition: Final = topic_partition
        self.start_offset: Final = start_offset
        self.end_offset: Final = end_offset
        self.leader_epoch: Final = leader_epoch
        """The epoch of the leader that granted it."""
        self.deadline = deadline
        """Monotonic seconds; never behind `expires_at_last`."""
        self.expires_at_last: Final = expires_at_last
        self.is_broken = False
        """Whether leased offsets were cut off the log meanwhile."""


class ReadLeases:
    """The leases of one broker. All times are seconds of the monotonic clock."""

    def __init__(self, limits: LeaseLimits, new_id: Callable[[], int]) -> None:
        """`new_id` returns a random positive number: a client must not guess the id of another's lease."""
        self._limits: Final = limits
        self._new_id: Final = new_id
        self._by_id: Final[dict[int, ReadLease]] = {}
        self._by_partition: Final[dict[TopicPartition, dict[int, ReadLease]]] = {}
        self._deadlines: Final[list[tuple[float, int]]] = []
        """A heap with one entry for each lease, whose deadline may have moved on since."""
        self._waiting: Final[dict[TopicPartition, tuple[int, float]]] = {}
        """Deletions that wait: no new lease below the offset, until the time. At most one a partition."""
        self._rewritten: Final[dict[TopicPartition, int]] = {}
        """Logs that are being cleaned: no new lease below the offset."""
        self.granted = 0
        self.refused = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def grant(
        self,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        leader_epoch: int,
        now: float,
    ) -> ReadLease:
        """Lease the offsets ``[start_offset, end_offset)``.

        Raises:
            LeaseRefusedError: the table is full, or a deletion waits for leases of these offsets.
        """
        self.expire(now)
        limits = self._limits
        if len(self._by_id) >= limits.leases_max:
            self.refused += 1
            raise LeaseRefusedError(
                f"this broker has granted {len(self._by_id)} read leases, as many as "
                f"`kalda.read.lease.max`={limits.leases_max} allows"
            )
        closed_below = self._closed_below(topic_partition, now)
        if start_offset < closed_below:
            self.refused += 1
            raise LeaseRefusedError(
                f"{topic_partition}: offsets below {closed_below} are about to be deleted or compacted"
            )
        lease_id = self._new_id()
        while lease_id in self._by_id:
            lease_id = self._new_id()
        lease = ReadLease(
            lease_id,
            topic_partition,
            start_offset,
            end_offset,
            leader_epoch,
            now + limits.lease_ms / 1000,
            now + max(limits.lifetime_ms, limits.lease_ms) / 1000,
        )
        self._by_id[lease_id] = lease
        self._by_partition.setdefault(topic_partition, {})[lease_id] = lease
        heapq.heappush(self._deadlines, (lease.deadline, lease_id))
        self.granted += 1
        return lease

    def renew(self, lease_id: int, topic_partition: TopicPartition, now: float) -> ReadLease | None:
        """Extend a lease that holds; None if there is none (any more), or if its lifetime is over."""
        lease = self._live(lease_id, now)
        if lease is None or lease.topic_partition != topic_partition or lease.is_broken:
            return None
        lease.deadline = min(now + self._limits.lease_ms / 1000, lease.expires_at_last)
        return lease

    def release(self, lease_id: int, now: float) -> ReadLease | None:
        """End a lease and return it, or None if there is none (any more)."""
        lease = self._live(lease_id, now)
        if lease is not None:
            self._remove(lease)
        return lease

    def expire(self, now: float) -> None:
        """Remove the leases whose deadline has passed."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            _, lease_id = heapq.heappop(deadlines)
            lease = self._by_id.get(lease_id)
            if lease is None:
                continue
            if lease.deadline > now:
                heapq.heappush(deadlines, (lease.deadline, lease_id))
            else:
                self._remove(lease)
                self.expired += 1

    # What deletion, the log cleaner and truncation call.

    def removable_below(self, topic_partition: TopicPartition, offset: int, now: float) -> int:
        """Return up to where segments may be removed now, at most `offset`; a refusal is noted."""
        self.expire(now)
        leases = self._by_partition.get(topic_partition)
        lowest = min((each.start_offset for each in leases.values()), default=offset) if leases else offset
        waits_below = self._waits_below(topic_partition, now)
        if lowest >= offset:
            # Retention and the cleaner may wait for one log both; the one that waits for more goes on.
            if waits_below <= offset:
                self._waiting.pop(topic_partition, None)
            return offset
        wait_seconds = 2 * max(self._limits.lifetime_ms, self._limits.lease_ms) / 1000
        self._waiting[topic_partition] = (max(offset, waits_below), now + wait_seconds)
        return lowest

    def begin_rewrite(self, topic_partition: TopicPartition, offset: int, now: float) -> bool:
        """Return whether the segments below `offset` may be replaced; if so, no new lease covers them."""
        if self.removable_below(topic_partition, offset, now) < offset:
            return False
        self._rewritten[topic_partition] = offset
        return True

    def end_rewrite(self, topic_partition: TopicPartition) -> None:
        """Allow leases again after `begin_rewrite`."""
        self._rewritten.pop(topic_partition, None)

    def on_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note that the log was cut to end at `offset`: leases of more do not hold."""
        for lease in self._by_partition.get(topic_partition, {}).values():
            if lease.end_offset > offset:
                lease.is_broken = True

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop the state of a deleted log; its leases are broken."""
        for lease in tuple(self._by_partition.get(topic_partition, {}).values()):
            self._remove(lease)
        self._waiting.pop(topic_partition, None)
        self._rewritten.pop(topic_partition, None)

    # Internals.

    def _closed_below(self, topic_partition: TopicPartition, now: float) -> int:
        return max(self._waits_below(topic_partition, now), self._rewritten.get(topic_partition, 0))

    def _waits_below(self, topic_partition: TopicPartition, now: float) -> int:
        offset, until = self._waiting.get(topic_partition, (0, now))
        if until <= now:
            self._waiting.pop(topic_partition, None)
            return 0
        return offset

    def _live(self, lease_id: int, now: float) -> ReadLease | None:
        self.expire(now)
        return self._by_id.get(lease_id)

    def _remove(self, lease: ReadLease) -> None:
        del self._by_id[lease.lease_id]
        siblings = self._by_partition[lease.topic_partition]
        del siblings[lease.lease_id]
        if not siblings:
            del self._by_partition[lease.topic_partition]
        if len(self._deadlines) > 2 * len(self._by_id) + 64:
            # Released leases leave their entries behind; an entry lives for the lease time otherwise.
            self._deadlines[:] = [entry for entry in self._deadlines if entry[1] in self._by_id]
            heapq.heapify(self._deadlines)
