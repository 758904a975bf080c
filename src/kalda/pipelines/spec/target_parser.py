"""Parses the key `to` of a pipeline: the table or the topic that the pipeline writes."""

from typing import Final

from kalda.pipelines.spec import sections, values
from kalda.pipelines.spec.locations import Locations
from kalda.pipelines.spec.model import (
    FILE_TARGET_BYTES,
    Compact,
    Compression,
    Delivery,
    Evolve,
    Late,
    TableFormat,
    TableSpec,
    TopicTarget,
    ValueFormat,
    WriteMode,
)
from kalda.pipelines.spec.nodes import SectionReader, Value

_UPSERT_KEYS: Final = ("keys", "order_by", "deletes")
OWN_TOPICS: Final = "__kalda_"
"""How topics begin that Kalda keeps its own records in."""
_KEEP: Final = "keep"
_REFUSED: Final = ("drop", "dlq")
"""Words that look like an action and would be names of tables."""


def read_table_target(value: Value, locations: Locations, format_: TableFormat) -> TableSpec:
    """Read `to` with a table."""
    reader = value.section(sections.TO_TABLE)
    table = reader.required("table", values.TEXT)
    path = locations.table(table)
    if path is None and table:
        (reader.get("table") or value).refuse("a name such as lake.orders, or a URI")
    schema = reader.get("schema")
    kind = reader.one("format", sections.TABLE_FORMAT, format_)
    # What Spark and other writers of these formats do unless a table says something else.
    usual = Compression.ZSTD if kind is TableFormat.ICEBERG else Compression.SNAPPY
    target = TableSpec(
        table=table,
        path=path or "",
        format=kind,
        partition_by=reader.many("partition_by", values.PARTITION),
        mode=reader.one("mode", sections.MODE, WriteMode.APPEND),
        keys=reader.many("keys", values.COLUMN),
        order_by=reader.optional("order_by", values.COLUMN),
        deletes=reader.optional("deletes", values.TEXT),
        event_time=reader.optional("event_time", values.COLUMN),
        late=reader.build("late", lambda each: _late(each, locations)),
        file_target_bytes=reader.one("file_target", values.SIZE, FILE_TARGET_BYTES),
        compression=reader.one("compression", sections.COMPRESSION, usual),
        max_latency_ms=reader.optional("max_latency", values.DURATION),
        evolve=Evolve.NONE
        if schema is None
        else schema.section(sections.SCHEMA).one("evolve", sections.EVOLVE, Evolve.NONE),
        compact=reader.build("compact", _compact),
        catalog={**locations.catalog, **reader.texts("catalog")},
        options=reader.texts("options"),
        place=value.place,
    )
    _check_table(reader, target)
    return target


def _check_table(reader: SectionReader, target: TableSpec) -> None:
    if target.mode is WriteMode.APPEND:
        reader.forbid(_UPSERT_KEYS, "it belongs to mode: upsert")
    elif not target.keys:
        reader.value.fault("mode: upsert needs keys: the columns that identify a row")
    if target.mode is WriteMode.UPSERT and target.format is TableFormat.PARQUET:
        (reader.get("format") or reader.value).fault(
            "format: parquet is not allowed with mode: upsert: plain files cannot replace rows; it takes "
            "delta "
            "or iceberg"
        )
    if target.late is not None and target.late.path == target.path:
        (reader.get("late") or reader.value).fault(
            f"late: {target.late.after} is the table itself; write after: keep to leave late rows in it"
        )
    if target.late is not None and target.event_time is None:
        reader.value.fault("late needs event_time: the column with the time of the event")


def _late(value: Value, locations: Locations) -> Late:
    reader = value.section(sections.LATE)
    after = reader.required("after", values.TEXT)
    path = None
    if after and after != _KEEP:
        path = None if after in _REFUSED else locations.table(after)
        if path is None:
            (reader.get("after") or value).refuse("keep, or the name of a table such as lake.late")
    return Late(allow_ms=reader.required("allow", values.DURATION), after=after, path=path)


def _compact(value: Value) -> Compact:
    reader = value.section(sections.COMPACT)
    return Compact(
        every_ms=reader.required("every", values.DURATION),
        newest_ms=reader.one("newest", values.DURATION, Compact(every_ms=1).newest_ms),
    )


def read_topic_target(
    reader: SectionReader, *, cluster: str, format_: ValueFormat | None, delivery: Delivery
) -> TopicTarget:
    """Read `to` with a topic."""
    return TopicTarget(
        topic=_written_topic(reader),
        cluster=cluster,
        value=format_,
        key=reader.many("key", values.COLUMN),
        tombstones=reader.one("tombstones", values.BOOLEAN, False),
        delivery=reader.one("delivery", sections.DELIVERY, delivery),
        options=reader.texts("options"),
        place=reader.value.place,
    )


def _written_topic(reader: SectionReader) -> str:
    topic = reader.required("topic", values.TOPIC)
    if topic.startswith(OWN_TOPICS):
        (reader.get("topic") or reader.value).refuse(f"another topic: {OWN_TOPICS}* are Kalda's own")
    return topic
