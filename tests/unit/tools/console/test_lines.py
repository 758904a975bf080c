"""Records from lines and lines from records, by the rules of Kafka's console tools."""

import json

import pytest

from kalda.clients.values import ConsumerRecord
from kalda.records.batch import TimestampType
from kalda.tools.console.byte_formats import ByteFormat, ByteFormatError, of_java_class, to_bytes, to_text
from kalda.tools.console.line_reader import (
    ConsoleRecord,
    LineError,
    LineOptions,
    check_options,
    read_json_line,
    read_text_line,
)
from kalda.tools.console.record_lines import LineForm, record_json_line, record_line

KEYED = LineOptions(parse_key=True, key_separator=":")
FULL = LineOptions(parse_key=True, parse_headers=True, null_marker="NULL")


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ("v:w", LineOptions(), ConsoleRecord(None, b"v:w", [])),
        ("", LineOptions(), ConsoleRecord(None, b"", [])),
        ("k:v:w", KEYED, ConsoleRecord(b"k", b"v:w", [])),
        (":v", KEYED, ConsoleRecord(b"", b"v", [])),
        ("a:1,b:2\tk\tv", FULL, ConsoleRecord(b"k", b"v", [("a", b"1"), ("b", b"2")])),
        ("a:NULL\tNULL\tNULL", FULL, ConsoleRecord(None, None, [("a", None)])),
        ("NULL\tk\tv", FULL, ConsoleRecord(b"k", b"v", [])),
        ("7:00ff", LineOptions(True, ":", value_format=ByteFormat.HEX), ConsoleRecord(b"7", b"\0\xff", [])),
        ("v", LineOptions(parse_key=True, ignore_error=True), ConsoleRecord(None, b"v", [])),
        (
            "a\tk\tv",
            LineOptions(True, parse_headers=True, ignore_error=True),
            ConsoleRecord(b"k", b"v", [("a", None)]),
        ),
    ],
)
def test_text_lines(line: str, options: LineOptions, expected: ConsoleRecord) -> None:
    assert expected == read_text_line(line, 1, options)


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("v", KEYED, "line 3 has no key separator ':': 'v'"),
        ("v", FULL, r"line 3 has no headers delimiter '\\t': 'v'"),
        ("a\tk\tv", FULL, "line 3: header 'a' has no separator ':'"),
        ("NULL:a\tk\tv", FULL, "line 3: the name of a header cannot be null"),
        ("xyz", LineOptions(value_format=ByteFormat.HEX), "line 3: 'xyz' is not hex: "),
        ("40000", LineOptions(value_format=ByteFormat.SHORT), "line 3: '40000' is not short: "),
    ],
)
def test_a_line_that_is_no_record_is_named(line: str, options: LineOptions, message: str) -> None:
    with pytest.raises(LineError, match=message):
        read_text_line(line, 3, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LineOptions(key_separator=""), "key.separator is empty"),
        (LineOptions(null_marker=":"), "null.marker and headers.key.separator are both ':'"),
        (
            LineOptions(parse_headers=True, headers_separator=":"),
            "headers.separator and headers.key.separator",
        ),
    ],
)
def test_ambiguous_separators_are_refused(options: LineOptions, message: str) -> None:
    with pytest.raises(LineError, match=message):
        check_options(options)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"value": "v"}', ConsoleRecord(None, b"v", [])),
        ('{"key": 7, "value": {"a": [1]}}', ConsoleRecord(b"7", b'{"a":[1]}', [])),
        ('{"keyBase64": "/w==", "value": null}', ConsoleRecord(b"\xff", None, [])),
        (
            '{"value": "v", "headers": {"a": "1", "b": null}, "partition": 2, "timestamp": 5}',
            ConsoleRecord(None, b"v", [("a", b"1"), ("b", None)], 2, 5),
        ),
    ],
)
def test_json_lines(line: str, expected: ConsoleRecord) -> None:
    assert expected == read_json_line(line, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 9 is not JSON"),
        ("[]", "line 9 is no JSON object"),
        ('{"valueBase64": "?"}', r"line 9: valueBase64='\?' is not base64"),
        ('{"headers": [1]}', "line 9: header 1 is no object"),
        ('{"partition": -1}', "line 9: partition=-1 is not allowed: it takes an int, at least 0"),
        ('{"timestamp": true}', "line 9: timestamp=True is not allowed"),
    ],
)
def test_a_json_line_that_is_no_record_is_named(line: str, message: str) -> None:
    with pytest.raises(LineError, match=message):
        read_json_line(line, 9)


def record(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *headers: tuple[str, bytes | None],
) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord(
        "flights", 2, 41, 1_700_000_000_000, TimestampType.CREATE_TIME, key, value, headers, 1, 1, 3
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (LineForm(), b"v\n"),
        (LineForm(print_key=True), b"k\tv\n"),
        (
            LineForm(True, True, True, True, True, True, key_separator=b"|"),
            b"CreateTime:1700000000000|Partition:2|Offset:41|Epoch:3|NO_HEADERS|k|v\n",
        ),
        (LineForm(print_value=False, print_offset=True), b"Offset:41\n"),
        (LineForm(value_format=ByteFormat.HEX, line_separator=b";"), b"76;"),
    ],
)
def test_the_parts_of_a_line_have_kafkas_order(form: LineForm, expected: bytes) -> None:
    assert expected == record_line(record(), form)


def test_headers_and_nulls_in_a_line() -> None:
    form = LineForm(print_key=True, print_headers=True, null_literal=b"-")

    shown = record_line(record(None, None, ("a", b"1"), ("b", None)), form)
    assert b"a:1,b:-\t-\t-\n" == shown


def test_bytes_of_a_text_line_are_not_changed() -> None:
    """A value of another encoding, or a compressed one, can go through a pipe into a file."""
    assert b"\xff\x00\n" == record_line(record(value=b"\xff\x00"), LineForm())


def test_what_is_consumed_as_json_can_be_produced_again() -> None:
    shown = record(b"\xff", '"é"'.encode(), ("a", b"1"), ("a", None), ("b", b"\xfe"))

    line = record_json_line(shown).decode()
    assert "CreateTime" == json.loads(line)["timestampType"]
    assert ConsoleRecord(shown.key, shown.value, list(shown.headers), 2, shown.timestamp_ms) == (
        read_json_line(line, 1)
    )


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (ByteFormat.TEXT, "é"),
        (ByteFormat.HEX, "00ff"),
        (ByteFormat.BASE64, "/w=="),
        (ByteFormat.SHORT, "-5"),
        (ByteFormat.INTEGER, "70000"),
        (ByteFormat.LONG, "-9223372036854775808"),
        (ByteFormat.FLOAT, "0.5"),
        (ByteFormat.DOUBLE, "0.1"),
        (ByteFormat.UUID, "12345678-1234-5678-1234-567812345678"),
    ],
)
def test_formats_are_read_as_they_are_written(form: ByteFormat, text: str) -> None:
    assert text.encode() == to_text(to_bytes(text, form), form)


def test_java_classes_stand_for_formats() -> None:
    """Command lines for Kafka's tools name deserializers."""
    assert ByteFormat.LONG is of_java_class("org.apache.kafka.common.serialization.LongDeserializer")
    assert ByteFormat.TEXT is of_java_class("StringSerializer")
    with pytest.raises(ByteFormatError, match=r"com\.example\.Mine is not allowed: it takes String"):
        of_java_class("com.example.Mine")
    with pytest.raises(ByteFormatError, match="3 bytes are not long, which has 8"):
        to_text(b"abc", ByteFormat.LONG)
