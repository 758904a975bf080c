"""What members of groups do, as the events that `kalda why group` explains."""

from kalda.common.errors import ErrorCode
from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.events.event import CausalEvent, EventKind
from tests.unit.coordinator.group.consumer.consumer_simulation import ConsumerSimulation
from tests.unit.coordinator.group.group_simulation import GROUP, GroupSimulation


def only(events: list[CausalEvent]) -> CausalEvent:
    (event,) = events
    return event


def test_static_member_that_another_client_replaces_is_an_event() -> None:
    """Two processes with one group.instance.id are the mistake that FENCED_INSTANCE_ID comes from."""
    simulation = GroupSimulation(group_initial_rebalance_delay_ms=0)
    simulation.join("a", instance_id="i")
    simulation.sync("a")
    simulation.replicate()
    simulation.join("b", instance_id="i")

    event = only(simulation.kept.of_kind(EventKind.MEMBER_REPLACED))
    assert "a" == event.subject["client"]
    assert "b at /127.0.0.1 joined with the same group.instance.id=i" == event.text("reason")


def test_member_that_left_during_a_rebalance_is_no_cause_of_a_later_one() -> None:
    """The next rebalance of the shard may even be that of another group."""
    simulation = GroupSimulation(group_initial_rebalance_delay_ms=0)
    simulation.join("a", version=3)
    simulation.advance(100)
    simulation.sync("a")
    simulation.join("b", version=3)
    simulation.leave("a")
    simulation.advance(100)
    simulation.sync("b")
    simulation.replicate()
    assert "Stable" == state(simulation)
    simulation.kept.events.clear()

    # A change of the subscription: no member joined or left.
    simulation.join("b")

    assert [None] == [event.cause for event in simulation.kept.of_kind(EventKind.GROUP_REBALANCING)]


def state(simulation: GroupSimulation) -> str:
    assert isinstance(simulation.group, ClassicGroup)
    return simulation.group.state_name


def test_members_of_the_consumer_protocol_join_with_their_client_ids() -> None:
    simulation = ConsumerSimulation()
    simulation.beat(simulation.client("m", "t"))
    simulation.beat(simulation.client("s", "t", instance_id="i"))

    joined = simulation.kept.of_kind(EventKind.MEMBER_JOINED)
    assert [("m", "client"), ("s", "client")] == [
        (event.subject["member"], event.subject["client"]) for event in joined
    ]
    assert ["/host", "/host"] == [event.text("host") for event in joined]


def test_client_whose_instance_id_is_taken_is_an_event() -> None:
    simulation = ConsumerSimulation()
    simulation.beat(simulation.client("first", "t", instance_id="i"))
    second = simulation.client("second", "t", instance_id="i")
    simulation.beat(second)

    assert [ErrorCode.UNRELEASED_INSTANCE_ID] == second.errors
    event = only(simulation.kept.of_kind(EventKind.MEMBER_REFUSED))
    assert {"group": GROUP, "client": "client"} == event.subject
    assert "group.instance.id=i is that of member first" in event.text("reason")
