"""The barrier of one task, over a coordinator that answers from a script."""

import pytest

from kalda.clients.transaction_control import TransactionHandle
from kalda.spark.sink.barrier import Barrier, BarrierEndedError

FIRST, SECOND = (TransactionHandle("kalda-q-barrier", 1, epoch) for epoch in (3, 4))


class Control:
    """The two calls that a barrier makes."""

    def __init__(self, identities: list[TransactionHandle], ended: set[TransactionHandle]) -> None:
        self.identities = identities
        self.ended = ended
        self.written: list[tuple[TransactionHandle, str]] = []

    def shared_identity(self, transactional_id: str) -> TransactionHandle:
        assert "kalda-q-barrier" == transactional_id
        return self.identities.pop(0) if len(self.identities) > 1 else self.identities[0]

    def write_barrier(self, identity: TransactionHandle, topic: str) -> bool:
        self.written.append((identity, topic))
        return identity not in self.ended


def test_each_topic_is_covered_once() -> None:
    """A round trip for each Arrow batch would be too much."""
    control = Control([FIRST], set())
    barrier = Barrier(control, "q")
    for topic in ("a", "b", "a"):
        barrier.cover(topic)
    assert [(FIRST, "a"), (FIRST, "b")] == control.written
    assert FIRST == barrier.identity


def test_the_identity_of_the_last_batch_is_looked_up_again() -> None:
    """Its barrier ended between the look-up and the write."""
    control = Control([FIRST, SECOND], {FIRST})
    barrier = Barrier(control, "q")
    barrier.cover("a")
    assert SECOND == barrier.identity


def test_a_barrier_that_ends_later_fails_the_task() -> None:
    """Rows of the first topic are behind it; they could become visible before the others."""
    control = Control([FIRST, SECOND], set())
    barrier = Barrier(control, "q")
    barrier.cover("a")
    control.ended.add(FIRST)
    with pytest.raises(BarrierEndedError):
        barrier.cover("b")


def test_the_look_ups_are_bounded() -> None:
    """Something ends every barrier at once: another run of the same query."""
    control = Control([FIRST], {FIRST})
    with pytest.raises(BarrierEndedError):
        Barrier(control, "q").cover("a")
    assert 5 == len(control.written)
