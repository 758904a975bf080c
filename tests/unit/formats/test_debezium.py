"""Change events of Debezium become rows with what happened to them."""

import base64
import hashlib
import json
import pickle
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pytest

from kalda.formats import Decoded, FormatError, FormatSpec, open_decoder

CREATED = b'{"before":null,"after":{"id":1,"name":"a"},"op":"c","ts_ms":5,"source":{"lsn":7,"table":"t"}}'
UPDATED = (
    b'{"schema":{"type":"struct"},"payload":{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},'
    b'"op":"u","ts_ms":6,"source":{"lsn":8,"table":"t"}}}'
)
DELETED = b'{"before":{"id":1,"name":null},"after":null,"op":"d","ts_ms":7,"source":{"lsn":9,"table":"t"}}'


def decode(
    values: Sequence[bytes | None], schema: str | None = "id bigint, name string", **options: str
) -> Decoded:
    decoder = pickle.loads(pickle.dumps(open_decoder(FormatSpec("debezium-json", schema, options=options))))
    decoded: Decoded = decoder.decode(pa.array(values, pa.binary()))
    return decoded


@pytest.mark.parametrize("schema", ["id bigint, name string", None])
def test_events_are_rows_with_and_without_their_schema_part(schema: str | None) -> None:
    """A tombstone is a null row; a deletion has the row before it."""
    decoded = decode([CREATED, UPDATED, None, DELETED], schema)

    expected = [
        {"id": 1, "name": "a", "op": "c", "ts_ms": 5, "lsn": 7},
        {"id": 1, "name": "b", "op": "u", "ts_ms": 6, "lsn": 8},
        None,
        {"id": 1, "name": None, "op": "d", "ts_ms": 7, "lsn": 9},
    ]
    assert expected == decoded.columns.to_pylist()
    assert () == decoded.errors


@pytest.mark.parametrize("schema", ["id bigint, name string", None])
@pytest.mark.parametrize(
    ("bad", "error_class"),
    [
        (b"junk", "MalformedValue"),
        (b'{"id":1}', "MalformedValue"),
        (b'{"op":"d","before":null}', "MalformedValue"),
        (b'{"op":"u","before":{"id":1}}', "MalformedValue"),
        (b'{"op":"t"}', "UnsupportedOperation"),
        (b'{"op":"m","message":{}}', "UnsupportedOperation"),
        (b'{"payload":null}', "MalformedValue"),
    ],
)
def test_what_is_no_change_of_a_row_is_bad(schema: str | None, bad: bytes, error_class: str) -> None:
    decoded = decode([CREATED, bad, DELETED], schema)

    assert [(1, error_class)] == [(failure.row, failure.error_class) for failure in decoded.errors]
    assert [1, None, 1] == [row and row["id"] for row in decoded.columns.to_pylist()]


def test_the_metadata_can_be_chosen() -> None:
    decoded = decode([CREATED], metadata="op, source.table, source.ts_ms, ts_ms")

    assert ["id", "name", "op", "table", "source_ts_ms", "ts_ms"] == [
        field.name for field in decoded.columns.type
    ]
    assert "t" == decoded.columns[0]["table"].as_py()


def test_a_declared_schema_is_known_before_the_data() -> None:
    decoder = open_decoder(FormatSpec("debezium-json", "id bigint NOT NULL"))

    schema = decoder.schema()
    assert schema is not None
    assert ["id", "op", "ts_ms", "lsn"] == schema.names
    assert schema == pa.schema(list(decoder.decode(pa.array([CREATED], pa.binary())).columns.type))


def test_an_empty_batch_has_no_rows() -> None:
    assert 0 == len(decode([]).columns)
    assert [None] == decode([None]).columns.to_pylist()
    assert [None] == decode([None], None).columns.to_pylist()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FormatSpec("debezium-json", "op string"), "'op' is a column of the row and of the metadata"),
        (FormatSpec("debezium-json", options={"metadata": "after.id"}), "option metadata has 'after.id'"),
        (FormatSpec("debezium-json", options={"x": "y"}), "no option 'x'"),
        (FormatSpec("debezium-avro-sr"), "registry.url"),
    ],
)
def test_wrong_specs_are_refused(spec: FormatSpec, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_decoder(spec)

    assert message in str(caught.value)


PLACEHOLDER = "__debezium_unavailable_value"
ENCODED = base64.b64encode(PLACEHOLDER.encode()).decode()


def event(after: object, before: object = None, op: str = "u") -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"lsn": 1}}).encode()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", PLACEHOLDER),
        ("string", ENCODED),
        ("string", PLACEHOLDER.encode().hex()),
        ("string", [PLACEHOLDER]),
        ("binary", ENCODED),
        ("array<string>", [PLACEHOLDER]),
        ("array<binary>", [ENCODED]),
        ("array<int>", list(PLACEHOLDER.encode())),
        ("array<bigint>", list(PLACEHOLDER.encode())),
        ("array<string>", [str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode()).digest(), version=3))]),
        ("map<string, string>", {PLACEHOLDER: PLACEHOLDER}),
        ("string", {PLACEHOLDER: PLACEHOLDER}),
        (None, PLACEHOLDER),
        (None, [PLACEHOLDER]),
        (None, {PLACEHOLDER: PLACEHOLDER}),
    ],
)
def test_a_value_that_the_event_lacks_is_taken_from_before_or_makes_it_bad(
    kind: str | None, value: object
) -> None:
    """In an upsert the placeholder would replace the value that the table holds."""
    schema = None if kind is None else f"id bigint, doc {kind}"

    decoded = decode([event({"id": 1, "doc": value}), event({"id": 2, "doc": None})], schema)

    assert [(0, "UnavailableValue")] == [(each.row, each.error_class) for each in decoded.errors]
    assert "doc is the placeholder" in decoded.errors[0].message
    assert [None, 2] == decoded.columns.field("id").to_pylist() or decoded.columns[0].as_py() is None

    deleted = decode([event(None, {"id": 1, "doc": value}, "d")], schema)

    assert () == deleted.errors
    assert [(1, None)] == [(row["id"], row["doc"]) for row in deleted.columns.to_pylist()]


def test_the_value_before_the_change_is_the_value() -> None:
    old = {"id": 1, "doc": "a long text", "blob": "AAE="}

    decoded = decode(
        [
            event({"id": 1, "doc": PLACEHOLDER, "blob": ENCODED}, old),
            event({"id": 2, "doc": PLACEHOLDER, "blob": "AA=="}, {"id": 2, "doc": PLACEHOLDER, "blob": None}),
            event({"id": 3, "doc": f"see {PLACEHOLDER}", "blob": "AA=="}),
        ],
        "id bigint, doc string, blob binary",
    )

    assert [1] == [each.row for each in decoded.errors]
    found = [row and (row["doc"], row["blob"]) for row in decoded.columns.to_pylist()]
    assert [("a long text", b"\0\1"), None, (f"see {PLACEHOLDER}", b"\0")] == found


def test_the_placeholder_is_the_one_of_the_connector() -> None:
    values = [event({"id": 1, "name": "gone"}), event({"id": 2, "name": PLACEHOLDER})]

    assert [0] == [each.row for each in decode(values, unavailable_value="gone").errors]
    assert [0] == [each.row for each in decode(values, unavailable_value="hex:676f6e65").errors]
    assert [] == list(decode(values, unavailable_value="none").errors)
    with pytest.raises(FormatError, match="hex"):
        decode(values, unavailable_value="hex:6")
    with pytest.raises(FormatError, match="write none"):
        decode(values, unavailable_value="")


@pytest.mark.parametrize(
    ("envelope", "has_bad_value"),
    [('{"op":"c","after":%s}', False), ('{"payload":{"op":"c","after":%s}}', True)],
)
def test_tables_with_more_columns_than_a_nested_object_has_fields(envelope: str, has_bad_value: bool) -> None:
    """A row is no nested object: two tables of 600 columns had no column at all, without an error."""
    rows = [{f"t{table}_{number}": number for number in range(600)} for table in range(2)]
    rows.append({f"u{number}": number for number in range(1_100)})
    values = [(envelope % json.dumps(row)).encode() for row in rows]
    if has_bad_value:
        values.append((envelope % '{"t":1e400}').encode())  # Arrow's reader does not take such a batch

    decoded = decode(values, None)

    assert [3] * has_bad_value == [failure.row for failure in decoded.errors]
    assert 2 * 600 + 1_100 + 3 == len(decoded.columns.type)
    found = [decoded.columns.field(name).to_pylist()[:3] for name in ("t0_5", "t1_5", "u1099")]
    assert [[5, None, None], [None, 5, None], [None, None, 1_099]] == found


@pytest.mark.parametrize(
    "row",
    [
        {f"c{number}": number for number in range(10_001)},
        {f"s{each}": {f"c{number}": number for number in range(501)} for each in range(20)},
    ],
    ids=["plain", "in structs"],
)
def test_a_row_of_too_many_columns_is_bad_and_shows_none(row: dict[str, object]) -> None:
    """The fields of its objects count; one such event would stop the pipeline for all."""
    wide = json.dumps({"op": "c", "after": row}).encode()

    decoded = decode([CREATED, wide, DELETED], None)

    assert [(1, "ValueTooLarge")] == [(each.row, each.error_class) for each in decoded.errors]
    assert ["id", "name", "op", "ts_ms", "lsn"] == decoded.columns.type.names
