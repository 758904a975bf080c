"""The consumer's decoder against the plain one, on what producers write and on junk."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.clients.consumer.completed_fetch import CompletedFetch
from kalda.clients.consumer.consumer_errors import FetchCorruptionError
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition
from kalda.records.batch import TimestampType, iter_headers
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.errors import RecordsError
from kalda.records.record import RecordBatchBuilder, iter_records

pytestmark = pytest.mark.usefixtures("record_implementation")

PARTITION = TopicPartition("t", 3)
PLAIN = Deserializers()

Row = tuple[bytes | None, bytes | None, int, int, list[tuple[str, bytes | None]]]
Drawn = list[tuple[list[Row], Compression, TimestampType, int]]
"""Batches of records (key, value, timestamp, distance to the offset before, headers), and their epochs."""

blobs = st.none() | st.binary(max_size=8) | st.sampled_from((b"x" * 63, b"x" * 64, b"x" * 9000))
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)
rows = st.tuples(blobs, blobs, st.integers(0, 2**41), st.integers(1, 20_000), headers)
batches = st.lists(
    st.tuples(
        st.lists(rows, min_size=1, max_size=6),
        st.sampled_from((Compression.NONE, Compression.LZ4)),
        st.sampled_from(TimestampType),
        st.integers(-1, 3),
    ),
    min_size=1,
    max_size=4,
)


def build(drawn: Drawn) -> bytes:
    data = b""
    offset = 5
    for records, compression, timestamp_type, epoch in drawn:
        builder = RecordBatchBuilder(
            base_offset=offset,
            compression=compression,
            timestamp_type=timestamp_type,
            log_append_time=123,
            partition_leader_epoch=epoch,
        )
        offset -= 1
        for key, value, timestamp, gap, its_headers in records:
            offset += gap
            builder.append(key, value, timestamp, its_headers, offset=offset)
        offset += 1
        data += builder.build()
    return data


def fetch(data: bytes, offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> CompletedFetch:
    return CompletedFetch(PARTITION, 1, offset, memoryview(data), aborted, check_crcs=True)


def expected(data: bytes, offset: int) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    return [
        ConsumerRecord(
            *PARTITION,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            tuple(record.headers),
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
            None if header.partition_leader_epoch < 0 else header.partition_leader_epoch,
        )
        for position, header in iter_headers(data)
        for record in iter_records(data, position, header)
        if record.offset >= offset
    ]


@given(batches, st.integers(0, 30_000), st.integers(1, 7))
def test_it_returns_what_the_plain_decoder_returns(
    drawn: Drawn,
    offset: int,
    count: int,
) -> None:
    data = build(drawn)
    wanted = expected(data, offset)
    completed = fetch(data, offset)
    taken = []
    while records := completed.take(count, PLAIN):
        assert count >= len(records)
        taken += records
        assert taken[-1].offset < completed.next_offset
    assert wanted == taken
    assert completed.is_consumed
    last = [header for _, header in iter_headers(data)][-1]
    assert max(offset, last.next_offset) == completed.next_offset


@given(batches, st.integers(0, 60))
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(
    drawn: Drawn,
    cut: int,
) -> None:
    """Brokers end a response in the middle of a batch."""
    data = build(drawn)
    whole = [position for position, _ in iter_headers(data)]
    completed = fetch(data[: whole[-1] + cut])
    assert expected(data[: whole[-1]], 0) == completed.take(10_000, PLAIN)
    assert completed.is_consumed


@given(st.data())
def test_junk_is_refused_where_the_plain_decoder_refuses_it(data: st.DataObject) -> None:
    builder = RecordBatchBuilder(base_offset=10)
    for number in range(5):
        builder.append(b"key", b"value-%d" % number, 1000 + number, [("h", b"v")])
    junk = builder.build()
    position = data.draw(st.integers(61, len(junk) - 1))
    junk[position] = data.draw(st.integers(0, 255))
    completed = CompletedFetch(PARTITION, 1, 0, memoryview(junk), (), check_crcs=False)
    try:
        wanted = expected(bytes(junk), -(2**40))
    except RecordsError:
        with contextlib.suppress(FetchCorruptionError):
            # The records before the damage are returned; the damage is reported after them.
            completed.take(5, PLAIN)
            completed.take(5, PLAIN)
            pytest.fail("the damage was not reported")
    else:
        assert wanted == completed.take(100, PLAIN)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(("data", "commit", "abort"))), max_size=25))
def test_read_committed_leaves_out_exactly_the_aborted_transactions(steps: list[tuple[int, str]]) -> None:
    """Each producer's open batches end with its next marker; what is open at the end counts as aborted."""
    data = b""
    offset = 0
    first_open: dict[int, int] = {}
    pending: dict[int, list[int]] = {}
    aborted: list[tuple[int, int]] = []
    committed: list[int] = []
    for producer, step in [*steps, (1, "abort"), (2, "abort"), (3, "abort")]:
        if step == "data":
            builder = RecordBatchBuilder(
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            for _ in range(2):
                builder.append(None, b"v", 1)
            data += builder.build()
            first_open.setdefault(producer, offset)
            pending.setdefault(producer, []).extend((offset, offset + 1))
            offset += 2
            continue
        kind = ControlRecordType.COMMIT if step == "commit" else ControlRecordType.ABORT
        data += build_end_transaction_marker(
            EndTransactionMarker(kind, 0),
            producer_id=producer,
            producer_epoch=0,
            timestamp=1,
            base_offset=offset,
        )
        offset += 1
        offsets = pending.pop(producer, [])
        first = first_open.pop(producer, None)
        if step == "commit":
            committed += offsets
        elif first is not None:
            aborted.append((producer, first))
    completed = fetch(data, 0, tuple(aborted))
    assert sorted(committed) == [record.offset for record in completed.take(1000, PLAIN)]
    assert offset == completed.next_offset
