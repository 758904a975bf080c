"""What `kalda cluster history` makes of times."""

import pytest

from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.values import parse_time_or_age_ms
from kalda.common.types import TopicPartition
from kalda.tools.cluster_history import _records_until, _time_text

NOW = 1_796_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("2h", NOW - 7_200_000),
        ("PT2H", NOW - 7_200_000),
        ("999999999999d", 0),
        ("P999999999999D", 0),
        ("0001-01-01T00:00", 0),
        ("9999-12-31T23:59-23:59", 253_402_300_799_999),
        ("999999999999999", 253_402_300_799_999),
    ],
)
def test_every_time_can_be_asked_for_and_shown(text: str, expected: int) -> None:
    found = parse_time_or_age_ms("--at", text, NOW)
    assert expected == found
    assert _time_text(found).endswith("Z")


@pytest.mark.parametrize(
    "text", ["", "-5", "9" * 16, "9" * 5_000, "9" * 4_000 + "d", "1²", "٣d", "h", "2026-13-01T00:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ToolUsageError):
        parse_time_or_age_ms("--at", text, NOW)


class Consumer:
    """One that gets one more record with each poll up to an offset, and then nothing."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.at = 0
        self.polls = 0

    async def position(self, partition: TopicPartition) -> int:
        return self.at

    async def poll(self, timeout_s: float) -> list[object]:
        self.polls += 1
        self.at = min(self.at + 1, self.last)
        return []


async def test_the_end_of_the_history_may_be_out_of_reach() -> None:
    """The topic loses its leader, or a new one has less."""
    complete, cut = Consumer(50), Consumer(3)
    partition = TopicPartition("__cluster_history", 0)
    assert [] == await _records_until(complete, partition, 50)  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="behind offset 3, and it should end at 50"):
        await _records_until(cut, partition, 50)  # type: ignore[arg-type]
    assert 34 == cut.polls
