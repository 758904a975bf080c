"""Records and gaps of a range, counted each by itself."""

from collections.abc import Iterator
from unittest.mock import create_autospec

import pyarrow as pa
import pytest

from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.partition_fetch import FetchedRecords
from kalda.common.types import TopicPartition
from kalda.pipelines.direct import range_records
from kalda.pipelines.direct.range_records import OffsetCount, OffsetOrderError, ReadMeter, read_columns
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder
from kalda.spark.source.options import parse_stream_options
from kalda.spark.source.plan import OffsetRange

RANGE = OffsetRange(TopicPartition("orders", 0), 2, 10)


def test_gaps_are_counted_before_between_and_behind_records() -> None:
    count = OffsetCount(RANGE)
    count.add(pa.array([3, 4]))
    count.add(pa.array([], pa.int64()))
    count.add(pa.array([7]))
    count.finish()

    assert (3, 5) == (count.records, count.gaps)


def test_a_range_without_records_is_all_gaps() -> None:
    count = OffsetCount(RANGE)
    count.finish()

    assert (0, 8) == (count.records, count.gaps)


@pytest.mark.parametrize("offsets", [[3, 3], [4, 3], [1], [9, 10]])
def test_offsets_that_repeat_go_back_or_leave_the_range_are_an_error(offsets: list[int]) -> None:
    """A reader with such a fault would otherwise count a record twice, or one of the next range."""
    with pytest.raises(OffsetOrderError, match="do not rise from 2 on or reach behind 9"):
        OffsetCount(RANGE).add(pa.array(offsets))


def test_an_offset_of_an_earlier_decode_is_an_error() -> None:
    count = OffsetCount(RANGE)
    count.add(pa.array([2, 3]))

    with pytest.raises(OffsetOrderError):
        count.add(pa.array([3]))


@pytest.mark.parametrize("part", ["key", "value", "headers"])
def test_all_bytes_of_records_count_for_their_slices(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Large keys and headers went through a pipeline in one piece."""
    builder = RecordBatchBuilder(compression=Compression.ZSTD)
    large = bytes(60)
    for number in range(4):
        builder.append(
            large if part == "key" else None,
            large if part == "value" else None,
            number,
            headers=[("h", b""), ("h", large)] if part == "headers" else [],
        )
    fetched = FetchedRecords(bytes(builder.build()), 4, 4, 4, 0, (), False)
    monkeypatch.setattr(range_records, "open_range", lambda *_: iter([(0, fetched)]))
    monkeypatch.setattr(range_records, "SLICE_BYTES", 130)
    options = parse_stream_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"})

    reader = create_autospec(LogReader, instance=True)
    whole = OffsetRange(TopicPartition("orders", 0), 0, 4)
    found = list(read_columns(reader, options, whole, want_headers=True, meter=ReadMeter()))

    assert [[0, 1], [2, 3]] == [each.offsets.to_pylist() for each in found]


def test_a_large_batch_comes_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a pipeline makes another copy, and a batch of some kilobytes may have 256 MB."""
    builder = RecordBatchBuilder(compression=Compression.ZSTD)
    values = [bytes(size) for size in (4, 60, 3, 3, 3, 0, 90)]
    for number, value in enumerate(values):
        builder.append(b"%d" % number, value, number, headers=[("h", b"%d" % number)])
    fetched = FetchedRecords(bytes(builder.build()), 7, 7, 7, 0, (), False)

    def opened(*_: object) -> Iterator[tuple[int, FetchedRecords]]:
        yield 1, fetched

    monkeypatch.setattr(range_records, "open_range", opened)
    monkeypatch.setattr(range_records, "SLICE_BYTES", 70)
    monkeypatch.setattr(range_records, "SLICE_ROWS", 2)
    options = parse_stream_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"})

    reader = create_autospec(LogReader, instance=True)
    whole = OffsetRange(TopicPartition("orders", 0), 1, 7)
    found = list(read_columns(reader, options, whole, want_headers=True, meter=ReadMeter()))

    assert [[1, 2], [3, 4], [5], [6]] == [each.offsets.to_pylist() for each in found]
    assert values[1:] == [value for each in found for value in each.values.to_pylist()]
    for each in found:
        offsets = each.offsets.to_pylist()
        assert [b"%d" % offset for offset in offsets] == each.keys.to_pylist()
        assert offsets == each.timestamps_ms.to_pylist()
        assert each.headers is not None
        assert [[{"key": "h", "value": b"%d" % offset}] for offset in offsets] == each.headers.to_pylist()
