"""Which rows a topic does not take."""

import pickle

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decoded import EncodeError
from kalda.pipelines.engine.topic_fit import TopicFit, TopicLimits
from kalda.pipelines.topic_rows import TopicRows


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
