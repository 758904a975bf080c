"""Decoding by registered schemas, and what payloads that do not fit become."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from kalda.http.decoding import Decode, RegisteredSchema, SchemaDecoders
from kalda.schemas.payloads.framing import framed
from tests.unit.http.gateway.test_view import record

INNER = '{"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "bytes"}]}'
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "inner", "type": "Inner"},
        ],
    }
)
PROTO = """syntax = "proto3"; package shop;
message A { string x = 1; } message Order { message Line { int32 n = 1; } }"""
SCHEMAS = {
    1: RegisteredSchema("AVRO", AVRO, {"inner": INNER}),
    2: RegisteredSchema("JSON", '{"type": "object", "required": ["a"]}', {}),
    3: RegisteredSchema("PROTOBUF", PROTO, {}),
    4: RegisteredSchema("AVRO", '{"type": "array", "items": "null"}', {}),
    5: RegisteredSchema("AVRO", "no schema", {}),
}


async def run(function: Callable[[RegisteredSchema], Decode], schema: RegisteredSchema) -> Decode:
    return function(schema)


def avro(value: dict[str, Any]) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(json.loads(INNER), named)
    schema = fastavro.parse_schema(json.loads(AVRO), named)
    output = io.BytesIO()
    fastavro.schemaless_writer(output, schema, value)
    return output.getvalue()


ORDER = avro({"id": 7, "at": 0, "inner": {"b": b"\xff"}})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (framed(1, ORDER), '{"id":7,"at":"1970-01-01T00:00:00+00:00","inner":{"b":"/w=="}}'),
        (framed(2, b'{"a": 1}'), '{"a":1}'),
        (framed(3, b"\x0a\x01v", [0]), '{"x":"v"}'),
        (framed(3, b"\x08\x05", [1, 0]), '{"n":5}'),
        (framed(1, ORDER[:-1]), None),
        (framed(1, ORDER + b"x"), None),
        (framed(2, b"{}"), None),
        (framed(3, b"\x0a\x05v", [0]), None),
        (framed(3, b"", [9]), None),
        (framed(4, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"), None),
        (framed(5, b""), None),
        (framed(6, b""), None),
        (b"plain", None),
        (b"", None),
        (b"\x00\x00", None),
    ],
)
async def test_payloads_are_decoded_where_they_fit(value: bytes, expected: str | None) -> None:
    """The array of 2^63 nulls is among those that do not: it would never end."""
    decoders = SchemaDecoders(SCHEMAS.get, run)
    records = [record(0, 0, value)]

    await decoders.prepare(records)

    assert decoders.is_ready(records)
    assert expected == decoders.decode(value)


async def test_a_schema_that_is_registered_later_is_used_then() -> None:
    schemas: dict[int, RegisteredSchema] = {}
    decoders = SchemaDecoders(schemas.get, run)
    value = framed(2, b'{"a": 1}')
    await decoders.prepare([record(0, 0, value)])
    assert decoders.decode(value) is None

    schemas[2] = SCHEMAS[2]
    assert not decoders.is_ready([record(0, 0, value)])
    await decoders.prepare([record(0, 0, value)])

    assert '{"a":1}' == decoders.decode(value)
