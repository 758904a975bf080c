"""What ACLs allow, and how Kafka keeps them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.acl import znodes
from kalda.security.acl.model import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.security.acl.rules import AclRules

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)


def entry(
    operation: AclOperation = READ,
    permission: PermissionType = ALLOW,
    principal: str = "User:alice",
    host: str = "*",
) -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, permission)


def rules(*entries: tuple[str, PatternType, AccessControlEntry], by_default: bool = False) -> AclRules:
    made = AclRules(super_users=["User:admin"], allows_everyone_by_default=by_default)
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for name, pattern_type, each in entries:
        found.setdefault(ResourcePattern(TOPIC, name, pattern_type), set()).add(each)
    for pattern, each_entries in found.items():
        made.set(pattern, each_entries)
    return made


def may(made: AclRules, operation: AclOperation = READ, name: str = "orders", user: str = "alice") -> bool:
    return made.allows(f"User:{user}", "10.0.0.1", operation, TOPIC, name)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], False),
        ([("orders", LITERAL, entry())], True),
        ([("order", LITERAL, entry())], False),
        ([("*", LITERAL, entry())], True),
        ([("ord", PREFIXED, entry())], True),
        ([("orders", PREFIXED, entry())], True),
        ([("*", PREFIXED, entry())], False),
        ([("orders", LITERAL, entry(ALL))], True),
        ([("orders", LITERAL, entry(principal="User:*"))], True),
        ([("orders", LITERAL, entry(principal="User:bob"))], False),
        ([("orders", LITERAL, entry(host="10.0.0.1"))], True),
        ([("orders", LITERAL, entry(host="10.0.0.2"))], False),
        ([("orders", LITERAL, entry(host="10.0.0.0/8"))], True),
        ([("orders", LITERAL, entry(host="10.1.0.0/16"))], False),
        (
            [("orders", LITERAL, entry()), ("orders", LITERAL, entry(permission=DENY, host="10.0.0.0/24"))],
            False,
        ),
        ([("orders", LITERAL, entry()), ("ord", PREFIXED, entry(permission=DENY))], False),
        ([("orders", LITERAL, entry()), ("*", LITERAL, entry(ALL, DENY))], False),
        ([("orders", LITERAL, entry()), ("orders", LITERAL, entry(permission=DENY, host="10.0.0.9"))], True),
    ],
)
def test_denials_win_over_allowances_of_names_prefixes_and_all(
    entries: list[tuple[str, PatternType, AccessControlEntry]], expected: bool
) -> None:
    assert expected is may(rules(*entries))


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_what_changes_a_resource_implies_that_it_may_be_described(operation: AclOperation) -> None:
    assert may(rules(("orders", LITERAL, entry(operation))), DESCRIBE)
    assert not may(rules(("orders", LITERAL, entry(DESCRIBE))), operation)
    denied = rules(("orders", LITERAL, entry(ALL)), ("orders", LITERAL, entry(DESCRIBE, DENY)))
    assert may(denied, operation)
    assert not may(denied, DESCRIBE)


def test_who_has_no_acl_at_all_is_decided_by_a_setting() -> None:
    assert may(rules(by_default=True))
    assert not may(rules(("orders", LITERAL, entry(principal="User:bob")), by_default=True))


def test_super_users_may_do_everything() -> None:
    assert may(rules(("orders", LITERAL, entry(ALL, DENY, "User:*"))), user="admin")


def test_entries_that_are_removed_allow_nothing() -> None:
    made = rules(("ord", PREFIXED, entry()))
    made.set(ResourcePattern(TOPIC, "ord", PREFIXED), ())
    assert not may(made)
    assert [] == made.patterns()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], False),
        ([("a", LITERAL, entry(WRITE))], True),
        ([("a", LITERAL, entry(WRITE)), ("a", LITERAL, entry(WRITE, DENY))], False),
        ([("abc", LITERAL, entry(WRITE)), ("ab", PREFIXED, entry(WRITE, DENY))], False),
        ([("abc", PREFIXED, entry(WRITE)), ("ab", PREFIXED, entry(WRITE, DENY))], False),
        ([("ab", PREFIXED, entry(WRITE)), ("abc", PREFIXED, entry(WRITE, DENY))], True),
        ([("*", LITERAL, entry(WRITE)), ("ab", PREFIXED, entry(WRITE, DENY))], True),
        ([("a", LITERAL, entry(WRITE)), ("*", LITERAL, entry(WRITE, DENY))], False),
    ],
)
def test_an_idempotent_producer_needs_one_topic_to_write(
    entries: list[tuple[str, PatternType, AccessControlEntry]], expected: bool
) -> None:
    assert expected is rules(*entries).allows_any("User:alice", "10.0.0.1", WRITE, TOPIC)


names = st.text("ab", min_size=1, max_size=4) | st.just("*")
bindings = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from([TOPIC, ResourceType.GROUP]),
        names,
        st.sampled_from([LITERAL, PREFIXED]),
    ),
    st.builds(
        AccessControlEntry,
        st.sampled_from(["User:alice", "User:bob", "User:*"]),
        st.sampled_from(["*", "10.0.0.1"]),
        st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
        st.sampled_from([ALLOW, DENY]),
    ),
)


@given(st.lists(bindings, max_size=12), names, st.sampled_from([READ, WRITE, DESCRIBE]))
def test_a_match_filter_finds_what_decides(
    found: list[AclBinding], name: str, operation: AclOperation
) -> None:
    """The rules agree with those of only the bindings that a filter of type MATCH finds."""
    everything, matching = AclRules(), AclRules()
    wanted = AclFilter(TOPIC, name, PatternType.MATCH)
    for made, chosen in ((everything, found), (matching, [each for each in found if wanted.matches(each)])):
        for pattern in {each.pattern for each in chosen}:
            made.set(pattern, {each.entry for each in chosen if each.pattern == pattern})
    arguments = ("User:alice", "10.0.0.1", operation, TOPIC, name)
    assert matching.allows(*arguments) is everything.allows(*arguments)


@given(st.lists(bindings, max_size=6))
def test_entries_and_changes_survive_their_znodes(found: list[AclBinding]) -> None:
    entries = frozenset(each.entry for each in found)
    assert entries == znodes.decode_entries(znodes.encode_entries(entries))
    for each in found:
        pattern = each.pattern
        assert pattern == znodes.decode_change(pattern.pattern_type, znodes.encode_change(pattern))


def test_znodes_are_kafkas() -> None:
    literal = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t:1")
    prefixed = ResourcePattern(TOPIC, "or", PREFIXED)
    assert "/kafka-acl/TransactionalId/t:1" == znodes.path(literal)
    assert "/kafka-acl-extended/prefixed/Topic/or" == znodes.path(prefixed)
    assert b"TRANSACTIONAL_ID:t:1" == znodes.encode_change(literal)
    assert literal == znodes.decode_change(LITERAL, b"TransactionalId:t:1")
    expected = {"version": 1, "resourceType": "TOPIC", "name": "or", "patternType": "PREFIXED"}
    assert expected == json.loads(znodes.encode_change(prefixed))
    written = json.loads(znodes.encode_entries([entry(AclOperation.CLUSTER_ACTION, DENY)]))
    acl = {"principal": "User:alice", "permissionType": "Deny", "operation": "ClusterAction", "host": "*"}
    assert {"version": 1, "acls": [acl]} == written


@given(st.binary(max_size=60))
def test_junk_in_znodes_is_refused_with_the_error_that_is_documented(junk: bytes) -> None:
    for call in (
        lambda: znodes.decode_entries(junk),
        lambda: znodes.decode_change(LITERAL, junk),
        lambda: znodes.decode_change(PREFIXED, junk),
    ):
        try:
            call()
        except znodes.AclSchemaError:
            continue


class CountingName(str):
    """Counts how often it is cut."""

    __slots__ = ("cuts",)

    def __getitem__(self, index: object) -> str:
        self.cuts = getattr(self, "cuts", 0) + 1
        return super().__getitem__(index)  # type: ignore[index]


def test_a_long_name_is_cut_only_where_a_prefix_may_end() -> None:
    """A client may send thousands of names of 32,000 characters; each cost a third of a second."""
    rules = AclRules()
    for prefix in ("a", "b", "xx"):
        rules.set(ResourcePattern(TOPIC, prefix, PREFIXED), [entry()])
    name = CountingName("x" * 32_000)
    assert rules.allows("User:alice", "10.0.0.1", READ, TOPIC, name)
    assert 2 == name.cuts
    rules.set(ResourcePattern(TOPIC, "xx", PREFIXED), [])
    assert not rules.allows("User:alice", "10.0.0.1", READ, TOPIC, name)
    assert 3 == name.cuts


def test_users_of_an_open_namespace_have_a_wildcard_of_their_own() -> None:
    """An ACL for all users of a namespace is none for others, and a closed namespace has no such users."""
    made = rules(("orders", LITERAL, entry(principal="User:ns-7-*")))
    assert not may(made, user="ns-7-alice")
    made.namespaces.add("ns-7-")
    assert may(made, user="ns-7-alice")
    assert not may(made, user="ns-8-alice")
    assert not may(made, user="alice")
    assert made.allows_any("User:ns-7-alice", "10.0.0.1", READ, TOPIC)
    assert not made.allows_any("User:ns-8-alice", "10.0.0.1", READ, TOPIC)


def test_a_super_user_is_one_in_an_open_namespace() -> None:
    """The names of others that look like those of a namespace are no super users."""
    made = rules()
    assert not may(made, user="ns-7-admin")
    made.namespaces.add("ns-7-")
    assert may(made, user="ns-7-admin")
    assert not may(made, user="ns-8-admin")
    assert not may(made, user="ns-7-alice")


@pytest.mark.parametrize(
    ("entries", "by_default", "expected"),
    [
        ([], False, (False, False)),
        ([("orders.", PREFIXED, entry())], False, (False, False)),
        ([("orders.", PREFIXED, entry()), ("orders.x", LITERAL, entry(READ, DENY))], False, (True, True)),
        ([("orders.", PREFIXED, entry()), ("orders.x", PREFIXED, entry(ALL, DENY))], False, (True, True)),
        ([("orders.", PREFIXED, entry()), ("orders.x", LITERAL, entry(WRITE, DENY))], False, (False, False)),
        ([("orders.", PREFIXED, entry()), ("other", LITERAL, entry(READ, DENY))], False, (False, False)),
        ([("*", LITERAL, entry(READ, DENY))], True, (True, True)),
        ([("orders.x", LITERAL, entry(READ, DENY, "User:bob"))], True, (True, False)),
        ([("orders.x", LITERAL, entry(READ, ALLOW, "User:bob"))], True, (True, False)),
        ([("orders.x", PREFIXED, entry(READ, ALLOW, "User:bob"))], True, (True, False)),
        ([("orders.x", LITERAL, entry())], True, (False, False)),
    ],
)
def test_entries_exclude_some_of_many_resources(
    entries: list[tuple[str, PatternType, AccessControlEntry]], by_default: bool, expected: tuple[bool, bool]
) -> None:
    """A stream of `orders.>` may not be a way around what is said of one of its subjects."""
    made = rules(*entries, by_default=by_default)
    found = tuple(
        made.excludes_any(
            "User:alice",
            "10.0.0.1",
            READ,
            TOPIC,
            lambda pattern: pattern.name.startswith("orders."),
            by_denial=by_denial,
        )
        for by_denial in (False, True)
    )
    assert expected == found
    assert not made.excludes_any("User:admin", "10.0.0.1", READ, TOPIC, lambda _: True, by_denial=False)
