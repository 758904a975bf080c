"""Apache Kafka's own transactional producer and tools, with both protocols of transactions."""

import re

import pytest

from kalda.testing import KaldaProcess
from tests.compat.conftest import JavaTool

FEATURES = "org.apache.kafka.tools.FeatureCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.mark.parametrize("version", [1, 2])
def test_the_java_producer_commits_with_both_protocols(
    kalda: KaldaProcess, java_tool: JavaTool, version: int
) -> None:
    """With version 2 every end raises the epoch and partitions are added by the broker (KIP-890)."""
    server = ("--bootstrap-server", kalda.bootstrap)
    if version == 1:
        java_tool(FEATURES, *server, "downgrade", "--feature", "transaction.version=1")
    described = java_tool(FEATURES, *server, "describe")
    assert re.search(rf"transaction.version\s.*FinalizedVersionLevel: {version}", described)
    java_tool("org.apache.kafka.tools.TopicCommand", *server, "--create", "--topic", "t", "--partitions", "3")
    java_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "t", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={kalda.bootstrap}"),
    )
    consumed = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*server, "--topic", "t", "--from-beginning", "--isolation-level", "read_committed"),
        *("--max-messages", "5000", "--timeout-ms", "60000"),
    )
    assert 5000 == len(consumed.splitlines())
    assert "perf" in java_tool(TRANSACTIONS, *server, "list", "--transactional-id-pattern", "p.*f")
    assert "perf" not in java_tool(TRANSACTIONS, *server, "list", "--transactional-id-pattern", "p")
    header, row = (
        java_tool(TRANSACTIONS, *server, "describe", "--transactional-id", "perf").strip().splitlines()
    )
    told = dict(zip(header.split("\t"), (each.strip() for each in row.split("\t")), strict=False))
    told = {name.strip(): value for name, value in told.items()}
    assert "CompleteCommit" == told["TransactionState"]
    assert (version == 2) == (int(told["ProducerEpoch"]) > 0)
    java_tool(TRANSACTIONS, *server, "find-hanging", "--broker-id", "0")
