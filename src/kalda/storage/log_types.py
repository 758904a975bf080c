"""Declares the arguments and results of a log: isolation, append and fetch results, offsets by time.

A class that is created per append or per fetch has slots and no generated comparison.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kalda.storage.file_records import FileSlice
from kalda.storage.transaction_index import AbortedTransaction


class FetchIsolation(IntEnum):
    """The bound of a read."""

    # Followers: the log end offset.
    LOG_END = 0
    # Consumers with read_uncommitted: the high watermark, below which all in-sync replicas have the records.
    HIGH_WATERMARK = 1
    # Consumers with read_committed: the last stable offset, before the first undecided transaction.
    TXN_COMMITTED = 2


@dataclass(slots=True, eq=False)
class LogAppendInfo:
    """The result of an append; for a duplicate, the offsets of its first copy."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 if records keep the producer's timestamps."""
    log_start_offset: int
    duplicate: bool
    size: int
    record_count: int
    converted_count: int = 0
    """The records that came in another format than the log's."""

    conversion_seconds: float = 0.0
    conversion_bytes: int = 0
    """Bytes of memory that the conversion of these records took."""

    def as_converted(self, seconds: float, memory_bytes: int) -> "LogAppendInfo":
        """Return this, after counting its records as converted."""
        self.converted_count = self.record_count
        self.conversion_seconds, self.conversion_bytes = seconds, memory_bytes
        return self


@dataclass(slots=True, eq=False)
class FetchDataInfo:
    """The result of a read; the slice may end inside a batch, as in Kafka, but not inside the first."""

    records: FileSlice
    fetch_offset: int
    high_watermark: int
    aborted_transactions: list[AbortedTransaction] | None = None
    """None unless the read was read_committed."""


class TimestampAndOffset(NamedTuple):
    """A record found by timestamp; `leader_epoch` is -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int
