"""What decides when records are delivered: times in headers and keys, read at once or in the background."""

from typing import Any

import pytest

from kalda.broker.share.record_facts import INLINE_BYTES, WAIT_MAX_MS, FactsReader, RecordFacts
from kalda.records.batch import BatchHeader, read_header
from kalda.records.compression import Compression
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.background import InlineExecutor
from tests.unit.storage.log_fixtures import QueueExecutor

NOW_MS = 1_700_000_000_000


class Slice:
    """A batch in a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def read_part(self, start: int, size: int) -> bytes:
        self.reads += 1
        return self.data[start : start + size]


def batch(
    *values: bytes | None, compression: Compression = Compression.NONE, size: int = 1
) -> tuple[BatchHeader, Any]:
    """Return a batch of records of which some have the header with a value."""
    builder = RecordBatchBuilder(compression=compression)
    for value in values:
        headers = [] if value is None else [("kalda.delivery.at", value)]
        builder.append(None, b"v" * size, timestamp=NOW_MS, headers=headers)
    data = bytes(builder.build())
    return read_header(data), Slice(data)


def facts(executor: Any = None) -> tuple[FactsReader, list[str]]:
    calls: list[str] = []
    return FactsReader(executor or InlineExecutor(), lambda: calls.append("read")), calls


def test_only_records_with_the_header_have_a_time() -> None:
    found, _ = facts()
    header, records = batch(None, b"%d" % (NOW_MS + 5), None, b"7")
    assert RecordFacts(((1, NOW_MS + 5), (3, 7))) == found.of(header, records, 0, 3)
    assert RecordFacts(((1, NOW_MS + 5),)) == found.of(header, records, 1, 2)


@pytest.mark.parametrize("garbage", [b"", b"soon", b"-5", b"1.5", b"9" * 16, b"\xff\xfe", " ٣".encode()])
def test_what_is_no_time_is_no_time(garbage: bytes) -> None:
    """The record is delivered at once."""
    found, _ = facts()
    header, records = batch(garbage)
    assert RecordFacts() == found.of(header, records, 0, 0)


def test_no_record_waits_longer_than_a_week() -> None:
    found, _ = facts()
    header, records = batch(b"9" * 15)
    assert RecordFacts(((0, NOW_MS + WAIT_MAX_MS),)) == found.of(header, records, 0, 0)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.NONE])
def test_compressed_and_large_batches_are_read_in_the_background(compression: Compression) -> None:
    executor = QueueExecutor()
    found, calls = facts(executor)
    header, records = batch(None, b"5", compression=compression, size=INLINE_BYTES)
    other, others = batch(b"6", compression=Compression.GZIP)
    assert None is found.of(header, records, 0, 1)
    assert None is found.of(header, records, 0, 1)
    assert None is found.of(other, others, 0, 0)
    assert (1, 0) == (len(executor.queue), records.reads)
    executor.run()
    assert ["read"] == calls
    assert RecordFacts(((1, 5),)) == found.of(header, records, 0, 1)
    found.keep(lambda first, last: False)
    assert None is found.of(header, records, 0, 1)


def test_a_background_that_is_done_at_once_calls_nobody() -> None:
    """The caller is in the middle of a fetch."""
    found, calls = facts()
    header, records = batch(b"5", compression=Compression.GZIP)
    assert RecordFacts(((0, 5),)) == found.of(header, records, 0, 0)
    assert [] == calls


def test_times_that_nobody_takes_are_bounded() -> None:
    found, _ = facts()
    header, records = batch(b"5", compression=Compression.GZIP)
    for last in range(1000):
        found.of(header, records, 0, last)
    assert len(found._kept) <= 16


def test_batches_that_cannot_be_read_and_old_formats_have_no_times() -> None:
    found, _ = facts()
    header, records = batch(b"5", b"6")
    records.data = records.data[:-3] + b"\xff\xff\xff"
    assert RecordFacts() == found.of(header, records, 0, 1)
    builder = MessageSetBuilder(1, compression=Compression.NONE)
    builder.append(None, b"kalda.delivery.at", timestamp=NOW_MS)
    data = bytes(builder.build())
    assert RecordFacts() == found.of(read_header(data), Slice(data), 0, 0)  # type: ignore[arg-type]  # a file slice


def test_keys_are_read_where_they_count() -> None:
    builder = RecordBatchBuilder()
    for key in (b"a", None, b"b", b"a", b""):
        builder.append(key, b"v", timestamp=NOW_MS)
    data = bytes(builder.build())
    found, _ = facts()
    header, records = read_header(data), Slice(data)
    read = found.of(header, records, 0, 4, has_keys=True)  # type: ignore[arg-type]  # a file slice
    assert read is not None
    assert [0, 2, 3, 4] == list(read.keys)
    assert (read.keys[0], 3) == (read.keys[3], len(set(read.keys.values())))
    assert RecordFacts() == found.of(header, records, 0, 4)  # type: ignore[arg-type]  # a file slice
