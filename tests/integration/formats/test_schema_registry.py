"""Schema registries: values name the schema that they were written with."""

import io
import json
from collections.abc import Iterator, Mapping

import fastavro
import pyarrow as pa
import pytest

from kalda.formats import FormatSpec, RegistryError, open_decoder, open_encoder
from kalda.formats.registry import registry_settings
from tests.integration.formats.registry_server import RegistryServer, registry_server


def written(schema: Mapping[str, object], row: object, head: bytes = b"") -> bytes:
    stream = io.BytesIO()
    stream.write(head)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), row)
    return stream.getvalue()


def binary(values: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    """A registry with Confluent's REST API."""
    with registry_server() as running:
        yield running


def test_readers_schemas_evolve(server: RegistryServer) -> None:
    """New fields have defaults, numbers widen, fields vanish; each value is read with the schema it names."""
    first = {
        "type": "record",
        "name": "E",
        "fields": [{"name": "a", "type": "int"}, {"name": "old", "type": "string"}],
    }
    second = {
        "type": "record",
        "name": "E",
        "fields": [
            {"name": "a", "type": ["null", "long"]},
            {"name": "c", "type": "string", "default": "new"},
        ],
    }
    ids = [server.register("e-value", json.dumps(schema)) for schema in (first, second)]
    values: list[bytes | None] = [
        written(first, {"a": 1, "old": "x"}, b"\0" + ids[0].to_bytes(4, "big")),
        written(second, {"a": 1 << 40, "c": "y"}, b"\0" + ids[1].to_bytes(4, "big")),
        None,
        written(first, {"a": 2, "old": "z"}, b"\0" + ids[0].to_bytes(4, "big")),
    ]
    options = {"registry.url": server.url}
    latest = open_decoder(FormatSpec("avro-sr", options={**options, "subject": "e-value"}))
    free = open_decoder(FormatSpec("avro-sr", options=options))

    expected = [{"a": 1, "c": "new"}, {"a": 1 << 40, "c": "y"}, None, {"a": 2, "c": "new"}]
    assert expected == latest.decode(binary(values)).columns.to_pylist()
    assert ["a", "c"] == (latest.schema() or pa.schema([])).names
    assert free.schema() is None
    rows = free.decode(binary(values)).columns.to_pylist()
    assert {"a": 1 << 40, "c": "y", "old": None} == rows[1]
    assert {"a": 2, "c": None, "old": "z"} == rows[3]


def test_values_that_name_no_schema_are_bad(server: RegistryServer) -> None:
    """The registry is asked once for each unknown id, and an outage is not the values' fault."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    number = server.register("r-value", json.dumps(schema))
    proto = server.register("p-value", 'syntax = "proto3"; message M {}', "PROTOBUF")
    head = b"\0" + number.to_bytes(4, "big")
    values: list[bytes | None] = [
        b"",
        b"\0\0",
        b"\1" + head[1:],
        b"\0\x7f\0\0\1x",
        written(schema, {"a": 5}, head),
        head + b"\xff",
        b"\0\x7f\0\0\1y",
        b"\0" + proto.to_bytes(4, "big"),
    ]
    decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url}))

    before = server.requests
    decoded = decoder.decode(binary(values))
    decoder.decode(binary(values))

    assert ["BadFraming"] * 3 + ["UnknownSchema", "MalformedValue", "UnknownSchema", "UnknownSchema"] == [
        each.error_class for each in decoded.errors
    ]
    assert (number, 0x7F000001) == (decoded.errors[4].schema_id, decoded.errors[3].schema_id)
    assert {"a": 5} == decoded.columns.to_pylist()[4]
    assert 3 == server.requests - before


def test_schemas_may_refer_to_others(server: RegistryServer) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "v", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]}
    server.register("inner", json.dumps(inner))
    number = server.register(
        "outer", json.dumps(outer), references=[{"name": "Inner", "subject": "inner", "version": 1}]
    )
    value = b"\0" + number.to_bytes(4, "big") + b"\x0e"

    decoded = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url})).decode(
        binary([value])
    )

    assert [{"i": {"v": 7}}] == decoded.columns.to_pylist()


def test_a_registry_that_fails_for_a_moment_is_asked_again(server: RegistryServer) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}
    number = server.register("t-value", json.dumps(schema))
    value = written(schema, {"a": 5}, b"\0" + number.to_bytes(4, "big"))
    server.fail_next = 2

    decoded = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url})).decode(
        binary([value])
    )
    assert [{"a": 5}] == decoded.columns.to_pylist()

    server.fail_next = 2
    decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url, "registry.tries": "2"}))
    with pytest.raises(RegistryError, match="does not answer after 2 tries"):
        decoder.decode(binary([value]))


@pytest.mark.parametrize(
    "credentials", [{"registry.user": "u", "registry.password": "p"}, {"registry.token": "t0ken"}]
)
def test_credentials_are_sent(server: RegistryServer, credentials: dict[str, str]) -> None:
    """Without them, the error says which options to set."""
    schema = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}
    number = server.register("auth-value", json.dumps(schema))
    value = written(schema, {"a": 1}, b"\0" + number.to_bytes(4, "big"))
    server.credentials = {"Basic dTpw", "Bearer t0ken"}
    try:
        with pytest.raises(RegistryError, match=r"401 .*registry\.token"):
            open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url})).decode(binary([value]))
        decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url, **credentials}))
        settings = registry_settings(
            FormatSpec("avro-sr", options={"registry.url": server.url, **credentials})
        )
        assert "p" not in repr(settings).replace("http", "")
        assert () == decoder.decode(binary([value])).errors
    finally:
        server.credentials = set()


def test_encoders_register_their_schema_once(server: RegistryServer) -> None:
    """What a sink writes is read back by the id in its framing."""
    columns = pa.schema([("id", pa.int64()), ("s", pa.string())])
    rows = pa.array([{"id": 1, "s": "a"}, None, {"id": 2, "s": None}], pa.struct(list(columns)))
    options = {"registry.url": server.url}
    encoder = open_encoder(FormatSpec("avro-sr", options={**options, "subject": "sink-value"}), columns)

    before = server.requests
    values = encoder.encode(rows)
    encoder.encode(rows)

    assert 1 == server.requests - before
    assert (
        rows.to_pylist()
        == open_decoder(FormatSpec("avro-sr", options=options)).decode(values).columns.to_pylist()
    )
    server.incompatible.add("refused-value")
    refused = open_encoder(FormatSpec("avro-sr", options={**options, "subject": "refused-value"}), columns)
    with pytest.raises(RegistryError, match="not compatible"):
        refused.encode(rows)


def test_protobuf_values_name_their_message(server: RegistryServer) -> None:
    pytest.importorskip("grpc_tools")
    proto = 'syntax = "proto3"; message A { int32 a = 1; } message B { message C { int64 id = 1; } C c = 1; }'
    columns = pa.schema([("id", pa.int64())])
    rows = pa.array([{"id": 1}, None, {"id": 5}], pa.struct(list(columns)))
    options = {"registry.url": server.url}
    spec = FormatSpec("protobuf-sr", proto, options={**options, "subject": "pb-value", "message": "B.C"})

    values = open_encoder(spec, columns).encode(rows)
    decoded = open_decoder(FormatSpec("protobuf-sr", options=options)).decode(values)

    assert b"\x04\x02\x00\x08\x01" == values[0].as_py()[5:]
    assert rows.to_pylist() == decoded.columns.to_pylist()
    cut = open_decoder(FormatSpec("protobuf-sr", options=options)).decode(
        pa.array([values[0].as_py()[:7]], pa.binary())
    )
    assert ["MalformedValue"] == [failure.error_class for failure in cut.errors]


def test_debezium_events_may_be_avro(server: RegistryServer) -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
    head = b"\0" + server.register("cdc-value", json.dumps(envelope)).to_bytes(4, "big")
    events = [
        {"before": None, "after": {"id": 1}, "source": {"lsn": 5}, "op": "c", "ts_ms": 9},
        {"before": {"id": 1}, "after": None, "source": {"lsn": 6}, "op": "d", "ts_ms": None},
    ]
    values = [written(envelope, event, head) for event in events]

    decoded = open_decoder(FormatSpec("debezium-avro-sr", options={"registry.url": server.url})).decode(
        binary([*values, None, b"junk"])
    )

    expected = [
        {"id": 1, "op": "c", "ts_ms": 9, "lsn": 5},
        {"id": 1, "op": "d", "ts_ms": None, "lsn": 6},
        None,
        None,
    ]
    assert expected == decoded.columns.to_pylist()
    assert [(3, "BadFraming")] == [(failure.row, failure.error_class) for failure in decoded.errors]
