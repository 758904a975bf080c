"""Removes what a namespace has left in a cluster, when no client of it is connected any more.

`remove_coordinated` ends the transactions and deletes the groups that this broker coordinates, and
`remove_shared` deletes what all brokers share: topics, users, ACLs, quotas, delegation tokens. The second is
called on the controller after the first on all brokers: transactions end while their partitions exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from kalda.broker.requests.services import BrokerServices
from kalda.cluster import paths
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.group import Group
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kalda.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kalda.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kalda.protocol.namespaces.namespace import Namespace
from kalda.security.acl.model import AccessControlEntry, AclFilter, ResourcePattern
from kalda.zookeeper.errors import NoNodeError, NotEmptyError

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

ROUNDS_MAX: Final = 50
"""How often a transaction or a group is tried that is not at rest: its markers are being written, say."""

ROUND_SECONDS: Final = 0.02

TOPICS_TIMEOUT_MS: Final = 10_000
"""How long the deletion of topics is waited for. It goes on afterwards."""

_LEAVE_EPOCH: Final = -1
_ENTITY_TYPES: Final = ("users", "clients", "groups", "client-metrics")
_CLIENTS_OF_USERS: Final = "/clients/"
_TRANSACTION_TIMEOUT_MS: Final = 1_000
"""That of the producers that fence those before; no transaction of theirs begins."""


async def remove_coordinated(services: BrokerServices, spaces: Collection[Namespace]) -> None:
    """End the transactions and delete the groups that this broker coordinates."""
    await _in_rounds(lambda: _remove_transactions(services, spaces), "transactions", spaces)
    await _in_rounds(lambda: _remove_groups(services, spaces), "groups", spaces)


async def remove_shared(services: BrokerServices, spaces: Collection[Namespace]) -> None:
    """Delete the topics of namespaces, and all settings and rights of their users; for the controller.

    Raises:
        ZooKeeperError: ZooKeeper did not answer.
    """
    cache, access = services.metadata_cache, services.access
    topics = [name for name in cache.topic_names if _has(spaces, name)]
    if topics:
        await services.topic_admin.delete_topics(topics, TOPICS_TIMEOUT_MS)
    await _remove_settings(services, spaces)
    if access.authorizer is not None:
        by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
        for binding in access.authorizer.find(AclFilter()):
            principal = binding.entry.principal.partition(":")[2]
            name = binding.pattern.name.removeprefix("User:")
            if _has(spaces, principal) or _has(spaces, name):
                by_pattern.setdefault(binding.pattern, []).append(binding.entry)
        for pattern, entries in by_pattern.items():
            await access.authorizer.delete(pattern, entries)
    if access.delegation_tokens.is_enabled:
        for space in spaces:
            await access.delegation_tokens.delete_of(space.prefix)


async def _remove_settings(services: BrokerServices, spaces: Collection[Namespace]) -> None:
    """Delete the settings of users, client ids, groups and client metrics: quotas and credentials as well."""
    store, cluster = services.config_store, services.cluster_store
    for entity_type in _ENTITY_TYPES:
        # The clients of a user before the user, whose znode has theirs below it.
        found = [name for name in store.entity_names(entity_type) if _has(spaces, name)]
        names = {each for name in found for each in (name, name.partition(_CLIENTS_OF_USERS)[0])}
        for name in sorted(names, key=len, reverse=True):
            await cluster.set_config(entity_type, name, {})
            store.set_entity(entity_type, name, {})
            path = paths.config(entity_type, name)
            for each in (path, path.rpartition("/")[0]) if _CLIENTS_OF_USERS in name else (path,):
                try:
                    await cluster.zookeeper.delete(each)
                except (NoNodeError, NotEmptyError) as error:
                    logger.debug("%s stays: %s", each, error)


async def _remove_transactions(services: BrokerServices, spaces: Collection[Namespace]) -> bool:
    """Delete the ids that have no open transaction, and abort the others; return whether all are gone."""
    coordinator = services.transaction_coordinator
    found = [each for each in coordinator.transactions() if _has(spaces, each.transactional_id)]
    if not found:
        return True
    for each in found:
        if not each.state.may_expire:
            decision = await _result(coordinator.begin(each.transactional_id, _TRANSACTION_TIMEOUT_MS))
            if decision.code not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
                logger.debug("%s cannot be fenced: %s", each.transactional_id, decision.code.name)
    await _result(coordinator.forget([each.transactional_id for each in found]))
    return not any(_has(spaces, each.transactional_id) for each in coordinator.transactions())


async def _remove_groups(services: BrokerServices, spaces: Collection[Namespace]) -> bool:
    """Have the members of groups leave, and delete the groups; return whether all are gone."""
    coordinator = services.group_coordinator
    found = [group for group in coordinator.groups() if _has(spaces, group.group_id)]
    if not found:
        return True
    for group in found:
        await _remove_members(services, group)
    codes = await _result(coordinator.delete_groups([group.group_id for group in found]))
    return all(code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) for code in codes.values())


async def _remove_members(services: BrokerServices, group: Group) -> None:
    if isinstance(group, ClassicGroup) and group.members:
        members = [
            MemberIdentity(member_id=each, reason="its namespace was closed") for each in group.members
        ]
        left = services.group_coordinator.leave_group(
            LeaveGroupRequest(group_id=group.group_id, members=members)
        )
        await _result(left if isinstance(left, Pending) else Pending.of(left))
    elif isinstance(group, ConsumerGroup):
        for member_id in list(group.members):
            request = ConsumerGroupHeartbeatRequest(
                group_id=group.group_id, member_id=member_id, member_epoch=_LEAVE_EPOCH
            )
            await _result(services.consumer_groups.heartbeat(request, 0, "", ""))
    elif isinstance(group, ShareGroup):
        for member_id in list(group.members):
            leave = ShareGroupHeartbeatRequest(
                group_id=group.group_id, member_id=member_id, member_epoch=_LEAVE_EPOCH
            )
            await _result(services.share.groups.heartbeat(leave, "", ""))


async def _in_rounds(remove: Callable[[], Awaitable[bool]], what: str, spaces: Collection[Namespace]) -> None:
    for _ in range(ROUNDS_MAX):
        if await remove():
            return
        await asyncio.sleep(ROUND_SECONDS)
    names = ", ".join(space.name for space in spaces)
    logger.warning("some %s of the namespaces %s could not be removed; they expire", what, names)


async def _result(pending: Pending[T]) -> T:
    """Wait for a pending value."""
    done = asyncio.Event()
    pending.add_done(lambda _: done.set())
    await done.wait()
    return pending.value


def _has(spaces: Collection[Namespace], name: str) -> bool:
    return any(space.has(name) for space in spaces)
