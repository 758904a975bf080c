"""Which ACLs the copies of topics get."""

import logging
import re
from typing import Any

import pytest

from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode
from kalda.pipelines.mirror.acl_sync import OPERATIONS, AclSync, copies
from kalda.pipelines.mirror.policy import MirrorNames, NameFilter, RenameRule

READ, WRITE, EVERY = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPICS = ["orders", "payments"]


def names(rule: RenameRule = RenameRule.PREFIX) -> MirrorNames:
    return MirrorNames("A", "B", NameFilter(re.compile(".*")), rule)


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: PermissionType = ALLOW,
    pattern_type: PatternType = LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType.TOPIC, name, pattern_type),
        AccessControlEntry("User:alice", "*", operation, permission),
    )


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        (acl("orders"), [acl("A.orders")]),
        (acl("other"), []),
        (acl("orders", WRITE), []),
        (acl("orders", WRITE, DENY), []),
        (acl("orders", EVERY), [acl("A.orders", READ)]),
        (acl("orders", READ, DENY), [acl("A.orders", READ, DENY)]),
        (acl("orders", EVERY, DENY), [acl("A.orders", each, DENY) for each in OPERATIONS]),
        (acl("ord", pattern_type=PREFIXED), []),
        (acl("x", READ, DENY, PREFIXED), []),
        (acl("ord", READ, DENY, PREFIXED), [acl("A.orders", READ, DENY)]),
        (acl("*"), []),
        (acl("*", READ, DENY), [acl("A.orders", READ, DENY), acl("A.payments", READ, DENY)]),
    ],
)
def test_who_may_read_the_original_may_read_the_copy(
    original: AclBinding, expected: list[AclBinding]
) -> None:
    assert expected == list(copies(original, TOPICS, names()))


@pytest.mark.parametrize("pattern", [("*", LITERAL), ("o", PREFIXED), ("", PREFIXED), ("orders", LITERAL)])
def test_no_more_is_allowed_than_to_read_the_mirrored_topics(pattern: tuple[str, PatternType]) -> None:
    """With names that stay as they are, a pattern would open topics of the target that are not mirrored."""
    name, pattern_type = pattern
    found = [
        copy
        for operation in AclOperation
        for copy in copies(acl(name, operation, ALLOW, pattern_type), TOPICS, names(RenameRule.IDENTITY))
    ]
    expected = [READ, READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS] if name == "orders" else []
    assert [acl("orders", each) for each in expected] == found


def test_further_operations_are_copied_if_they_are_named() -> None:
    assert [acl("A.orders", WRITE)] == list(copies(acl("orders", WRITE), TOPICS, names(), [READ, WRITE]))


class Cluster:
    def __init__(self, *acls: AclBinding, error: ErrorCode | None = None) -> None:
        self.acls = set(acls)
        self.error = error
        self.requests = 0

    def describe_acls(self, wanted: object) -> list[AclBinding]:
        if self.error is not None:
            raise BrokerResponseError(self.error, "describe ACLs")
        return list(self.acls)

    def create_acls(self, added: set[AclBinding], *, outcomes: bool) -> Outcomes[AclBinding, None]:
        self.requests += 1
        self.acls |= added
        return Outcomes(dict.fromkeys(added))


def synced(source: Cluster, target: Cluster, looks: int = 2) -> None:
    arguments: Any = (source, target, names())
    sync = AclSync(*arguments)
    for _ in range(looks):
        sync.bring_in_line(TOPICS)


def test_only_what_is_missing_is_added() -> None:
    source, target = Cluster(acl("orders"), acl("payments")), Cluster(acl("A.orders"), acl("mine"))
    synced(source, target)
    assert {acl("A.orders"), acl("A.payments"), acl("mine")} == target.acls
    assert 1 == target.requests


@pytest.mark.parametrize(
    ("error", "lines"), [(ErrorCode.SECURITY_DISABLED, 0), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1)]
)
def test_clusters_without_acls_are_passed_over_and_refusals_logged_once(
    error: ErrorCode, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    synced(Cluster(error=error), Cluster())
    assert lines == len(caplog.records)
