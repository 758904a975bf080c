import json

import pytest

from kalda.clients.legacy.consumer.topic_count import (
    Blacklist,
    ThreadId,
    TopicCount,
    TopicFilter,
    Whitelist,
    by_filter,
)


def test_a_registration_is_that_of_0_8_2() -> None:
    data = TopicCount({"orders": 2}).encode(1_395_000_000_000)

    assert b'{"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1395000000000"}' == data
    assert TopicCount({"orders": 2}) == TopicCount.decode(data)


@pytest.mark.parametrize(
    ("topic_filter", "pattern"), [(Whitelist("a.*,b"), "white_list"), (Blacklist("a.*,b"), "black_list")]
)
def test_a_filter_is_registered_by_its_expression(topic_filter: TopicFilter, pattern: str) -> None:
    data = by_filter(topic_filter, 3).encode(1)

    assert {"a.*|b": 3} == json.loads(data)["subscription"]
    assert pattern == json.loads(data)["pattern"]
    decoded = TopicCount.decode(data)
    assert decoded is not None
    assert decoded.topic_filter is not None
    assert topic_filter.regex == decoded.topic_filter.regex
    assert type(topic_filter) is type(decoded.topic_filter)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"subscription":{"t":0},"pattern":"static"}',
        b'{"subscription":{"t":"x"},"pattern":"static"}',
        b'{"subscription":{"t":1},"pattern":"other"}',
        b'{"subscription":{"(":1},"pattern":"white_list"}',
        b'{"subscription":{"a":1,"b":1},"pattern":"white_list"}',
        b'{"subscription":{"t":99999999},"pattern":"static"}',
    ],
)
def test_what_is_no_registration_is_passed_over(data: bytes) -> None:
    assert TopicCount.decode(data) is None


def test_filters_match_whole_names_and_leave_internal_topics_out() -> None:
    white, black = Whitelist('"web-.*, orders"'), Blacklist("web-.*")
    names = ["web-1", "orders", "orders-2", "__consumer_offsets"]

    assert ["web-1", "orders"] == [n for n in names if white.allows(n, exclude_internal=True)]
    assert ["orders", "orders-2"] == [n for n in names if black.allows(n, exclude_internal=True)]
    assert names[1:] == [n for n in names if black.allows(n, exclude_internal=False)]


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'\(' is no regular expression"):
        Whitelist("(")


def test_threads_read_topics_that_exist_only() -> None:
    """A registration may name what can be no topic; to read its znode would fail every rebalance."""
    count = TopicCount({"a": 1, "later": 2, "": 1, "..": 1})

    assert {"a": [ThreadId("c", 0)]} == count.threads("c", ["a", "b"], exclude_internal=True)


def test_threads_of_a_filter_are_those_of_the_topics_it_allows() -> None:
    count = by_filter(Whitelist("a.*"), 2)

    found = count.threads("c", ["a1", "b", "a2"], exclude_internal=True)

    assert {"a1": [ThreadId("c", 0), ThreadId("c", 1)], "a2": [ThreadId("c", 0), ThreadId("c", 1)]} == found
