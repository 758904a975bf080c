"""Zigzag varints, against values worked out by hand from the encoding's definition."""

import pytest

from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.varint import read_varint, read_varlong, varint_size, write_varint

KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]
KNOWN_LONG = [(9223372036854775807, "feffffffffffffffff01"), (-9223372036854775808, "ffffffffffffffffff01")]


@pytest.mark.parametrize(("value", "encoded"), KNOWN + KNOWN_LONG)
def test_value_is_written_in_its_shortest_form(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert encoded == out.hex()
    assert len(out) == varint_size(value)


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_varint_is_read_back_with_the_position_behind_it(value: int, encoded: str) -> None:
    buffer = b"\xff" + bytes.fromhex(encoded) + b"\xff"
    assert read_varint(buffer, 1) == (value, len(buffer) - 1)


@pytest.mark.parametrize(("value", "encoded"), KNOWN + KNOWN_LONG)
def test_varlong_is_read_back_with_the_position_behind_it(value: int, encoded: str) -> None:
    buffer = bytes.fromhex(encoded)
    assert read_varlong(buffer, 0) == (value, len(buffer))


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_cut_varint_needs_more_bytes(encoded: str) -> None:
    with pytest.raises(NeedMoreBytes):
        read_varint(bytes.fromhex(encoded), 0)


def test_varint_of_six_bytes_and_varlong_of_eleven_are_corrupt() -> None:
    """Otherwise a run of 0xff would be read as one number of any length."""
    with pytest.raises(CorruptRecordError):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(CorruptRecordError):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_bits_beyond_32_are_dropped_as_java_does() -> None:
    assert (-2147483648, 5) == read_varint(b"\xff\xff\xff\xff\x7f", 0)
