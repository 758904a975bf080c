"""The lists of topics and partitions of `kafka-get-offsets`: ``flights:0,trains:2-4,fl.*:7-``.

A rule is a topic, or a regular expression as in `topic_selection`, and may name one partition or a range. As
in Kafka's tool, a range does not contain its end; without a beginning or an end it is open there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kalda.command.errors import ToolUsageError
from kalda.command.option_types import INT32_MAX

_RULE: Final = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>\d+)|(?P<first>\d*)-(?P<end>\d*))?)?")


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """A topic, or an expression, and a range of its partitions."""

    topic: str
    """Empty for all topics."""
    partitions: range


def parse_rules(option: str, lists: Iterable[str]) -> list[PartitionRule]:
    """Read lists of rules with commas between them.

    >>> parse_rules("--topic-partitions", ["a:1,b:2-4"])
    [PartitionRule(topic='a', partitions=range(1, 2)), PartitionRule(topic='b', partitions=range(2, 4))]

    Raises:
        ToolUsageError: a text is no rule.
    """
    rules = []
    for text in lists:
        for word in text.split(","):
            match = _RULE.fullmatch(word.strip())
            if match is None:
                raise ToolUsageError(
                    f"{option}={word} is not allowed: write a topic, a topic with a partition as in "
                    "flights:0, or with a range, whose end is not part of it, as in flights:0-3"
                )
            if match["one"] is not None:
                first = int(match["one"])
                partitions = range(first, first + 1)
            else:
                partitions = range(int(match["first"] or 0), int(match["end"] or INT32_MAX))
            rules.append(PartitionRule(match["topic"], partitions))
    return rules
