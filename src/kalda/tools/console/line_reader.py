"""Makes records from lines, by the rules of Kafka's ``LineMessageReader``, or from JSON lines.

A text line is ``[headers TAB][key TAB]value``; which parts it has, and the separators, are options. A JSON
line has the fields that `kalda consume --json` writes, so what it wrote can be produced again.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kalda.common.json_text import strict_json
from kalda.tools.console.byte_formats import ByteFormat, ByteFormatError, to_bytes


class LineError(ValueError):
    """A line is no record; the message has its number."""


class ConsoleRecord(NamedTuple):
    """A record to produce; None leaves partition and timestamp to the producer."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineOptions:
    """How lines are read; the names of the properties of Kafka's reader are in `READER_PROPERTIES`."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    ignore_error: bool = False
    key_format: ByteFormat = ByteFormat.TEXT
    value_format: ByteFormat = ByteFormat.TEXT


READER_PROPERTIES: Final = {
    "parse.key": "parse_key",
    "key.separator": "key_separator",
    "parse.headers": "parse_headers",
    "headers.delimiter": "headers_delimiter",
    "headers.separator": "headers_separator",
    "headers.key.separator": "headers_key_separator",
    "null.marker": "null_marker",
    "ignore.error": "ignore_error",
}
"""The fields of `LineOptions` by the names that ``kafka-console-producer --reader-property`` takes."""


def check_options(options: LineOptions) -> None:
    """Refuse equal separators, which leave a line ambiguous; raises `LineError`."""
    named = {
        "headers.delimiter": options.headers_delimiter,
        "headers.separator": options.headers_separator,
        "headers.key.separator": options.headers_key_separator,
        "key.separator": options.key_separator,
    }
    for name, value in named.items():
        if not value:
            raise LineError(f"{name} is empty; it takes at least one character")
        if value == options.null_marker:
            raise LineError(f"null.marker and {name} are both {value!r}; choose different ones")
    if options.parse_headers:
        first, second, third = list(named.items())[:3]
        for (name, value), (other, other_value) in ((first, second), (first, third), (second, third)):
            if value == other_value:
                raise LineError(f"{name} and {other} are both {value!r}; choose different ones")


def read_text_line(line: str, number: int, options: LineOptions) -> ConsoleRecord:
    """Return the record of a line without its line break; `number` is the line's, from 1.

    Raises:
        LineError: a separator is missing, or a part is not of its format.
    """
    start = 0
    headers_text, start = _part(
        line, start, number, options, options.parse_headers, options.headers_delimiter, "headers delimiter"
    )
    key_text, start = _part(
        line, start, number, options, options.parse_key, options.key_separator, "key separator"
    )
    try:
        return ConsoleRecord(
            _bytes(key_text, options.key_format, options),
            _bytes(line[start:], options.value_format, options),
            _headers(headers_text, number, options),
        )
    except ByteFormatError as error:
        raise LineError(f"line {number}: {error}") from None


def _part(
    line: str, start: int, number: int, options: LineOptions, is_there: bool, end_text: str, what: str
) -> tuple[str | None, int]:
    """Return the part of the line before a separator, and where the next part starts."""
    if not is_there:
        return None, start
    end = line.find(end_text, start)
    if end < 0:
        if options.ignore_error:
            return None, start
        raise LineError(f"line {number} has no {what} {end_text!r}: {line!r}")
    return line[start:end], end + len(end_text)


def _bytes(text: str | None, form: ByteFormat, options: LineOptions) -> bytes | None:
    if text is None or text == options.null_marker:
        return None
    return to_bytes(text, form)


def _headers(text: str | None, number: int, options: LineOptions) -> list[tuple[str, bytes | None]]:
    if text is None or text == options.null_marker or not text:
        return []
    found: list[tuple[str, bytes | None]] = []
    for pair in text.split(options.headers_separator):
        name, separator, value = pair.partition(options.headers_key_separator)
        if not separator and not options.ignore_error:
            raise LineError(
                f"line {number}: header {pair!r} has no separator {options.headers_key_separator!r}"
            )
        if name == options.null_marker:
            raise LineError(f"line {number}: the name of a header cannot be null")
        is_null = not separator or value == options.null_marker
        found.append((name, None if is_null else value.encode(errors="surrogateescape")))
    return found


def read_json_line(line: str, number: int) -> ConsoleRecord:
    """Return the record of a JSON line; `number` is the line's, from 1.

    A key or value that is no text is written as JSON again. ``keyBase64`` and ``valueBase64`` hold bytes that
    are no text.

    Raises:
        LineError: the line is no JSON object, or a field has another type.
    """
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise LineError(f"line {number} is not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(fields, dict):
        raise LineError(f'line {number} is no JSON object: write {{"value": ...}}')
    return ConsoleRecord(
        _json_bytes(fields, "key", number),
        _json_bytes(fields, "value", number),
        _json_headers(fields.get("headers"), number),
        _json_int(fields, "partition", number),
        _json_int(fields, "timestamp", number),
    )


def _json_bytes(fields: Mapping[str, Any], name: str, number: int) -> bytes | None:
    if f"{name}Base64" in fields:
        encoded = fields[f"{name}Base64"]
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise LineError(f"line {number}: {name}Base64={encoded!r} is not base64") from None
    value = fields.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else strict_json(value)
    return text.encode(errors="surrogatepass")


def _json_headers(found: object, number: int) -> list[tuple[str, bytes | None]]:
    """Read headers: a list of objects with ``key`` and ``value``, or one object of names and values."""
    if found is None:
        return []
    if isinstance(found, dict):
        found = [{"key": name, "value": value} for name, value in found.items()]
    headers: list[tuple[str, bytes | None]] = []
    for header in found if isinstance(found, list) else [found]:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise LineError(f'line {number}: header {header!r} is no object with a text in "key"')
        headers.append((header["key"], _json_bytes(header, "value", number)))
    return headers


def _json_int(fields: Mapping[str, Any], name: str, number: int) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise LineError(f"line {number}: {name}={value!r} is not allowed: it takes an int, at least 0")
