"""Declares the arguments and results of a log: isolation, append and fetch results, offsets by time.

A class that is created per append or per fetch is a plain class with slots.
"""

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


class LogAppendInfo:
    """The result of an append; for a duplicate, the offsets of its first copy."""

    __slots__ = (
        "duplicate",
        "first_offset",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_count",
        "size",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        duplicate: bool,
        size: int,
        record_count: int,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        # -1 if records keep the producer's timestamps.
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.size = size
        self.record_count = record_count

    def __repr__(self) -> str:
        return f"LogAppendInfo({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class FetchDataInfo:
    """The result of a read; the slice may end inside a batch, as in Kafka, but not inside the first."""

    __slots__ = ("aborted_transactions", "fetch_offset", "high_watermark", "records")

    def __init__(
        self,
        records: FileSlice,
        fetch_offset: int,
        high_watermark: int,
        aborted_transactions: list[AbortedTransaction] | None = None,
    ) -> None:
        self.records = records
        self.fetch_offset = fetch_offset
        self.high_watermark = high_watermark
        # None unless the read was read_committed.
        self.aborted_transactions = aborted_transactions

    def __repr__(self) -> str:
        return f"FetchDataInfo({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class TimestampAndOffset(NamedTuple):
    """A record found by timestamp; `leader_epoch` is -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int
