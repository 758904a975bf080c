"""Computes the tables and JSON that `kalda groups describe` prints: lag, members, states. Pure functions.

The columns are those of `kafka-consumer-groups --describe`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.common.types import BrokerEndpoint, TopicPartition, by_topic
from kalda.runtime.network import address_text

if TYPE_CHECKING:
    from kalda.clients.admin.groups import (
        ClassicGroupDescription,
        ConsumerGroupDescription,
        MemberDescription,
    )
    from kalda.clients.values import OffsetAndMetadata

    GroupDescription = ConsumerGroupDescription | ClassicGroupDescription

_OFFSET_COLUMNS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
_MEMBER_COLUMNS: Final = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
_STATE_COLUMNS: Final = ("GROUP", "COORDINATOR", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition that a group consumes or has consumed."""

    partition: TopicPartition
    committed: "OffsetAndMetadata | None"
    end: int | None
    """None if the end of the log is not known, for example because the topic was deleted."""
    member: "MemberDescription | None"

    @property
    def lag(self) -> int | None:
        """How many offsets there are from the committed one to the end."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed.offset


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with its offsets."""

    description: "GroupDescription"
    partitions: tuple[PartitionLag, ...]
    coordinator: BrokerEndpoint | None

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return self.description.group_id

    @property
    def assignor(self) -> str | None:
        """The assignor, or the protocol of a group that has no consumers; None while there is none."""
        description = self.description
        name = (
            description.partition_assignor
            if hasattr(description, "partition_assignor")
            else description.protocol_data
        )
        return name or None


def group_view(
    description: "GroupDescription",
    committed: "Mapping[TopicPartition, OffsetAndMetadata | None]",
    ends: Mapping[TopicPartition, int],
    coordinator: BrokerEndpoint | None,
) -> GroupView:
    """Return a group's partitions: those of members, members with most partitions first, then the others."""
    members = sorted(description.members, key=lambda each: (-len(each.assignment), each.member_id))
    partitions = [
        PartitionLag(partition, committed.get(partition), ends.get(partition), member)
        for member in members
        for partition in sorted(member.assignment)
    ]
    assigned = {each.partition for each in partitions}
    partitions += [
        PartitionLag(partition, offset, ends.get(partition), None)
        for partition, offset in sorted(committed.items())
        if partition not in assigned and offset is not None
    ]
    return GroupView(description, tuple(partitions), coordinator)


def offsets_table(groups: Iterable[GroupView]) -> Table:
    """Return one row for each partition; a member without partitions has a row of its own."""
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        rows += [
            (
                group.group_id,
                each.partition.topic,
                each.partition.partition,
                None if each.committed is None else each.committed.offset,
                each.end,
                each.lag,
                *_member_cells(each.member),
            )
            for each in group.partitions
        ]
        idle = [member for member in group.description.members if not member.assignment]
        rows += [(group.group_id, *[None] * 5, *_member_cells(member)) for member in idle]
    return Table(_OFFSET_COLUMNS, rows)


def members_table(groups: Iterable[GroupView], *, is_verbose: bool) -> Table:
    """Return one row for each member; the verbose form adds its partitions, present and to come."""
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for member in group.description.members:
            row: tuple[Cell, ...] = (
                group.group_id,
                member.member_id,
                member.group_instance_id,
                member.host,
                member.client_id,
                len(member.assignment),
            )
            if is_verbose:
                target = member.target_assignment
                row = (
                    *row,
                    member.member_epoch,
                    assignment_text(member.assignment),
                    None if target is None else assignment_text(target),
                )
            rows.append(row)
    columns = ("EPOCH", "ASSIGNMENT", "TARGET-ASSIGNMENT") if is_verbose else ()
    return Table((*_MEMBER_COLUMNS, *columns), rows)


def states_table(groups: Iterable[GroupView]) -> Table:
    """Return one row for each group."""
    rows = [
        (
            group.group_id,
            _coordinator_text(group),
            group.assignor,
            group.description.state.value,
            len(group.description.members),
        )
        for group in groups
    ]
    return Table(_STATE_COLUMNS, rows)


def assignment_text(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return one text for each topic, as Kafka's tool writes it: ``flights(0,1)``.

    >>> assignment_text([TopicPartition("b", 2), TopicPartition("b", 0), TopicPartition("a", 1)])
    ['a(1)', 'b(0,2)']
    """
    return [
        f"{topic}({','.join(str(each.partition) for each in found)})"
        for topic, found in by_topic(sorted(partitions)).items()
    ]


def group_json(group: GroupView) -> Json:
    """Return all that is known of a group."""
    description = group.description
    return {
        "group": group.group_id,
        "type": getattr(getattr(description, "type", None), "value", "Classic"),
        "state": description.state.value,
        "assignor": group.assignor,
        "coordinator": {
            "id": description.coordinator_id,
            "host": group.coordinator.host if group.coordinator else None,
            "port": group.coordinator.port if group.coordinator else None,
        },
        "group_epoch": getattr(description, "group_epoch", None),
        "members": [_member_json(member) for member in description.members],
        "offsets": [_partition_json(each) for each in group.partitions],
    }


def _partition_json(each: PartitionLag) -> Json:
    committed = each.committed
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "current_offset": None if committed is None else committed.offset,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "log_end_offset": each.end,
        "lag": each.lag,
        "consumer_id": None if each.member is None else each.member.member_id,
    }


def _member_json(member: "MemberDescription") -> Json:
    target = member.target_assignment
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "subscribed_topics": member.subscribed_topics,
        "assignment": _partitions_json(member.assignment),
        "target_assignment": None if target is None else _partitions_json(target),
    }


def _partitions_json(partitions: Iterable[TopicPartition]) -> Json:
    return [{"topic": each.topic, "partition": each.partition} for each in sorted(partitions)]


def _member_cells(member: "MemberDescription | None") -> tuple[Cell, Cell, Cell]:
    if member is None:
        return None, None, None
    return member.member_id, member.host, member.client_id


def _coordinator_text(group: GroupView) -> str:
    broker = group.coordinator
    broker_id = group.description.coordinator_id
    return str(broker_id) if broker is None else f"{address_text(broker.host, broker.port)}({broker_id})"
