"""Dead letters: what they keep of the record and what they add."""

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.formats import DecodeFailure
from kalda.pipelines.dlq.letters import DECODE, Letter, Origin, letters_of, read_letter
from kalda.pipelines.dlq.replay import LetterFilter
from kalda.pipelines.spec.model import retry_topic
from kalda.records.columnar import ColumnarBatch

ORIGIN = Origin("orders", 7, 1_700_000_000_000, retry_topic("orders.dlq"))


def records(headers: list[list[dict[str, object]] | None]) -> ColumnarBatch:
    count = len(headers)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return ColumnarBatch(
        offsets=pa.array(range(40, 40 + count), pa.int64()),
        timestamps_ms=pa.array(range(count), pa.int64()),
        timestamp_types=pa.array([0] * count, pa.int32()),
        keys=pa.array([b"k%d" % i if i else None for i in range(count)], pa.binary()),
        values=pa.array([b"v%d" % i for i in range(count)], pa.binary()),
        headers=pa.array(headers, kind),
        next_offset=40 + count,
        consumed_bytes=0,
    )


def headers_of(row: dict[str, object]) -> list[tuple[str, bytes | None]]:
    headers = row["headers"]
    assert isinstance(headers, list)
    return [(each["key"], each["value"]) for each in headers]


def test_a_letter_is_the_record_with_its_cause() -> None:
    """Key, value, timestamp and headers stay, also headers of one name and without a value."""
    own: list[dict[str, object]] = [{"key": "a", "value": None}, {"key": "a", "value": b"1"}]
    failure = DecodeFailure(1, "MalformedValue", "not JSON: é", 9)

    rows = letters_of(records([[], own, None]), TopicPartition("orders", 3), [failure], ORIGIN, DECODE)

    row = rows.to_pylist()[0]
    assert (b"k1", b"v1", 1) == (row["key"], row["value"], rows.column("timestamp")[0].value)
    assert [("a", None), ("a", b"1")] == headers_of(row)[:2]
    expected = Letter(
        pipeline="orders",
        topic="orders",
        partition=3,
        offset=41,
        stage="decode",
        error_class="MalformedValue",
        error_message="not JSON: é",
        schema_id=9,
        batch=7,
        time_ms=1_700_000_000_000,
        retries=0,
    )
    assert expected == read_letter(headers_of(row))


def test_a_record_that_fails_again_keeps_its_first_place() -> None:
    """The pipeline's own topic names the record; the retry topic would be of no use to its owner."""
    failure = DecodeFailure(0, "MalformedValue", "first", None)
    first = letters_of(
        records([[{"key": "a", "value": b"1"}]]), TopicPartition("orders", 3), [failure], ORIGIN, DECODE
    )
    replayed = records([first.to_pylist()[0]["headers"]])
    again = DecodeFailure(0, "TypeMismatch", "second", None)

    rows = letters_of(replayed, TopicPartition("orders.dlq.retry", 0), [again], ORIGIN, "transform")

    headers = headers_of(rows.to_pylist()[0])
    letter = read_letter(headers)
    assert letter is not None
    assert ("orders", 3, 40, "TypeMismatch", "second", "transform", 1) == (
        letter.topic,
        letter.partition,
        letter.offset,
        letter.error_class,
        letter.error_message,
        letter.stage,
        letter.retries,
    )
    assert len(headers) == len({name for name, _ in headers})
    assert ("a", b"1") == headers[0]


def test_other_records_are_no_letters() -> None:
    assert read_letter([]) is None
    assert read_letter([("dlq.pipeline", b"x"), ("dlq.offset", b"y")]) is None


def test_a_filter_means_letters_by_time_cause_and_stage() -> None:
    """A record that is no letter is meant only by a command for all."""
    failure = DecodeFailure(0, "MalformedValue", "m", None)
    rows = letters_of(records([[]]), TopicPartition("t", 0), [failure], ORIGIN, DECODE)
    letter = read_letter(headers_of(rows.to_pylist()[0]))
    now = ORIGIN.now_ms

    assert LetterFilter(since_ms=now, until_ms=now + 1, causes=frozenset(["MalformedValue"])).means(letter)
    assert not LetterFilter(since_ms=now + 1).means(letter)
    assert not LetterFilter(until_ms=now).means(letter)
    assert not LetterFilter(causes=frozenset(["TypeMismatch"])).means(letter)
    assert not LetterFilter(stages=frozenset(["expect"])).means(letter)
    assert LetterFilter().means(None)
    assert not LetterFilter(until_ms=now).means(None)
