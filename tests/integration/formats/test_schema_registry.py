"""Schema registries: values name the schema that they were written with."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

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


def binary(values: Sequence[bytes | None]) -> pa.BinaryArray:
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


def test_a_union_of_several_types_is_read_by_a_schema_without_it(server: RegistryServer) -> None:
    """As the error of such a schema advises; without a declared schema its values have no columns."""
    at = {"type": "long", "logicalType": "timestamp-millis"}
    union = ["null", "string", {"type": "array", "items": "int"}, at]
    fields = [{"name": "u", "type": union}, {"name": "us", "type": {"type": "array", "items": union}}]
    kept = {"name": "id", "type": "int"}
    schema = {"type": "record", "name": "U", "fields": [*fields, kept]}
    head = b"\0" + server.register("u-value", json.dumps(schema)).to_bytes(4, "big")
    plain = {"type": "record", "name": "U", "fields": [*fields, kept]}
    rows = [("x", 1), ([1, 2], 2), (None, 3), (1500, 4)]
    values = [written(plain, {"u": u, "us": [u, None], "id": number}, head) for u, number in rows]
    options = {"registry.url": server.url}
    narrow = {"type": "record", "name": "U", "fields": [kept]}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    timed = {"type": "record", "name": "U", "fields": [kept, {"name": "u", "type": ["null", micros]}]}

    def decode(declared: object) -> tuple[list[object], list[int]]:
        decoder = open_decoder(
            FormatSpec("avro-sr", None if declared is None else json.dumps(declared), options=options)
        )
        decoded = decoder.decode(binary(values))
        return decoded.columns.to_pylist(), [each.row for each in decoded.errors]

    assert ([{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}], []) == decode(narrow)
    found, bad = decode(timed)
    moment = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert [None, None, {"id": 3, "u": None}, {"id": 4, "u": moment}] == found
    assert [0, 1] == bad
    assert [0, 1, 2, 3] == decode(None)[1]


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


def test_references_may_have_references(server: RegistryServer) -> None:
    named = {"type": "record", "name": "Inner", "fields": [{"name": "v", "type": "int"}]}
    middle = {"type": "record", "name": "Middle", "fields": [{"name": "i", "type": "Inner"}]}
    fields = [{"name": "m", "type": "Middle"}, {"name": "n", "type": ["null", "Middle"]}]
    server.register("level0", json.dumps(named))
    server.register(
        "level1", json.dumps(middle), references=[{"name": "Inner", "subject": "level0", "version": 1}]
    )
    number = server.register(
        "level2",
        json.dumps({"type": "record", "name": "Outer", "fields": fields}),
        references=[{"name": "Middle", "subject": "level1", "version": 1}],
    )
    decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url}))

    decoded = decoder.decode(binary([b"\0" + number.to_bytes(4, "big") + b"\x0e\x02\x10"]))

    assert [{"m": {"i": {"v": 7}}, "n": {"i": {"v": 8}}}] == decoded.columns.to_pylist()


def hostile_schemas() -> dict[str, object]:
    """Return Avro schemas that are small and whose values, types or parsing are not."""
    doubled: object = "long"
    for level in range(30):
        inner = {"type": "record", "name": f"L{level}", "fields": [{"name": "x", "type": doubled}]}
        doubled = {
            "type": "record",
            "name": f"D{level}",
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": f"L{level}"}],
        }
    deep: object = "long"
    for _ in range(90):
        deep = {"type": "array", "items": deep}
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    empty = {"type": "record", "name": "Empty", "fields": []}
    return {
        "recursive": node,
        "nulls": {"type": "array", "items": "null"},
        "empties": {"type": "array", "items": empty},
        "fixed": {"type": "fixed", "name": "F", "size": 1 << 62},
        "zero": {"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}},
        "doubled": doubled,
        "deep": deep,
        "digits": {"type": "bytes", "logicalType": "decimal", "precision": -1, "scale": 99},
        "no type": {"name": "x"},
        "number": 5,
        "large": {"type": "enum", "name": "E", "symbols": [f"S{each:040}" for each in range(120_000)]},
    }


def test_values_of_hostile_schemas_are_bad_and_nothing_else(server: RegistryServer) -> None:
    """A registry is shared; one team's schema must not end another team's pipeline."""
    good = {"type": "record", "name": "G", "fields": [{"name": "a", "type": "int"}]}
    number = server.register("good-value", json.dumps(good))
    loop = {"name": "loop", "subject": "loop", "version": 1}
    texts = [json.dumps(each) for each in hostile_schemas().values()]
    texts += ["[" * 100_000, "{" * 9, "", "\x00", '"Missing"']
    ids = [server.register("hostile", each) for each in texts]
    for references in ([loop], [{"name": "x"}], [5], [{"name": "x", "subject": "absent", "version": 1}]):
        server.schemas[1000 + len(ids)] = {"schema": '"long"', "references": references}
        ids.append(1000 + len(ids))
    server.subjects["loop"] = [ids[-4]]
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    head = b"\0" + number.to_bytes(4, "big")
    values = [written(good, {"a": 1}, head), *(b"\0" + each.to_bytes(4, "big") + bomb for each in ids)]
    decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": server.url}))

    decoded = decoder.decode(binary([*values, values[0]]))
    before = server.requests
    decoder.decode(binary(values[: len(texts)]))

    assert {"UnknownSchema"} == {each.error_class for each in decoded.errors}
    assert list(range(1, len(values))) == [each.row for each in decoded.errors]
    assert [{"a": 1}, {"a": 1}] == [decoded.columns[0].as_py(), decoded.columns[-1].as_py()]
    assert 0 == server.requests - before, "a schema that cannot be decoded is not asked for again"


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


def test_a_proxy_or_a_wrong_path_is_not_the_values_fault(server: RegistryServer) -> None:
    """Both answer 404, and each record would become a dead letter until someone sees it."""
    number = server.register("proxied-value", json.dumps("long"))
    values = binary([b"\0" + number.to_bytes(4, "big") + b"\x02"])

    def decode(url: str) -> object:
        return open_decoder(FormatSpec("avro-sr", options={"registry.url": url})).decode(values)

    with pytest.raises(RegistryError, match="HTTP 404 Not Found"):
        decode(f"{server.url}/elsewhere")
    server.is_away = True
    try:
        with pytest.raises(RegistryError, match="default backend"):
            decode(server.url)
    finally:
        server.is_away = False


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


def test_a_stray_message_index_makes_one_value_bad(server: RegistryServer) -> None:
    """Values of another message of the schema are rows of their own columns, and condemn no neighbour."""
    pytest.importorskip("grpc_tools")
    proto = 'syntax = "proto3"; message A { int64 id = 1; } message B { string name = 1; }'
    head = b"\0" + server.register("stray-value", proto, "PROTOBUF").to_bytes(4, "big")
    usual = [head + b"\0\x08" + bytes([each]) for each in range(100)]
    stray = [head + b"\x02\x02\x0a\x01x", head + b"\x02\x0e\x08\x01"]

    decoded = open_decoder(FormatSpec("protobuf-sr", options={"registry.url": server.url})).decode(
        binary([*usual, *stray])
    )

    assert [(101, "UnknownSchema")] == [(each.row, each.error_class) for each in decoded.errors]
    rows = decoded.columns.to_pylist()
    assert ({"id": 7, "name": None}, {"id": None, "name": "x"}) == (rows[7], rows[100])


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


def test_json_has_the_columns_of_its_subject(server: RegistryServer) -> None:
    """A value of another version, of another kind, without framing: one row each."""
    text = '{"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}'
    number = server.register("json-value", text, "JSON")
    other = server.register("json-value", text.replace("note", "old"), "JSON")
    avro = server.register("avro-value", '"string"')
    options = {"registry.url": server.url, "schema.id": str(number)}
    head = b"\0" + number.to_bytes(4, "big")
    values = binary(
        [
            head + b'{"id": 1, "note": "x"}',
            b"\0" + other.to_bytes(4, "big") + b'{"id": 2, "old": "y"}',
            b"\0" + avro.to_bytes(4, "big") + b"\x00",
            b'{"id": 1}',
            None,
        ]
    )

    decoder = open_decoder(FormatSpec("json-sr", options=options))
    columns = decoder.schema()
    decoded = decoder.decode(values)
    rows = pa.array([{"id": 1, "note": "x"}, None], decoded.columns.type)
    encoded = open_encoder(FormatSpec("json-sr", options=options), columns or pa.schema([])).encode(rows)

    assert ["id", "note"] == ([] if columns is None else columns.names)
    assert [{"id": 1, "note": "x"}, {"id": 2, "note": None}, None, None, None] == decoded.columns.to_pylist()
    assert [(2, "UnknownSchema"), (3, "BadFraming")] == [(e.row, e.error_class) for e in decoded.errors]
    assert [head + b'{"id":1,"note":"x"}', None] == encoded.to_pylist()


def test_protobuf_has_the_columns_of_its_subject(server: RegistryServer) -> None:
    common = server.register("common", 'syntax = "proto3"; message M { int64 cents = 1; }', "PROTOBUF")
    text = 'syntax = "proto3"; import "m.proto"; message P { M money = 1; }'
    number = server.register(
        "prices-value", text, "PROTOBUF", [{"name": "m.proto", "subject": "common", "version": 1}]
    )
    options = {"registry.url": server.url, "schema.id": str(number)}
    row = {"money": {"cents": 5}}

    decoder = open_decoder(
        FormatSpec("protobuf-sr", options={"registry.url": server.url, "subject": "prices-value"})
    )
    columns = decoder.schema()
    assert columns is not None
    kind = pa.struct(list(columns))
    encoded = open_encoder(FormatSpec("protobuf-sr", options=options), columns).encode(pa.array([row], kind))

    assert common != number
    assert [row] == decoder.decode(encoded).columns.to_pylist()
