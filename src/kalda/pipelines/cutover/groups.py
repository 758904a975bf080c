"""Translates the committed offsets of groups exactly, and commits them in the target."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.groups import GroupListing, GroupState, GroupType
from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.clusters import in_parallel
from kalda.pipelines.cutover.journal import GroupPlace, NotCarried
from kalda.pipelines.cutover.locate import How, Place
from kalda.pipelines.mirror.policy import GROUP_PREFIX, NameFilter

KINDS: Final = ("group",)
_CONSUMERS: Final = ("", "consumer")
_QUIET: Final = (GroupState.EMPTY, GroupState.DEAD)

Committed = Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]


@dataclass(slots=True)
class FoundGroups:
    """The groups of the source with their offsets in partitions that are cut over."""

    committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    """Groups with members."""
    not_carried: list[NotCarried] = field(default_factory=list)


def is_of_consumers(listing: GroupListing) -> bool:
    """Return whether a group commits offsets."""
    if listing.type is GroupType.STREAMS:
        return True
    return listing.protocol_type in _CONSUMERS and listing.type is not GroupType.SHARE


def find_groups(
    source: Admin, partitions: Iterable[TopicPartition], selected: NameFilter | None
) -> FoundGroups:
    """Return the groups of a cluster; offsets of open transactions are waited for.

    Raises:
        ClientError: a broker cannot be reached, so that groups may be missing.
    """
    known = set(partitions)
    found = FoundGroups()
    names = []
    for each in source.list_groups().all():
        if each.group_id.startswith(GROUP_PREFIX) or not is_of_consumers(each):
            continue
        if selected is not None and not selected(each.group_id):
            found.not_carried.append(
                NotCarried("group", each.group_id, "the settings groups and groups.exclude leave it out")
            )
            continue
        names.append(each.group_id)
        if each.state is not None and each.state not in _QUIET:
            found.active.add(each.group_id)
    if not names:
        return found
    answers = source.list_consumer_group_offsets(names, require_stable=True)
    for group, offsets in answers.items():
        offsets.raise_for_errors()
        own = {each: answer for each, answer in offsets.results.items() if answer is not None}
        found.committed[group] = {each: answer for each, answer in own.items() if each in known}
        others = sorted({each.topic for each in own if each not in known})
        if others:
            found.not_carried.append(
                NotCarried("group", group, f"its offsets of {', '.join(others[:3])}, which is not cut over")
            )
    return found


def places_of(committed: Committed, locate: Callable[[TopicPartition, int], Place]) -> list[GroupPlace]:
    """Return where groups go on in the target."""
    wanted = {
        (partition, answer.offset) for offsets in committed.values() for partition, answer in offsets.items()
    }
    ordered = sorted(wanted)
    known = dict(zip(ordered, in_parallel(lambda each: locate(*each), ordered), strict=True))
    places = []
    for group, offsets in sorted(committed.items()):
        for partition, answer in sorted(offsets.items()):
            found = known[partition, answer.offset]
            places.append(
                GroupPlace(group, partition, answer.offset, found.target, found.how.value, answer.metadata)
            )
    return places


def commit(target: Admin, places: Sequence[GroupPlace]) -> list[NotCarried]:
    """Commit the places in the target, also where that is behind what a group has there.

    Returns:
        The groups that the target refuses, usually because they have members there.

    Raises:
        ClientError: the target cannot be reached.
    """
    wanted: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for each in places:
        wanted.setdefault(each.group, {})[each.partition] = OffsetAndMetadata(each.target, each.metadata)
    if not wanted:
        return []
    outcomes = target.alter_consumer_group_offsets(wanted, outcomes=True)
    refused: list[tuple[str, ClientError]] = list(outcomes.errors.items())
    for group, partitions in outcomes.results.items():
        refused += [(group, error) for error in list(partitions.errors.values())[:1]]
    for _, error in refused:
        if error.is_retriable:
            raise error
    return [
        NotCarried("group", group, f"the target refuses its offsets; has it members there? {error}")
        for group, error in refused
    ]


def unlike(target: Admin, places: Sequence[GroupPlace]) -> list[GroupPlace]:
    """Return the places that the target does not have as committed offsets.

    Raises:
        ClientError: the target cannot be reached.
    """
    groups = sorted({each.group for each in places})
    if not groups:
        return []
    there = target.list_consumer_group_offsets(groups)
    return [
        each
        for each in places
        if (answer := there[each.group].get(each.partition)) is None or answer.offset != each.target
    ]


def inexact(places: Iterable[GroupPlace]) -> list[NotCarried]:
    """Return what a report says of places that are not those of the very next record."""
    reasons = {
        How.COMPACTED: "its next record is gone in the target; it goes on with the one behind that",
        How.EARLIER: "its next record was not found in the target; it goes on before it and reads some twice",
    }
    return [
        NotCarried("group", f"{each.group} in {each.partition}", reasons[How(each.how)])
        for each in places
        if How(each.how) in reasons
    ]
