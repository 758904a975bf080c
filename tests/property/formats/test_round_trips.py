"""What an encoder writes, the decoder of the same format reads back."""

import json
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.formats import FormatSpec, open_decoder, open_encoder
from kalda.formats.ddl import parse_schema, to_ddl
from kalda.formats.encoders import avro_schema_of

FLAT = parse_schema("i int, j bigint, x double, d decimal(20,4), s string, b boolean, day date, t timestamp")
NESTED = parse_schema(
    "i int, x double, d decimal(20,4), s string, raw binary, t timestamp, day date, l array<string>, "
    "n struct<a: bigint, t: timestamp, l: array<struct<z: date>>>, m map<string, bigint>"
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8)
dates = st.dates()
times = st.datetimes(timezones=st.just(UTC))
decimals = st.decimals(-(10**15), 10**15, places=4)


def optional(values: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({name: st.none() | each for name, each in values.items()})


flat_rows = optional(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "j": st.integers(-(2**63), 2**63 - 1),
        "x": st.floats(),
        "d": decimals,
        "s": lines,
        "b": st.booleans(),
        "day": dates,
        "t": times,
    }
)
nested_rows = optional(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "x": st.floats(),
        "d": decimals,
        "s": texts,
        "raw": st.binary(max_size=8),
        "t": times,
        "day": dates,
        "l": st.lists(st.none() | texts, max_size=3),
        "n": optional(
            {"a": st.integers(-9, 9), "t": times, "l": st.lists(optional({"z": dates}), max_size=2)}
        ),
        "m": st.dictionaries(texts, st.none() | st.integers(-9, 9), max_size=3).map(
            lambda found: list(found.items())
        ),
    }
)


def check(spec: FormatSpec, schema: pa.Schema, rows: list[dict[str, object] | None]) -> None:
    array = pa.array(rows, pa.struct(list(schema)))
    encoder = pickle.loads(pickle.dumps(open_encoder(spec, schema)))
    values = encoder.encode(array)
    if spec.name == "json":
        for value in values.to_pylist():
            assert value is None or json.loads(value, parse_constant=pytest.fail) is not None
    decoded = open_decoder(spec).decode(values)
    assert () == decoded.errors
    assert repr(array.to_pylist()) == repr(decoded.columns.to_pylist())
    assert values.null_count == array.null_count


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | nested_rows, max_size=5))
def test_json_reads_what_it_wrote(rows: list[dict[str, object] | None]) -> None:
    check(FormatSpec("json", to_ddl(NESTED)), NESTED, rows)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | flat_rows, max_size=5))
def test_csv_reads_what_it_wrote(rows: list[dict[str, object] | None]) -> None:
    check_spec = FormatSpec("csv", to_ddl(FLAT))
    array = pa.array(rows, pa.struct(list(FLAT)))
    decoded = open_decoder(check_spec).decode(open_encoder(FormatSpec("csv"), FLAT).encode(array))
    assert () == decoded.errors
    assert repr(array.to_pylist()) == repr(decoded.columns.to_pylist())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | nested_rows, max_size=5))
def test_avro_reads_what_it_wrote(rows: list[dict[str, object] | None]) -> None:
    check(FormatSpec("avro", json.dumps(avro_schema_of(NESTED))), NESTED, rows)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | flat_rows, max_size=5))
def test_avro_of_plain_fields_reads_what_it_wrote(rows: list[dict[str, object] | None]) -> None:
    check(FormatSpec("avro", json.dumps(avro_schema_of(FLAT))), FLAT, rows)


def test_times_as_numbers_come_back() -> None:
    """Milliseconds are enough for this time."""
    schema = parse_schema("t timestamp")
    rows: list[dict[str, object] | None] = [{"t": datetime(2026, 1, 1, 0, 0, 1, 5000, UTC)}]
    for form in ("epoch_ms", "epoch_us"):
        spec = FormatSpec("json", to_ddl(schema), options={"timestamp_format": form})
        assert (
            rows
            == open_decoder(spec)
            .decode(open_encoder(spec, schema).encode(pa.array(rows, pa.struct(list(schema)))))
            .columns.to_pylist()
        )
