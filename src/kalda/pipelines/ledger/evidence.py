"""Gathers what an audit compares the ledger with: the bounds of the log, its records, the table's rows.

Everything is read from its own source, never from the ledger. Nothing here writes, commits or joins a group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kalda.clients.errors import UnknownTopicOrPartitionError
from kalda.common.types import TopicPartition
from kalda.pipelines.direct.range_records import OffsetCount, ReadMeter, read_columns
from kalda.pipelines.ledger.audit import AuditReport, LogBounds, audit
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.ledger.continuity import of_newest_topics
from kalda.pipelines.ledger.topic import LedgerContents
from kalda.pipelines.spec.model import PipelineSpec, SqlStep, TableSpec, TopicSource, TopicTarget, WriteMode
from kalda.pipelines.sql.steps import BatchSql, parse_step
from kalda.pipelines.tables.opening import open_table
from kalda.pipelines.value_totals import TotalCount, Totals, totals_of
from kalda.spark.source.options import SourceOptions, parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import pooled_reader

_CLIENT_ID: Final = "kalda-audit"


def audit_pipeline(
    spec: PipelineSpec,
    properties: Mapping[str, str],
    contents: LedgerContents,
    *,
    recount: bool,
    values: bool = False,
) -> AuditReport:
    """Audit one pipeline that reads topics.

    Args:
        spec: the pipeline.
        properties: settings of the cluster that it reads.
        contents: the ledger, with the records of other pipelines that write the same table.
        recount: whether to read the log again and count its records.
        values: whether to read the whole table and compare the totals of its columns.

    Raises:
        ClientError: the cluster cannot be reached.
        TableError: the table cannot be read.
        MalformedSqlError: a step of the transform is no SQL.
    """
    records = [each for each in contents.records if each.pipeline == spec.name]
    topics = {each.account.topic for each in records}
    if isinstance(spec.source, TopicSource):
        topics.update(spec.source.topics)
    bounds = log_bounds(properties, topics)
    # A damaged record does not say whose it is; so each pipeline's audit shows it.
    faults = list(contents.faults)
    if recount:
        faults += recount_log(_source(properties), records, bounds)
    target = spec.target
    assert target is not None, spec.kind
    return audit(
        spec.name,
        target.table if isinstance(target, TableSpec) else target.topic,
        records,
        bounds=bounds,
        table_rows=count_rows(target) if _is_row_wise(spec) else None,
        table_values=table_totals(target) if values and _is_row_wise(spec) else None,
        # An empty text that names a partition is a null in the table.
        uncompared=target.partition_by if isinstance(target, TableSpec) else (),
        is_plain=not spec.transform,
        shared=_shared(spec, contents.records),
        may_repeat=isinstance(target, TableSpec) and target.mode is WriteMode.UPSERT,
        not_compared=_not_compared(spec),
        faults=faults,
    )


def log_bounds(properties: Mapping[str, str], topics: Iterable[str]) -> dict[TopicPartition, LogBounds]:
    """Return the offsets in the logs of the topics' partitions; a deleted topic has none.

    Args:
        properties: the cluster's settings with Kafka's dotted names.

    Raises:
        ClientError: the cluster cannot be reached.
    """
    found: dict[TopicPartition, LogBounds] = {}
    with pooled_reader(_source(properties).client) as reader:
        for topic in sorted(topics):
            try:
                partitions = reader.topic_partitions([topic])
            except UnknownTopicOrPartitionError:
                continue
            starts, ends = reader.beginning_offsets(partitions), reader.end_offsets(partitions)
            found |= {each: LogBounds(starts[each], ends[each]) for each in partitions}
    return found


def recount_log(
    options: SourceOptions, records: Sequence[LedgerRecord], bounds: Mapping[TopicPartition, LogBounds]
) -> list[str]:
    """Read the accounted ranges that the log still holds; return where it has more records than accounted.

    Fewer are no finding: compaction takes records after they were read.

    Raises:
        ClientError, RecordsError: the log cannot be read.
    """
    found = []
    newest = of_newest_topics(records)
    for each in sorted(newest, key=lambda record: (record.topic_partition, record.account.start)):
        limits = bounds.get(each.topic_partition)
        account = each.account
        if limits is None or account.start < limits.start or account.end > limits.end:
            continue
        counted = _count(options, OffsetRange(each.topic_partition, account.start, account.end))
        if counted > account.records:
            found.append(
                f"{account.place}: the log has {counted} records, but batch {each.batch_id} accounts for "
                f"{account.records}"
            )
    return found


def count_rows(target: TableSpec | TopicTarget) -> int | None:
    """Return how many rows a table has, with its late rows; None where rows replace each other.

    Raises:
        TableError: the table cannot be read.
    """
    if not isinstance(target, TableSpec) or target.mode is WriteMode.UPSERT:
        return None
    return sum(_rows_of(each) for each in _tables_of(target))


def table_totals(target: TableSpec | TopicTarget) -> Totals | None:
    """Return the totals of a table's columns, with its late rows; None where rows replace each other.

    Raises:
        TableError: the table cannot be read.
    """
    if not isinstance(target, TableSpec) or target.mode is WriteMode.UPSERT:
        return None
    count = TotalCount()
    for spec in _tables_of(target):
        table = open_table(spec)
        if table.schema() is not None and table.version() is not None:
            for rows in table.read():
                count.add(rows.num_rows, totals_of(rows))
    return count.totals


def _tables_of(target: TableSpec) -> list[TableSpec]:
    """Return a table and that of its late rows."""
    if target.late is None or target.late.path is None:
        return [target]
    return [target, replace(target, table=target.late.after, path=target.late.path, late=None)]


def _shared(spec: PipelineSpec, records: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """Return the records of other pipelines that write the table of a pipeline."""
    if not isinstance(spec.target, TableSpec):
        return []
    others = [each for each in records if each.pipeline != spec.name and each.target == spec.target.table]
    if not others:
        return []
    # Another table may have the same name elsewhere.
    table = open_table(spec.target)
    found = {
        query for query in {each.query_id for each in others} if table.committed_batch(query) is not None
    }
    return [each for each in others if each.query_id in found]


def _is_row_wise(spec: PipelineSpec) -> bool:
    """Return whether each accounted row is one row of the target; a step may aggregate those of a batch."""
    steps = (step.text for step in spec.transform if isinstance(step, SqlStep))
    return not any(isinstance(parse_step(text), BatchSql) for text in steps)


def _not_compared(spec: PipelineSpec) -> str | None:
    """Return why the rows of a pipeline's target are not compared; None where they are."""
    if not isinstance(spec.target, TableSpec):
        return "the topic's records are not compared with the ledger"
    if spec.target.mode is WriteMode.UPSERT:
        return "the table is not compared with the ledger, as its rows replace each other by key"
    return (
        None
        if _is_row_wise(spec)
        else "the table is not compared with the ledger, as a step sees all rows of a batch"
    )


def _rows_of(spec: TableSpec) -> int:
    table = open_table(spec)
    schema = table.schema()
    if schema is None or table.version() is None:
        return 0
    narrow = next((field.name for field in schema if field.type.num_fields == 0), schema.names[0])
    return sum(rows.num_rows for rows in table.read([narrow]))


def _count(options: SourceOptions, offset_range: OffsetRange) -> int:
    count = OffsetCount(offset_range)
    with pooled_reader(options.client) as reader:
        columns = read_columns(reader, options, offset_range, want_headers=False, meter=ReadMeter())
        for decoded in columns:
            count.add(decoded.offsets)
    return count.records


def _source(properties: Mapping[str, str]) -> SourceOptions:
    options = {f"kafka.{name}": value for name, value in properties.items()}
    options.setdefault("kafka.isolation.level", "read_committed")
    # Partitions are named by the ranges; the selection has no effect.
    options |= {"kafka.client.id": _CLIENT_ID, "subscribe": "unused", "failOnDataLoss": "false"}
    return parse_batch_options(options)
