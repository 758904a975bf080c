"""What `kalda pipeline preview` finds, with the log reader replaced by records in memory."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.pipelines.direct import range_records
from kalda.pipelines.engine import preview as module
from kalda.pipelines.engine.preview import newest_starts, preview_pipeline
from kalda.pipelines.engine.trial import Trial, TrialError
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import HEADERS_TYPE
from kalda.spark.source.plan import OffsetRange

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
Values = list[bytes | None]


class Topic:
    """Partitions with one record at each offset; the timestamps are those of the test."""

    def __init__(self, values: Mapping[TopicPartition, Values], *, missing: tuple[str, ...] = ()) -> None:
        self.values = values
        self.missing = missing

    def find_partitions(self) -> SimpleNamespace:
        return SimpleNamespace(partitions=tuple(self.values), missing_topics=self.missing, topic_ids={})

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: len(self.values[each]) for each in partitions}

    def close(self) -> None:
        pass

    def read(
        self, _reader: object, _source: object, wanted: OffsetRange, **_: object
    ) -> Iterator[ColumnarBatch]:
        offsets = list(range(wanted.start, wanted.end))
        values = self.values[wanted.topic_partition][wanted.start : wanted.end]
        yield ColumnarBatch(
            offsets=pa.array(offsets, pa.int64()),
            timestamps_ms=pa.array([1_000 * each for each in offsets], pa.int64()),
            timestamp_types=pa.array([0] * len(offsets), pa.int32()),
            keys=pa.array([b"k%d" % each for each in offsets], pa.binary()),
            values=pa.array(values, pa.binary()),
            headers=pa.nulls(len(offsets), HEADERS_TYPE),
            next_offset=wanted.end,
            consumed_bytes=0,
        )


def shown(monkeypatch: pytest.MonkeyPatch, directory: Path, topic: Topic, pipeline: str, count: int) -> Trial:
    """Return the preview of a pipeline that reads the topic; a step in Python is in `ux_preview.py`."""
    monkeypatch.setattr(module, "quick_discovery", lambda _: topic)
    monkeypatch.setattr(range_records, "read_columns", topic.read)
    monkeypatch.setattr(range_records, "pooled_reader", lambda _: nullcontext())
    monkeypatch.setattr(range_records, "prepare_worker", lambda: None)  # freezes the heap of all tests
    text = f"name: shop\nstorage: {directory}/state\npipelines:\n  - name: orders\n{pipeline}"
    file = parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})
    found = preview_pipeline(file.pipelines[0], file, count)
    assert [] == list(directory.glob("state*"))
    return found


DIRECT = """
    from: {topic: orders, value: {format: json, schema: "id bigint, amount double"}, keep: [partition]}
    transform: ["where amount is not null", "select *, amount * 2 as twice"]
    expect:
      positive: {check: amount > 0, on_fail: fail}
      small: {check: amount < 100, on_fail: drop}
    to: {table: lake.orders, format: parquet}
"""


def test_rows_dead_letters_and_dropped_records_are_those_of_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`on_fail: fail` would end the run at the row; a preview shows the row and goes on."""
    values: Values = [
        b'{"id": 0, "amount": 1}',
        b'{"id": 1, "amount": 2}',
        b'{"id": 2}',
        b"bad",
        b'{"id": 4, "amount": -1}',
        b'{"id": 5, "amount": 500}',
        b'{"id": 6, "amount": 3}',
    ]
    found = shown(monkeypatch, tmp_path, Topic({ONE: values}), DIRECT, 6)

    assert [
        {"id": 1, "amount": 2.0, "partition": 0, "twice": 4.0},
        {"id": 6, "amount": 3.0, "partition": 0, "twice": 6.0},
    ] == found.rows
    assert (6, 2, None) == (found.records, found.filtered, found.note)
    assert [
        (3, b"k3", b"bad", "decode", "MalformedValue"),
        (4, b"k4", b'{"id": 4, "amount": -1}', "expect", "ExpectationFailed"),
    ] == [(each.offset, each.key, each.value, each.stage, each.error_class) for each in found.dead]


def test_columns_without_a_schema_come_from_the_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = """
    from: {topic: orders, value: json}
    to: {table: lake.orders, format: parquet}
"""
    found = shown(monkeypatch, tmp_path, Topic({ONE: [b'{"a": 1}'], TWO: [b'{"b": "x"}']}), pipeline, 10)
    assert [{"a": 1, "b": None}, {"a": None, "b": "x"}] == found.rows

    found = shown(monkeypatch, tmp_path, Topic({ONE: [b"bad"]}), pipeline, 10)
    assert ([], ["MalformedValue"]) == (found.rows, [each.error_class for each in found.dead])


def test_what_spark_executes_is_shown_before_the_transform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = """
    from: {topic: orders, value: {format: json, schema: "id bigint"}}
    transform: ["select id, count(*) as n from input group by id"]
    to: {table: lake.orders, format: parquet}
"""
    found = shown(monkeypatch, tmp_path, Topic({ONE: [b'{"id": 1}']}), pipeline, 10)
    assert [{"id": 1}] == found.rows
    assert found.note is not None
    assert found.note.endswith("so these are the rows before the transform")


def test_an_upsert_shows_which_rows_delete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pipeline = """
    from: {topic: orders, value: {format: json, schema: "id bigint, op string"}}
    to: {table: lake.orders, format: delta, mode: upsert, keys: [id], deletes: op = 'd'}
"""
    values: Values = [b'{"id": 1, "op": "u"}', b'{"id": 1, "op": "d"}', None]
    found = shown(monkeypatch, tmp_path, Topic({ONE: values}), pipeline, 10)
    assert [("u", False), ("d", True)] == [(each["op"], each["__kalda_delete"]) for each in found.rows]
    assert 1 == found.filtered


def test_a_topic_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    topic = Topic({}, missing=("orders", "orders.dlq.retry"))
    with pytest.raises(TrialError, match=r"^orders: topic orders does not exist$"):
        shown(monkeypatch, tmp_path, topic, DIRECT, 10)


def test_nothing_to_read_is_an_empty_preview(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = shown(monkeypatch, tmp_path, Topic({ONE: []}), DIRECT, 10)
    assert (0, [], []) == (found.records, found.rows, found.dead)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, {}),
        (1, {ONE: 8}),
        (2, {ONE: 8, TWO: 21}),
        (3, {ONE: 8, TWO: 20}),
        (9, {ONE: 7, TWO: 20}),
    ],
)
def test_the_newest_records_are_those_of_all_partitions(
    count: int, expected: dict[TopicPartition, int]
) -> None:
    tails = {ONE: [(1, 7), (5, 8)], TWO: [(3, 20), (4, 21)], TopicPartition("orders", 2): []}
    assert expected == newest_starts(tails, count)
