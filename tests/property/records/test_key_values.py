"""The short reader of keys and values against the one that reads everything."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.records.batch import read_header
from kalda.records.compression import Compression
from kalda.records.errors import CorruptRecordError
from kalda.records.key_values import iter_key_values
from kalda.records.record import RecordBatchBuilder, iter_records

blobs = st.none() | st.binary(max_size=8) | st.sampled_from((b"x" * 63, b"x" * 64, b"x" * 300))
rows = st.tuples(blobs, blobs, st.integers(0, 2**41), st.integers(1, 1000), st.integers(0, 2))


@given(st.lists(rows, min_size=1, max_size=8), st.sampled_from((Compression.NONE, Compression.GZIP)))
def test_it_reads_what_the_full_reader_reads(
    records: list[tuple[bytes | None, bytes | None, int, int, int]], compression: Compression
) -> None:
    builder = RecordBatchBuilder(base_offset=7, compression=compression)
    offset = 6
    for key, value, timestamp, gap, headers in records:
        offset += gap
        builder.append(key, value, timestamp, [("h", b"v")] * headers, offset=offset)
    batch = bytes(builder.build())
    header = read_header(batch)
    expected = [(each.offset, each.key, each.value) for each in iter_records(batch, 0, header)]
    assert expected == list(iter_key_values(batch, 0, header))


@given(st.data())
def test_junk_is_refused_as_the_full_reader_refuses_it(data: st.DataObject) -> None:
    builder = RecordBatchBuilder()
    for number in range(3):
        builder.append(b"key", b"value-%d" % number, 1000 + number)
    batch = builder.build()
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    junk = bytes(batch)
    header = read_header(junk)
    try:
        expected = [(each.offset, each.key, each.value) for each in iter_records(junk, 0, header)]
    except CorruptRecordError:
        # It skips the headers of records unread, so it may miss what is wrong there.
        with contextlib.suppress(CorruptRecordError):
            list(iter_key_values(junk, 0, header))
    else:
        assert expected == list(iter_key_values(junk, 0, header))


def test_a_batch_that_ends_inside_a_record_is_corrupt() -> None:
    builder = RecordBatchBuilder()
    builder.append(b"key", b"value", 1000)
    batch = builder.build()
    batch[61] = 0x7E
    with pytest.raises(CorruptRecordError, match="passes the batch's end"):
        list(iter_key_values(bytes(batch), 0, read_header(batch)))
