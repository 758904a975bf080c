"""Rows of `poll_arrow` against records of `poll`, from the same fetches, in pieces of any size."""

from hypothesis import given
from hypothesis import strategies as st

from kalda.clients.consumer.arrow_poll import ArrowPoll
from kalda.clients.consumer.arrow_rows import ARROW_SCHEMA
from kalda.clients.consumer.completed_fetch import CompletedFetch
from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.offset_reset import EARLIEST
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.fetch_position import FetchPosition
from kalda.common.types import TopicPartition
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder

PLAIN = Deserializers()
PARTITIONS = [TopicPartition("t", 0), TopicPartition("u", 7)]

Row = tuple[bytes | None, bytes | None, int, bool]
Drawn = list[tuple[int, list[tuple[list[Row], Compression]]]]
"""Fetches: which partition, and batches of records (key, value, offset distance, has header)."""

blobs = st.none() | st.binary(max_size=20)
rows = st.lists(st.tuples(blobs, blobs, st.integers(1, 3), st.booleans()), min_size=1, max_size=6)
fetches = st.lists(
    st.tuples(
        st.integers(0, 1), st.lists(st.tuples(rows, st.sampled_from(Compression)), min_size=1, max_size=3)
    ),
    max_size=5,
)


def filled(
    drawn: Drawn,
) -> tuple[FetchBuffer, SubscriptionState]:
    subscription = SubscriptionState(EARLIEST)
    subscription.assign_from_user(PARTITIONS)
    for partition in PARTITIONS:
        subscription.seek(partition, FetchPosition(2))
    generations = {each.topic_partition: each.generation for each in subscription.fetchable(0.0)}
    buffer = FetchBuffer(subscription)
    # The first batch begins below the position.
    offsets, positions = [0, 0], [2, 2]
    for number, batches in drawn:
        data = b""
        for records, compression in batches:
            builder = RecordBatchBuilder(base_offset=offsets[number], compression=compression)
            offset = offsets[number] - 1
            for key, value, gap, has_header in records:
                offset += gap
                headers = [("h", key)] if has_header else []
                builder.append(key, value, 1_000 + offset, headers, offset=offset)
            offsets[number] = offset + 1
            data += builder.build()
        partition = PARTITIONS[number]
        fetch = CompletedFetch(
            partition, generations[partition], positions[number], memoryview(data), (), check_crcs=True
        )
        positions[number] = max(positions[number], offsets[number])
        buffer.add(fetch)
    return buffer, subscription


@given(fetches, st.integers(1, 9), st.integers(1, 9))
def test_rows_are_the_records(
    drawn: Drawn,
    rows_max: int,
    records_max: int,
) -> None:
    buffer, subscription = filled(drawn)
    records = []
    while taken := buffer.take(records_max, PLAIN):
        records += taken
    ends = {partition: subscription.position(partition) for partition in PARTITIONS}

    buffer, subscription = filled(drawn)
    arrow = ArrowPoll(buffer, subscription, check_crcs=True)
    found = []
    while (batch := arrow.take(rows_max)) is not None:
        assert ARROW_SCHEMA == batch.schema
        assert 0 < batch.num_rows <= rows_max
        found += batch.to_pylist()
        last = found[-1]
        position = subscription.position(TopicPartition(last["topic"], last["partition"]))
        assert position is not None
        assert last["offset"] < position.offset
    assert ends == {partition: subscription.position(partition) for partition in PARTITIONS}
    assert [
        (each.topic, each.partition, each.offset, each.timestamp_ms, each.key, each.value, list(each.headers))
        for each in records
    ] == [
        (
            *(row["topic"], row["partition"], row["offset"], round(row["timestamp"].timestamp() * 1000)),
            *(row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"]]),
        )
        for row in found
    ]
