"""From fetched bytes to rows: nothing is dropped between the fetch and Spark."""

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kalda.clients.range_reader.partition_fetch import FetchedRecords
from kalda.common.types import TopicPartition
from kalda.records import columnar_selection
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.record import RecordBatchBuilder
from kalda.spark.source import range_reader
from kalda.spark.source.arrow_rows import ROWS_MAX
from kalda.spark.source.options import parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.schema import source_schema

TP = TopicPartition("orders", 3)
OPTIONS = parse_batch_options(
    {"kafka.bootstrap.servers": "b:1", "subscribe": "orders", "readMode": "network"}
)


def batch(base_offset: int, count: int, **options: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, **options)
    for index in range(count):
        headers = [("h", b"%d" % index)] if index % 2 else None
        builder.append(
            b"k%d" % index, b"v%d" % (base_offset + index), timestamp=1_700_000_000_000, headers=headers or []
        )
    return bytes(builder.build())


def read(
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    offset_range: OffsetRange,
    next_offset: int,
    *,
    include_headers: bool = False,
    aborted: tuple[tuple[int, int], ...] = (),
) -> list[pa.RecordBatch]:
    def fetches(*_: object) -> Iterator[tuple[int, FetchedRecords]]:
        yield offset_range.start, FetchedRecords(data, next_offset, next_offset, next_offset, 0, aborted)

    monkeypatch.setattr(range_reader, "fetch_range", fetches)
    schema = source_schema(include_headers=include_headers)
    return list(range_reader.read_range(OPTIONS, schema, offset_range))


def test_every_column_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = read(monkeypatch, batch(10, 2), OffsetRange(TP, 10, 12), 12, include_headers=True)

    moment = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
    common = {"topic": "orders", "partition": 3, "timestamp": moment, "timestampType": 0}
    assert [
        {"key": b"k0", "value": b"v10", "offset": 10, "headers": None} | common,
        {"key": b"k1", "value": b"v11", "offset": 11, "headers": [{"key": "h", "value": b"1"}]} | common,
    ] == [row for each in batches for row in each.to_pylist()]


def test_only_the_range_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch(0, 10) + batch(10, 10)

    batches = read(monkeypatch, data, OffsetRange(TP, 7, 13), 20)

    assert list(range(7, 13)) == [offset for each in batches for offset in each.column("offset").to_pylist()]


def test_batches_for_spark_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * ROWS_MAX + 1

    batches = read(monkeypatch, batch(0, count), OffsetRange(TP, 0, count), count)

    assert [ROWS_MAX, ROWS_MAX, 1] == [each.num_rows for each in batches]


def test_what_one_decode_cannot_hold_comes_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed batches of one fetch can be larger than what Arrow can address at once."""
    data = b"".join(batch(start, 100, compression=Compression.GZIP) for start in range(0, 1000, 100))
    monkeypatch.setattr(columnar_selection, "_DATA_SIZE_MAX", 4_000)

    batches = read(monkeypatch, data, OffsetRange(TP, 50, 950), 1000)

    assert list(range(50, 950)) == [
        offset for each in batches for offset in each.column("offset").to_pylist()
    ]
    assert len(batches) > 1


def test_an_abort_that_one_decode_passed_does_not_hide_what_the_next_one_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list of aborted transactions is the whole fetch's; the second piece begins behind the abort."""
    written = {
        "producer_id": 7,
        "producer_epoch": 0,
        "is_transactional": True,
        "compression": Compression.GZIP,
    }
    data = (
        batch(0, 100, base_sequence=0, **written)
        + bytes(
            build_end_transaction_marker(
                EndTransactionMarker(ControlRecordType.ABORT, 0),
                producer_id=7,
                producer_epoch=0,
                timestamp=0,
                base_offset=100,
            )
        )
        + batch(101, 100, base_sequence=100, **written)
        + batch(201, 100, base_sequence=200, **written)
    )
    monkeypatch.setattr(columnar_selection, "_DATA_SIZE_MAX", 2_000)

    batches = read(monkeypatch, data, OffsetRange(TP, 0, 301), 301, aborted=((7, 0),))

    assert list(range(101, 301)) == [
        offset for each in batches for offset in each.column("offset").to_pylist()
    ]
