"""Decides which offsets a replay or a backfill processes.

A bound is an offset of every partition, offsets by partition, or a time. Where rows are appended, offsets
that a batch accounts for are never chosen again, because their rows would be in the table twice.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, assert_never

from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.ledger.continuity import find_uncovered
from kalda.spark.source.offsets import OffsetFormatError, parse_offsets
from kalda.spark.source.plan import OffsetRange

BATCH_OFFSETS_MAX: Final = 5_000_000
"""Offsets of one batch: large enough that commits cost nothing, small enough to repeat after a crash."""

Offsets = Mapping[TopicPartition, int]


class BoundError(ValueError):
    """A bound is neither offsets nor a time; the message shows what it may look like."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """One offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtPartitionOffsets:
    """An offset for each partition; the others are left out."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in milliseconds since the epoch."""

    timestamp_ms: int


Bound = AtOffset | AtPartitionOffsets | AtTime

_OFFSET: Final = re.compile(r"[0-9]{1,18}")


def parse_bound(text: str) -> Bound:
    """Read a bound: ``1500``, ``{"orders":{"0":1500}}``, ``2026-11-22`` or ``2026-11-22T20:00:00Z``.

    A time without a zone is in UTC.

    Raises:
        BoundError: it is none of these.
    """
    text = text.strip()
    if _OFFSET.fullmatch(text):
        return AtOffset(int(text))
    if text.startswith("{"):
        try:
            return AtPartitionOffsets(parse_offsets(text))
        except OffsetFormatError as error:
            raise BoundError(str(error)) from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BoundError(
            f'{text!r} is neither an offset (1500), offsets ({{"orders":{{"0":1500}}}}) nor a time '
            "(2026-11-22T20:00:00Z)"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return AtTime(round(moment.timestamp() * 1000))


def resolve(
    bound: Bound | None,
    default: Offsets,
    starts: Offsets,
    ends: Offsets,
    at_time: Callable[[int], Offsets],
) -> dict[TopicPartition, int]:
    """Return the offset that a bound means in each partition, within what the log holds.

    Args:
        default: the offsets without a bound.
        starts: where the logs begin.
        ends: where the logs end.
        at_time: looks up the first offset at or after a time; a partition without one is left out.
    """
    match bound:
        case None:
            wanted = dict(default)
        case AtOffset(offset):
            wanted = dict.fromkeys(ends, offset)
        case AtPartitionOffsets(offsets):
            wanted = {each: offset for each, offset in offsets.items() if each in ends}
        case AtTime(timestamp_ms):
            found = at_time(timestamp_ms)
            wanted = {each: found.get(each, end) for each, end in ends.items()}
        case _ as never:
            assert_never(never)
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in wanted.items()}


@dataclass(frozen=True, slots=True)
class RefillPlan:
    """What is processed."""

    batches: tuple[tuple[OffsetRange, ...], ...]
    skipped_offsets: int
    """Offsets in the bounds that are left out, because the table accounts for them."""

    @property
    def offsets(self) -> int:
        """How many offsets are processed."""
        return sum(each.offset_count for batch in self.batches for each in batch)


def plan_refill(
    starts: Offsets,
    ends: Offsets,
    records: Sequence[LedgerRecord],
    pending: tuple[OffsetRange, ...] = (),
    *,
    may_repeat: bool,
    batch_offsets_max: int = BATCH_OFFSETS_MAX,
) -> RefillPlan:
    """Return the batches to process between two offsets of each partition.

    Args:
        starts: the first offset of each partition.
        ends: behind the last offset of each; partitions of both are processed.
        records: the ledger of the pipeline.
        pending: the batch that an interrupted refill has begun; it comes first and as it was, wherever it is.
        may_repeat: whether accounted offsets are processed as well, as rows replace each other by key.
    """
    wanted = {each: (starts[each], ends[each]) for each in sorted(starts.keys() & ends.keys())}
    wanted = {each: bounds for each, bounds in wanted.items() if bounds[0] < bounds[1]}
    if may_repeat:
        ranges = [OffsetRange(each, start, end) for each, (start, end) in wanted.items()]
    else:
        ranges = [
            OffsetRange(each.topic_partition, each.start, each.end)
            for each in find_uncovered(wanted, records)
        ]
    total = sum(end - start for start, end in wanted.values())
    chosen = sum(each.offset_count for each in ranges)
    assert chosen <= total, f"{chosen} offsets were chosen of {total}"
    first = (pending,) if pending else ()
    ranges = _without(ranges, pending)
    return RefillPlan((*first, *_batches(ranges, batch_offsets_max)), total - chosen)


def _without(ranges: Iterable[OffsetRange], left_out: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of ranges that lie outside others, in order."""
    rest = list(ranges)
    for out in left_out:
        cut = []
        for each in rest:
            if each.topic_partition != out.topic_partition:
                cut.append(each)
                continue
            cut.append(replace(each, end=min(each.end, max(out.start, each.start))))
            cut.append(replace(each, start=max(each.start, min(out.end, each.end))))
        rest = [each for each in cut if each.start < each.end]
    return rest


def _batches(ranges: Sequence[OffsetRange], offsets_max: int) -> list[tuple[OffsetRange, ...]]:
    """Divide ranges into batches; a batch has one range of a partition, as its account has."""
    assert offsets_max > 0, f"a batch of {offsets_max} offsets"
    batches: list[tuple[OffsetRange, ...]] = []
    open_batch: list[OffsetRange] = []
    left = offsets_max
    for each in ranges:
        start = each.start
        while start < each.end:
            if open_batch and (not left or open_batch[-1].topic_partition == each.topic_partition):
                batches.append(tuple(open_batch))
                open_batch, left = [], offsets_max
            end = min(each.end, start + left)
            assert start < end, f"no progress at offset {start} of {each}"
            open_batch.append(OffsetRange(each.topic_partition, start, end))
            left -= end - start
            start = end
    if open_batch:
        batches.append(tuple(open_batch))
    return batches
