"""Which topics a mirror copies, and which copies would run in a circle."""

import re

import pytest

from kalda.pipelines.mirror.policy import (
    MirrorError,
    MirrorNames,
    NameFilter,
    RenameRule,
    ReverseCopy,
    check_clusters,
    check_reverse,
    copied_configs,
)

SAME = MirrorNames("a", "b", NameFilter(re.compile("orders.*")))
PREFIXED = MirrorNames("a", "b", NameFilter(re.compile(".*")), RenameRule.PREFIX)


def test_whole_names_are_matched_and_internal_topics_left_out() -> None:
    assert ["orders", "orders2"] == SAME.selected(["orders2", "my-orders", "orders", "__orders"])


def test_a_prefixed_copy_of_the_target_or_of_itself_is_not_copied_again() -> None:
    """Two mirrors with prefixes, a → b and b → a, would otherwise make a.b.a.b.orders."""
    assert ["orders"] == PREFIXED.selected(["orders", "b.orders", "a.orders"])
    assert "a.orders" == PREFIXED.target_topic("orders")


def test_a_cluster_is_not_mirrored_onto_itself() -> None:
    with pytest.raises(MirrorError, match=r"a and b are the same cluster \(X\).*set rename: prefix"):
        check_clusters(SAME, "X", "X")
    check_clusters(SAME, "X", "Y")
    check_clusters(PREFIXED, "X", "X")


def test_a_topic_that_comes_from_the_target_is_refused() -> None:
    """With the same names on both sides, only the progress of the other mirror shows the circle."""
    with pytest.raises(MirrorError, match="topic orders of a has records of b, which the mirror back"):
        check_reverse(SAME, ["orders"], [ReverseCopy("back", "other"), ReverseCopy("back", "orders")])
    check_reverse(SAME, ["orders"], [ReverseCopy("back", "other")])


def test_settings_of_the_cluster_are_not_copied() -> None:
    """MirrorMaker leaves out the same ones."""
    configs = {"retention.ms": "1000", "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}

    assert {"retention.ms": "1000"} == copied_configs(configs)
