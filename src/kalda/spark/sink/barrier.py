"""Hides a batch of several transactions until all of them are committed.

The markers of several transactions arrive one after another, so readers could see a part of a batch. The
barrier is one more transaction, which all tasks of the batch share: before a task writes its first row to a
topic, it writes the barrier to each partition of the topic. A ``read_committed`` reader does not pass the
first open transaction of a partition. The driver ends the barrier last, in one step for all partitions.

The tasks need no rendezvous. Each looks up the producer id and epoch of the barrier's transactional id and
writes the same batch with sequence number 0; the log keeps the first copy. The transactional id is created
by the first InitProducerId, which names an identity that does not exist, so that all others are refused.

A task never raises the epoch of the barrier, which would end it.
"""

from typing import Final, Protocol

from kalda.clients.transaction_control import TransactionHandle

ATTEMPTS_MAX: Final = 5
"""An epoch that ends between the look-up and the write is that of the previous batch; once is usual."""


class BarrierEndedError(RuntimeError):
    """The barrier was ended while a task wrote behind it; the task's rows cannot be part of the batch."""


class BarrierPort(Protocol):
    """The part of `TransactionControl` that a barrier uses."""

    def shared_identity(self, transactional_id: str) -> TransactionHandle:
        """Return the identity of a producer that several processes use."""
        ...

    def write_barrier(self, identity: TransactionHandle, topic: str) -> bool:
        """Write a barrier to each partition of a topic."""
        ...


class Barrier:
    """The barrier of one batch, as one task uses it."""

    def __init__(self, control: BarrierPort, scope: str) -> None:
        self._control: Final = control
        self._transactional_id: Final = barrier_id(scope)
        self._covered: Final[set[str]] = set()
        self.identity: TransactionHandle | None = None
        """The transaction that hides the rows; None before the first topic."""

    def cover(self, topic: str) -> None:
        """Write the barrier to all partitions of a topic, unless this task has done so.

        Raises:
            BarrierEndedError: the barrier that the task's earlier rows are behind has been ended.
            ClientError: the topic does not exist, or the cluster accepts no barrier.
        """
        if topic in self._covered:
            return
        for _ in range(ATTEMPTS_MAX):
            identity = self.identity or self._control.shared_identity(self._transactional_id)
            if self._control.write_barrier(identity, topic):
                self.identity = identity
                self._covered.add(topic)
                return
            if self.identity is not None:
                break
        raise BarrierEndedError(
            f"the barrier {self._transactional_id} was ended by another run of the query; if there is none, "
            "restart the query, which writes the batch again"
        )


def barrier_id(scope: str) -> str:
    """Return the transactional id of a sink's barrier."""
    return f"kalda-{scope}-barrier"
