"""Which rows a topic does not take."""

import pickle
import random
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decoded import EncodeError
from kalda.pipelines.engine.topic_fit import TopicFit, TopicLimits
from kalda.pipelines.topic_rows import TopicRows
from kalda.records.compression import Compression


class Halves:
    """Encodes even numbers."""

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        numbers = rows.field("n").to_pylist()
        odd = [number for number in numbers if number % 2]
        if odd:
            raise EncodeError(f"row {numbers.index(odd[0])}: n={odd[0]} is odd")
        return pa.array([b"%d" % (number // 2) for number in numbers], pa.binary())


def fit_of(rows: TopicRows, limits: TopicLimits) -> TopicFit:
    loaded: TopicFit = pickle.loads(pickle.dumps(TopicFit("out", rows, limits)))
    return loaded


def test_a_row_that_cannot_be_encoded_leaves_the_others_alone() -> None:
    rows = pa.record_batch({"n": pa.array([2, 3, 4, 5, 6])})
    found = fit_of(TopicRows(value=Halves()), TopicLimits()).fit(rows)

    assert [b"1", b"2", b"3"] == found.rows.column("value").to_pylist()
    assert [(1, "EncodeFailed"), (3, "EncodeFailed")] == [(e.row, e.error_class) for e in found.misfits]
    assert "n=3 is odd" in found.misfits[0].message
    assert 2 == len(
        fit_of(TopicRows(value=Halves()), TopicLimits())
        .fit(rows.filter(pc.is_in(rows["n"], pa.array([3, 5]))))
        .misfits
    )


def test_records_that_the_topic_refuses() -> None:
    rows = pa.record_batch(
        {
            "key": pa.array([b"k", b"k", None, b"k"]),
            "value": pa.array([b"v", b"v" * 1000, b"v", None]),
            "partition": pa.array([0, 1, 1, 2], pa.int32()),
            "headers": pa.array([None, None, None, [{"key": "h", "value": b"x"}]]).cast(
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        }
    )
    found = fit_of(TopicRows(), TopicLimits(1000, 2, needs_key=True)).fit(rows)

    assert [b"v"] == found.rows.column("value").to_pylist()
    assert [
        (
            1,
            "RecordTooLarge",
            "column value: the record has about 1088 bytes; the topic out and the producer take 1000",
        ),
        (2, "RecordRefused", "column key=None: the topic out is compacted; a record needs a key"),
        (3, "RecordRefused", "column partition=2: the topic out has 2 partitions"),
    ] == [(each.row, each.error_class, each.message.partition(" (")[0]) for each in found.misfits]


def test_timestamps_that_the_broker_refuses() -> None:
    """`message.timestamp.before.max.ms` and `…after.max.ms`; a null is the time of sending."""
    years = [datetime(year, 1, 1, tzinfo=UTC) for year in (1969, 1980, 2900)]
    times = [*years[:2], None, years[2], datetime.now(UTC)]
    rows = pa.record_batch({"value": [b"v"] * 5, "timestamp": pa.array(times, pa.timestamp("us", "UTC"))})
    day = 86_400_000

    bounded = fit_of(TopicRows(), TopicLimits(before_max_ms=day, after_max_ms=day)).fit(rows)
    assert [(0, "before 1970"), (1, "before.max.ms`=86400000"), (3, "after.max.ms`=86400000")] == [
        (each.row, word)
        for each, word in zip(
            bounded.misfits,
            ("before 1970", "before.max.ms`=86400000", "after.max.ms`=86400000"),
            strict=True,
        )
        if word in each.message and each.error_class == "RecordRefused"
    ]
    assert [None, times[4]] == bounded.rows.column("timestamp").to_pylist()
    unbounded = fit_of(TopicRows(), TopicLimits()).fit(rows)
    assert [0] == [each.row for each in unbounded.misfits]


def test_a_record_is_measured_as_it_is_compressed() -> None:
    """The broker refuses what does not compress well enough; the producer cannot know."""
    noise = random.Random(1).randbytes(5000)
    rows = pa.record_batch({"value": pa.array([b"v" * 5000, noise, b"v"], pa.binary())})
    limits = TopicLimits(1_000_000, packed_bytes_max=1000, codecs=(Compression.ZSTD,))

    found = fit_of(TopicRows(), limits).fit(rows)

    assert [(1, "RecordTooLarge")] == [(each.row, each.error_class) for each in found.misfits]
    assert "when it is compressed; the topic out takes 1000" in found.misfits[0].message
