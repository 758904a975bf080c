"""Rules of `--topic-partitions` mean what they mean to `kafka-get-offsets`."""

import pytest

from kalda.command.errors import ToolUsageError
from kalda.command.option_types import INT32_MAX
from kalda.tools.partition_rules import PartitionRule, parse_rules


def test_rules_name_one_partition_a_range_or_all() -> None:
    rules = parse_rules("--topic-partitions", ["a,b:1,c:2-4", "d:3-", ":-2", "fl.*"])
    assert [
        PartitionRule("a", range(INT32_MAX)),
        PartitionRule("b", range(1, 2)),
        # As in Kafka's tool, the end is not part of the range.
        PartitionRule("c", range(2, 4)),
        PartitionRule("d", range(3, INT32_MAX)),
        PartitionRule("", range(2)),
        PartitionRule("fl.*", range(INT32_MAX)),
    ] == rules


@pytest.mark.parametrize("text", ["a:x", "a:1:2", "a:-1-2", "a:1-2-3"])
def test_what_is_no_rule_is_refused_by_name(text: str) -> None:
    with pytest.raises(ToolUsageError, match=f"--topic-partitions={text} is not allowed: write a topic"):
        parse_rules("--topic-partitions", [f"b:1,{text}"])
