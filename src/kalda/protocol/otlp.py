"""Encodes and decodes OpenTelemetry's ``MetricsData`` v1, in which clients push their metrics (KIP-714).

Only what clients push: gauges and sums of one number each, with attributes. The decoder also reads
attributes that are numbers and truth values; it skips histograms and summaries. The package
``opentelemetry-proto`` would bring protobuf's runtime of several megabytes, whose versions other packages
pin, for these seven small messages.

The numbers of the fields are OpenTelemetry's, and the bytes to decode come from anybody. Everything that is
malformed raises `InvalidMetricsError`, nothing recurses, and the work is bounded: each field that is looked
at counts, and points are decoded one by one, as the caller asks for them.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kalda.protocol.wire_format import encode_uvarint

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_FIXED64_SIZE: Final = 8
_FIXED32_SIZE: Final = 4
_VARINT_BYTES_MAX: Final = 10
_ONE_BYTE_MAX: Final = 0x7F
_DELTA: Final = 1
_CUMULATIVE: Final = 2
_DOUBLE: Final = struct.Struct("<d")
_INT64: Final = struct.Struct("<q")

ATTRIBUTES_MAX: Final = 32
"""Attributes of one point or client that are read; Kafka's clients have six at most."""

FIELDS_MAX: Final = 50_000
"""Fields of one push that are looked at, in some 25 ms. A point with three attributes costs 20 looks."""

Attributes = tuple[tuple[str, str], ...]


class InvalidMetricsError(Exception):
    """The metrics that a client pushed cannot be decoded; the message says why."""


@dataclass(frozen=True, slots=True)
class DataPoint:
    """One value of one metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    time_ns: int
    """When it was read, since the epoch."""
    start_ns: int | None = None
    """Since when a sum counts; None for a gauge."""
    is_delta: bool = False
    """Whether a sum counts since the last push only."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    name: str
    attributes: Attributes
    value: float
    is_sum: bool
    """Whether the value is a total, which is monotonic; if not, it is a gauge."""
    is_delta: bool
    """Whether the value is what was added since the last push."""


def encode_metrics(resource: Iterable[tuple[str, str]], points: Iterable[DataPoint]) -> bytes:
    """Return ``MetricsData`` with all points under one resource; `resource` are attributes of the client."""
    scope = b"".join(_field(2, _metric(point)) for point in points)
    return _field(1, _field(1, _attribute_fields(1, resource)) + _field(2, scope))


def decode_metrics(data: bytes) -> Iterator[tuple[Attributes, Point]]:
    """Return each point with the attributes of its client.

    Raises:
        InvalidMetricsError: the bytes are malformed; the points before are returned.
    """
    return _Decoder().points(memoryview(data))


def _metric(point: DataPoint) -> bytes:
    number = _field(1, _number_fields(point))
    if point.start_ns is None:
        data = _field(5, number)
    else:
        temporality = _DELTA if point.is_delta else _CUMULATIVE
        data = _field(7, number + _key(2, _VARINT) + bytes((temporality,)) + _key(3, _VARINT) + b"\x01")
    return _text_field(1, point.name) + data


def _number_fields(point: DataPoint) -> bytes:
    start = b"" if point.start_ns is None else _key(2, _FIXED64) + struct.pack("<Q", point.start_ns)
    return b"".join(
        (
            start,
            _key(3, _FIXED64),
            struct.pack("<Q", point.time_ns),
            _key(4, _FIXED64),
            _DOUBLE.pack(point.value),
            _attribute_fields(7, point.attributes),
        )
    )


def _attribute_fields(field: int, attributes: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        _field(field, _text_field(1, name) + _field(2, _text_field(1, value))) for name, value in attributes
    )


def _text_field(field: int, text: str) -> bytes:
    return _field(field, text.encode("utf-8"))


def _field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + encode_uvarint(len(content)) + content


def _key(field: int, wire_type: int) -> bytes:
    return bytes((field << 3 | wire_type,))


class _Decoder:
    """Decodes one push; counts the fields that it looks at."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def points(self, data: memoryview) -> Iterator[tuple[Attributes, Point]]:
        """Return each point with the attributes of its client."""
        for resource_metrics in self._messages(data, 1):
            resource: Attributes = ()
            for each in self._messages(resource_metrics, 1):
                resource = self._attributes(each, 1)
            for scope in self._messages(resource_metrics, 2):
                for metric in self._messages(scope, 2):
                    for point in self._points(metric):
                        yield resource, point

    def _points(self, metric: memoryview) -> Iterator[Point]:
        name = ""
        data: list[tuple[bool, memoryview]] = []
        for field, value in self._fields(metric):
            if field == 1:
                name = _text(value)
            elif field in (5, 7):
                data.append((field == 7, _message(value)))
        for is_sum, message in data:
            is_delta, is_monotonic = False, False
            for field, value in self._fields(message):
                if field == 2 and is_sum:
                    is_delta = value == _DELTA
                elif field == 3 and is_sum:
                    is_monotonic = bool(value)
            for number in self._messages(message, 1):
                point = self._number(number)
                if point is not None:
                    yield Point(name, point[1], point[0], is_sum and is_monotonic, is_delta)

    def _number(self, message: memoryview) -> tuple[float, Attributes] | None:
        """Return the value and attributes of a number; None without a value."""
        found: float | None = None
        attributes: list[tuple[str, str]] = []
        for field, value in self._fields(message):
            if field == 7:
                self._add_attribute(attributes, value)
            elif field in (4, 6):
                if not isinstance(value, memoryview) or len(value) != _FIXED64_SIZE:
                    raise InvalidMetricsError(f"field {field} of a number has no 64 bits")
                found = float((_DOUBLE if field == 4 else _INT64).unpack(value)[0])
        return None if found is None else (found, tuple(attributes))

    def _attributes(self, message: memoryview, wanted: int) -> Attributes:
        found: list[tuple[str, str]] = []
        for field, value in self._fields(message):
            if field == wanted:
                self._add_attribute(found, value)
        return tuple(found)

    def _add_attribute(self, found: list[tuple[str, str]], pair: int | memoryview) -> None:
        if len(found) == ATTRIBUTES_MAX:
            return
        name, text = "", None
        for field, value in self._fields(_message(pair)):
            if field == 1:
                name = _text(value)
            elif field == 2:
                text = self._any_value(_message(value))
        if text is not None:
            found.append((name, text))

    def _any_value(self, message: memoryview) -> str | None:
        """Return a value as text; None for lists and maps."""
        for field, value in self._fields(message):
            if field == 1:
                return _text(value)
            if field == 2:
                return "true" if value else "false"
            if field == 3 and isinstance(value, int):
                return str(value - (1 << 64) if value >> 63 else value)
            if field == 4 and isinstance(value, memoryview) and len(value) == _FIXED64_SIZE:
                return repr(_DOUBLE.unpack(value)[0])
        return None

    def _messages(self, message: memoryview, wanted: int) -> Iterator[memoryview]:
        """Return the messages in one field of a message."""
        for field, value in self._fields(message):
            if field == wanted:
                yield _message(value)

    def _fields(self, message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Return the number and value of each field; a value of fixed size is its bytes."""
        position, end = 0, len(message)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise InvalidMetricsError(f"there are more than {FIELDS_MAX} fields")
            # Most keys and sizes have one byte; a call for each would take a third of the time.
            key = message[position]
            position += 1
            if key > _ONE_BYTE_MAX:
                key, position = _varint(message, position - 1)
            wire_type = key & 7
            if wire_type == _BYTES:
                size = message[position] if position < end else _ONE_BYTE_MAX + 1
                position += 1
                if size > _ONE_BYTE_MAX:
                    size, position = _varint(message, position - 1)
            elif wire_type == _VARINT:
                number, position = _varint(message, position)
                yield key >> 3, number
                continue
            elif wire_type == _FIXED64:
                size = _FIXED64_SIZE
            elif wire_type == _FIXED32:
                size = _FIXED32_SIZE
            else:
                raise InvalidMetricsError(f"wire type {wire_type} does not exist")
            if size > end - position:
                raise InvalidMetricsError(f"a field of {size} bytes ends behind its message")
            yield key >> 3, message[position : position + size]
            position += size


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise InvalidMetricsError("a number stands where a message or text should be")
    return value


def _text(value: int | memoryview) -> str:
    try:
        return str(_message(value), "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidMetricsError(f"text is not UTF-8: {error}") from None


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[position : position + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + index + 1
    raise InvalidMetricsError("a number does not end")
