"""Which ACLs, quotas and users the target gets, and why not the others."""

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
from kalda.clients.admin.quotas import quota_entity
from kalda.clients.admin.users import ScramCredentialInfo, ScramCredentialUpsertion, ScramMechanism
from kalda.pipelines.cutover.carry import acl_text, changed_quotas, missing_users, quota_text, selected_acls


def acl(
    name: str,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    operation: AclOperation = AclOperation.WRITE,
    permission: PermissionType = PermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, pattern), AccessControlEntry("User:alice", "*", operation, permission)
    )


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (acl("orders"), ""),
        (acl("other"), "its topic is not cut over"),
        (acl("*"), "it would open inventory in the target"),
        (acl("inv", pattern=PatternType.PREFIXED), "it would open inventory in the target"),
        (acl("ord", pattern=PatternType.PREFIXED), ""),
        (acl("*", permission=PermissionType.DENY), ""),
        (acl("readers", kind=ResourceType.GROUP, operation=AclOperation.READ), ""),
        (acl("tx", kind=ResourceType.TRANSACTIONAL_ID), ""),
        (acl("kafka-cluster", kind=ResourceType.CLUSTER, operation=AclOperation.IDEMPOTENT_WRITE), ""),
        (
            acl("kafka-cluster", kind=ResourceType.CLUSTER, operation=AclOperation.CLUSTER_ACTION),
            "it is for brokers of the source",
        ),
    ],
)
def test_acls_open_nothing_that_is_not_cut_over(binding: AclBinding, expected: str) -> None:
    chosen, refused = selected_acls([binding], {"orders"}, {"inventory"})
    assert (
        ([], [(binding, expected)]) == (chosen, refused) if expected else ([binding], []) == (chosen, refused)
    )


def test_an_acl_is_shown_in_one_line() -> None:
    text = acl_text(acl("ord", pattern=PatternType.PREFIXED))
    assert "Allow User:alice Write Topic:ord* from *" == text


def test_quotas_that_differ_are_set() -> None:
    alice, default = quota_entity({"user": "alice"}), quota_entity({"client-id": None})
    source = {
        alice: {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0},
        default: {"request_percentage": 5.0},
    }
    target = {alice: {"producer_byte_rate": 1.0, "consumer_byte_rate": 3.0}}
    assert {alice: {"consumer_byte_rate": 2.0}, default: {"request_percentage": 5.0}} == changed_quotas(
        source, target
    )
    assert ("user alice", "client-id <default>") == (quota_text(alice), quota_text(default))


def test_users_need_a_password_unless_the_target_has_them() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    known = [ScramCredentialInfo(mechanism, 8192)]
    source = {"alice": known, "bob": known, "carol": known}
    wanted, lacking = missing_users(source, {"carol": known}, {"alice": "secret", "carol": "other"})
    assert [ScramCredentialUpsertion("alice", mechanism, "secret", 8192)] == wanted
    assert [("bob", "SCRAM-SHA-256")] == lacking
