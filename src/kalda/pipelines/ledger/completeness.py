"""Estimates until which event time a table is complete, from the ledger alone.

A table is complete until T at 99.9 % if at most one of a thousand rows is expected to arrive with an event
time before T from now on. The ledger knows the least and the greatest event time of each range, not each
row's; so the rows of a range are taken as spread evenly between the two. Partitions that produce nothing hold
the time back, because the ledger cannot know whether their next record is old.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.audit_record import LedgerRecord

DEFAULT_SHARE: Final = 0.999
_DELAY_STEPS: Final = 64
"""Halvings of the interval in which the delay is searched: more than milliseconds need in a 64-bit range."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """Until when a table is complete."""

    until_ms: int
    """The event time T, in milliseconds since the epoch."""
    share: float
    """The share of rows that are expected to have arrived."""
    delay_ms: int
    """By how much that share of the rows is at most late, compared with the greatest time before them."""
    slowest: TopicPartition
    """The partition whose greatest event time holds T back."""


@dataclass(frozen=True, slots=True)
class _Lateness:
    """Rows of a range of which some may be older than what came before."""

    rows: int
    least: int
    greatest: int
    before: int
    """The greatest event time of earlier ranges of the partition."""

    def rows_later_than(self, delay_ms: int) -> float:
        """Return how many rows lie more than `delay_ms` before `before`."""
        limit = self.before - delay_ms
        if limit <= self.least:
            return 0.0
        if limit >= self.greatest:
            return float(self.rows)
        return self.rows * (limit - self.least) / (self.greatest - self.least)


def estimate(records: Iterable[LedgerRecord], share: float = DEFAULT_SHARE) -> Completeness | None:
    """Return until when the records' table is complete; None where no range has event times.

    Args:
        records: those of one pipeline.
        share: the share of rows that must have arrived, above 0 and at most 1.
    """
    assert 0 < share <= 1, share
    greatest: dict[TopicPartition, int] = {}
    late: list[_Lateness] = []
    row_count = 0
    for each in sorted(records, key=lambda record: (record.committed_ms, record.batch_id)):
        account = each.account
        if account.event_time_min is None or account.event_time_max is None:
            continue
        row_count += account.rows_out
        before = greatest.get(each.topic_partition)
        if before is not None and account.event_time_min < before:
            late.append(_Lateness(account.rows_out, account.event_time_min, account.event_time_max, before))
        greatest[each.topic_partition] = max(
            account.event_time_max, account.event_time_max if before is None else before
        )
    if not greatest:
        return None
    delay_ms = _delay(late, row_count * (1 - share))
    slowest = min(greatest, key=lambda each: (greatest[each], each))
    return Completeness(greatest[slowest] - delay_ms, share, delay_ms, slowest)


def _delay(late: list[_Lateness], rows_max: float) -> int:
    """Return the least delay, in milliseconds, that at most `rows_max` rows exceed."""
    low, high = 0, max((each.before - each.least for each in late), default=0)
    for _ in range(_DELAY_STEPS):
        if low >= high:
            break
        middle = (low + high) // 2
        if sum(each.rows_later_than(middle) for each in late) <= rows_max:
            high = middle
        else:
            low = middle + 1
    return high


def describe(found: Completeness) -> str:
    """Return the estimate in words: ``complete until 2026-11-22T20:00:00.000Z at 99.9 %``."""
    until = datetime.fromtimestamp(found.until_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"complete until {until.replace('+00:00', 'Z')} at {found.share:.1%}".replace("%", " %")
