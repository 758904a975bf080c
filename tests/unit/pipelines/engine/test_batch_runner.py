"""One batch of a pipeline: its order of steps, and what each step leaves for the next process."""

import json
from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("sqlglot")

from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
from kalda.pipelines.engine import batch_runner
from kalda.pipelines.engine.batch_log import BatchLog, PlannedBatch
from kalda.pipelines.engine.errors import BreakerOpenError, PipelineStoppedError
from kalda.pipelines.engine.passed import PassedRecords
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.tables import SchemaRefusedError, open_table
from tests.unit.pipelines.engine.batches import QUERY, ListTarget, Topic, pipeline, ranges


def numbers(count: int) -> list[bytes | None]:
    return [b'{"id":%d}' % number for number in range(count)]


def test_a_batch_is_noted_committed_completed_and_maintained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ListTarget()
    made = pipeline(
        tmp_path, monkeypatch, Topic({0: numbers(5), 1: numbers(4)}), target=target, has_ledger=True
    )

    outcome = made.process(0, (0, 0, 5), (1, 1, 4))

    assert outcome is not None
    assert (8, 8, False) == (
        outcome.account.total("records"),
        outcome.account.total("rows_out"),
        outcome.is_replay,
    )
    assert [0, 1, 2, 3, 4, 1, 2, 3] == [row["id"] for row in target.rows]
    assert ["rows_target", "commit", "maintain"] == [call[0] for call in target.calls]
    assert [("orders", 0, 5), ("orders", 1, 4)] == [
        (each.account.topic, each.account.partition, each.account.end) for each in made.ledger.records
    ]
    intent = BatchLog(made.file.storage, "orders").read()
    assert intent is not None
    assert outcome.account == intent.account


def test_the_intent_is_written_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies in the commit leaves what there is to complete if the target has the batch."""
    target = ListTarget(failure=OSError("the table is away"))
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(5)}), target=target, has_ledger=True)

    with pytest.raises(OSError, match="the table is away"):
        made.process(0, (0, 0, 5))
    intent = BatchLog(made.file.storage, "orders").read()
    assert intent is not None
    assert (QUERY, 0) == (intent.account.query_id, intent.account.batch_id)
    assert [] == made.ledger.records
    assert made.restarted().decided() is None

    target.committed[QUERY] = 0
    assert intent.account == made.restarted().decided()


def test_a_batch_that_the_target_has_is_only_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger could not be reached after the commit; the batch must not be written again."""
    target = ListTarget()
    target.parts = target
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(5)}), target=target, has_ledger=True)
    made.ledger.failure = ClientError("no broker")
    with pytest.raises(ClientError, match="no broker"):
        made.process(0, (0, 0, 5))

    made.ledger.failure = None
    outcome = made.process(0, (0, 0, 5))

    assert outcome is not None
    assert outcome.is_replay
    assert 5 == len(target.rows)
    assert [("complete", QUERY)] == target.calls[-1:]
    assert 1 == len(made.ledger.records)


def test_a_replay_of_a_batch_whose_intent_is_gone_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pipeline(
        tmp_path,
        monkeypatch,
        Topic({0: numbers(5)}),
        target=ListTarget(committed={QUERY: 7}),
        has_ledger=True,
    )
    assert made.process(3, (0, 0, 5)) is None
    assert [] == made.ledger.records


def test_the_next_batch_follows_the_one_that_the_target_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ListTarget()
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(5)}), target=target, has_ledger=True)
    assert 0 == made.restarted().next_batch(QUERY)
    made.process(0, (0, 0, 5))
    made.ledger.records.clear()
    assert 1 == made.restarted().next_batch(QUERY)
    assert 1 == len(made.ledger.records), "the last batch is completed before the next one"
    assert BatchLog(made.file.storage, "orders").read() is not None


def test_a_batch_without_ranges_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = ListTarget()
    made = pipeline(tmp_path, monkeypatch, Topic({0: []}), target=target)
    assert made.process(0) is None
    assert [] == target.calls


def test_tasks_that_leave_parts_get_the_same_ranges_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's committed transaction is not written again, so other offsets would be lost or doubled."""
    target = ListTarget(failure=OSError("away"))
    target.parts = target
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(9)}), target=target)
    with pytest.raises(OSError, match="away"):
        made.process(0, (0, 0, 5))
    planned = made.restarted().unfinished()
    assert planned == PlannedBatch(QUERY, 0, tuple(ranges((0, 0, 5))))

    with pytest.raises(PipelineStoppedError, match=r"batch 0 of orders was begun with other ranges"):
        made.process(0, (0, 0, 3), (0, 3, 5))
    target.failure = None
    assert made.process(0, (0, 1, 5)) is not None, "retention may move the start"
    assert made.restarted().unfinished() is None
    assert planned is not None
    made.restarted().abandon(planned)
    assert ("abandon", QUERY, 0) == target.calls[-1]


def test_a_target_without_parts_keeps_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = ListTarget(failure=OSError("away"))
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(9)}), target=target)
    with pytest.raises(OSError, match="away"):
        made.process(0, (0, 0, 5))
    assert made.restarted().unfinished() is None
    made.restarted().abandon(PlannedBatch(QUERY, 0, ()))
    assert "abandon" not in {call[0] for call in target.calls}


@pytest.mark.parametrize(
    ("on_error", "example"), [("skip", ""), ("dlq", ", such as orders-0 at offset 150: MalformedValue: .*")]
)
def test_too_many_bad_records_leave_no_trace(
    on_error: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The breaker is for a format that changed: a batch that is refused must not count as begun."""
    target = ListTarget()
    values = [*numbers(150), *[b"bad"] * 50]
    made = pipeline(
        tmp_path,
        monkeypatch,
        Topic({0: values}),
        target=target,
        more=f"    on_error: {on_error}\n    breaker: {{bad_max: 10%, records_min: 100}}\n",
    )
    shown = f"50 of 200 records of batch 0 are bad, more than 10.00%{example}; nothing of the batch"
    with pytest.raises(BreakerOpenError, match=shown):
        made.process(0, (0, 0, 200))
    assert BatchLog(made.file.storage, "orders").read() is None
    assert "commit" not in {call[0] for call in target.calls}


def test_bad_and_passed_records_are_accounted_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = ListTarget()
    made = pipeline(tmp_path, monkeypatch, Topic({0: [b"bad", *numbers(3), None]}), target=target)
    PassedRecords(made.file.storage, "orders").add([(TopicPartition("orders", 0), 2)], "by hand")

    outcome = made.process(0, (0, 0, 5))

    assert outcome is not None
    (account,) = outcome.account.ranges
    assert (5, 2, 1) == (account.records, account.dlq, account.passed)
    assert [0, 2] == [row["id"] for row in target.rows if row["id"] is not None]


def test_offsets_that_no_batch_has_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(9)}), target=ListTarget())
    made.process(0, (0, 0, 3))
    outcome = made.process(1, (0, 5, 9))
    assert outcome is not None
    assert ["orders-0: offsets 3 to 4 are in no batch (seen at batch 1)"] == [
        str(each) for each in outcome.breaks
    ]
    assert "see `kalda pipeline audit`" in caplog.text


def test_columns_that_values_show_are_kept_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that the target refuses must not be refused for ever: it counts from the commit on."""
    target = ListTarget()
    made = pipeline(
        tmp_path,
        monkeypatch,
        Topic({0: [b'{"id":1}', b'{"id":2,"name":"x"}', b'{"more":1.5}', b"{}"]}),
        target=target,
        source="value: json",
    )
    log = BatchLog(made.file.storage, "orders")
    made.process(0, (0, 0, 1))
    assert ["id"] == [field.name for field in log.read_columns()]
    target.failure = SchemaRefusedError("no", ("name",))
    with pytest.raises(SchemaRefusedError):
        made.process(1, (0, 1, 2))
    assert ["id"] == [field.name for field in log.read_columns()]
    target.failure = None
    made.process(1, (0, 1, 2))
    made.process(2, (0, 2, 4))
    assert ["id", "name", "more"] == [field.name for field in log.read_columns()]
    shown = [call[1:] for call in target.calls if call[0] == "rows_target"]
    assert [(("id",), 0, True), (("id", "name", "more"), 2, True)] == [shown[0], shown[-1]]


def test_a_stray_value_does_not_shape_the_columns_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is bad for a column that is known, so its other fields do not decide the types of good values."""
    stray = b'{"id":"x","amount":"n/a","at":{"no":1},"only":1}'
    good = [b'{"id":2,"amount":5,"at":{"x":1}}', b'{"id":2.5,"amount":7}']
    target = ListTarget()
    made = pipeline(
        tmp_path,
        monkeypatch,
        Topic({0: [b'{"id":1}', *good, stray], 1: [stray, good[0]]}),
        target=target,
        source="value: json",
    )
    made.process(0, (0, 0, 1))

    outcome = made.process(1, (0, 1, 4), (1, 0, 2))

    assert outcome is not None
    assert (3, 2) == tuple(outcome.account.total(name) for name in ("rows_out", "dlq"))
    row = {"id": 2, "amount": 5, "at": {"x": 1, "no": None}, "only": None}
    assert [row, {"id": 2.5, "amount": 7, "at": None, "only": None}, row] == target.rows[1:]


def test_a_stray_value_keeps_the_fields_that_make_it_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field without a column is ignored, so that the value would be good and the field lost."""
    stray = [b'{"id":2,"b":0.5}', b'{"id":3,"B":0.5,"c":1}', b'{"id":"x","__kalda_x":1}']
    target = ListTarget()
    made = pipeline(
        tmp_path,
        monkeypatch,
        Topic({0: [b'{"id":1,"b":true}', *stray, b'{"id":4,"__kalda_x":1}']}),
        target=target,
        source="value: json",
    )
    made.process(0, (0, 0, 1))

    outcome = made.process(1, (0, 1, 5))

    assert outcome is not None
    assert (0, 4) == tuple(outcome.account.total(name) for name in ("rows_out", "dlq"))


def test_a_batch_that_shows_no_column_is_decided_without_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pipeline(tmp_path, monkeypatch, Topic({0: [b"bad", b"{}", *numbers(2)]}), source="value: json")
    outcome = made.process(0, (0, 0, 2))
    assert outcome is not None
    assert (2, 0, 1) == tuple(outcome.account.total(name) for name in ("records", "rows_out", "dlq"))
    spec = made.file.pipelines[0].target
    assert isinstance(spec, TableSpec)
    assert open_table(spec).schema() is None
    assert made.process(0, (0, 0, 2)) is not None
    made.process(1, (0, 2, 4))
    assert [0, 1] == [row["id"] for batch in open_table(spec).read() for row in batch.to_pylist()]


def test_a_table_has_each_record_once_whatever_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(9)}))
    for batch_id, bounds in enumerate([(0, 0, 4), (0, 4, 9)]):
        assert made.process(batch_id, bounds) is not None
        replay = made.process(batch_id, bounds)
        assert replay is not None
        assert replay.is_replay
    spec = made.file.pipelines[0].target
    assert isinstance(spec, TableSpec)
    found = [row["id"] for batch in open_table(spec).read() for row in batch.to_pylist()]
    assert list(range(9)) == sorted(found)


def test_late_rows_go_to_their_table_and_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is that of the batches before, also when the batch is repeated after its commit."""
    days = [20, 10, 19, 8, 21]
    values: list[bytes | None] = [
        json.dumps({"id": day, "ts": f"2026-01-{day:02d}T00:00:00Z"}).encode() for day in days
    ]
    made = pipeline(
        tmp_path,
        monkeypatch,
        Topic({0: values}),
        source="value: {format: json, schema: 'id int, ts timestamp'}",
        to="{table: lake.orders, format: parquet, event_time: ts, late: {allow: 5d, after: lake.late}}",
    )
    first, second = made.process(0, (0, 0, 1)), made.process(1, (0, 1, 5))
    assert first is not None
    assert second is not None
    assert (0, 2) == (first.account.total("late"), second.account.total("late"))
    (account,) = second.account.ranges
    assert account.event_time_max is not None
    spec = made.file.pipelines[0].target
    assert isinstance(spec, TableSpec)
    assert spec.late is not None
    assert spec.late.path is not None
    for path, expected in ((spec.path, [19, 20, 21]), (spec.late.path, [8, 10])):
        table = open_table(TableSpec(table="t", path=path, format=spec.format))
        assert expected == sorted(row["id"] for batch in table.read() for row in batch.to_pylist())


def test_ranges_of_a_batch_are_those_of_the_offset_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that is new begins where the topic does."""
    made = pipeline(tmp_path, monkeypatch, Topic({0: numbers(9)}), target=ListTarget())
    checkpoint = Checkpoint(made.file.checkpoint("orders"))
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    checkpoint.create({first: 4}, query_id=UUID(int=1), now_ms=1)
    logged = tmp_path / checkpoint.location.removeprefix("file://").removeprefix(f"{tmp_path}/") / "offsets"
    lines = (logged / "0").read_text().splitlines()
    lines[-1] = json.dumps({"orders": {"0": 9, "1": 3}})
    (logged / "1").write_text("\n".join(lines))

    class Reader:
        def __enter__(self) -> "Reader":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def beginning_offsets(self, found: set[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(found, 1)

    monkeypatch.setattr(batch_runner, "pooled_reader", lambda client: Reader())
    runner = made.restarted()
    assert [] == runner.ranges(0), "the batch that fixes where the query starts"
    assert [(first, 4, 9), (second, 1, 3)] == [
        (each.topic_partition, each.start, each.end) for each in runner.ranges(1)
    ]
    with pytest.raises(CheckpointError, match="has no batch 2"):
        runner.ranges(2)


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pipeline(tmp_path, monkeypatch, Topic({0: []}), target=ListTarget())
    with pytest.raises(CheckpointError, match="has no metadata; was it deleted"):
        made.restarted().run(None, 0)  # type: ignore[arg-type]  # it is not looked at
