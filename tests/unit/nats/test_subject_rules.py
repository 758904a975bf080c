"""The rules that map subjects to topics and keys, and back."""

import pytest

from kalda.nats.subject_rules import SubjectRuleError, SubjectRules, TopicAndKey
from kalda.nats.subjects import overlaps

RULES = SubjectRules(
    [
        "orders.*:orders:$1",
        "sensors.*.>:sensors-$1:$2",
        "audit:audit",
        "both.*.*:both-$1.$2",
        "swapped.*.*:swapped:$2.$1",
        "special.eu:special-eu",
        "special.*:special-$1",
    ]
)


@pytest.mark.parametrize(
    ("subject", "topic", "key"),
    [
        (b"orders.eu", "orders", b"eu"),
        (b"sensors.lab.a.b", "sensors-lab", b"a.b"),
        (b"both.a.b", "both-a.b", None),
        (b"swapped.a.b", "swapped", b"b.a"),
        (b"special.eu", "special-eu", None),
        (b"special.us", "special-us", None),
        (b"audit", "audit", None),
    ],
)
def test_subject_leads_to_a_record_and_back(subject: bytes, topic: str, key: bytes | None) -> None:
    assert TopicAndKey(topic, key, key is not None) == RULES.to_topic(subject)
    assert subject == RULES.to_subject(topic, key)


@pytest.mark.parametrize(
    "subject",
    [
        b"orders",
        b"orders.a.b",
        b"orders.*",
        b"orders..",
        b"sensors.lab",
        b"other",
        b"special.a/b",
        b"special.\xff",
    ],
)
def test_subject_without_a_topic(subject: bytes) -> None:
    assert RULES.to_topic(subject) is None
    assert RULES.to_topic(subject) is None


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("orders", None),
        ("orders", b""),
        ("orders", b"a.b"),
        ("orders", b"a b"),
        ("orders", b"*"),
        ("orders", b"a\r\nPUB"),
        ("sensors-lab", b"a..b"),
        ("sensors-lab", b">"),
        ("swapped", b"alone"),
        ("unknown", b"x"),
    ],
)
def test_record_without_a_subject(topic: str, key: bytes | None) -> None:
    assert RULES.to_subject(topic, key) is None


def test_a_key_has_no_part_in_a_subject_without_wildcards() -> None:
    assert b"audit" == RULES.to_subject("audit", None) == RULES.to_subject("audit", b"\xff any")


def test_the_subject_of_a_record_leads_back_to_its_topic() -> None:
    """Else a message that is published to the subject would go elsewhere."""
    rules = SubjectRules(["a.*:first:$1", "a.b:second"])
    assert rules.to_subject("second", None) is None
    assert b"a.b" == rules.to_subject("first", b"b")


@pytest.mark.parametrize(
    ("topic", "pattern", "expected"),
    [
        ("orders", b"orders.eu", True),
        ("orders", b"orders.>", True),
        ("orders", b">", True),
        ("orders", b"orders", False),
        ("orders", b"sensors.>", False),
        ("sensors-lab", b"sensors.lab.a", True),
        ("sensors-lab", b"sensors.*.a", True),
        ("sensors-lab", b"sensors.yard.a", False),
        ("unknown", b">", False),
    ],
)
def test_which_topics_a_subscription_reads(topic: str, pattern: bytes, expected: bool) -> None:
    assert expected == RULES.may_read(topic, pattern)
    assert RULES.concerns(pattern) or not expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("orders", "is not SUBJECT:TOPIC"),
        ("orders:", "is not SUBJECT:TOPIC"),
        ("a:b:c:d", "is not SUBJECT:TOPIC"),
        ("a..b:c", "not a subject of NATS"),
        ("a b:c", "not a subject of NATS"),
        ("a.>.b:c:$1", "not a subject of NATS"),
        ("a:b/c", "a topic's name has only"),
        ("a.*:b", "wildcard 1 of the subject is in neither"),
        ("a.*.*:b:$1", "wildcard 2 of the subject is in neither"),
        ("a.*:b:$2", r"\$2, but the subject has 1"),
        ("a.*.*:b:$1$2", "there must be a '.'"),
        ("a.*.*:b-$1-$2", "there must be a '.'"),
        ("$JS.>:js:$1", r"begin with \$ or _INBOX"),
        ("a:__consumer_offsets", "begin with __"),
        ("_INBOX.>:answers:$1", r"begin with \$ or _INBOX"),
    ],
)
def test_a_malformed_rule_is_explained(text: str, problem: str) -> None:
    with pytest.raises(SubjectRuleError, match=problem):
        SubjectRules([text])


def test_answers_are_not_stored_though_a_rule_is_for_all_subjects() -> None:
    rules = SubjectRules([">:all:$1"])
    assert TopicAndKey("all", b"a.b", True) == rules.to_topic(b"a.b")
    assert rules.to_topic(b"_INBOX.a.b") is None
    assert rules.to_topic(b"$JS.API.INFO") is None
    assert rules.to_subject("all", b"_INBOX.a") is None


def test_no_subject_leads_to_a_topic_of_brokers() -> None:
    rules = SubjectRules(["x.>:$1"])
    assert rules.to_topic(b"x.__consumer_offsets") is None
    assert not rules.is_mapped("__consumer_offsets")
    assert not rules.may_read("__consumer_offsets", b">")
    assert rules.to_subject("__consumer_offsets", None) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (b"a.*", b"a.b", True),
        (b"a.*", b"*.b", True),
        (b"a.>", b"a", False),
        (b"a.>", b"a.b.c", True),
        (b"a.*.c", b"a.b", False),
        (b">", b"a.b", True),
        (b"a.b", b"a.c", False),
    ],
)
def test_overlapping_patterns(one: bytes, other: bytes, expected: bool) -> None:
    assert expected == overlaps(one, other) == overlaps(other, one)
