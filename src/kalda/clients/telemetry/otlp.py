"""Encodes metrics as OpenTelemetry's ``MetricsData`` v1, which PushTelemetry carries (KIP-714).

Only what clients push: gauges and sums of one number each. The package ``opentelemetry-proto`` would bring
protobuf's runtime of several megabytes, whose versions other packages pin, for these seven small messages.

What a maintainer must not break: the numbers of the fields, which are OpenTelemetry's.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kalda.protocol.wire_format import encode_uvarint

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_DELTA: Final = 1
_CUMULATIVE: Final = 2


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


def encode_metrics(resource: Iterable[tuple[str, str]], points: Iterable[DataPoint]) -> bytes:
    """Return ``MetricsData`` with all points under one resource; `resource` are attributes of the client."""
    scope = b"".join(_message(2, _metric(point)) for point in points)
    return _message(1, _message(1, _attributes(1, resource)) + _message(2, scope))


def _metric(point: DataPoint) -> bytes:
    number = _message(1, _number(point))
    if point.start_ns is None:
        data = _message(5, number)
    else:
        temporality = _DELTA if point.is_delta else _CUMULATIVE
        data = _message(7, number + _key(2, _VARINT) + bytes((temporality,)) + _key(3, _VARINT) + b"\x01")
    return _text(1, point.name) + data


def _number(point: DataPoint) -> bytes:
    start = b"" if point.start_ns is None else _key(2, _FIXED64) + struct.pack("<Q", point.start_ns)
    return b"".join(
        (
            start,
            _key(3, _FIXED64),
            struct.pack("<Q", point.time_ns),
            _key(4, _FIXED64),
            struct.pack("<d", point.value),
            _attributes(7, point.attributes),
        )
    )


def _attributes(field: int, attributes: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        _message(field, _text(1, name) + _message(2, _text(1, value))) for name, value in attributes
    )


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8"))


def _message(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + encode_uvarint(len(content)) + content


def _key(field: int, wire_type: int) -> bytes:
    return bytes((field << 3 | wire_type,))
