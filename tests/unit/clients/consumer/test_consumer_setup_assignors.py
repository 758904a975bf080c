from collections.abc import Mapping

import pytest

from kalda.clients.consumer.assignors.partition_assignor import (
    Assignment,
    GroupTopics,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from kalda.clients.consumer.consumer_setup import ConsumerSetup
from kalda.clients.errors import ClientConfigError

BASE = {"bootstrap_servers": "127.0.0.1:9092", "group_id": "g"}


class Own(PartitionAssignor):
    """An assignor of an application."""

    name = "own"
    supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def assign(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {}


def test_each_consumer_has_assignors_of_its_own() -> None:
    """They remember their member's last assignment."""
    first, second = (ConsumerSetup.from_options(BASE).assignors for _ in range(2))
    assert ["range", "cooperative-sticky"] == [each.name for each in first]
    assert not set(map(id, first)) & set(map(id, second))


def test_an_assignor_may_be_an_object() -> None:
    """Alone, or in a list with names; the setting then shows its name."""
    own = Own()
    alone = ConsumerSetup.from_options({**BASE, "partition_assignment_strategy": own})
    assert (own,) == alone.assignors
    assert ("own",) == alone.config.partition_assignment_strategy
    strategy = ["cooperative-sticky", own]
    both = ConsumerSetup.from_options({**BASE, "partition_assignment_strategy": strategy})
    assert ["cooperative-sticky", "own"] == [each.name for each in both.assignors]


def test_assignors_without_a_common_protocol_are_refused_at_once() -> None:
    """Otherwise the first poll would fail."""
    with pytest.raises(ClientConfigError, match="no common rebalance protocol"):
        ConsumerSetup.from_options({**BASE, "partition_assignment_strategy": ["range", Own()]})
    with pytest.raises(ClientConfigError, match="'rnage'"):
        ConsumerSetup.from_options({**BASE, "partition_assignment_strategy": "rnage"})
