"""Defines the callbacks of a consumer's user: rebalances, and interceptors of records and commits.

A synchronous consumer calls them in the thread that called `poll`, `close` or another of its methods, never
on the loop's thread. An asynchronous consumer calls them on its loop; they may be coroutines there.
"""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from kalda.clients.values import ConsumerRecord, OffsetAndMetadata
from kalda.common.public import public
from kalda.common.types import TopicPartition


class RebalanceEvent(Enum):
    """The changes of an assignment; the value is the listener's method."""

    ASSIGNED = "on_partitions_assigned"
    REVOKED = "on_partitions_revoked"
    LOST = "on_partitions_lost"


@public
class ConsumerRebalanceListener:
    """Base of listeners to changes of the assignment; override what you need.

    Under the eager protocol all partitions are revoked before each rebalance; under the cooperative protocol
    and `group.protocol=consumer` only those that move. The methods may commit, seek, pause and ask for
    positions, in `close` too; such a call ends at the latest when the time of the rebalance or of `close` is
    over. An exception in one of them reaches the caller of `poll`.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Run before partitions go to another member: commit what was processed here."""
        return None

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Run after partitions were added and before their records are returned: seek here."""
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Run when partitions may belong to another member already; commits fail. Default: as revoked."""
        return self.on_partitions_revoked(partitions)


class RebalanceCallbacks(Protocol):
    """Calls the user's listener where and when the facade allows it."""

    async def invoke(self, event: RebalanceEvent, partitions: Collection[TopicPartition]) -> None:
        """Call the listener, if there is one, and wait for it; raises the listener's exception."""
        ...


@public
class ConsumerInterceptor:
    """Base of interceptors, which see records before the user and offsets after a commit (KIP-42).

    Exceptions are logged and not passed on, as in Java.
    """

    def on_consume(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Sequence[ConsumerRecord[Any, Any]]:
        """Return the records that the user gets instead of `records`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take the offsets that were committed."""
        return

    def close(self) -> None:
        """Record that the consumer is closing."""
        return
