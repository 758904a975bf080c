"""Checks of payloads beside the libraries that read them, and fed what no producer sends."""

import io
import json
from typing import Any

import fastavro
import fastavro.utils
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.schemas.payloads.checks import make_check
from kalda.schemas.payloads.framing import framed

SCHEMAS: list[Any] = [
    "string",
    ["null", "int", "boolean"],
    {"type": "array", "items": ["null", "long"]},
    {"type": "map", "values": {"type": "fixed", "name": "F", "size": 3}},
    {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [
            {"name": "i", "type": "int"},
            {"name": "l", "type": "long"},
            {"name": "d", "type": "double"},
            {"name": "f", "type": "float"},
            {"name": "s", "type": "string"},
            {"name": "b", "type": "bytes"},
            {"name": "t", "type": "boolean"},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}},
            {"name": "n", "type": ["null", "n.R"]},
            {"name": "a", "type": {"type": "array", "items": "n.E"}},
        ],
    },
]
PROTOBUF = """
syntax = "proto3";
message M { int32 i = 1; string s = 2; repeated fixed64 f = 3; M m = 4; map<string, bool> b = 5;
  float x = 6; }
"""


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_a_library_writes_is_good_and_no_part_of_it_is(schema: Any) -> None:
    """Avro has no end marks: a prefix of a value is short of bytes, and a longer one has too many."""
    check = make_check("AVRO", json.dumps(schema), {})
    for value in fastavro.utils.generate_many(schema, 20):
        whole = encoded(schema, value)
        parts = [framed(1, whole[:size]) for size in range(len(whole))]

        assert [] == check.check([framed(1, whole)])
        assert list(range(len(parts))) == [index for index, _ in check.check(parts)]
        assert [0] == [index for index, _ in check.check([framed(1, whole + b"\x00")])]


@pytest.mark.parametrize("schema", SCHEMAS)
@given(payload=st.binary(max_size=60))
def test_what_passes_can_be_read(schema: Any, payload: bytes) -> None:
    if make_check("AVRO", json.dumps(schema), {}).check([framed(1, payload)]):
        return

    source = io.BytesIO(payload)
    fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)

    assert len(payload) == source.tell()


PROTOBUF_CHECK = make_check("PROTOBUF", PROTOBUF, {})
JSON_CHECK = make_check("JSON", '{"type": ["object", "array", "number"]}', {})


@given(value=st.binary(max_size=60))
def test_junk_is_named_and_raises_nothing(value: bytes) -> None:
    for check in (PROTOBUF_CHECK, JSON_CHECK):
        for each in (value, framed(1, value), framed(1, value, [0])):
            assert all(str(error) for _, error in check.check([each]))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_json_of_other_types_is_refused(value: Any) -> None:
    is_good = isinstance(value, dict | list | int) and not isinstance(value, bool)

    faults = JSON_CHECK.check([framed(1, json.dumps(value).encode())])

    assert is_good == (not faults)
