"""Lag, resets, batches and dead letters: what pages show, computed from offsets and the ledger."""

import pytest

from kalda.clients.admin.groups import MemberDescription
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.http.console.group_views import ResetRow, lag_of, lag_rows, reset_rows
from kalda.http.console.pipeline_views import (
    Batch,
    batches_by_pipeline,
    dead_letter_topic,
    dead_letter_topics,
    is_of_spark,
    pipeline_rows,
)
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.ledger.audit_record import LedgerRecord

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_lag_is_known_only_with_all_ends() -> None:
    committed = {A: OffsetAndMetadata(3), B: OffsetAndMetadata(10)}

    assert 9 == lag_of(committed, {A: 12, B: 9})
    assert lag_of(committed, {A: 12}) is None
    assert lag_of({}, {}) is None


def test_a_partition_without_a_committed_offset_has_no_lag() -> None:
    member = MemberDescription("m-1", None, "c", "h", frozenset([B]))

    rows = lag_rows({A: OffsetAndMetadata(3, "note")}, [member], {A: 5, B: 7})

    assert [(A, 2, "", "note"), (B, None, "c", "")] == [
        (row.partition, row.lag, row.client_id, row.metadata) for row in rows
    ]


def test_offsets_outside_the_log_are_moved_to_its_nearer_end() -> None:
    rows = reset_rows({A: -5, B: 99}, {A: 4}, {A: (2, 10), B: (0, 10)})

    assert [ResetRow(A, 4, 2, True), ResetRow(B, None, 10, True)] == rows


def record(batch: int, partition: int, committed_ms: int, pipeline: str = "p") -> LedgerRecord:
    account = RangeAccount("t", partition, 0, 10, 10, 7, dlq=2, filtered=1)
    return LedgerRecord(pipeline, "lake.t", "q", batch, account, committed_ms)


def test_a_batch_is_the_sum_of_its_partitions() -> None:
    found = batches_by_pipeline([record(1, 0, 1_000), record(1, 1, 1_001), record(2, 0, 3_000)])

    assert {"p": ("lake.t", [Batch(2, 3_000, 10, 7, 2, 1, 0), Batch(1, 1_001, 20, 14, 4, 2, 0)])} == found


def test_queries_are_known_by_what_they_commit() -> None:
    assert is_of_spark([OffsetAndMetadata(1, '{"by":"kalda-spark","topic_id":"x"}')])
    deep = '{"a":' + "[" * 4_000  # a member of any group may commit it
    for metadata in ("", "kalda-spark", "{", "{}", "[1]", '{"by":3}', '{"by":"other"}', deep):
        assert not is_of_spark([OffsetAndMetadata(1, metadata)])


def test_pipelines_have_lag_rate_and_dead_letters() -> None:
    ledger = batches_by_pipeline([record(number, 0, number * 1_000) for number in range(1, 6)])
    committed = {
        "kalda-pipeline-p": {A: OffsetAndMetadata(40)},
        "clicks": {B: OffsetAndMetadata(1, '{"by":"kalda-spark"}')},
        "others": {B: OffsetAndMetadata(1)},
    }

    rows = pipeline_rows(committed, {A: 50, B: 4}, {"p.dlq": 3, "old.dlq": 0}, ledger)

    assert [("clicks", False, 3, None), ("old", True, None, 0), ("p", True, 10, 3)] == [
        (row.name, row.is_pipeline, row.lag, row.dead) for row in rows
    ]
    assert 10.0 == rows[2].rate
    assert rows[0].rate is None


def places(*topics: str) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(each, 0): OffsetAndMetadata(1) for each in topics}


@pytest.mark.parametrize(
    ("read", "topic"),
    [
        ((), "p.dlq"),
        (("orders",), "p.dlq"),
        (("orders", "p.dlq.retry"), "p.dlq"),
        (("orders", "bad-orders.retry"), "bad-orders"),
        # The pipeline's source is the retry topic of another one.
        (("others.dlq.retry", "p.dlq.retry"), "p.dlq"),
        (("others.dlq.retry", "bad-orders.retry"), "p.dlq"),
    ],
)
def test_the_topic_of_dead_letters_is_that_whose_replayed_letters_are_read(
    read: tuple[str, ...], topic: str
) -> None:
    assert topic == dead_letter_topic("p", places(*read))


def test_a_pipeline_with_a_dead_letter_topic_of_another_name_has_its_count() -> None:
    committed = {"kalda-pipeline-p": places("orders", "bad-orders.retry"), "others": places("x.retry")}
    assert {"bad-orders", "q.dlq"} == dead_letter_topics(
        ["orders", "bad-orders", "bad-orders.retry", "q.dlq", ".dlq", "x"], committed
    )
    rows = pipeline_rows(committed, {}, {"bad-orders": 3, "q.dlq": 1}, {})
    assert [("p", 3), ("q", 1)] == [(row.name, row.dead) for row in rows]
