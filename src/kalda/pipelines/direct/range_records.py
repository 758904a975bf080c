"""Reads one range of offsets as Arrow batches and counts, while doing so, what the range holds.

It decodes what `kalda.spark.source` reads in place or fetches, without that package's row limit of an Arrow
batch: nothing here goes through Spark's bridge, and a whole fetch at a time costs less per record.

`OffsetCount` counts records and gaps each by itself, from the offsets of the decoded records. The account of
a batch would prove nothing if one were the other's complement.
"""

import time
from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.clients.range_reader.log_reader import LogReader
from kalda.formats.framing import slice_ranges
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.range_reader import decode_part, open_range
from kalda.spark.source.read_counters import ReadCounters
from kalda.spark.worker import pooled_reader, prepare_worker

SLICE_BYTES: Final = 16 << 20
SLICE_ROWS: Final = 1 << 18
"""One compressed batch may have 256 MB, of which each step makes another copy. Most are far smaller."""


class OffsetOrderError(ValueError):
    """Decoded offsets do not rise or lie outside the range: a record would be lost or counted twice."""


class OffsetCount:
    """Counts the records of a range, and the offsets in it that hold none.

    Example: offsets 3, 4, 7 of the range [2, 10): three records and five gaps (2, 5, 6, 8, 9).
    """

    def __init__(self, offset_range: OffsetRange) -> None:
        self._range: Final = offset_range
        self._next = offset_range.start
        """No offset below this is still to come."""
        self.records = 0
        self.gaps = 0

    def add(self, offsets: pa.Int64Array) -> None:
        """Count the next records.

        Raises:
            OffsetOrderError: an offset repeats, goes back or lies outside the range.
        """
        count = len(offsets)
        if not count:
            return
        numbers = offsets.to_numpy()
        steps = np.diff(numbers, prepend=self._next - 1)
        if int(steps.min()) < 1 or int(numbers[-1]) >= self._range.end:
            raise OffsetOrderError(
                f"{self._range.topic_partition}: offsets {int(numbers[0])} to {int(numbers[-1])} do not rise "
                f"from {self._next} on or reach behind {self._range.end - 1}"
            )
        self.records += count
        self.gaps += int((steps - 1).sum())
        self._next = int(numbers[-1]) + 1

    def finish(self) -> None:
        """Count what lies behind the last record; the reader has reached the end of the range."""
        assert self._next <= self._range.end, f"{self._next} is behind {self._range}"
        self.gaps += self._range.end - self._next
        self._next = self._range.end
        counted = self.records + self.gaps
        assert counted == self._range.offset_count, f"{counted} offsets were counted of {self._range}"


class ReadMeter:
    """What reading one range took: for the metrics of a pipeline."""

    def __init__(self) -> None:
        self.counters: Final = ReadCounters()
        self.decode_seconds = 0.0


def read_columns(
    reader: LogReader,
    options: SourceOptions,
    offset_range: OffsetRange,
    *,
    want_headers: bool,
    meter: ReadMeter,
    want_keys: bool = True,
    want_values: bool = True,
) -> Iterator[ColumnarBatch]:
    """Yield the columns of the range's records, about one fetch at a time.

    Raises:
        DataLossError: records of the range are gone, and `failOnDataLoss` is true.
        NotInPlaceError: `readMode` is files, and the range cannot be read in place.
        ClientError: the cluster could not be read.
        RecordsError: a batch is corrupt.
    """
    wanted = WantedFields(keys=want_keys, values=want_values, headers=want_headers)
    for start, fetched in open_range(reader, options, offset_range, meter.counters):
        pieces = decode_part(options, offset_range.end, start, fetched, wanted)
        while True:
            began = time.perf_counter()
            decoded = next(pieces, None)
            meter.decode_seconds += time.perf_counter() - began
            if decoded is None:
                break
            if len(decoded):
                yield from _slices(decoded)
            del decoded


def _slices(decoded: ColumnarBatch) -> Iterator[ColumnarBatch]:
    """Yield records in slices of at most `SLICE_BYTES` of keys, values and headers, and `SLICE_ROWS`."""
    if _memory(decoded) <= SLICE_BYTES and len(decoded) <= SLICE_ROWS:
        yield decoded
        return
    for start, end in slice_ranges(_sizes(decoded), SLICE_BYTES, SLICE_ROWS):
        rows = slice(start, end)
        yield replace(
            decoded,
            offsets=decoded.offsets[rows],
            timestamps_ms=decoded.timestamps_ms[rows],
            timestamp_types=decoded.timestamp_types[rows],
            keys=decoded.keys[rows],
            values=decoded.values[rows],
            headers=None if decoded.headers is None else decoded.headers[rows],
        )


def _memory(decoded: ColumnarBatch) -> int:
    """Return the memory of keys, values and headers: their bytes, and some more for each record."""
    headers = 0 if decoded.headers is None else decoded.headers.nbytes
    return int(decoded.keys.nbytes + decoded.values.nbytes + headers)


def _sizes(decoded: ColumnarBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many bytes the key, the value and the headers of each record have."""
    sizes = _lengths(decoded.values) + _lengths(decoded.keys)
    if decoded.headers is not None:
        keys, values = decoded.headers.values.flatten()
        filled = np.append(0, np.cumsum(_lengths(keys) + _lengths(values)))
        sizes += np.diff(filled[decoded.headers.offsets.to_numpy()])
    return sizes


def _lengths(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    lengths = pc.fill_null(pc.binary_length(texts), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


class RangeReader(Protocol):
    """Reads a range for a job; pickled to the executors with it."""

    def __call__(
        self, options: SourceOptions, offset_range: OffsetRange, wanted: WantedFields, meter: ReadMeter
    ) -> Generator[ColumnarBatch, None, None]:
        """Yield the columns of the range's records; the caller closes the generator."""
        ...


def read_range(
    options: SourceOptions, offset_range: OffsetRange, wanted: WantedFields, meter: ReadMeter
) -> Generator[ColumnarBatch, None, None]:
    """Read a range from the cluster, in a worker of Spark; raises as `read_columns`."""
    prepare_worker()
    with pooled_reader(options.client) as reader:
        yield from read_columns(
            reader,
            options,
            offset_range,
            want_headers=wanted.headers,
            want_keys=wanted.keys,
            want_values=wanted.values,
            meter=meter,
        )


def without_values(records: ColumnarBatch, offsets: Collection[int]) -> ColumnarBatch:
    """Return records of which those at some offsets have no value, so that it is not decoded."""
    if not offsets:
        return records
    mask = pc.is_in(records.offsets, pa.array(list(offsets), pa.int64()))
    return replace(records, values=pc.if_else(mask, pa.scalar(None, records.values.type), records.values))
