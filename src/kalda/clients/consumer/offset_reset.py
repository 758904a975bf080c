"""Decides where reading starts: by `auto.offset.reset`, or by a seek to an end of the log or to a time.

`auto.offset.reset` has effect without a committed offset, or when the position is gone.

`by_duration:` (KIP-1106) takes an ISO-8601 duration as java.time.Duration.parse reads it: days, hours,
minutes and seconds, such as ``P7D`` or ``PT1H30M``. Months and years have no fixed length and are refused.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.common.iso_duration import parse_duration_ms
from kalda.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

BY_DURATION_PREFIX: Final = "by_duration:"
ALLOWED: Final = "earliest, latest, none, or by_duration: and an ISO-8601 duration such as by_duration:PT1H"


class ResetKind(Enum):
    """The kinds of reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"
    TO_TIME = "to_time"
    """The first record of a time or later; no value of the setting."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Where a partition without a position starts."""

    kind: ResetKind
    duration_ms: int = 0
    """How far back `BY_DURATION` starts; 0 for the other kinds."""
    timestamp_ms: int = 0
    """Where `TO_TIME` starts, in milliseconds since the epoch; 0 for the other kinds."""

    def timestamp(self, now_ms: int) -> int:
        """Return the timestamp to look up with ListOffsets, given the wall clock's milliseconds."""
        assert self.kind is not ResetKind.NONE, "auto.offset.reset=none has no timestamp"
        if self.kind is ResetKind.EARLIEST:
            return EARLIEST_TIMESTAMP
        if self.kind is ResetKind.LATEST:
            return LATEST_TIMESTAMP
        if self.kind is ResetKind.TO_TIME:
            return self.timestamp_ms
        return max(now_ms - self.duration_ms, 0)

    def __str__(self) -> str:
        if self.kind is ResetKind.BY_DURATION:
            return f"{self.duration_ms} ms ago"
        if self.kind is ResetKind.TO_TIME:
            return f"timestamp {self.timestamp_ms}"
        return str(self.kind.value)


EARLIEST: Final = OffsetReset(ResetKind.EARLIEST)
LATEST: Final = OffsetReset(ResetKind.LATEST)
NONE: Final = OffsetReset(ResetKind.NONE)


def to_time(timestamp_ms: int) -> OffsetReset:
    """Return the reset to the first record whose timestamp is at or after a time; to the end without one."""
    return OffsetReset(ResetKind.TO_TIME, timestamp_ms=timestamp_ms)


def parse_offset_reset(text: str) -> OffsetReset:
    """Read a value of `auto.offset.reset`; upper and lower case are the same.

    Raises:
        ValueError: the text is none of the allowed values; the message names them.
    """
    lower = text.strip().lower()
    for fixed in (EARLIEST, LATEST, NONE):
        if lower == fixed.kind.value:
            return fixed
    if lower.startswith(BY_DURATION_PREFIX):
        duration_ms = parse_duration_ms(lower.removeprefix(BY_DURATION_PREFIX))
        if duration_ms is not None and duration_ms >= 0:
            return OffsetReset(ResetKind.BY_DURATION, duration_ms)
    raise ValueError(f"`auto.offset.reset`={text} is not allowed: it takes {ALLOWED}")
