"""Reads what a roll has to know of a cluster, through its brokers; changes nothing."""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kalda.common.types import TopicPartition
from kalda.tools.migrate.walk import Offsets, Seen, Software

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.groups import GroupListing

_OWN_SETTING: Final = "kalda.as.version"
"""A setting that every release of Kalda describes and no release of Kafka."""
_ANSWER_MS: Final = 3000
"""How long a broker may take to say what it is before it counts as one that does not say yet."""


class Depth(IntEnum):
    """How much is read: each level has what the levels below have."""

    BROKERS = 0
    WHOLE = 1
    """And partitions, groups and offsets."""
    WITH_SETTINGS = 2
    """And what topics require."""


async def observe(admin: "AsyncAdmin", depth: Depth) -> Seen:
    """Read the cluster.

    Raises:
        ClientError: the cluster cannot be read at this moment.
    """
    described = await admin.describe_cluster()
    controller = described.controller
    brokers = await _softwares(admin, [node.id for node in described.nodes])
    controller_id = None if controller is None else controller.id
    if depth is Depth.BROKERS:
        return Seen(cluster_id=described.cluster_id, controller_id=controller_id, brokers=brokers)
    topics = (await admin.describe_topics(await admin.list_topics(include_internal=True))).results.values()
    infos = {
        TopicPartition(topic.name, info.partition): info for topic in topics for info in topic.partitions
    }
    groups = (await admin.list_groups()).all()
    min_in_sync: dict[str, int] = {}
    if depth is Depth.WITH_SETTINGS:
        min_in_sync = await _min_in_sync(admin, [topic.name for topic in topics])
    return Seen(
        cluster_id=described.cluster_id,
        controller_id=controller_id,
        brokers=brokers,
        partitions={each: info.replicas for each, info in infos.items()},
        isr={each: info.isr for each, info in infos.items()},
        min_in_sync=min_in_sync,
        leaderless=frozenset(each for each, info in infos.items() if not info.has_leader),
        restless_groups=[each.group_id for each in groups if _is_restless(each)],
        newer_groups=[each.group_id for each in groups if _is_newer(each)],
        offsets=await _offsets(
            admin,
            [each for each, info in infos.items() if info.has_leader],
            [each.group_id for each in groups],
        ),
    )


async def _softwares(admin: "AsyncAdmin", broker_ids: list[int]) -> dict[int, Software | None]:
    from kalda.clients.admin.configs import ConfigResource

    resources = {ConfigResource.broker(each): (_OWN_SETTING,) for each in broker_ids}
    found = await admin.describe_configs(resources, outcomes=True, timeout_ms=_ANSWER_MS)
    for error in found.errors.values():
        if not error.is_retriable:
            raise error  # no permission, for example: the operator has to see it
    softwares: dict[int, Software | None] = dict.fromkeys(broker_ids)
    for resource, entries in found.results.items():
        assert resource.broker_id is not None, "brokers were asked for"
        softwares[resource.broker_id] = Software.KALDA if _OWN_SETTING in entries else Software.KAFKA
    return softwares


async def _min_in_sync(admin: "AsyncAdmin", topics: list[str]) -> dict[str, int]:
    from kalda.clients.admin.configs import ConfigResource

    name = "min.insync.replicas"
    found = await admin.describe_configs({ConfigResource.topic(each): (name,) for each in topics})
    return {resource.name: int(entries[name].value or 1) for resource, entries in found.results.items()}


async def _offsets(admin: "AsyncAdmin", partitions: list[TopicPartition], groups: list[str]) -> Offsets:
    from kalda.clients.admin.partitions import OffsetSpec

    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), outcomes=True)
    committed = await admin.list_consumer_group_offsets(groups, outcomes=True)
    return Offsets(
        {each: info.offset for each, info in ends.results.items()},
        {
            group: {each: found.offset for each, found in offsets.results.items() if found is not None}
            for group, offsets in committed.results.items()
        },
    )


def _is_restless(group: "GroupListing") -> bool:
    from kalda.clients.admin.groups import GroupState

    calm = (None, GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)  # None: brokers before 2.6
    return group.state not in calm


def _is_newer(group: "GroupListing") -> bool:
    from kalda.clients.admin.groups import GroupType

    return group.type not in (None, GroupType.CLASSIC, GroupType.UNKNOWN)
