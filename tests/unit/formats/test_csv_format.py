"""Decoding of lines of CSV."""

import math
import pickle
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from kalda.formats import Decoded, FormatError, FormatSpec, open_decoder, open_encoder


def decode(values: Sequence[bytes | None], schema: str, **options: str) -> Decoded:
    decoder = pickle.loads(pickle.dumps(open_decoder(FormatSpec("csv", schema, options=options))))
    decoded: Decoded = decoder.decode(pa.array(values, pa.binary()))
    return decoded


def test_bad_lines_are_the_only_ones_that_are_lost() -> None:
    """A line with an open quote would swallow the next one, and one with a line break is two."""
    values = [
        b"1,a",
        b'2,"open',
        b"3,c",
        b"4,d\n5,e",
        b"",
        b"x,f",
        b"6",
        b"7,\xff",
        None,
        b"8,h,i",
        b",k",
        b"9,z\r\n",
    ]

    decoded = decode(values, "n int NOT NULL, s string")

    assert [1, 3, 4, 5, 6, 7, 9, 10] == [failure.row for failure in decoded.errors]
    rows = decoded.columns.to_pylist()
    assert [(1, "a"), (3, "c"), (9, "z")] == [(row["n"], row["s"]) for row in rows if row]
    assert [0, 2, 11] == [index for index, row in enumerate(rows) if row]
    assert "n is null; it is NOT NULL" == decoded.errors[-1].message


def test_options_change_the_syntax() -> None:
    decoded = decode(
        [b"1\t'a\tb'\tNA", b"2\t''\t3"], "n int, s string, m int", delimiter="\\t", quote="'", null_value="NA"
    )

    assert [{"n": 1, "s": "a\tb", "m": None}, {"n": 2, "s": "", "m": 3}] == decoded.columns.to_pylist()


def test_times_are_read_in_every_form() -> None:
    decoded = decode(
        [b"2026-01-01T00:00:00Z,2026-01-02", b"2026-01-01 00:00:00.123456789+01:00,", b"soon,", b",x"],
        "t timestamp, d date",
    )

    assert [2, 3] == [failure.row for failure in decoded.errors]
    assert "2025-12-31 23:00:00.123456+00:00" == str(decoded.columns[1]["t"].as_py())


def test_decimals_are_what_was_written_or_bad() -> None:
    """Arrow's own parser gives other numbers for some, and ends the process for one."""
    values = [b"1.25", b" 1 ", b"1e1", b"12345678.9", b"1e-77", b"1e-2147483647", b"x", b"9e37", b"+.5"]

    decoded = decode(values, "d decimal(9,2)")

    assert [3, 4, 5, 6, 7] == [each.row for each in decoded.errors]
    numbers = [row and str(row["d"]) for row in decoded.columns.to_pylist()]
    assert ["1.25", "1.00", "10.00", None, None, None, None, None, "0.50"] == numbers
    assert "d is 'x'; a decimal128(9, 2) is expected" == decoded.errors[3].message


def test_numbers_too_large_are_bad_and_no_infinities() -> None:
    values = [b"1.5,1.5", b"1e999,1", b"1,1e39", b"inf,-inf", b"1.7976931348623159e308,1", b"1e39,nan"]

    decoded = decode(values, "x double, y float")

    assert [1, 2, 4] == [each.row for each in decoded.errors]
    assert [1.5, None, None, math.inf, None, 1e39] == [r and r["x"] for r in decoded.columns.to_pylist()]
    assert "x is '1e999'; a double is expected" == decoded.errors[0].message


def test_damage_shifts_no_row() -> None:
    """Fuzz with the signs that CSV gives a meaning."""
    rng = random.Random(5)
    for _ in range(40):
        values: list[bytes | None] = []
        damaged = set()
        for index in range(12):
            value = bytearray(b'%d,"text %d",2.5' % (index, index))
            if rng.random() < 0.3:
                damaged.add(index)
                for _ in range(3):
                    value.insert(rng.randrange(len(value) + 1), rng.choice(b'",\n\r\\x\xff\0 '))
            values.append(bytes(value))
        decoded = decode(values, "n int, s string, x double")
        bad = {failure.row for failure in decoded.errors}
        assert bad <= damaged
        for index, row in enumerate(decoded.columns.to_pylist()):
            assert (row is None) == (index in bad)
            if index not in damaged:
                assert index == row["n"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FormatSpec("csv"), "needs a schema"),
        (FormatSpec("csv", "a array<int>"), "a has type list"),
        (FormatSpec("csv", "a int", options={"delimiter": ";;"}), "is not one character"),
        (FormatSpec("csv", "a int", options={"header": "x"}), "no option 'header'"),
    ],
)
def test_wrong_specs_are_refused(spec: FormatSpec, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_decoder(spec)

    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["0x10", "0X1f", '"0x7F"'])
def test_hexadecimal_digits_are_no_integer(text: str) -> None:
    """Arrow's reader takes them for one; an identifier would become a number in silence."""
    decoded = decode([b"7,1", f"{text},2".encode(), b"8,0x3"], "n int, s string")

    assert [1] == [failure.row for failure in decoded.errors]
    assert [{"n": 7, "s": "1"}, None, {"n": 8, "s": "0x3"}] == decoded.columns.to_pylist()


def test_a_byte_order_mark_is_left_out_wherever_its_value_stands() -> None:
    """Arrow's reader knows it at the begin of its input alone, which depends on where a batch is cut."""
    mark = b"\xef\xbb\xbf"

    decoded = decode([mark + b"a", b"b", mark + mark + b"c", mark], "s string")

    assert [{"s": "a"}, {"s": "b"}, {"s": "c"}, {"s": None}] == decoded.columns.to_pylist()


def test_whole_numbers_may_have_a_plus() -> None:
    """As those with a fraction, and as in Spark's ``from_csv``."""
    decoder = open_decoder(FormatSpec("csv", "a int, b tinyint, s string", None, {}))
    lines = ["+1,2,+x", " +07 ,-128,", "++1,1,", "1,+128,", "+,1,", "0x1+,1,", '"+5",+0,', ",,", "1.0,1,+"]

    decoded = decoder.decode(pa.array([line.encode() for line in lines]))

    assert [2, 3, 4, 5, 8] == [each.row for each in decoded.errors]
    assert {"TypeMismatch"} == {each.error_class for each in decoded.errors}
    assert "a is '++1'; a int32 is expected" == decoded.errors[0].message
    assert [(1, 2, "+x"), (7, -128, None), (5, 0, None), (None, None, None)] == [
        tuple(row.values()) for row in decoded.columns.to_pylist() if row is not None
    ]


def test_an_empty_value_is_the_null_of_one_column() -> None:
    """It is what the encoder writes for such a row; of more columns it is no line."""
    rows = pa.array([{"a": None}, {"a": 1}, {"a": None}], pa.struct([("a", pa.int64())]))
    spec = FormatSpec("csv", "a bigint", None, {})
    written = open_encoder(spec, pa.schema(list(rows.type))).encode(rows)

    assert [b"", b"1", b""] == written.to_pylist()
    decoded = open_decoder(spec).decode(written)
    assert () == decoded.errors
    assert rows.to_pylist() == decoded.columns.to_pylist()
    for other in (
        FormatSpec("csv", "a bigint, b int"),
        FormatSpec("csv", "a int", None, {"null_value": "-"}),
    ):
        assert [0] == [each.row for each in open_decoder(other).decode(pa.array([b""])).errors]
    (failure,) = open_decoder(FormatSpec("csv", "a bigint NOT NULL")).decode(pa.array([b""])).errors
    assert "NullField" == failure.error_class
