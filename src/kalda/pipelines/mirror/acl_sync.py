"""Copies the ACLs of topics, as MirrorMaker 2 does: who may read the original may read the copy.

Only ACLs on the very names of mirrored topics allow something in the target: one on a prefix or on `*` would
open topics there that the mirror has nothing to do with. They allow reading and describing, unless other
operations are asked for by name; an ACL that allows every operation becomes one that allows to read. An ACL
that denies becomes one for each mirrored topic that it matches, or an ACL that is copied would allow what the
source denies. ACLs that are gone in the source stay in the target, and no ACL ever keeps records from being
copied.
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
from kalda.security.acl.model import WILDCARD

logger: Final = logging.getLogger(__name__)

OPERATIONS: Final = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
"""What ACLs are copied for unless more is asked for."""

_TOPICS: Final = AclFilter(ResourceType.TOPIC, pattern_type=PatternType.ANY)


class AclSync:
    """Brings the ACLs of copies in line with those of their originals."""

    def __init__(
        self,
        source: Admin,
        target: Admin,
        names: MirrorNames,
        operations: Collection[AclOperation] = OPERATIONS,
    ) -> None:
        self._source: Final = source
        self._target: Final = target
        self._names: Final = names
        self._operations: Final = operations
        self._complaint = ""
        """What was logged last, so that the same is not logged at every look."""

    def bring_in_line(self, topics: Collection[str]) -> None:
        """Add the ACLs that the copies of topics lack."""
        try:
            found = self._source.describe_acls(_TOPICS)
            wanted = {copy for each in found for copy in copies(each, topics, self._names, self._operations)}
            missing = wanted.difference(self._target.describe_acls(_TOPICS)) if wanted else set()
            created = self._target.create_acls(missing, outcomes=True) if missing else None
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


def copies(
    binding: AclBinding,
    topics: Collection[str],
    names: MirrorNames,
    operations: Collection[AclOperation] = OPERATIONS,
) -> Iterator[AclBinding]:
    """Yield the ACLs that the target gets for one of the source: literal ones of copies.

    An ACL on `orders` that allows Read stands for the copy of `orders`; one on `*` or on the prefix `ord` for
    no copy, if it allows something, and for the copy of each topic that it matches, if it denies something.
    """
    pattern = binding.pattern
    matched = [each for each in topics if _is_literal(binding, each) or _is_denied(binding, each)]
    for topic in matched:
        copy = ResourcePattern(pattern.resource_type, names.target_topic(topic), PatternType.LITERAL)
        for entry in _copied_entries(binding.entry, operations):
            yield AclBinding(copy, entry)


def _is_literal(binding: AclBinding, topic: str) -> bool:
    return binding.pattern.pattern_type is PatternType.LITERAL and binding.pattern.name == topic


def _is_denied(binding: AclBinding, topic: str) -> bool:
    pattern = binding.pattern
    if binding.entry.permission is not PermissionType.DENY:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return topic.startswith(pattern.name)
    return pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD


def _copied_entries(
    entry: AccessControlEntry, operations: Collection[AclOperation]
) -> Iterator[AccessControlEntry]:
    if entry.operation is not AclOperation.ALL:
        if entry.operation in operations:
            yield entry
    elif entry.permission is PermissionType.ALLOW:
        if AclOperation.READ in operations:
            yield replace(entry, operation=AclOperation.READ)
    else:
        for operation in operations:
            yield replace(entry, operation=operation)
