"""Copies the ACLs of topics, as MirrorMaker 2 does: who may read the original may read the copy.

Allowances to write are left out, because only the mirror writes to a copy; an allowance of every operation
becomes one to read. Denials are copied as they are. ACLs that are gone in the source stay in the target, and
no ACL ever keeps records from being copied.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
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
from kalda.clients.errors import ClientError
from kalda.common.errors import ErrorCode
from kalda.pipelines.mirror.policy import MirrorNames

logger: Final = logging.getLogger(__name__)

_TOPICS: Final = AclFilter(ResourceType.TOPIC, pattern_type=PatternType.ANY)


class AclSync:
    """Brings the ACLs of copies in line with those of their originals."""

    def __init__(self, source: Admin, target: Admin, names: MirrorNames) -> None:
        self._source: Final = source
        self._target: Final = target
        self._names: Final = names
        self._complaint = ""
        """What was logged last, so that the same is not logged at every look."""

    def bring_in_line(self, topics: Collection[str]) -> None:
        """Add the ACLs that the copies of topics lack."""
        try:
            found = self._source.describe_acls(_TOPICS)
            wanted = {copy for each in found for copy in copies(each, topics, self._names)}
            missing = wanted.difference(self._target.describe_acls(_TOPICS)) if wanted else set()
            created = self._target.create_acls(missing) if missing else None
        except ClientError as error:
            self._complain(error)
            return
        if created is None:
            return
        for refusal in created.errors.values():
            self._complain(refusal)
        if created.results:
            logger.info("mirror added %d ACLs in %s", len(created.results), self._names.target)

    def _complain(self, error: ClientError) -> None:
        if error.code is ErrorCode.SECURITY_DISABLED:
            # One of the clusters has no ACLs, which is no fault.
            return
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.warning(
                "ACLs are not copied from %s to %s: %s", self._names.source, self._names.target, error
            )


def copies(binding: AclBinding, topics: Collection[str], names: MirrorNames) -> Iterator[AclBinding]:
    """Yield the ACL that the target gets for one of the source; nothing if it gets none."""
    entry, pattern = _copied_entry(binding.entry), binding.pattern
    if entry is None:
        return
    target = names.target_topic(pattern.name)
    if pattern.pattern_type is PatternType.PREFIXED:
        if any(topic.startswith(pattern.name) for topic in topics):
            yield AclBinding(replace(pattern, name=target), entry)
    elif pattern.name == "*":
        if target == pattern.name:
            yield AclBinding(pattern, entry)
        else:
            prefix = target.removesuffix(pattern.name)
            yield AclBinding(ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED), entry)
    elif pattern.name in topics:
        yield AclBinding(replace(pattern, name=target), entry)


def _copied_entry(entry: AccessControlEntry) -> AccessControlEntry | None:
    if entry.permission is not PermissionType.ALLOW:
        return entry
    if entry.operation is AclOperation.WRITE:
        return None
    return replace(entry, operation=AclOperation.READ) if entry.operation is AclOperation.ALL else entry
