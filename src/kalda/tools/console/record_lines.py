"""Writes consumed records as lines, by the rules of Kafka's ``DefaultMessageFormatter``, or as JSON lines."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kalda.records.batch import TimestampType
from kalda.tools.bytes_text import JsonValue, json_field
from kalda.tools.console.byte_formats import ByteFormat, to_text


class ShownRecord(Protocol):
    """What is shown of a record; the consumer's records have these attributes."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def timestamp_ms(self) -> int:
        """Its time; -1 without one."""

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of the time."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Its headers."""

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of its batch."""


@dataclass(frozen=True, slots=True)
class LineForm:
    """What a line holds; the names of the properties of Kafka's formatter are in `FORMATTER_PROPERTIES`."""

    print_timestamp: bool = False
    print_key: bool = False
    print_offset: bool = False
    print_partition: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    key_format: ByteFormat = ByteFormat.TEXT
    value_format: ByteFormat = ByteFormat.TEXT
    headers_format: ByteFormat = ByteFormat.TEXT


FORMATTER_PROPERTIES: Final = {
    "print.timestamp": "print_timestamp",
    "print.key": "print_key",
    "print.offset": "print_offset",
    "print.partition": "print_partition",
    "print.epoch": "print_epoch",
    "print.headers": "print_headers",
    "print.value": "print_value",
    "key.separator": "key_separator",
    "line.separator": "line_separator",
    "headers.separator": "headers_separator",
    "null.literal": "null_literal",
    "key.deserializer": "key_format",
    "value.deserializer": "value_format",
    "headers.deserializer": "headers_format",
}
"""The fields of `LineForm` by the names that ``kafka-console-consumer --formatter-property`` takes."""


def timestamp_type_name(timestamp_type: TimestampType) -> str:
    """Return Java's name of a timestamp type."""
    return "LogAppendTime" if timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def record_line(record: ShownRecord, form: LineForm) -> bytes:
    """Return the line of a record with its separator.

    Raises:
        ByteFormatError: key, value or a header is not of its format.
    """
    parts: list[bytes] = []
    if form.print_timestamp:
        kind = timestamp_type_name(record.timestamp_type)
        parts.append(b"NO_TIMESTAMP" if record.timestamp_ms < 0 else f"{kind}:{record.timestamp_ms}".encode())
    if form.print_partition:
        parts.append(b"Partition:%d" % record.partition)
    if form.print_offset:
        parts.append(b"Offset:%d" % record.offset)
    if form.print_epoch:
        epoch = record.leader_epoch
        parts.append(b"Epoch:NOT_PRESENT" if epoch is None else b"Epoch:%d" % epoch)
    if form.print_headers:
        parts.append(_headers(record, form))
    if form.print_key:
        parts.append(_shown(record.key, form.key_format, form))
    if form.print_value:
        parts.append(_shown(record.value, form.value_format, form))
    return form.key_separator.join(parts) + form.line_separator


def _headers(record: ShownRecord, form: LineForm) -> bytes:
    if not record.headers:
        return b"NO_HEADERS"
    return form.headers_separator.join(
        b"%s:%s" % (name.encode(), _shown(value, form.headers_format, form)) for name, value in record.headers
    )


def _shown(data: bytes | None, form: ByteFormat, line: LineForm) -> bytes:
    return line.null_literal if data is None else to_text(data, form)


def record_json(record: ShownRecord) -> dict[str, JsonValue]:
    """Return the JSON object of a record; no byte of key, value and headers is lost."""
    headers: list[JsonValue] = [{"key": name, **json_field("value", value)} for name, value in record.headers]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": timestamp_type_name(record.timestamp_type),
        "leaderEpoch": record.leader_epoch,
        **json_field("key", record.key),
        **json_field("value", record.value),
        "headers": headers,
    }


def record_json_line(record: ShownRecord) -> bytes:
    """Return the JSON line of a record."""
    return json.dumps(record_json(record), ensure_ascii=False).encode() + b"\n"
