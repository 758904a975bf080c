"""How groups are shown."""

from typing import Any

from kalda.clients.admin.groups import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
)
from kalda.clients.values import OffsetAndMetadata
from kalda.command.tables import plain_lines
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.tools.group_views import (
    GroupView,
    assignment_text,
    group_json,
    group_view,
    members_table,
    offsets_table,
    states_table,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def member(
    name: str, *partitions: TopicPartition, target: frozenset[TopicPartition] | None = None
) -> MemberDescription:
    return MemberDescription(name, None, f"client-{name}", "/127.0.0.1", frozenset(partitions), target, 3)


def view() -> GroupView:
    description = ConsumerGroupDescription(
        "g",
        False,
        (member("idle"), member("busy", A1, A0, target=frozenset({A0}))),
        "uniform",
        GroupType.CONSUMER,
        GroupState.STABLE,
        1,
    )
    committed = {A0: OffsetAndMetadata(5), B0: OffsetAndMetadata(7, "note", 2), A1: None}
    return group_view(description, committed, {A0: 9, A1: 4}, BrokerEndpoint(1, "host", 9092))


def test_offsets_of_members_come_first_then_those_without_a_member() -> None:
    """A partition of a deleted topic has an offset and no end, so it has no lag."""
    assert [
        "GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST        CLIENT-ID",
        "g      a              0               5               9    4  busy         /127.0.0.1  client-busy",
        "g      a              1               -               4    -  busy         /127.0.0.1  client-busy",
        "g      b              0               7               -    -  -            -           -",
        "g      -              -               -               -    -  idle         /127.0.0.1  client-idle",
    ] == list(plain_lines(offsets_table([view()])))


def test_members_have_their_partitions_present_and_to_come() -> None:
    rows = members_table([view()], is_verbose=True).rows

    assert [("g", "idle", 0, 3, [], None), ("g", "busy", 2, 3, ["a(0,1)"], ["a(0)"])] == [
        (row[0], row[1], *row[5:]) for row in rows
    ]
    assert 6 == len(members_table([view()], is_verbose=False).columns)


def test_states_name_the_coordinator() -> None:
    assert [("g", "host:9092(1)", "uniform", "Stable", 2)] == states_table([view()]).rows


def test_a_group_of_another_protocol_has_its_protocol_for_an_assignor() -> None:
    connect = ClassicGroupDescription("c", "connect", "sessioned", (), GroupState.STABLE, 1)
    shown = group_view(connect, {}, {}, None)

    assert [("c", "1", "sessioned", "Stable", 0)] == states_table([shown]).rows
    document: Any = group_json(shown)
    assert "Classic" == document["type"]


def test_json_has_everything() -> None:
    shown: Any = group_json(view())
    partition = {
        "topic": "b",
        "partition": 0,
        "current_offset": 7,
        "leader_epoch": 2,
        "metadata": "note",
        "log_end_offset": None,
        "lag": None,
        "consumer_id": None,
    }
    assert partition == shown["offsets"][2]
    assert [{"topic": "a", "partition": 0}] == shown["members"][1]["target_assignment"]


def test_assignments_are_grouped_by_topic() -> None:
    assert ["a(0,1)", "b(0)"] == assignment_text([B0, A1, A0])
