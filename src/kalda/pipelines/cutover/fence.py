"""Keeps writers from the topics of a cluster during a cut-over, and releases them afterwards.

The plan is pure and is recorded before the cluster is changed: taking a fence down needs to know which of the
ACLs were there before, and what the quotas were. An ACL that denies Write to everyone refuses each request;
super users pass. A quota is only seen by a broker when it has written the request that breaks it: what a
connection sends first arrives, and its next request waits.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.admin import Admin
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity, quota_entity
from kalda.clients.errors import ClientError, UnsupportedApiError
from kalda.common.errors import ErrorCode
from kalda.pipelines.cutover.journal import Fence, FenceMethod, QuotaChange

WRITE_RATE: Final = "producer_byte_rate"
HELD_RATE: Final = 1.0
"""Bytes per second that a writer has at the end."""
RATES: Final = tuple(10.0**exponent for exponent in range(7, -1, -1))
"""Bytes per second that a fence of quotas passes through.

A broker delays the next request of a writer by (rate - quota) / quota * 11 s, without a limit, and keeps to
that when the quota is gone. It is two minutes at most for a writer that meets a quota of a tenth of its rate
first. Met by one byte per second it would be days, and a delay beyond 2^31 ms may wrap around to none.
"""
STEP_S: Final = 0.25
"""For how long each of them is in force: a busy writer sends more often."""
FREE_RATE: Final = 1e12

_EVERYONE: Final = "User:*"
_ANY_HOST: Final = "*"
_TOPICS: Final = AclFilter(ResourceType.TOPIC, pattern_type=PatternType.ANY)


def planned_acls(topics: Iterable[str], existing: Collection[AclBinding]) -> Fence:
    """Return the ACLs that keep writers from topics; those that exist already are not the fence's."""
    entry = AccessControlEntry(_EVERYONE, _ANY_HOST, AclOperation.WRITE, PermissionType.DENY)
    wanted = [
        AclBinding(ResourcePattern(ResourceType.TOPIC, each, PatternType.LITERAL), entry)
        for each in sorted(topics)
    ]
    return Fence(acls=tuple(each for each in wanted if each not in existing))


def planned_quotas(existing: Mapping[QuotaEntity, Mapping[str, float]]) -> Fence:
    """Return the quotas that hold every writer.

    A broker takes the most specific entity that has a quota. So the one of all users and clients holds those
    without a quota of their own, and the others get a lower one. Quotas of addresses limit connections.
    """
    everyone = quota_entity({"user": None, "client-id": None})
    limited = [
        each
        for each, quotas in existing.items()
        if WRITE_RATE in quotas and any(kind in ("user", "client-id") for kind, _ in each)
    ]
    entities = sorted({everyone, *limited}, key=str)
    return Fence(
        quotas=tuple(
            QuotaChange(each, existing.get(each, {}).get(WRITE_RATE), HELD_RATE) for each in entities
        )
    )


def exemption(client_id: str) -> QuotaChange:
    """Return the quota that lets one client write while all others are held."""
    return QuotaChange(quota_entity({"user": None, "client-id": client_id}), None, FREE_RATE)


def plan(admin: Admin, method: FenceMethod, topics: Collection[str]) -> Fence | None:
    """Return what a method adds to a cluster; None if the cluster does not have the method.

    Raises:
        ClientError: the cluster cannot be reached, or refuses to list ACLs or quotas.
    """
    try:
        if method is FenceMethod.ACL:
            return planned_acls(topics, admin.describe_acls(_TOPICS))
        return planned_quotas(admin.describe_client_quotas())
    except UnsupportedApiError:
        return None
    except ClientError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return None
        raise


def steps_of(quotas: Iterable[QuotaChange]) -> list[dict[QuotaEntity, float]]:
    """Return the quotas to set one after the other, so that no writer meets the last one first."""
    known = list(quotas)
    steps: list[dict[QuotaEntity, float]] = []
    for rate in RATES:
        lower = {
            each.entity: max(rate, each.value)
            for each in known
            if each.before is None or max(rate, each.value) < each.before
        }
        if lower and (not steps or steps[-1] != lower):
            steps.append(lower)
    return steps


def put_up(admin: Admin, fence: Fence, wait: Callable[[], None]) -> None:
    """Add a fence to a cluster; what is there already stays.

    Args:
        wait: waits for a step of quotas to be in force for a while.

    Raises:
        ClientError: the cluster cannot be reached, or refuses it.
    """
    if fence.acls:
        admin.create_acls(fence.acls)
    for step in steps_of(fence.quotas):
        admin.alter_client_quotas(
            [QuotaAlteration(entity, {WRITE_RATE: rate}) for entity, rate in step.items()]
        )
        wait()


def take_down(admin: Admin, fence: Fence) -> None:
    """Take a fence out of a cluster; what is not there any more is passed over.

    Raises:
        ClientError: the cluster cannot be reached, or refuses it.
    """
    if fence.acls:
        admin.delete_acls([_only(each) for each in fence.acls])
    if fence.quotas:
        admin.alter_client_quotas(
            [QuotaAlteration(each.entity, {WRITE_RATE: each.before}) for each in fence.quotas]
        )


def without_fence(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], fence: Fence
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of a cluster as they are without a fence."""
    found = {entity: dict(values) for entity, values in quotas.items()}
    for each in fence.quotas:
        values = found.get(each.entity, {})
        if each.before is None:
            values.pop(WRITE_RATE, None)
        else:
            values[WRITE_RATE] = each.before
    return {entity: values for entity, values in found.items() if values}


def _only(binding: AclBinding) -> AclFilter:
    pattern, entry = binding.pattern, binding.entry
    return AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
