"""Batches of a pipeline without Spark and brokers: tasks run in the test and read records from memory."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.range_records import ReadMeter
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.direct.upsert_marks import UpsertMarks
from kalda.pipelines.engine import batch_runner
from kalda.pipelines.engine.batch_runner import BatchOutcome, BatchRunner
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.engine.targets import OpenParts
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.pipelines.tables.fitting import Fitted
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange

QUERY = "query-1"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FILE = """
name: shop
storage: {storage}
defaults: {{ledger: {ledger}, on_error: skip}}
pipelines:
  - name: orders
    from: {{topic: orders, {source}}}
    to: {to}
"""


@dataclass
class Topic:
    """The records of the topic `orders`: the values of each partition from offset 0."""

    values: dict[int, list[bytes | None]]
    chunk: int = 3
    """Records of one read."""

    def read(
        self, options: SourceOptions, offset_range: OffsetRange, wanted: WantedFields, meter: ReadMeter
    ) -> Generator[ColumnarBatch, None, None]:
        for start in range(offset_range.start, offset_range.end, self.chunk):
            end = min(start + self.chunk, offset_range.end)
            values = self.values[offset_range.topic_partition.partition][start:end]
            if values:
                yield columnar(start, values)


def columnar(start: int, values: Sequence[bytes | None]) -> ColumnarBatch:
    """Return records from an offset, each with the key `k` and its offset as its time."""
    offsets = pa.array(range(start, start + len(values)), pa.int64())
    return ColumnarBatch(
        offsets=offsets,
        timestamps_ms=offsets,
        timestamp_types=pa.array([0] * len(values), pa.int32()),
        keys=pa.array([b"k"] * len(values), pa.binary()),
        values=pa.array(values, pa.binary()),
        headers=pa.array([[]] * len(values), HEADERS),
        next_offset=start + len(values),
        consumed_bytes=0,
    )


def ranges(*bounds: tuple[int, int, int]) -> list[OffsetRange]:
    """Return ranges by partition, start and end."""
    return [OffsetRange(TopicPartition("orders", part), start, end) for part, start, end in bounds]


@dataclass
class Ledger:
    """The ledger's topic in memory; it can fail."""

    records: list[LedgerRecord] = field(default_factory=list)
    failure: Exception | None = None

    def publish(self, records: Sequence[LedgerRecord]) -> None:
        if self.failure is not None:
            raise self.failure
        self.records += records

    def close(self) -> None:
        pass


@dataclass
class ListTarget:
    """A target that keeps rows in memory and notes what it is asked for."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    parts: OpenParts | None = None
    event_time: str | None = None
    committed: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, object]] = field(default_factory=list)
    failure: Exception | None = None

    def committed_batch(self, query_id: str) -> int | None:
        return self.committed.get(query_id)

    def holds(self, query_id: str) -> bool:
        return query_id in self.committed

    def rows_target(
        self, schema: pa.Schema, query_id: str, batch_id: int, *, is_inferred: bool = False
    ) -> RowsTarget:
        self.calls.append(("rows_target", tuple(schema.names), batch_id, is_inferred))
        return ListRows()

    def upsert_marks(self, *, is_spark: bool) -> UpsertMarks | None:
        return None

    def commit(self, account: BatchAccount, written: Sequence[Written]) -> None:
        self.calls.append(("commit", account.batch_id))
        if self.failure is not None:
            raise self.failure
        self.rows += [row for each in written for batch in each.files for row in batch.to_pylist()]  # type: ignore[attr-defined]  # those of ListRows
        self.committed[account.query_id] = account.batch_id

    def maintain(self) -> None:
        self.calls.append(("maintain",))

    def complete(self, query_id: str) -> None:
        self.calls.append(("complete", query_id))

    def abandon(self, query_id: str, batch_id: int) -> None:
        self.calls.append(("abandon", query_id, batch_id))


class ListRows:
    """Gives the rows of a task to the driver."""

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        return Fitted(rows, ())

    def write(self, batches: Any, query_id: str, batch_id: int, part: int) -> Written:
        found = list(batches)
        return Written(sum(each.num_rows for each in found), tuple(found))


@dataclass
class Pipeline:
    """A pipeline with its storage, which a new process opens again with `restarted`."""

    file: PipelineFile
    topic: Topic
    ledger: Ledger
    target: ListTarget | None

    def restarted(self) -> BatchRunner:
        (spec,) = self.file.pipelines
        return BatchRunner(plan_topic_pipeline(spec, self.file), self.file)

    def process(
        self, batch_id: int, *bounds: tuple[int, int, int], runner: BatchRunner | None = None
    ) -> BatchOutcome | None:
        """Process ranges as a batch, by a new process if none is given."""
        frame: Any = SimpleNamespace(sparkSession=None)
        return (runner or self.restarted()).process(frame, QUERY, batch_id, lambda: ranges(*bounds))


def pipeline(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic: Topic,
    *,
    to: str = "{table: lake.orders, format: parquet}",
    source: str = "value: {format: json, schema: 'id int'}",
    more: str = "",
    target: ListTarget | None = None,
    has_ledger: bool = False,
) -> Pipeline:
    """Return a pipeline of the file `FILE` with more keys, to its own target or a given one."""
    text = FILE.format(storage=f"{directory}/state", ledger=str(has_ledger).lower(), source=source, to=to)
    file = parse_pipeline_file(text + more, "p.yml", directory=directory, variables={})
    ledger = Ledger()
    monkeypatch.setattr(batch_runner, "LedgerTopic", lambda properties: ledger)
    monkeypatch.setattr(batch_runner, "run_ranges", lambda session, job, found: run(topic, job, found))
    if target is not None:
        monkeypatch.setattr(batch_runner, "open_target", lambda spec, file: target)
    return Pipeline(file, topic, ledger, target)


def run(topic: Topic, job: Any, found: Sequence[OffsetRange]) -> list[Any]:
    """Run a job on each range, as Spark's tasks would."""
    return [replace(job, read=topic.read).run(each, part) for part, each in enumerate(found)]
