"""Defines what a consumer needs of its group, so that both group protocols look alike to it.

`ClassicMembership` (classic) and `ConsumerMembership` (KIP-848) implement it. All methods run on the
consumer's loop. `subscription_state` carries what both sides share: subscription, assignment, positions.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from kalda.clients.errors import ClientError
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.types import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, ClientError | None], None]


class GroupPort(Protocol):
    """The member of a group, or the part of it that commits where partitions are assigned by the user."""

    def start(self) -> None:
        """Start the tasks; nothing is sent before the first subscription or commit."""
        ...

    def subscription_changed(self) -> None:
        """Join, rejoin or leave the group after `subscribe`, `assign` or `unsubscribe`."""
        ...

    def polled(self, now: float) -> None:
        """Restart the timer of `max.poll.interval.ms`, because the application called `poll`.

        Offsets that auto commit may commit from now on are the positions at this moment: the records that
        earlier calls returned have been processed. A poll that waits calls this again whenever the member
        wakes it, or `next_poll_at` has come, and before it collects records.
        """
        ...

    @property
    def next_poll_at(self) -> float | None:
        """When a poll that waits calls `polled` again although nothing wakes it; None for never."""
        ...

    @property
    def listener_time_left_ms(self) -> int | None:
        """The longest time that the running call of the listener may wait; None while none runs.

        It is what is left of the rebalance, which other members wait for, or of the time of `close`.
        """
        ...

    def take_error(self) -> ClientError | None:
        """Return a failure that the next `poll` raises, once: fenced, not authorized, a listener's error."""
        ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, asking the coordinator; one attempt, retriable errors are raised."""
        ...

    async def commit(self, offsets: Offsets, *, timeout_ms: int) -> None:
        """Commit offsets and wait for the result, with retries.

        Raises:
            CommitFailedError: the member is no longer part of the group.
        """
        ...

    def commit_nowait(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        """Commit offsets without waiting and without retries; `on_commit` runs on the loop."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Start a rebalance (`enforce_rebalance`); without effect under `group.protocol=consumer`."""
        ...

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the member's identity for transactional producers."""
        ...

    async def leave(self, *, timeout_ms: int) -> None:
        """Revoke all partitions, with the listener's callback, and leave the group: `unsubscribe`."""
        ...

    async def close(self, timeout_s: float, *, leave_group: bool = True) -> None:
        """Commit if auto commit is on, leave the group, end the tasks; takes `timeout_s` at most."""
        ...
