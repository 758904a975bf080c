"""Turns filters of a batch query into bounds on topics, partitions, offsets, times (`pushdown=per-frame`).

No I/O. A filter on topic, partition or offset is applied in full by the ranges that are read, so Spark need
not apply it again. A filter on the timestamp only moves the starts, and Spark applies it again.

Only what an index look-up guarantees may be left out. Timestamps do not rise with the offsets: a record with
an old timestamp may come last. ListOffsets returns the first offset with a timestamp at or after the one
asked for, so everything before that offset is older, and a lower bound on the time may move the start.
Nothing says where the last record below a time is: an upper bound moves nothing.
"""

import calendar
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeGuard

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kalda.common.types import TopicPartition

_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query can have rows of."""

    topics: frozenset[str] | None = None
    """None for all."""
    partitions: frozenset[int] | None = None
    """None for all between the two numbers below."""
    partition_min: int = 0
    partition_max: int = _OFFSET_MAX
    offset_start: int = 0
    """The first offset."""
    offset_end: int = _OFFSET_MAX
    """One past the last offset."""
    timestamp_min: int | None = None
    """In milliseconds: no row is older."""

    def has_partition(self, partition: TopicPartition) -> bool:
        """Return whether rows of the partition can be in the result."""
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or partition.partition in self.partitions)
            and self.partition_min <= partition.partition <= self.partition_max
        )


def push_filters(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """Return the bounds that the filters set, which all apply, and the filters that Spark has to apply.

    Example: ``topic = 'a' AND offset >= 10 AND timestamp >= T AND length(key) > 3`` sets the topic, the first
    offset and the time; the last two filters remain.
    """
    bounds = Bounds()
    remaining = []
    for each in filters:
        narrowed, is_complete = _narrow(bounds, each)
        bounds = narrowed
        if not is_complete:
            remaining.append(each)
    return bounds, remaining


def _narrow(bounds: Bounds, given: Filter) -> tuple[Bounds, bool]:
    """Return narrower bounds, and whether the filter needs not be applied again."""
    if not isinstance(given, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return bounds, False
    match given.attribute:
        case ("topic",):
            return _narrow_topic(bounds, given)
        case ("partition",):
            return _narrow_partition(bounds, given)
        case ("offset",):
            return _narrow_offset(bounds, given)
        case ("timestamp",):
            return _narrow_time(bounds, given), False
    return bounds, False


def _narrow_topic(bounds: Bounds, given: Filter) -> tuple[Bounds, bool]:
    values = _values(given)
    topics = frozenset(each for each in values or () if isinstance(each, str))
    if values is None or len(topics) < len(set(values)):
        return bounds, False
    return replace(bounds, topics=topics if bounds.topics is None else bounds.topics & topics), True


def _narrow_partition(bounds: Bounds, given: Filter) -> tuple[Bounds, bool]:
    values = _values(given)
    if values is not None:
        numbers = frozenset(each for each in values if _is_whole(each))
        if len(numbers) < len(set(values)):
            return bounds, False
        known = bounds.partitions
        return replace(bounds, partitions=numbers if known is None else known & numbers), True
    limits = _limits(given)
    if limits is None:
        return bounds, False
    first, last = limits
    return replace(
        bounds,
        partition_min=max(bounds.partition_min, first),
        partition_max=min(bounds.partition_max, last),
    ), True


def _narrow_offset(bounds: Bounds, given: Filter) -> tuple[Bounds, bool]:
    values = _values(given)
    if values is not None:
        numbers = [each for each in values if _is_whole(each)]
        if not numbers or len(numbers) < len(values):
            return bounds, False
        first, last = min(numbers), max(numbers)
    else:
        limits = _limits(given)
        if limits is None:
            return bounds, False
        first, last = limits
    narrowed = replace(
        bounds,
        offset_start=max(bounds.offset_start, first),
        offset_end=min(bounds.offset_end, last + 1),
    )
    # Between the offsets of a list there can be others.
    return narrowed, values is None or len(set(values)) == 1


def _narrow_time(bounds: Bounds, given: Filter) -> Bounds:
    match given:
        case EqualTo(_, value) | GreaterThanOrEqual(_, value) if isinstance(value, datetime):
            least = -(-_microseconds(value) // 1000)
        case GreaterThan(_, value) if isinstance(value, datetime):
            least = _microseconds(value) // 1000 + 1
        case In(_, values) if values and all(isinstance(each, datetime) for each in values):
            least = min(-(-_microseconds(each) // 1000) for each in values)
        case _:
            return bounds
    known = bounds.timestamp_min
    return replace(bounds, timestamp_min=least if known is None else max(known, least))


def _values(given: Filter) -> tuple[object, ...] | None:
    match given:
        case EqualTo(_, value):
            return (value,)
        case In(_, values):
            return tuple(values)
    return None


def _limits(given: Filter) -> tuple[int, int] | None:
    """Return the least and the greatest number that a comparison allows."""
    match given:
        case GreaterThan(_, value) if _is_whole(value):
            return value + 1, _OFFSET_MAX - 1
        case GreaterThanOrEqual(_, value) if _is_whole(value):
            return value, _OFFSET_MAX - 1
        case LessThan(_, value) if _is_whole(value):
            return 0, value - 1
        case LessThanOrEqual(_, value) if _is_whole(value):
            return 0, value
    return None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _microseconds(value: datetime) -> int:
    """Return the microseconds since the epoch; a time without a zone is in UTC, as Spark's are."""
    in_utc = value.astimezone(UTC) if value.tzinfo is not None else value
    return calendar.timegm(in_utc.timetuple()) * 1_000_000 + in_utc.microsecond
