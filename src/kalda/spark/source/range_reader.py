"""Reads the ranges of a task on an executor, in place or by fetching, and decodes them to Arrow batches.

A task borrows the log reader of its worker process, whose connections outlive the task. While a task decodes
and sends one fetch, the loop thread of the log reader receives the next one.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from kalda.clients.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.partition_fetch import FetchedRecords
from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.columnar import ColumnarBatch, decode_batches
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.arrow_rows import RowBatches
from kalda.spark.source.data_loss import DataLossError, RecordsGoneError, report_data_loss
from kalda.spark.source.options import MalformedTimestamps, ReadMode, SourceOptions
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.read_counters import ReadCounters
from kalda.spark.source.segment_reader import Part, read_in_place
from kalda.spark.worker import decompression_buffer, pooled_reader, prepare_worker

logger: Final = logging.getLogger(__name__)

EMPTY_FETCHES_AT_END: Final = 2
"""A broker that says it holds offsets up to the range's end, and twice returns no record of them, has none:
compaction took them, or they are markers of transactions. Twice, because once may be a throttled answer."""

OUT_OF_RANGE_WAIT_SECONDS: Final = 0.1
"""Between two fetches of an offset that the leader says it has and does not serve."""

IN_PLACE_OFFSETS_MIN: Final = 2_000
"""Under `readMode=auto`, shorter ranges are fetched: one request costs less than a lease, its release and the
mapping of files, and most ranges of micro-batches are short."""

DECOMPRESSED_BYTES: Final = 1024 * 1024
"""Decompressed bytes of one decode: what it writes and reads again stays in the processor's cache, and Spark
gets Arrow batches of about this size."""


def read_ranges(
    options: SourceOptions, schema: StructType, ranges: Iterable[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges of one task, one range after the other; raises as `read_range`."""
    for each in ranges:
        yield from read_range(options, schema, each)


def read_range(
    options: SourceOptions, schema: StructType, offset_range: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range; ends at its end even where its last offsets hold no record.

    Raises:
        DataLossError: records of the range are gone, and `failOnDataLoss` is true.
        ClientError: the cluster could not be read.
        RecordsError: a batch is corrupt.
        MalformedTimestampError: a record's timestamp fits no column, and that is an error.
    """
    prepare_worker()
    is_null = options.malformed_timestamps is MalformedTimestamps.NULL
    rows = RowBatches(schema, offset_range.topic_partition, null_timestamps=is_null)
    names = schema.names
    with pooled_reader(options.client) as reader:
        for position, fetched in open_range(reader, options, offset_range, ReadCounters()):
            wanted = WantedFields(keys="key" in names, values="value" in names, headers="headers" in names)
            for decoded in decode_part(options, offset_range.end, position, fetched, wanted):
                yield from rows.of(decoded)


def decode_part(
    options: SourceOptions, end: int, position: int, fetched: FetchedRecords, wanted: WantedFields
) -> Iterator[ColumnarBatch]:
    """Yield the columns of one part of `open_range`, in several pieces where one decode cannot hold it.

    Raises:
        RecordsError: a batch is corrupt.
    """
    data = memoryview(fetched.records)
    # One state for all pieces: an abort that an earlier piece passed does not end in a later one.
    aborted = AbortedTransactions(fetched.aborted_transactions)
    while True:
        decoded = decode_batches(
            data,
            start_offset=position,
            end_offset=end,
            aborted=aborted,
            check_crc=options.client.check_crcs and not fetched.is_checked,
            want_headers=wanted.headers,
            want_keys=wanted.keys,
            want_values=wanted.values,
            decompressed_bytes=DECOMPRESSED_BYTES,
            memory=decompression_buffer(),
        )
        next_offset, consumed_bytes = decoded.next_offset, decoded.consumed_bytes
        assert next_offset >= position, f"went back from {position} to {next_offset}"
        yield decoded
        del decoded  # it may have hundreds of megabytes, as may the next one
        if next_offset >= min(fetched.next_offset, end):
            return
        # Compressed batches can hold more than one decode takes.
        assert consumed_bytes, f"no progress at offset {next_offset}"
        data = data[consumed_bytes:]
        position = next_offset


def open_range(
    reader: LogReader, options: SourceOptions, offset_range: OffsetRange, counters: ReadCounters
) -> Iterator[Part]:
    """Yield the record batches of the range as `readMode` says: from segment files, and else fetched.

    Each part is the offset that it was read from, and records that are valid until the next part is asked
    for. Batches may begin before that offset and end behind the range; `decode_batches` leaves these records
    out. `counters` are updated on the way.

    Raises:
        DataLossError, ClientError: as `read_range`.
        NotInPlaceError: `readMode` is files, and the range cannot be read in place.
    """
    position, end = offset_range.start, offset_range.end
    if options.read_mode is ReadMode.FILES or (
        options.read_mode is ReadMode.AUTO and offset_range.offset_count >= IN_PLACE_OFFSETS_MIN
    ):
        position = yield from read_in_place(reader, options, offset_range, counters)
        assert position >= offset_range.start, f"{position} is before {offset_range}"
    if position < end:
        for part in fetch_range(reader, options, replace(offset_range, start=position)):
            counters.bytes_fetched += len(part[1].records)
            yield part


def fetch_range(
    reader: LogReader,
    options: SourceOptions,
    offset_range: OffsetRange,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[int, FetchedRecords]]:
    """Yield what the fetches of the range bring, each with the offset that it was asked for."""
    end = offset_range.end
    topic_partition = offset_range.topic_partition
    with reader.fetcher(
        topic_partition, start=offset_range.start, end=end, topic_id=offset_range.topic_id
    ) as fetcher:
        progress_at = monotonic()
        empty_count = 0
        while fetcher.position < end:
            position = fetcher.position
            try:
                fetched = fetcher.next()
            except OffsetOutOfRangeError:
                next_position = _skip_lost(reader, options, offset_range, position)
                if next_position == position:
                    # A new leader may not have caught up with what it will serve in a moment.
                    if (monotonic() - progress_at) * 1000 > options.poll_timeout_ms:
                        raise
                    sleep(OUT_OF_RANGE_WAIT_SECONDS)
                fetcher.seek(next_position)
                continue
            except UnknownTopicOrPartitionError as error:
                _report(
                    options, offset_range, position, end, f"the partition does not exist any more ({error})"
                )
                return
            if fetched.records:
                progress_at = monotonic()
                empty_count = 0
                yield position, fetched
                continue
            empty_count += 1
            if fetched.last_stable_offset >= end and empty_count >= EMPTY_FETCHES_AT_END:
                return
            if (monotonic() - progress_at) * 1000 > options.poll_timeout_ms:
                _report(options, offset_range, position, end, f"the log ends at {fetched.last_stable_offset}")
                return


def _skip_lost(reader: LogReader, options: SourceOptions, offset_range: OffsetRange, position: int) -> int:
    """Return where to go on when the log does not hold `position`: at its start, or at the range's end."""
    topic_partition = offset_range.topic_partition
    kind: type[DataLossError]
    beginning = reader.beginning_offsets([topic_partition])[topic_partition]
    if position < beginning:
        next_position = min(beginning, offset_range.end)
        if offset_range.is_start_open:
            return next_position
        reason, kind = f"the log starts at {beginning}", RecordsGoneError
    else:
        end = reader.end_offsets([topic_partition])[topic_partition]
        # An end that has grown past the position since is no loss: the leader was behind.
        if position <= end:
            return position
        next_position = offset_range.end
        reason, kind = f"the log ends at {end}", DataLossError
    assert position < next_position <= offset_range.end, f"{position} to {next_position} of {offset_range}"
    _report(options, offset_range, position, next_position, reason, kind)
    return next_position


def _report(
    options: SourceOptions,
    offset_range: OffsetRange,
    start: int,
    end: int,
    reason: str,
    error: type[DataLossError] = DataLossError,
) -> None:
    report_data_loss(
        f"offsets {start} to {end - 1} of {offset_range.topic_partition} cannot be read: {reason}",
        fail=options.fail_on_data_loss,
        error=error,
    )
