"""Columns with a schema registry's framing: two versions in one column, bad values, and the way back."""

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from kalda.formats import FormatError
from kalda.formats.registry import UnknownSchemaError
from kalda.schemas.payloads.framing import framed
from kalda.spark import from_registry, to_registry
from tests.integration.formats.registry_server import RegistryServer, registry_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def avro(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return framed(schema_id, stream.getvalue())


def column(spark: "SparkSession", *values: bytes | None) -> "DataFrame":
    return spark.createDataFrame(
        [(index, value) for index, value in enumerate(values)], "n int, value binary"
    )


def rows(frame: "DataFrame", field: Any) -> list[Any]:
    found = frame.select("n", field.alias("row")).orderBy("n").collect()
    return [None if each.row is None else each.row.asDict(recursive=True) for each in found]


def test_two_versions_decode_in_one_line(spark: "SparkSession", registry: RegistryServer) -> None:
    first, second = (registry.register("orders-value", json.dumps(each)) for each in (FIRST, SECOND))
    frame = column(
        spark, avro(first, FIRST, {"id": 1, "old": "x"}), avro(second, SECOND, {"id": 2, "note": "y"}), None
    )

    latest = rows(frame, from_registry("value", subject="orders-value", registry_url=registry.url))
    older = rows(frame.limit(1), from_registry("value", schema_id=first, registry_url=registry.url))

    assert [{"id": 1, "note": "none"}, {"id": 2, "note": "y"}, None] == latest
    assert [{"id": 1, "old": "x"}] == older


def test_bad_values_fail_or_are_null(spark: "SparkSession", registry: RegistryServer) -> None:
    number = registry.register("orders-value", json.dumps(SECOND))
    frame = column(spark, b"junk", avro(number, SECOND, {"id": 2, "note": "y"}))
    arguments: dict[str, Any] = {"subject": "orders-value", "registry_url": registry.url}

    permissive = rows(frame, from_registry("value", mode="PERMISSIVE", **arguments))
    with pytest.raises(Exception, match="a value cannot be decoded: BadFraming") as raised:
        rows(frame, from_registry("value", **arguments))

    assert [None, {"id": 2, "note": "y"}] == permissive
    assert "with mode='PERMISSIVE' its row is null" in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", json.dumps(SECOND)),
        ("JSON", '{"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}'),
        ("PROTOBUF", 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'),
    ],
)
def test_rows_go_there_and_back(
    spark: "SparkSession", registry: RegistryServer, kind: str, text: str
) -> None:
    from pyspark.sql.functions import struct

    subject = f"{kind.lower()}-back-value"
    frame = spark.createDataFrame([(0, 7, "a"), (1, 8, "b")], "n int, id long, note string")
    arguments: dict[str, Any] = {"subject": subject, "registry_url": registry.url}
    written = frame.select(
        "n", to_registry(struct("id", "note"), schema=text, schema_type=kind, **arguments).alias("value")
    )

    again = frame.select("n", to_registry(struct("id", "note"), **arguments).alias("value"))

    assert [{"id": 7, "note": "a"}, {"id": 8, "note": "b"}] == rows(
        written, from_registry("value", **arguments)
    )
    assert written.collect() == again.collect()
    assert [registry.subjects[subject][0].to_bytes(4, "big")] * 2 == [
        bytes(r.value[1:5]) for r in written.collect()
    ]


def test_wrong_arguments_are_named(registry: RegistryServer) -> None:
    with pytest.raises(FormatError, match="mode='LOOSE' is not one of FAILFAST, PERMISSIVE"):
        from_registry("value", subject="s", registry_url=registry.url, mode="LOOSE")
    with pytest.raises(FormatError, match="give a subject, or a schema_id"):
        from_registry("value", registry_url=registry.url)
    with pytest.raises(UnknownSchemaError, match="no subject 'missing'"):
        from_registry("value", subject="missing", registry_url=registry.url)
    with pytest.raises(FormatError, match="schema_type='XML' is not one of"):
        to_registry("value", subject="s", registry_url=registry.url, schema_type="XML")
