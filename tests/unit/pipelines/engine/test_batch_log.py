"""What a pipeline keeps of its last batch, for the process after it."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.engine.batch_log import BatchIntent, BatchLog, BatchLogError, PlannedBatch
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.passed import PassedRecords
from kalda.spark.source.plan import OffsetRange

ACCOUNT = BatchAccount("query", 7, (RangeAccount("orders", 0, 3, 10, 6, 5, dlq=1, gaps=1),))
PLAN = PlannedBatch("query", 7, (OffsetRange(TopicPartition("orders", 0), 3, 10),))


def test_each_record_is_replaced_and_read_back(tmp_path: Path) -> None:
    storage = f"file://{tmp_path}"
    log = BatchLog(storage, "orders")
    assert (None, None, pa.struct([])) == (log.read(), log.read_plan(), log.read_columns())

    columns = pa.struct([("id", pa.int64()), ("l", pa.list_(pa.struct([("ä", pa.decimal128(5, 2))])))])
    for intent in (BatchIntent(ACCOUNT), BatchIntent(ACCOUNT, ("7-0-ab.parquet", "7-1-cd.parquet"))):
        log.write(intent)
        assert intent == BatchLog(storage, "orders").read()
    log.write_plan(PLAN)
    log.write_columns(columns)
    again = BatchLog(storage, "orders")
    assert (PLAN, columns) == (again.read_plan(), again.read_columns())
    assert BatchLog(storage, "other").read() is None

    log.clear()
    assert (None, None, pa.struct([])) == (log.read(), log.read_plan(), log.read_columns())
    log.clear()


def test_a_decision_is_that_of_one_query(tmp_path: Path) -> None:
    decision = DecisionFile(f"file://{tmp_path}", "orders")
    assert decision.batch("query") is None
    decision.note("query", 3)
    decision.note("query", 4)
    assert (4, None) == (decision.batch("query"), decision.batch("after a repair"))


def test_records_to_pass_add_up(tmp_path: Path) -> None:
    passed = PassedRecords(f"file://{tmp_path}", "orders")
    assert {} == passed.read()
    one, two = TopicPartition("orders", 0), TopicPartition("orders", 1)
    passed.add([(one, 5), (two, 6)], "first")
    passed.add([(one, 4), (one, 5)], "second")
    assert {one: {4: "second", 5: "second"}, two: {6: "first"}} == PassedRecords(
        f"file://{tmp_path}", "orders"
    ).read()


def _read_all(storage: str) -> list[Callable[[], object]]:
    log = BatchLog(storage, "orders")
    return [
        log.read,
        log.read_plan,
        log.read_columns,
        lambda: DecisionFile(storage, "orders").batch("query"),
        PassedRecords(storage, "orders").read,
    ]


FILES = ("last.json", "planned.json", "columns.json", "decided.json", "passed.json")


@pytest.mark.parametrize(("index", "name"), [*enumerate(FILES)])
def test_a_damaged_file_is_named_wherever_it_ends(tmp_path: Path, index: int, name: str) -> None:
    """A half-written file must stop the pipeline with its name, and never read as another batch."""
    storage = f"file://{tmp_path}"
    log = BatchLog(storage, "orders")
    log.write(BatchIntent(ACCOUNT, ("a",)))
    log.write_plan(PLAN)
    log.write_columns(pa.struct([("id", pa.int64())]))
    DecisionFile(storage, "orders").note("query", 3)
    PassedRecords(storage, "orders").add([(TopicPartition("orders", 0), 5)], "why")
    path = tmp_path / "batches" / "orders" / name
    content = path.read_bytes()
    for data in [content[:length] for length in range(len(content))] + [b"[]", b"{}", b"7", b"\xff"]:
        if data in (b"[]", b"{}") and name == "passed.json":
            continue  # nothing is passed
        path.write_bytes(data)
        with pytest.raises(BatchLogError, match=rf"{name} is damaged"):
            _read_all(storage)[index]()
