"""What a request for a stream may say, and what its wrong parameters get."""

import pytest

from kalda.http.gateway.parameters import InvalidParameterError
from kalda.http.gateway.streams.conditions import parse_conditions, parse_json_condition
from kalda.http.gateway.streams.event_ids import format_event_id, parse_event_id
from kalda.http.gateway.streams.rendering import Format, render_data
from kalda.http.gateway.streams.stream_request import (
    Edge,
    Start,
    parse_partitions,
    parse_start,
    parse_stream_request,
)

NOW = 1_700_000_000_000


@pytest.mark.parametrize("position", [{0: 0}, {1: 7, 0: 2**63 - 1}, {2**31 - 1: 5}])
def test_event_ids_are_read_as_they_are_written(position: dict[int, int]) -> None:
    assert position == parse_event_id(format_event_id(position))


@pytest.mark.parametrize(
    "text",
    ["", ",", "0", "0:", ":0", "0:-1", "0:1,", "0:1,0:2", "0:9223372036854775808", "2147483648:0", "0:1;1:2",
     "0: 1", "+0:1", "\u0660:1", "0:" + "9" * 100, "a:b", "0:1" * 40_000, "0:1\n", "\x00"],
)  # fmt: skip
def test_what_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="Last-Event-ID"):
        parse_event_id(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Start(edge=Edge.BEGINNING)),
        ("end", Start()),
        ("now", Start()),
        ("now-5m", Start(timestamp_ms=NOW - 300_000)),
        ("now-1500ms", Start(timestamp_ms=NOW - 1_500)),
        ("now-999999999d", Start(timestamp_ms=0)),
        ("1699999999999", Start(timestamp_ms=1_699_999_999_999)),
        ("2023-11-14T22:13:20Z", Start(timestamp_ms=NOW)),
        ("2023-11-14T22:13:20", Start(timestamp_ms=NOW)),
        ("2023-11-14T23:13:20+01:00", Start(timestamp_ms=NOW)),
        ("0:120,1:87", Start(offsets={0: 120, 1: 87})),
    ],
)
def test_the_beginning_of_a_stream(text: str, expected: Start) -> None:
    assert expected == parse_start(text, NOW)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "now-", "now-5", "-1", "1e9", "9" * 30, "0:x", "0001-13-01T0"]
)
def test_a_beginning_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="from="):
        parse_start(text, NOW)


def test_the_header_counts_before_the_parameters() -> None:
    request = parse_stream_request("t", [("from", "beginning"), ("last_event_id", "0:1")], "0:2", NOW)

    assert Start(offsets={0: 2}, edge=Edge.BEGINNING, is_resumed=True) == request.start


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([("form", "end")], "did you mean `from`"),
        ([("from", "end"), ("from", "end")], "given once"),
        ([("isolation", "serializable")], "read_committed, read_uncommitted"),
        ([("value_format", "xml")], "value_format='xml'"),
        ([("key_format", "cloudevents")], "key_format"),
        ([("partitions", "0-5000")], "at most 4096"),
        ([("key", "k")] * 17, "at most 16"),
        ([("header", ":x")], "name, or name:value"),
    ],
)
def test_wrong_parameters_are_named(parameters: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        parse_stream_request("t", parameters, None, NOW)


def test_partitions_are_numbers_and_ranges() -> None:
    assert frozenset({0, 3, 5, 6, 7}) == parse_partitions("0,3,5-7")


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1,,2", "1-", "²"])
def test_what_are_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="partitions="):
        parse_partitions(text)


VALUE = b'{"a": {"b c": [1, 2.5, {"d": "text"}]}, "n": 10, "t": true, "z": null, "e-mail": "x"}'


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("$.a", True),
        ("$.missing", False),
        ("$.n==10", True),
        ("$.n == 10.0", True),
        ("$.n!=10", False),
        ('$.n=="10"', False),
        ('$.n!="10"', True),
        ("$.n>9.5", True),
        ("$.n<=9", False),
        ("$.t==true", True),
        ("$.t==1", False),
        ("$.t>0", False),
        ("$.z==null", True),
        ("""$.a['b c'][2].d=="text" """, True),
        ('$.a["b c"][-1].d>="tex"', True),
        ("$.a['b c'][3]", False),
        ("$[0]", False),
        ('$.e-mail=="x"', True),
    ],
)
def test_conditions_on_json_values(where: str, expected: bool) -> None:
    assert expected is parse_conditions((), (), [where]).match(None, VALUE, ())


@pytest.mark.parametrize(
    "where",
    ["", "a", "$.a==", "$.a=1", "$.a ~ 1", "$..a", "$.a[*]", "$.a=={}", "$.a==1e999", "$.a==NaN", "$" * 2000],
)
def test_conditions_that_are_none_are_refused(where: str) -> None:
    with pytest.raises(InvalidParameterError, match="where="):
        parse_json_condition(where)


def test_conditions_on_keys_and_headers() -> None:
    conditions = parse_conditions(["a", "b"], ["h:x", "any"], [])
    headers = (("h", b"x"), ("any", None))

    assert conditions.match(b"b", None, headers)
    assert not conditions.match(b"c", None, headers)
    assert not conditions.match(b"b", None, headers[:1])
    assert not conditions.match(b"b", None, (("h", b"y"), ("any", b"")))


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (None, Format.AUTO, ("null", "null")),
        (b"", Format.AUTO, ('""', "text")),
        (b'{"a":\r\n 1.10}', Format.AUTO, ('{"a":   1.10}', "json")),
        (b"12345678901234567890.5", Format.AUTO, ("12345678901234567890.5", "json")),
        (b"1e999", Format.AUTO, ('"1e999"', "text")),
        (b"NaN", Format.AUTO, ('"NaN"', "text")),
        (b'"\\ud800"', Format.AUTO, ('"\\"\\\\ud800\\""', "text")),
        (b"[" * 100_000, Format.TEXT, ('"' + "[" * 100_000 + '"', "text")),
        ("ü\n".encode(), Format.AUTO, ('"ü\\n"', "text")),
        (b"\xff", Format.AUTO, ('"/w=="', "base64")),
        (b"1", Format.TEXT, ('"1"', "text")),
        (b"1", Format.BINARY, ('"MQ=="', "base64")),
    ],
)
def test_values_are_written_as_json_text_or_base64(
    data: bytes | None, form: Format, expected: tuple[str, str]
) -> None:
    assert expected == render_data(data, form)


def test_a_value_that_is_nested_too_deeply_is_text() -> None:
    assert "text" == render_data(b"[" * 100_000, Format.AUTO)[1]


def test_keys_are_texts_unless_json_is_asked_for() -> None:
    assert ('"1"', "text") == render_data(b"1", Format.AUTO, is_key=True)
    assert ("1", "json") == render_data(b"1", Format.JSON, is_key=True)
