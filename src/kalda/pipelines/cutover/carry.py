"""Copies ACLs, quotas, users with SCRAM credentials and settings of groups to the target.

Decisions are pure functions. What the target has beyond that stays there, and what is not carried is named
with the reason. A cluster gives no SCRAM credential away, so users need a file with their passwords.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kalda.clients.admin.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity
from kalda.clients.admin.users import ScramCredentialInfo, ScramCredentialUpsertion
from kalda.clients.errors import ClientError, UnsupportedApiError
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ErrorCode
from kalda.pipelines.cutover.fence import without_fence
from kalda.pipelines.cutover.journal import Fence, NotCarried
from kalda.security.acl.model import WILDCARD

logger: Final = logging.getLogger(__name__)

KINDS: Final = ("ACL", "user", "group setting")
"""The kinds of things of `NotCarried` that `Carrier.carry` names."""


@dataclass(slots=True)
class Carried:
    """What was carried, by kind, and what was not."""

    counts: dict[str, int] = field(default_factory=dict)
    not_carried: list[NotCarried] = field(default_factory=list)

    def refuse(self, kind: str, name: str, reason: str) -> None:
        """Name something that the target does not get."""
        self.not_carried.append(NotCarried(kind, name, reason))


def selected_acls(
    found: Iterable[AclBinding], topics: Collection[str], foreign: Collection[str]
) -> tuple[list[AclBinding], list[tuple[AclBinding, str]]]:
    """Return the ACLs that the target gets, and the others with the reason.

    Args:
        found: those of the source.
        topics: topics that are cut over.
        foreign: topics of the target that are not; an ACL that allows something must not open them.
    """
    chosen, refused = [], []
    for each in found:
        reason = _refusal(each, topics, foreign)
        if reason:
            refused.append((each, reason))
        else:
            chosen.append(each)
    return chosen, refused


def _refusal(binding: AclBinding, topics: Collection[str], foreign: Collection[str]) -> str:
    pattern, entry = binding.pattern, binding.entry
    if entry.operation is AclOperation.CLUSTER_ACTION:
        return "it is for brokers of the source"
    if pattern.resource_type is not ResourceType.TOPIC:
        return ""
    if pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD:
        return "" if pattern.name in topics else "its topic is not cut over"
    if entry.permission is PermissionType.DENY:
        return ""
    opened = [
        each
        for each in foreign
        if pattern.pattern_type is PatternType.LITERAL or each.startswith(pattern.name)
    ]
    return f"it would open {', '.join(sorted(opened)[:3])} in the target" if opened else ""


def acl_text(binding: AclBinding) -> str:
    """Return an ACL as a line of a report."""
    pattern, entry = binding.pattern, binding.entry
    star = "*" if pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        f"{entry.permission.title} {entry.principal} {entry.operation.title} "
        f"{pattern.resource_type.title}:{pattern.name}{star} from {entry.host}"
    )


def changed_quotas(
    source: Mapping[QuotaEntity, Mapping[str, float]], target: Mapping[QuotaEntity, Mapping[str, float]]
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas that the target lacks or has with another value."""
    changed = {}
    for entity, quotas in source.items():
        there = target.get(entity, {})
        different = {name: value for name, value in quotas.items() if there.get(name) != value}
        if different:
            changed[entity] = different
    return changed


def missing_users(
    source: Mapping[str, Iterable[ScramCredentialInfo]],
    target: Mapping[str, Iterable[ScramCredentialInfo]],
    passwords: Mapping[str, str],
) -> tuple[list[ScramCredentialUpsertion], list[tuple[str, str]]]:
    """Return the credentials to set, and the users that the target lacks, with the mechanism."""
    wanted, lacking = [], []
    for user, credentials in sorted(source.items()):
        there = {each.mechanism for each in target.get(user, ())}
        for each in credentials:
            if each.mechanism in there:
                continue
            if user in passwords:
                wanted.append(
                    ScramCredentialUpsertion(user, each.mechanism, passwords[user], each.iterations)
                )
            else:
                lacking.append((user, each.mechanism.value))
    return wanted, lacking


class Carrier:
    """Carries accounts from one cluster to another one."""

    def __init__(self, source: Admin, target: Admin, passwords: Mapping[str, str]) -> None:
        self._source: Final = source
        self._target: Final = target
        self._passwords: Final = passwords

    def carry(self, topics: Collection[str], groups: Iterable[str], source_fence: Fence) -> Carried:
        """Bring the target in line, but for quotas; may be repeated.

        Args:
            topics: topics that are cut over.
            groups: groups whose settings are carried.
            source_fence: what keeps writers from the source, which is no part of it.

        Raises:
            ClientError: a cluster cannot be reached.
        """
        carried = Carried()
        self._acls(carried, topics, source_fence)
        self._users(carried)
        self._group_settings(carried, sorted(groups))
        return carried

    def _acls(self, carried: Carried, topics: Collection[str], fence: Fence) -> None:
        try:
            found = [each for each in self._source.describe_acls(AclFilter()) if each not in fence.acls]
        except ClientError as error:
            if _is_without(error):
                carried.counts["ACLs"] = 0
                return
            raise
        foreign = {
            each for each in self._target.list_topics() if each not in topics and not each.startswith("__")
        }
        chosen, refused = selected_acls(found, topics, foreign)
        for binding, reason in refused:
            carried.refuse("ACL", acl_text(binding), reason)
        if not chosen:
            carried.counts["ACLs"] = 0
            return
        try:
            there = set(self._target.describe_acls(AclFilter()))
            missing = [each for each in chosen if each not in there]
            errors = self._target.create_acls(missing, outcomes=True).errors if missing else {}
        except ClientError as failure:
            if not _is_without(failure):
                raise
            errors = dict.fromkeys(chosen, failure)
        for binding, refusal in errors.items():
            carried.refuse("ACL", acl_text(binding), str(refusal))
        carried.counts["ACLs"] = len(chosen) - len(errors)

    def carry_quotas(self, source_fence: Fence) -> Carried:
        """Bring the quotas of the target in line; until then, they would hold the mirror itself.

        Raises:
            ClientError: a cluster cannot be reached.
        """
        carried = Carried()
        try:
            found = without_fence(self._source.describe_client_quotas(), source_fence)
        except UnsupportedApiError:
            carried.refuse("quota", "all", "brokers of the source before 2.6 do not list quotas")
            return carried
        changed = changed_quotas(found, self._target.describe_client_quotas())
        if changed:
            outcomes = self._target.alter_client_quotas(
                [QuotaAlteration(entity, dict(quotas)) for entity, quotas in changed.items()], outcomes=True
            )
            for entity, error in outcomes.errors.items():
                carried.refuse("quota", quota_text(entity), str(error))
        carried.counts["quotas"] = len(found) - len(carried.not_carried)
        return carried

    def _users(self, carried: Carried) -> None:
        try:
            found = self._source.describe_user_scram_credentials().results
        except UnsupportedApiError:
            carried.refuse("user", "all", "brokers of the source before 2.7 do not list users")
            return
        if not found:
            carried.counts["users"] = 0
            return
        there = self._target.describe_user_scram_credentials().results
        wanted, lacking = missing_users(found, there, self._passwords)
        for user, mechanism in lacking:
            carried.refuse(
                "user",
                f"{user} ({mechanism})",
                "a cluster does not give credentials away; name a file with `USER=PASSWORD` by --passwords, "
                "or run `kalda users` in the target",
            )
        errors = self._target.alter_user_scram_credentials(wanted, outcomes=True).errors if wanted else {}
        for user, error in errors.items():
            carried.refuse("user", user, str(error))
        refused = {user for user, _ in lacking} | errors.keys()
        carried.counts["users"] = len(found.keys() - refused)

    def _group_settings(self, carried: Carried, groups: list[str]) -> None:
        resources = [ConfigResource.group(each) for each in groups]
        changes = {}
        try:
            found = self._source.describe_configs(resources, outcomes=True).results if resources else {}
        except ClientError as error:
            # Brokers before 3.8 have no such resource.
            logger.info("settings of groups are not carried: %s", error)
            found = {}
        for resource, entries in found.items():
            own = [
                AlterConfigOp.set(each.name, each.value)
                for each in entries.values()
                if each.source is ConfigSource.DYNAMIC_GROUP_CONFIG and each.value is not None
            ]
            if own:
                changes[resource] = own
        errors = self._target.incremental_alter_configs(changes, outcomes=True).errors if changes else {}
        for resource, refusal in errors.items():
            carried.refuse("group setting", resource.name, str(refusal))
        carried.counts["groups with settings"] = len(changes) - len(errors)


def quota_text(entity: QuotaEntity) -> str:
    """Return the name of an entity with quotas."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _is_without(error: ClientError) -> bool:
    """Return whether a cluster has no ACLs at all."""
    return isinstance(error, UnsupportedApiError) or error.code is ErrorCode.SECURITY_DISABLED
