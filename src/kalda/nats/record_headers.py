"""Carries a record's key and headers in the headers of a message of NATS, and back, without a loss.

A header of NATS is a line of text. A record's header whose name and value fit into one is that line. Others
are `Kafka-Header-Base64` lines with name and value in base64, and a colon between them; without the colon the
value is null. `Kafka-Key` has the key, or `Kafka-Key-Base64`; neither, if the key is null.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Final, TypeAlias

from kalda.nats.headers import VERSION_LINE

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

_KEY: Final = b"Kafka-Key"
_KEY_BASE64: Final = b"Kafka-Key-Base64"
_HEADER_BASE64: Final = b"Kafka-Header-Base64"
_TOMBSTONE: Final = b"Kafka-Tombstone"
_PARTITION: Final = b"Kafka-Partition"
_OFFSET: Final = b"Kafka-Offset"
_TIMESTAMP: Final = b"Kafka-Timestamp"

_OWN: Final = frozenset(
    each.lower() for each in (_KEY, _KEY_BASE64, _HEADER_BASE64, _TOMBSTONE, _PARTITION, _OFFSET, _TIMESTAMP)
)


class RecordHeadersError(ValueError):
    """The headers of a message cannot become those of a record."""


def message_headers(
    key: bytes | None,
    headers: RecordHeaders,
    *,
    is_tombstone: bool,
    partition: int,
    offset: int,
    timestamp_ms: int,
) -> bytes:
    """Return the headers of the message of a record."""
    lines = [VERSION_LINE]
    if key is not None:
        if _is_plain(key):
            lines.append(b"%b: %b" % (_KEY, key))
        else:
            lines.append(b"%b: %b" % (_KEY_BASE64, b64encode(key)))
    if is_tombstone:
        lines.append(_TOMBSTONE + b": true")
    lines.append(b"%b: %d" % (_PARTITION, partition))
    lines.append(b"%b: %d" % (_OFFSET, offset))
    lines.append(b"%b: %d" % (_TIMESTAMP, timestamp_ms))
    for name, value in headers:
        written = name.encode(errors="surrogatepass")
        if value is not None and _is_name(written) and _is_plain(value):
            lines.append(b"%b: %b" % (written, value))
        elif value is None:
            lines.append(b"%b: %b" % (_HEADER_BASE64, b64encode(written)))
        else:
            lines.append(b"%b: %b:%b" % (_HEADER_BASE64, b64encode(written), b64encode(value)))
    return b"\r\n".join((*lines, b"", b""))


def record_headers(data: bytes) -> tuple[bytes | None, bool, list[tuple[str, bytes | None]]]:
    """Return the key, whether the record is a tombstone, and the headers of a message with headers.

    Raises:
        RecordHeadersError: they are malformed.
    """
    if not data.startswith(VERSION_LINE) or not data.endswith(b"\r\n\r\n"):
        raise RecordHeadersError(f"headers begin with {VERSION_LINE.decode()} and end with an empty line")
    key: bytes | None = None
    is_tombstone = False
    found: list[tuple[str, bytes | None]] = []
    for line in data[:-4].split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise RecordHeadersError(f"the header line {line[:80]!r} is not `Name: value`")
        value = value.strip(b" \t")
        lower = name.lower()
        if lower not in _OWN:
            found.append((_text(name), value))
        elif lower == _KEY.lower():
            key = value
        elif lower == _KEY_BASE64.lower():
            key = _decoded(value)
        elif lower == _TOMBSTONE.lower():
            is_tombstone = value == b"true"
        elif lower == _HEADER_BASE64.lower():
            first, colon, second = value.partition(b":")
            found.append((_text(_decoded(first)), _decoded(second) if colon else None))
    return key, is_tombstone, found


def _is_plain(value: bytes) -> bool:
    """Return whether a value comes out of a line as it went in: clients strip it, and read it as UTF-8."""
    if value != value.strip() or b"\r" in value or b"\n" in value or b"\0" in value:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_name(name: bytes) -> bool:
    """Return whether clients take a header's name: as in HTTP, printable ASCII without spaces and colons."""
    return bool(name) and all(32 < each < 127 and each != 58 for each in name) and name.lower() not in _OWN


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise RecordHeadersError(f"the name {name[:80]!r} of a header is no UTF-8") from None


def _decoded(value: bytes) -> bytes:
    try:
        return b64decode(value, validate=True)
    except Base64Error:
        raise RecordHeadersError(f"{value[:80]!r} is no base64") from None
