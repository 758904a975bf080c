"""Reads committed records of a log, and makes digests of them that two clusters can be compared by.

A digest covers keys, values, headers and timestamps, and neither offsets nor how records are batched or
compressed: a copy differs from its original in those.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kalda.clients.range_reader.log_reader import LogReader
from kalda.common.types import TopicPartition
from kalda.records.columnar import ColumnarBatch, decode_batches

_EMPTY_FETCHES_AT_END: Final = 2
_NONE: Final = -1
"""The length of a key or value that is null."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record."""

    offset: int
    digest: "Digest"


@dataclass(frozen=True, slots=True)
class Digest:
    """Sums of a sequence of records; the same however the sequence is cut."""

    count: int = 0
    keys: int = 0
    values: int = 0
    headers: int = 0
    timestamps: int = 0

    def add(self, batch: ColumnarBatch) -> "Digest":
        """Return the digest of these records and those of a batch."""
        headers = batch.headers
        assert headers is not None, "records are read with their headers"
        return Digest(
            self.count + len(batch),
            _add_binary(self.keys, batch.keys),
            _add_binary(self.values, batch.values),
            _add_headers(self.headers, headers),
            zlib.crc32(batch.timestamps_ms.to_numpy().astype("<i8").tobytes(), self.timestamps),
        )


class LogRows:
    """The committed records of one cluster's partitions."""

    def __init__(self, reader: LogReader) -> None:
        """Take a reader with `isolation.level=read_committed`, which the caller closes."""
        self._reader: Final = reader

    def batches(self, partition: TopicPartition, start: int, end: int) -> Iterator[ColumnarBatch]:
        """Yield the records from one offset to another one.

        Raises:
            OffsetOutOfRangeError: the log does not begin at or before `start` any more.
            ClientError: the partition cannot be read.
            RecordsError: a batch is damaged.
        """
        if start >= end:
            return
        empty_count = 0
        with self._reader.fetcher(partition, start=start, end=end) as fetcher:
            position = start
            while position < end:
                fetched = fetcher.next()
                if not fetched.records:
                    empty_count += 1
                    if fetched.last_stable_offset >= end and empty_count >= _EMPTY_FETCHES_AT_END:
                        return
                    continue
                empty_count = 0
                decoded = decode_batches(
                    memoryview(fetched.records),
                    start_offset=position,
                    end_offset=end,
                    aborted=fetched.aborted_transactions,
                    want_headers=True,
                )
                if len(decoded):
                    yield decoded
                if decoded.next_offset < fetched.next_offset:
                    fetcher.seek(decoded.next_offset)
                position = min(decoded.next_offset, end)

    def offsets(self, partition: TopicPartition, start: int, end: int) -> npt.NDArray[np.int64]:
        """Return the offsets of the records in a range; raises as `batches`."""
        found = [each.offsets.to_numpy() for each in self.batches(partition, start, end)]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def rows(self, partition: TopicPartition, start: int, end: int) -> Iterator[Row]:
        """Yield the records of a range one by one; raises as `batches`."""
        for batch in self.batches(partition, start, end):
            for index, offset in enumerate(batch.offsets.to_pylist()):
                yield Row(offset, Digest().add(_one(batch, index)))

    def first(self, partition: TopicPartition, start: int, end: int) -> Row | None:
        """Return the first record of a range; None if it has none; raises as `batches`."""
        for batch in self.batches(partition, start, end):
            return Row(batch.offsets[0].as_py(), Digest().add(_one(batch, 0)))
        return None

    def digest(self, partition: TopicPartition, start: int, end: int, before: Digest) -> Digest:
        """Return the digest of the records of `before` and of a range behind them; raises as `batches`."""
        for batch in self.batches(partition, start, end):
            before = before.add(batch)
        return before


def _one(batch: ColumnarBatch, index: int) -> ColumnarBatch:
    headers = batch.headers
    assert headers is not None, "records are read with their headers"
    return ColumnarBatch(
        offsets=batch.offsets.slice(index, 1),
        timestamps_ms=batch.timestamps_ms.slice(index, 1),
        timestamp_types=batch.timestamp_types.slice(index, 1),
        keys=batch.keys.slice(index, 1),
        values=batch.values.slice(index, 1),
        headers=headers.slice(index, 1),
        next_offset=batch.next_offset,
        consumed_bytes=batch.consumed_bytes,
    )


def _add_binary(before: int, column: pa.Array) -> int:
    """Add lengths and bytes; both matter, because bytes alone do not show where one value ends."""
    lengths = pc.fill_null(pc.binary_length(column), _NONE).to_numpy().astype("<i4")
    sums = zlib.crc32(lengths.tobytes(), before & 0xFFFFFFFF)
    content = before >> 32
    if len(column):
        _, offsets, data = column.buffers()
        first, last = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]]
        if data is not None:
            content = zlib.crc32(memoryview(data)[first:last], content)
    return content << 32 | sums


def _add_headers(before: int, column: pa.Array) -> int:
    lengths = pc.fill_null(pc.list_value_length(column), _NONE).to_numpy().astype("<i4")
    counts = zlib.crc32(lengths.tobytes(), before & 0xFFFFFFFF)
    entries = column.flatten()
    keys, values = (before >> 32) & (1 << 64) - 1, before >> 96
    if len(entries):
        names, contents = entries.flatten()
        keys = _add_binary(keys, names)
        values = _add_binary(values, contents)
    return values << 96 | keys << 32 | counts
