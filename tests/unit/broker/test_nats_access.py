"""What ACLs say of subjects: those that are topics count as these."""

from typing import cast

import pytest

from kalda.broker.nats.nats_access import REMOTE_CLIENTS_MAX, NatsAccess, RemoteClients
from kalda.broker.security.authorizer import Authorizer, Client
from kalda.nats.subject_rules import SubjectRules
from kalda.nats.subjects import overlaps_prefix
from kalda.security.acl.model import AclOperation, ResourceType


class FakeAuthorizer:
    """Allows what is in the set."""

    def __init__(self, *allowed: tuple[AclOperation, str]) -> None:
        self.allowed = allowed

    def allows(
        self, connection: object, operation: AclOperation, kind: ResourceType, name: str, *, is_noted: bool
    ) -> bool:
        assert ResourceType.TOPIC == kind
        return (operation, name) in self.allowed


def access(rules: SubjectRules | None, *allowed: tuple[AclOperation, str]) -> NatsAccess:
    authorizer = cast("Authorizer", FakeAuthorizer(*allowed))
    return NatsAccess(authorizer, cast("Client", None), rules)


def test_a_mapped_subject_counts_as_its_topic() -> None:
    rules = SubjectRules(["orders.*:shop:$1"])
    found = access(rules, (AclOperation.WRITE, "shop"), (AclOperation.READ, "orders.eu"))
    assert found.may_publish(b"orders.eu")
    assert not found.may_receive(b"orders.eu")
    assert not found.may_subscribe(b"orders.eu")
    found = access(rules, (AclOperation.READ, "shop"))
    assert found.may_subscribe(b"orders.eu")
    assert found.may_receive(b"orders.eu")
    assert not found.may_publish(b"orders.eu")


def test_another_subject_counts_as_the_topic_of_its_name() -> None:
    for rules in (None, SubjectRules(["orders.*:shop:$1"])):
        assert access(rules, (AclOperation.WRITE, "a.b")).may_publish(b"a.b")
        assert not access(rules, (AclOperation.WRITE, "shop")).may_publish(b"a.b")


def test_the_broker_sends_where_the_client_may_publish_or_has_its_inbox() -> None:
    found = access(None, (AclOperation.READ, "_INBOX.a"), (AclOperation.READ, "a"), (AclOperation.WRITE, "b"))
    assert found.may_be_sent_to(b"_INBOX.a")
    assert not found.may_be_sent_to(b"_INBOX.b")
    assert found.may_be_sent_to(b"b")
    assert not found.may_be_sent_to(b"a")
    assert not found.may_be_sent_to(b"$JS.API.INFO")


@pytest.mark.parametrize(
    ("pattern", "prefix", "expected"),
    [
        (b"orders.*.eu", b"orders.5", True),
        (b"orders.*", b"orders.5.", False),
        (b"orders.>", b"orders.5.", True),
        (b"orders.x", b"orders.x", True),
        (b"orders.x", b"orders.xy", False),
        (b"orders.x", b"ord", True),
        (b"orders.x", b"ord.", False),
        (b"*.x", b"anything.x", True),
        (b"*.x", b"anything.y", False),
        (b"orders", b"orders.", False),
        (b"orders.x", b"orders.", True),
        (b"orders.x", b"", True),
    ],
)
def test_patterns_overlap_with_prefixes(pattern: bytes, prefix: bytes, expected: bool) -> None:
    assert expected == overlaps_prefix(pattern, prefix)


class ByClient:
    """Allows what the set has of a client."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self.allowed = allowed

    def allows(
        self, client: Client, operation: AclOperation, kind: ResourceType, name: str, *, is_noted: bool
    ) -> bool:
        return (str(client.principal), client.peer_address, name) in self.allowed


def test_the_client_of_another_broker_has_its_own_rights() -> None:
    rules = ByClient(("User:ann:b", "10.0.0.7", "ORDERS"), ("User:ANONYMOUS", "", "OPEN"))
    clients = RemoteClients(cast("Authorizer", rules), None)
    ann = clients.access("User:ann:b", "10.0.0.7")
    assert ann is not None
    assert ("User:ann:b", "10.0.0.7") == (ann.principal, ann.host)
    assert ann.may(AclOperation.READ, "ORDERS")
    assert ann is clients.access("User:ann:b", "10.0.0.7")
    for principal, host in (("User:ann:b", "10.0.0.8"), ("User:bob", "10.0.0.7"), ("", "")):
        other = clients.access(principal, host)
        assert other is not None
        assert not other.may(AclOperation.READ, "ORDERS")
    # A broker without an authorizer names nobody.
    unnamed = clients.access("", "")
    assert unnamed is not None
    assert unnamed.may(AclOperation.READ, "OPEN")
    for number in range(REMOTE_CLIENTS_MAX + 1):
        clients.access(f"User:{number}", "")
    again = clients.access("User:ann:b", "10.0.0.7")
    assert again is not None
    assert again.may(AclOperation.READ, "ORDERS")
    assert RemoteClients(None, None).access("User:ann:b", "10.0.0.7") is None
