from collections.abc import Mapping

import pytest

from kalda.clients.consumer.assignors.assignor_names import common_protocol, find_assignors
from kalda.clients.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor
from kalda.clients.consumer.assignors.partition_assignor import (
    Assignment,
    GroupTopics,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from kalda.clients.consumer.assignors.range_assignor import RangeAssignor
from kalda.clients.consumer.group.classic_leader import read_members, read_own_assignment, run_assignor
from kalda.clients.consumer.group.classic_subscription import write_subscription
from kalda.clients.consumer.group.errors import AssignorError
from kalda.clients.errors import ClientConfigError
from kalda.common.types import TopicPartition
from kalda.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

TOPICS: GroupTopics = {"t": [frozenset()] * 2}
MEMBERS = {"a": Subscription(("t",), owned_partitions=(TopicPartition("t", 0),)), "b": Subscription(("t",))}


class Fixed(PartitionAssignor):
    """An assignor of an application, with a result that the test chose."""

    name = "fixed"
    supported_protocols = frozenset(RebalanceProtocol)

    def __init__(self, result: dict[str, list[int]] | None) -> None:
        self.result = result

    def assign(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        if self.result is None:
            raise ZeroDivisionError("oops")
        return {
            member_id: Assignment(tuple(TopicPartition("t", number) for number in numbers))
            for member_id, numbers in self.result.items()
        }


def test_a_leader_reads_the_subscriptions_of_all_members() -> None:
    """The order is the coordinator's, on which Java's assignors depend."""
    members = [
        JoinGroupResponseMember(
            member_id=name, group_instance_id="i1", metadata=write_subscription(MEMBERS["b"])
        )
        for name in ("b", "a")
    ]
    response = JoinGroupResponse(protocol_name="range", leader="a", member_id="a", members=members)
    found = read_members(response)
    assert ["b", "a"] == list(found)
    assert "i1" == found["a"].group_instance_id

    members[0].metadata = b"?"
    with pytest.raises(AssignorError, match="member b"):
        read_members(response)


def test_an_assignor_that_raises_is_named() -> None:
    """It may be the application's own."""
    with pytest.raises(AssignorError, match="fixed failed: ZeroDivisionError: oops"):
        run_assignor(Fixed(None), TOPICS, MEMBERS, RebalanceProtocol.EAGER)


def test_every_member_must_get_an_assignment() -> None:
    """A member without one would wait for its assignment without end."""
    with pytest.raises(AssignorError, match="see b"):
        run_assignor(Fixed({"a": [0, 1]}), TOPICS, MEMBERS, RebalanceProtocol.EAGER)


def test_a_cooperative_assignor_may_not_take_what_another_member_owns() -> None:
    """Two members would consume the partition at the same time (KIP-429)."""
    moving = Fixed({"a": [], "b": [0, 1]})
    with pytest.raises(AssignorError, match="t-0"):
        run_assignor(moving, TOPICS, MEMBERS, RebalanceProtocol.COOPERATIVE)
    assert {"a", "b"} == run_assignor(moving, TOPICS, MEMBERS, RebalanceProtocol.EAGER).keys()
    waiting = Fixed({"a": [], "b": [1]})
    assert {"a", "b"} == run_assignor(waiting, TOPICS, MEMBERS, RebalanceProtocol.COOPERATIVE).keys()


def test_an_assignment_without_a_version_is_refused() -> None:
    """A leader whose assignor forgot this member sends no bytes."""
    with pytest.raises(AssignorError, match="group g"):
        read_own_assignment(b"", "g")


def test_assignors_are_found_by_name_and_java_class() -> None:
    """A client.properties file of Java names classes."""
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    own = Fixed({})
    names = [each.name for each in find_assignors(["range", java, own])]
    assert ["range", "cooperative-sticky", "fixed"] == names


@pytest.mark.parametrize(
    ("strategy", "message"),
    [(["rnage"], "'rnage'"), (["range", "range"], "two assignors"), ([], "is empty")],
)
def test_a_strategy_that_cannot_work_is_refused(strategy: list[str], message: str) -> None:
    """The error names what is allowed."""
    with pytest.raises(ClientConfigError, match=message):
        find_assignors(strategy)


def test_the_highest_common_protocol_is_used() -> None:
    """A rolling change to cooperative rebalancing begins with both assignors, which is eager."""
    assert RebalanceProtocol.EAGER is common_protocol([RangeAssignor(), CooperativeStickyAssignor()])
    assert RebalanceProtocol.COOPERATIVE is common_protocol([CooperativeStickyAssignor()])
