"""What counts as the record that a test expects, and how the others are said to differ."""

import pytest

from kalda.records.batch import TimestampType
from kalda.testing.committed_offsets import unmet_offsets
from kalda.testing.record_matching import Record, RecordPattern, explain_missing, record_text


def record(
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    *,
    partition: int = 0,
    offset: int = 0,
) -> Record:
    return Record("orders", partition, offset, 0, TimestampType.CREATE_TIME, key, value, headers, 0, 0, None)


@pytest.mark.parametrize(
    "pattern",
    [
        RecordPattern(),
        RecordPattern(key=b"alice", value=b'{"due": 12.0, "paid": true}'),
        RecordPattern(key="alice"),
        RecordPattern(value={"due": 12, "paid": True}),
        RecordPattern(value=lambda value: value.startswith(b"{")),
        RecordPattern(headers={"trace": "1"}),
        RecordPattern(headers=[("trace", b"2"), ("empty", None)]),
        RecordPattern(partition=3),
    ],
)
def test_matching_records(pattern: RecordPattern) -> None:
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", None))
    assert pattern.matches(record(b'{"due": 12.0, "paid": true}', b"alice", headers, partition=3))


@pytest.mark.parametrize(
    ("pattern", "difference"),
    [
        (RecordPattern(key=None), "the key is alice, expected None"),
        (RecordPattern(key="bob"), "the key is alice, expected 'bob'"),
        (RecordPattern(value=None), 'the value is {"due": 12.0, "lines": [{"n": 1}]}, expected None'),
        (RecordPattern(value={"due": 13, "lines": [{"n": 1}]}), "the value.due is 12.0, expected 13"),
        (RecordPattern(value={"due": 12, "lines": [{"n": 2}]}), "the value.lines[0].n is 1, expected 2"),
        (RecordPattern(value={"due": 12, "lines": []}), "the value.lines is [{'n': 1}], expected []"),
        (RecordPattern(value={"due": 12}), "the value has 'lines': [{'n': 1}]"),
        (
            RecordPattern(value={"due": 12, "lines": [{"n": 1}], "at": 1}),
            "the value has no 'at', expected 1",
        ),
        (RecordPattern(key=5), "the key is alice, which is not JSON; expected 5"),
        (RecordPattern(headers={"trace": "1"}), "there is no header 'trace', expected '1'"),
        (RecordPattern(headers={"kind": "b"}), "the header 'kind' is a, expected 'b'"),
        (RecordPattern(partition=1), "the partition is 0, expected 1"),
    ],
)
def test_a_difference_is_named_by_its_place(pattern: RecordPattern, difference: str) -> None:
    found = record(b'{"due": 12.0, "lines": [{"n": 1}]}', b"alice", (("kind", b"a"),))

    assert [difference] == pattern.differences(found)


def test_true_is_not_one() -> None:
    assert not RecordPattern(value={"paid": 1}).matches(record(b'{"paid": true}'))


def test_a_refused_predicate_is_named() -> None:
    def is_paid(value: bytes | None) -> bool:
        return False

    assert ["the value v does not satisfy is_paid"] == RecordPattern(value=is_paid).differences(record())


def test_the_nearest_records_come_first_and_of_equal_ones_the_newest() -> None:
    records = [
        record(b"1", b"bob", offset=0),
        record(b"2", b"alice", offset=1),
        record(b"3", b"alice", offset=2),
        record(b"4", b"bob", offset=3),
    ]

    text = explain_missing("orders", RecordPattern(key="alice", value="9"), records, " (waited 5 s)")

    assert [
        "no record of 'orders' has key='alice', value='9' (waited 5 s)",
        "  4 records in 1 partition, the nearest first:",
        "  orders-0@2 key=alice value=3",
        "    the value is 3, expected '9'",
        "  orders-0@1 key=alice value=2",
        "    the value is 2, expected '9'",
        "  orders-0@3 key=bob value=4",
        "    the key is bob, expected 'alice'",
        "    the value is 4, expected '9'",
        "  and 1 more",
    ] == text.splitlines()


def test_an_empty_topic_is_said_to_be_empty() -> None:
    text = explain_missing("orders", RecordPattern(), [], "")

    assert "no record of 'orders' has any key and value\n  the topic has no records" == text


def test_long_and_binary_values_stay_short_and_readable() -> None:
    assert len(record_text(record(b"x" * 100_000))) < 300
    assert r"orders-0@0 value=b'\xff\x00' headers={a: None}" == record_text(
        record(b"\xff\x00", None, (("a", None),))
    )


def test_all_records_are_committed_though_markers_of_transactions_follow() -> None:
    """The end of a partition that transactions write is behind their markers; no consumer commits that."""
    records = [record(offset=0), record(offset=1)]

    assert [] == unmet_offsets({0: 2}, records, None, None)
    assert ["partition 0: committed 1, 1 record behind it"] == unmet_offsets({0: 1}, records, None, None)
    assert ["partition 0: committed nothing, 2 records behind it"] == unmet_offsets({}, records, None, None)


def test_a_number_of_records_counts_over_partitions() -> None:
    records = [record(partition=0, offset=0), record(partition=1, offset=0), record(partition=1, offset=1)]

    assert [] == unmet_offsets({0: 1, 1: 1}, records, None, 2)
    assert [
        "2 records before the committed offsets, expected 3",
        "partition 0: committed 1, 1 record before and 0 behind it",
        "partition 1: committed 1, 1 record before and 1 behind it",
    ] == unmet_offsets({0: 1, 1: 1}, records, None, 3)


def test_offsets_are_compared_by_partition() -> None:
    assert [] == unmet_offsets({0: 4, 1: 2}, [], {1: 2}, None)
    assert ["partition 2: committed nothing, expected 1"] == unmet_offsets({0: 4}, [], {0: 4, 2: 1}, None)
