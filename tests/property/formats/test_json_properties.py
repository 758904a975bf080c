"""Arrow's reader and the strict converter agree, and no bytes shift rows."""

import json
import math
import random

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.formats import Decoded, FormatSpec
from kalda.formats.json_format import JsonDecoder, infer_all
from kalda.formats.merging import settled

SCHEMA = (
    "a bigint, i int, x double, f float, d decimal(12,3), s string, b boolean, t timestamp, day date, "
    "l array<bigint>, n struct<k: string, v: double>, `odd key` string"
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.integers(-5, 5)
    | st.floats()
    | texts
    | st.sampled_from(["2026-01-01", "2026-01-01T01:02:03Z", "2026-01-01 01:02:03.5", "1.5", "12345678901.5"])
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["a", "i", "x", "f", "d", "s", "b", "t", "day", "l", "n", "odd key", "other", "k"])
objects = st.dictionaries(names, anything, max_size=5).map(lambda value: json.dumps(value).encode())
fitting = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(1 << 63), (1 << 63) - 1),
        "x": st.floats(),
        "f": st.floats(width=32),
        "d": st.integers(-(10**8), 10**8).map(lambda n: n / 8),
        "s": texts,
        "t": st.datetimes().map(lambda moment: moment.isoformat()),
        "l": st.lists(st.integers(-9, 9) | st.none(), max_size=3),
        "n": st.fixed_dictionaries({}, optional={"k": texts, "v": st.floats(allow_nan=False)}),
    },
).map(lambda value: json.dumps(value).encode())
pieces = st.lists(
    st.sampled_from(
        [
            b"{",
            b"}",
            b'"',
            b'{"a":',
            b"1",
            b"}{",
            b"\n",
            b",",
            b"[",
            b"]",
            b"\\",
            b"Inf",
            b"NaN",
            b"\0",
            b" ",
            b'"a":2',
        ]
    )
    | st.binary(max_size=3),
    max_size=8,
).map(b"".join)
values = st.lists(fitting | objects | pieces | st.none(), max_size=8)


def exact(rows: pa.StructArray) -> list[str]:
    return [repr(row) for row in rows.to_pylist()]


def one_by_one(decoder: JsonDecoder, batch: list[bytes | None]) -> tuple[list[str], list[int]]:
    rows, bad = [], []
    for index, value in enumerate(batch):
        if value is None:
            rows.append("None")
            continue
        decoded = decoder._decode_each(pa.array([value], pa.binary()), range(1), 1)
        rows += exact(decoded.columns)
        bad += [index] * len(decoded.errors)
    return rows, bad


def check(batch: list[bytes | None]) -> None:
    decoder = JsonDecoder(FormatSpec("json", SCHEMA))
    decoded = decoder.decode(pa.array(batch, pa.binary()))
    rows, bad = one_by_one(decoder, batch)
    assert bad == [failure.row for failure in decoded.errors]
    assert rows == exact(decoded.columns)
    decoded.columns.validate(full=True)


@settings(max_examples=100, deadline=None)
@given(values)
def test_a_batch_has_the_rows_of_its_values(batch: list[bytes | None]) -> None:
    """Whether Arrow read it or each value was converted, and whatever stands beside it."""
    check(batch)


@settings(max_examples=60, deadline=None)
@given(st.lists(fitting, max_size=8))
def test_good_values_are_read_alike_by_both_ways(batch: list[bytes]) -> None:
    check(list(batch))


@settings(max_examples=100, deadline=None)
@given(values)
def test_inferring_finds_the_same_columns_and_rows_by_both_ways(batch: list[bytes | None]) -> None:
    decoder = JsonDecoder(FormatSpec("json"))
    array = pa.array(batch, pa.binary())
    columns = decoder.columns(array)
    assert infer_all(decoder.parsed(array.drop_null())) == columns

    bound = decoder.with_columns(settled(columns))
    decoded: Decoded = bound.decode(array)
    again = bound._decode_each(
        array.drop_null(), [index for index, value in enumerate(batch) if value is not None], len(batch)
    )
    assert len(batch) == len(decoded.columns)
    assert [f.row for f in again.errors] == [f.row for f in decoded.errors]
    assert exact(again.columns) == exact(decoded.columns)


def test_random_damage_never_crashes() -> None:
    """Fuzz: flips, cuts and repeats of bytes of good values."""
    rng = random.Random(11)
    decoder = JsonDecoder(FormatSpec("json", SCHEMA))
    for _ in range(300):
        batch: list[bytes | None] = []
        for index in range(20):
            value = bytearray(
                json.dumps({"a": index, "x": math.pi, "s": "text", "n": {"k": "v"}, "l": [1, 2]}).encode()
            )
            if rng.random() < 0.2:
                for _ in range(rng.randrange(1, 4)):
                    value[rng.randrange(len(value))] = rng.randrange(256)
                del value[rng.randrange(len(value) + 1) :]
            batch.append(bytes(value))
        decoded = decoder.decode(pa.array(batch, pa.binary()))
        bad = {failure.row for failure in decoded.errors}
        for index, row in enumerate(decoded.columns.to_pylist()):
            assert (row is None) == (index in bad)
