"""What a client says about a topic or partition that does not exist."""

import asyncio
import logging
from collections.abc import Iterable

import pytest

from kalda.clients.errors import BrokerConnectionError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.missing_topics import MissingPartitions, MissingTopics
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.unit.clients.metadata_responses import partition, response, topic

LOGGER = "kalda.clients.missing_topics"
GOOD = ClusterMetadata.from_response(response(topic("orders", partition(0, 0, 1), partition(1, 0, 1))))
MISSING = ClusterMetadata.from_response(
    response(topic("ordrs", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic("orders", partition(0, 0, 1)))
)


async def names() -> Iterable[str]:
    """What the cluster has."""
    return ["flights", "orders", "users"]


def test_a_missing_topic_is_reported_once_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        missing = MissingTopics(names)
        for now in (0.0, 0.4, 0.6, 1.0, 300.0):
            await missing.updated(MISSING, now)
        assert "; did you mean `orders`?" == missing.hint("ordrs")
        assert "" == missing.hint("orders")

    with caplog.at_level(logging.WARNING, LOGGER):
        asyncio.run(main())
    expected = ["Topic ordrs does not exist; did you mean `orders`? Waiting for ordrs."]
    # A thread of an earlier test may still look up a name, and log that nobody answers.
    assert expected == [each.getMessage() for each in caplog.records if each.name == LOGGER]


def test_a_topic_that_is_created_on_use_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The first answer of a broker that creates topics says that there is none."""

    async def main() -> None:
        missing = MissingTopics(names)
        await missing.updated(MISSING, 0.0)
        await missing.updated(GOOD, 0.1)
        await missing.updated(MISSING, 300.0)
        assert "" == missing.hint("ordrs")

    with caplog.at_level(logging.WARNING, LOGGER):
        asyncio.run(main())
    assert [] == caplog.messages


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_mistyped_topic_is_reported_when_brokers_create_it(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it looks like a topic without records, and stays in the cluster."""

    def snapshot(*names: str, error: ErrorCode = ErrorCode.NONE) -> ClusterMetadata:
        return ClusterMetadata.from_response(response(*(topic(name, error=error) for name in names)))

    async def main() -> None:
        missing = MissingTopics(names)
        await missing.updated(snapshot("ordrs", "weather", error=code), 0.0)
        await missing.updated(snapshot("ordrs", "weather"), 0.1)
        await missing.updated(snapshot("ordrs", "weather"), 0.2)
        await missing.updated(snapshot("userz", "flihgts", error=code), 0.3)
        await missing.updated(snapshot("userz", "flihgts"), 0.4)
        await missing.updated(snapshot("flightz", error=code), 0.5)
        await missing.updated(snapshot("flightz"), 0.6)

    with caplog.at_level(logging.WARNING, LOGGER):
        asyncio.run(main())
    assert [
        "Topic ordrs did not exist; the brokers have created it; did you mean `orders`?",
        "Topic flihgts did not exist; the brokers have created it; did you mean `flights`?",
        "Topic userz did not exist; the brokers have created it; did you mean `users`?",
    ] == caplog.messages


def test_names_that_cannot_be_fetched_leave_out_the_hint_only(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> Iterable[str]:
        raise BrokerConnectionError("gone")

    async def main() -> None:
        missing = MissingTopics(fail)
        await missing.updated(MISSING, 0.0)
        await missing.updated(MISSING, 1.0)

    with caplog.at_level(logging.WARNING, LOGGER):
        asyncio.run(main())
    assert ["Topic ordrs does not exist. Waiting for ordrs."] == caplog.messages


def test_a_missing_partition_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    assigned = [TopicPartition("orders", 1), TopicPartition("orders", 7), TopicPartition("new", 0)]
    missing = MissingPartitions()

    with caplog.at_level(logging.WARNING, LOGGER):
        missing.updated(GOOD, assigned)
        missing.updated(GOOD, assigned)
    expected = "Partition orders-7 does not exist: the topic has 2 partitions, 0 to 1. Waiting for it."
    assert [expected] == caplog.messages
