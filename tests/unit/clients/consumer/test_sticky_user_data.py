import pytest

from kalda.clients.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor
from kalda.clients.consumer.assignors.partition_assignor import Assignment
from kalda.clients.consumer.assignors.sticky_assignor import StickyAssignor
from kalda.clients.consumer.assignors.sticky_user_data import (
    MemberData,
    read_generation,
    read_user_data,
    write_generation,
    write_user_data,
)
from kalda.common.types import TopicPartition

PARTITIONS = (TopicPartition("t0", 1), TopicPartition("t0", 4), TopicPartition("t1", 0))
WRITTEN = write_user_data(MemberData(PARTITIONS, 7))


def test_user_data_is_that_of_java() -> None:
    """Bytes that Java's StickyAssignor writes for the same assignment."""
    expected = "00000002000274300000000200000001000000040002743100000001000000000000" + "0007"
    assert expected == WRITTEN.hex()
    assert MemberData(PARTITIONS, 7) == read_user_data(WRITTEN)


def test_version_0_has_no_generation() -> None:
    """Members below Kafka 2.4 send it; it is recognised by its length only."""
    assert MemberData(PARTITIONS, None) == read_user_data(WRITTEN[:-4])


@pytest.mark.parametrize("length", range(1, len(WRITTEN) - 4))
def test_truncated_user_data_counts_as_no_assignment(length: int) -> None:
    """A member with broken user data must not break the rebalance of all."""
    assert MemberData((), -1) == read_user_data(WRITTEN[:length])


def test_the_cooperative_assignor_writes_its_generation() -> None:
    """Leaders that read subscriptions below version 2 find the generation only here (KIP-792)."""
    assignor = CooperativeStickyAssignor()
    assert b"\xff\xff\xff\xff" == assignor.subscription_user_data(())
    assignor.on_assignment(Assignment(PARTITIONS), 3)
    assert 3 == read_generation(assignor.subscription_user_data(()))
    assert b"\0\0\0\x07" == write_generation(7)
    assert None is read_generation(None)
    assert -1 == read_generation(b"\0")


def test_the_sticky_assignor_has_no_user_data_before_its_first_assignment() -> None:
    """Java sends null then; an empty assignment would claim a generation."""
    assignor = StickyAssignor()
    assert None is assignor.subscription_user_data(())
    assignor.on_assignment(Assignment(PARTITIONS), 7)
    assert WRITTEN == assignor.subscription_user_data(())
