"""Operations that wait for several partitions, each settled by its own rule."""

from typing import cast

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.partition_waits import DelayedByPartitions


class Wait:
    """Is settled when the test says so, and counts how often it was asked."""

    def __init__(self, partition: str) -> None:
        self.partition = cast(Partition, partition)
        self.is_settled = False
        self.asked = 0

    def check(self) -> bool:
        self.asked += 1
        return self.is_settled


def test_answered_when_the_last_partition_is_settled() -> None:
    first, second = Wait("a-0"), Wait("b-0")
    answers: list[str] = []
    operation = DelayedByPartitions(1000, [first, second], lambda: answers.append("answered"))

    first.is_settled = True
    assert not operation.try_complete()
    second.is_settled = True
    assert operation.on_event("b-0")

    assert ["answered"] == answers
    assert 1 == first.asked, "an event of another partition does not concern it"


def test_what_is_settled_is_not_asked_again() -> None:
    """Its code is the answer: a change of leader after it must not turn a success into an error."""
    low, high = Wait("a-0"), Wait("a-0")
    operation = DelayedByPartitions(1000, [low, high], lambda: None)

    low.is_settled = True
    assert not operation.on_event("a-0")
    assert not operation.on_event("a-0")

    assert (1, 2) == (low.asked, high.asked)


def test_events_of_partitions_that_it_does_not_wait_for_change_nothing() -> None:
    wait = Wait("a-0")
    operation = DelayedByPartitions(1000, [wait], lambda: None)

    assert not operation.on_event("b-0")

    assert 0 == wait.asked
