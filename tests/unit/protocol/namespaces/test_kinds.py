"""What is done to each kind of name, where it is more than a prefix."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.common.regex import compile_regex
from kalda.common.types import UUID
from kalda.protocol.namespaces import kinds
from kalda.protocol.namespaces.consumer_protocol import rename_assignment, rename_subscription
from kalda.protocol.namespaces.kinds import FOREIGN, NameKind
from kalda.protocol.namespaces.namespace import Namespace, base_listener, listener_of, prefix_of

SPACE = Namespace("7")
OWN, OTHER, GONE = (UUID(int=number, version=4) for number in (1, 2, 3))


class Topics:
    """Two topics, of which one is in the namespace."""

    def topic_name(self, topic_id: UUID) -> str | None:
        return {OWN: "ns-7-orders", OTHER: "ns-8-orders"}.get(topic_id)


TOPICS = Topics()


def stored(kind: NameKind, value: Any, struct: Any = None) -> Any:
    return kind.stored(SPACE, TOPICS, value, struct)


def plain(kind: NameKind, value: Any, struct: Any = None) -> Any:
    return kind.plain(SPACE, TOPICS, value, struct)


@pytest.mark.parametrize("name", ["", "a" * 33, "a-b", "a.b", "ä", "a b"])
def test_a_wrong_name_of_a_namespace_is_refused(name: str) -> None:
    """The error names the value and what is allowed."""
    with pytest.raises(ValueError, match=r"namespace .*1 to 32 characters"):
        Namespace(name)


def test_prefixes_are_told_apart_from_other_names() -> None:
    """No prefix is the beginning of another one, and a listener names the one that it takes after."""
    assert "ns-7-" == prefix_of("ns-7-orders")
    assert prefix_of("ns-7") is None
    assert prefix_of("orders") is None
    assert None is Namespace("7").plain("ns-77-orders")
    assert "SASL_SSL" == base_listener(listener_of("SASL_SSL", SPACE))
    assert "SASL_SSL" == base_listener("SASL_SSL")


def test_names_that_no_topic_can_have_pass() -> None:
    """With a prefix they would be names that a topic can have, and the client would not get its error."""
    for name in ("", ".", ".."):
        assert name == stored(kinds.TOPIC, name) == plain(kinds.TOPIC, name)
    assert "ns-7-..." == stored(kinds.TOPIC, "...")
    assert FOREIGN is plain(kinds.TOPIC, "__consumer_offsets")


def test_an_empty_group_is_the_namespaces_own() -> None:
    """Consumers without a group commit under it; members cannot join it."""
    assert "ns-7-" == stored(kinds.GROUP_OR_EMPTY, "")
    assert "" == plain(kinds.GROUP_OR_EMPTY, "ns-7-")
    assert "" == stored(kinds.GROUP, "")


def test_the_id_of_a_foreign_topic_is_one_of_no_topic() -> None:
    """Ids are not secret, and must not open the topics of others; the client gets its own id back."""
    assert OWN == stored(kinds.TOPIC_ID, OWN)
    assert GONE == stored(kinds.TOPIC_ID, GONE)
    masked = stored(kinds.TOPIC_ID, OTHER)
    assert TOPICS.topic_name(masked) is None
    assert OTHER == plain(kinds.TOPIC_ID, masked)
    assert OWN == plain(kinds.TOPIC_ID, OWN)


def test_all_users_of_a_namespace_are_no_others() -> None:
    """An ACL for ``User:*`` is for those of the namespace."""
    assert "User:ns-7-*" == stored(kinds.PRINCIPAL, "User:*")
    assert "User:*" == plain(kinds.PRINCIPAL, "User:ns-7-*")
    assert FOREIGN is plain(kinds.PRINCIPAL, "User:*")
    assert "no principal" == stored(kinds.PRINCIPAL, "no principal")


def test_a_message_quotes_plain_names() -> None:
    """Errors are read by people who do not know the prefix."""
    assert "Topic 'orders' already exists." == plain(kinds.TEXT, "Topic 'ns-7-orders' already exists.")
    assert plain(kinds.TEXT, None) is None


def acl(resource_type: int, pattern_type: int = kinds.LITERAL_PATTERN) -> Any:
    return SimpleNamespace(resource_type=resource_type, pattern_type=pattern_type)


def test_all_topics_are_a_prefix_for_the_broker() -> None:
    """``*`` would be the topics of everybody."""
    resource = acl(2)
    assert "ns-7-" == stored(kinds.ACL_RESOURCE, "*", resource)
    assert kinds.PREFIXED_PATTERN == resource.pattern_type
    assert "*" == plain(kinds.ACL_RESOURCE, "ns-7-", resource)
    assert kinds.LITERAL_PATTERN == resource.pattern_type
    assert FOREIGN is plain(kinds.ACL_RESOURCE, "*", acl(2))


def test_resources_of_acls_by_type() -> None:
    """The cluster is everybody's; a user resource is named as a principal."""
    assert "ns-7-t" == stored(kinds.ACL_RESOURCE, "t", acl(2))
    assert "kafka-cluster" == stored(kinds.ACL_RESOURCE, "kafka-cluster", acl(4))
    assert "kafka-cluster" == plain(kinds.ACL_RESOURCE, "kafka-cluster", acl(4))
    assert "User:ns-7-alice" == stored(kinds.ACL_RESOURCE, "User:alice", acl(7))
    assert "User:alice" == plain(kinds.ACL_RESOURCE, "User:ns-7-alice", acl(7))


def test_resources_with_settings_by_type() -> None:
    """Topics, groups and subscriptions to metrics are the namespace's, brokers everybody's."""
    for number, name in ((2, "ns-7-x"), (16, "ns-7-x"), (32, "ns-7-x"), (4, "x"), (8, "x")):
        resource = SimpleNamespace(resource_type=number)
        assert name == stored(kinds.CONFIG_RESOURCE, "x", resource)
        assert "x" == plain(kinds.CONFIG_RESOURCE, name, resource)
    assert FOREIGN is plain(kinds.CONFIG_RESOURCE, "ns-8-x", SimpleNamespace(resource_type=2))


def test_the_default_quota_of_a_namespace_is_the_prefix_alone() -> None:
    """The default of the cluster would bound the clients of all namespaces."""
    user, address = SimpleNamespace(entity_type="user"), SimpleNamespace(entity_type="ip")
    assert "ns-7-" == stored(kinds.QUOTA_ENTITY, None, user)
    assert plain(kinds.QUOTA_ENTITY, "ns-7-", user) is None
    assert "alice" == plain(kinds.QUOTA_ENTITY, "ns-7-alice", user)
    assert FOREIGN is plain(kinds.QUOTA_ENTITY, None, user)
    assert "10.0.0.1" == stored(kinds.QUOTA_ENTITY, "10.0.0.1", address)
    wanted = SimpleNamespace(entity_type="client-id", match_type=1)
    assert "ns-7-" == stored(kinds.QUOTA_MATCH, None, wanted)
    assert 0 == wanted.match_type
    anything = SimpleNamespace(entity_type="user", match_type=2)
    assert stored(kinds.QUOTA_MATCH, None, anything) is None


@pytest.mark.parametrize(
    ("regex", "matching", "other"),
    [
        ("ord.*", "orders", "other"),
        ("^ord.*$", "orders", "other"),
        ("^a|^b", "b", "c"),
        ("(^a|b)c", "ac", "a"),
        ("(?i)^ORDERS", "orders", "order"),
        (r"\Aa[^]^b]", "ac", "ab"),
        (r"\Qa^b\E", "a^b", "ab"),
        (r"a\^", "a^", "a"),
        ("", "", "a"),
    ],
)
def test_an_expression_matches_plain_names(regex: str, matching: str, other: str) -> None:
    """The broker matches stored names; what begins with ``^`` must match behind the prefix, too."""
    translated = stored(kinds.PATTERN, regex)
    if not regex:
        assert "" == translated
        return
    pattern = compile_regex(translated)
    assert pattern.fullmatch(f"ns-7-{matching}")
    assert not pattern.fullmatch(f"ns-7-{other}")
    assert not pattern.fullmatch(f"ns-8-{matching}")
    assert not pattern.fullmatch(matching)


def test_an_expression_comes_back_as_it_was() -> None:
    """A group's description shows what its members subscribed to."""
    for regex in ("^a|(^b[^c])", "a.*", "(?i)x"):
        assert regex == plain(kinds.PATTERN, stored(kinds.PATTERN, regex))
    assert "a)(b" == stored(kinds.PATTERN, "a)(b"), "a wrong expression stays wrong"


def subscription(topics: list[str], owned: list[str]) -> bytes:
    def text(name: str) -> bytes:
        return struct.pack(">h", len(name)) + name.encode()

    return (
        struct.pack(">hi", 3, len(topics))
        + b"".join(map(text, topics))
        + struct.pack(">i", 4)
        + b"user"
        + struct.pack(">i", len(owned))
        + b"".join(text(name) + struct.pack(">ii", 1, 0) for name in owned)
        + struct.pack(">i", 5)
        + b"\xff\xff"
        + b"later"
    )


def test_a_subscription_has_other_names_and_nothing_else() -> None:
    """The broker reads it; what it does not read is the members' own."""
    before = subscription(["a", "b"], ["a"])
    after = stored(kinds.SUBSCRIPTION, before)
    assert subscription(["ns-7-a", "ns-7-b"], ["ns-7-a"]) == after
    assert before == plain(kinds.SUBSCRIPTION, after)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b'{"version":1,"member":"x"}',
        b"\x00\x01\x00\x05http://localhost:8083/",
        b"\x00\x00\x7f\xff\xff\xff",
        subscription(["a"], [])[:9],
    ],
)
def test_bytes_of_other_protocols_stay(data: bytes) -> None:
    """Kafka Connect and the schema registry send bytes of their own in the same fields."""
    assert data == rename_subscription(data, lambda name: b"x" + name)
    assert data == rename_assignment(data, lambda name: b"x" + name)
