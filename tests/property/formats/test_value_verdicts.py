"""A value's row and whether it is good depend on its own bytes, whatever stands beside it."""

import base64
import gc
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.formats import Decoder, FormatSpec, open_decoder
from kalda.formats.merging import extended, merged_all
from kalda.formats.protobuf_schema import compile_proto
from tests.chaos.decoder_fuzz import KEPT, Fuzz, named
from tests.integration.formats.registry_server import RegistryServer, registry_server

JSON = [
    b'{"id":1,"first":"Ada","last":"Lovelace"}',
    b'{"last":"Hopper","first":"Grace","id":2}',
    b'{"id":"three","n":{"a":1}}',
    b'{"n":{"b":2.5},"l":[]}',
    b'{"n":[1],"l":[{"x":1}]}',
    b'{"l":[{"y":"z"}],"x":1}',
    b'{"x":1.5}',
    b'{"x":1e999}',
    b'{"x":null}',
    b"{}",
    b'{"s":"\\ud800"}',
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b"not json",
    b"",
]
EVENTS = [
    b'{"op":"c","after":{"id":1,"name":"a"},"ts_ms":1}',
    b'{"payload":{"op":"u","after":{"id":2,"more":true}}}',
    b'{"op":"d","before":{"id":1.5}}',
    b'{"op":"c","after":"text"}',
    b'{"op":5,"after":{"id":"five"}}',
    b'{"op":"c","after":{"id":6},"ts_ms":"six"}',
    b'{"op":"c","after":{"id":7,"op":"x"}}',
    b'{"payload":"text","op":"c","after":{"id":{"a":8}}}',
    *JSON[-5:],
]
PROTO = (
    'syntax = "proto3"; message A { int64 id = 1; string s = 2; } message B { string id = 1; bool b = 2; }'
)


def avro(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    made = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "R", "fields": made}


def envelope(kind: Any) -> dict[str, Any]:
    row = {"type": "record", "name": "V", "fields": [{"name": "id", "type": kind}]}
    return record(("before", ["null", row]), ("after", ["null", "V"]), ("op", "string"))


@contextmanager
def opened(name: str) -> Iterator[tuple[Decoder, list[bytes]]]:
    """Open a decoder; with values that are good, bad, and of schemas that contradict each other."""
    if not name.endswith("-sr"):
        yield open_decoder(FormatSpec(name)), EVENTS if name == "debezium-json" else JSON
        return
    with registry_server() as registry:
        found = registered(registry)
        yield open_decoder(FormatSpec(name, options={"registry.url": registry.url})), found


def registered(registry: RegistryServer) -> list[bytes]:
    """Return values of schemas of a registry, good and bad."""
    schemas = [
        (record(("id", "long"), ("name", "string")), {"id": 1, "name": "n"}),
        (record(("id", "long"), ("email", ["null", "string"])), {"id": (1 << 60) + 1, "email": "e"}),
        (record(("id", "double")), {"id": 0.5}),
        (record(("id", {"type": "array", "items": "bytes"})), {"id": [b"\xff"]}),
        (envelope("long"), {"before": None, "after": {"id": 5}, "op": "c"}),
        (envelope("string"), {"before": {"id": "six"}, "after": None, "op": "d"}),
    ]
    values = []
    for schema, row in schemas:
        head = b"\0" + registry.register("avro", json.dumps(schema)).to_bytes(4, "big")
        values += [head + avro(schema, row), head + b"\xff"]
    text = "base64:" + base64.b64encode(compile_proto(PROTO)).decode()
    head = b"\0" + registry.register("proto", text, "PROTOBUF").to_bytes(4, "big")
    tails = (b"\0\x08\x05", b"\0\x12\x01s", b"\x02\x02\x0a\x01x\x10\x01", b"\x02\x10", b"\x02", b"\0\x12\xff")
    return [*values, *(head + tail for tail in tails), b"\0\x7f\0\0\0x", b"", b"junk!!"]


@pytest.mark.parametrize("name", ["json", "debezium-json", "avro-sr", "debezium-avro-sr", "protobuf-sr"])
def test_a_verdict_depends_on_no_other_value_and_on_no_cut(name: str) -> None:
    """One stray value must not condemn or change the hundreds around it."""
    run_verdicts(name)
    gc.collect()  # a decoder of a registry keeps its connection until it is gone


def run_verdicts(name: str) -> None:
    with opened(name) as (decoder, found):

        @settings(max_examples=60, deadline=None)
        @given(
            batch=st.lists(st.sampled_from([*found, None]), min_size=1, max_size=12), cut=st.integers(0, 12)
        )
        def check(batch: list[bytes | None], cut: int) -> None:
            check_verdicts(decoder, batch, min(cut, len(batch)))

        check()


def check_verdicts(decoder: Decoder, batch: list[bytes | None], cut: int) -> None:
    values = pa.array(batch, pa.binary())

    columns = decoder.columns(values)
    parts = merged_all([decoder.columns(values.slice(0, cut)), decoder.columns(values.slice(cut))])
    assert named(columns) == named(parts)
    bound = decoder.with_columns(columns)
    together = bound.decode(values)
    bad = {each.row: (each.error_class, each.message) for each in together.errors}
    for index in range(len(batch)):
        one = values.slice(index, 1)
        alone, own = bound.decode(one), decoder.decode(one)
        verdict = [bad[index]] if index in bad else []
        assert verdict == [(each.error_class, each.message) for each in alone.errors]
        assert (index in bad) == bool(own.errors)
        assert repr(together.columns[index].as_py()) == repr(alone.columns[0].as_py())
        shown = {field.name for field in own.columns.type}
        row = together.columns[index].as_py() or {}
        assert not any(row[name] for name in row.keys() - shown)


def test_a_good_value_keeps_all_its_fields() -> None:
    """Fields of kinds that contradict each other become texts; none is dropped."""
    with opened("avro-sr") as (decoder, found):
        decoded = decoder.decode(pa.array(found[:8:2], pa.binary()))

    assert ["1", str((1 << 60) + 1), "0.5", '["/w=="]'] == decoded.columns.field("id").to_pylist()
    assert () == decoded.errors


def test_a_column_keeps_its_type_when_a_stray_value_has_another() -> None:
    """Of two batches the first one decides; the stray value of the second is bad by itself."""
    decoder = open_decoder(FormatSpec("json"))
    first = pa.array([b'{"id":1}'], pa.binary())
    second = pa.array([b'{"id":2.5,"n":1}', b'{"id":"x"}'], pa.binary())

    columns = extended(decoder.columns(first), decoder.columns(second))
    assert pa.struct([("id", pa.float64()), ("n", pa.int64())]) == columns
    assert columns == extended(decoder.columns(first), decoder.columns(second[:1]))
    decoded = decoder.with_columns(columns).decode(second)

    assert [{"id": 2.5, "n": 1}, None] == decoded.columns.to_pylist()
    assert [(1, "TypeMismatch")] == [(each.row, each.error_class) for each in decoded.errors]


@pytest.mark.parametrize("stray", [b"[1]", b'"text"', b"true", b"5", b'[{"q":"x"}]', b'[[],"x"]'])
@pytest.mark.parametrize(
    ("known", "good"),
    [(b'{"q":1}', b'{"q":2,"p":{"r":1.5}}'), (b'[{"q":1}]', b'[{"p":"x","q":3}]'), (b"1", b"2.5")],
)
def test_a_stray_value_hides_no_field_of_the_others(known: bytes, good: bytes, stray: bytes) -> None:
    """What values show beside a stray one, such as a new field of a structure, is a column all the same."""
    decoder = open_decoder(FormatSpec("json"))
    first, good, stray = (b'{"id":1,"d":%s}' % each for each in (known, good, stray))
    batch = pa.array([good, stray], pa.binary())

    shown = extended(decoder.columns(pa.array([first], pa.binary())), decoder.columns(batch))
    decoded = decoder.with_columns(shown).decode(batch)

    row = decoded.columns.to_pylist()[0]
    assert 0 not in [each.row for each in decoded.errors]
    expected = json.loads(good)
    assert expected["id"] == row["id"]
    assert without_nulls(expected["d"]) == without_nulls(row["d"])


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def test_a_stray_schema_hides_no_field_of_the_others() -> None:
    """Avro: of three schemas one has another type for the field, one a new field in its structure."""

    def nested(*names: str) -> Any:
        fields = [{"name": name, "type": "long"} for name in names]
        return {"type": "record", "name": "N", "fields": fields}

    schemas = [
        (record(("id", "long"), ("d", nested("q"))), {"id": 1, "d": {"q": 1}}),
        (record(("id", "long"), ("d", nested("q", "p"))), {"id": 2, "d": {"q": 2, "p": 3}}),
        (record(("id", "long"), ("d", "string")), {"id": 3, "d": "text"}),
    ]
    with registry_server() as registry:
        values = [
            b"\0" + registry.register("avro", json.dumps(kind)).to_bytes(4, "big") + avro(kind, row)
            for kind, row in schemas
        ]
        decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": registry.url}))
        first, batch = pa.array(values[:1], pa.binary()), pa.array(values[1:], pa.binary())

        shown = extended(decoder.columns(first), decoder.columns(batch))
        decoded = decoder.with_columns(shown).decode(batch)

    assert [{"id": 2, "d": {"q": 2, "p": 3}}, None] == decoded.columns.to_pylist()
    assert [1] == [each.row for each in decoded.errors]


def test_kept_rounds_of_the_fuzzer() -> None:
    """Rounds that have found something; see `tests.chaos.decoder_fuzz`."""
    fuzz = Fuzz()
    for seed in KEPT:
        fuzz.run(seed)
    fuzz.close()
