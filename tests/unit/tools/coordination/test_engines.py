"""Addresses of engines that the commands of `kalda coordination` take."""

import pytest

from kalda.tools.coordination.engines import is_same_engine, normalized


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("etcd://a:2379", "etcd://a/kalda/", True),
        ("etcd://a:2379,b:2379/prod", "etcd://b:2379/prod", True),
        ("etcd://a:2379/prod", "etcd://a:2379/test", False),
        ("zookeeper://a:2181,b:2181", "zookeeper://b:2181,a:2181/", True),
        ("zookeeper://a:2181/x", "zookeeper://a:2181", False),
        ("zookeeper://a:2379", "etcd://a:2379", False),
        ("embedded:/x/../y", "embedded:/y", True),
        ("embedded:/y", "zookeeper://a:2181", False),
    ],
)
def test_one_engine_is_noticed_under_two_addresses(first: str, second: str, is_same: bool) -> None:
    """A migration from an engine to itself would close it and report success."""
    assert is_same == is_same_engine(normalized(first), normalized(second))
