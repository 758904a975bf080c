"""Converts messages of a stream to records and back.

The record's key is the subject, its value the payload, its headers the message's. A record that a client of
Kafka has written may have another key: its subject is then the stream's own, and `Kalda-Key` has the key.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kalda.nats.headers import VERSION_LINE
from kalda.nats.jetstream.patterns import SUBJECT_BYTES_MAX, Pattern
from kalda.nats.subjects import ANY_TOKEN, ANY_TOKENS, is_valid_literal

Header = tuple[str, bytes | None]
"""The header of a record."""

KEY_HEADER: Final = "Kalda-Key"

_END: Final = b"\r\n"
TIME_MS_MAX: Final = (2**63 - 1) // 1_000_000
"""The last time that clients of NATS can read, in the year 2262; those of Kafka write later ones as well."""

STORED_OVERHEAD: Final = 22 + 8
"""What nats-server counts for a message beside its parts."""


class StoredMessage(NamedTuple):
    """One message of a stream."""

    sequence: int
    subject: bytes
    headers: bytes
    """As on the wire; empty without any."""
    payload: bytes
    time_ms: int

    @property
    def size(self) -> int:
        """The bytes that count for the limits of the stream."""
        return stored_size(self.subject, self.headers, self.payload)


def stored_size(subject: bytes, headers: bytes, payload: bytes) -> int:
    """Return the bytes that count for the limits of a stream, as in nats-server."""
    size = STORED_OVERHEAD + len(subject) + len(payload)
    return size + 4 + len(headers) if headers else size


def record_headers(headers: bytes) -> list[Header] | None:
    """Return the headers of a record for those of a message, None if they are malformed."""
    if not headers:
        return []
    if not headers.startswith(VERSION_LINE + _END) or not headers.endswith(_END + _END):
        return None
    found: list[Header] = []
    for line in headers[:-4].split(_END)[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            return None
        found.append((name.decode(errors="replace"), value.strip()))
    return found


def message_headers(headers: Sequence[Header]) -> bytes:
    """Return the headers of a message for those of a record, without names that do not fit into a line."""
    lines = [
        b"%b: %b" % (name.encode(), (value or b"").replace(b"\r", b" ").replace(b"\n", b" "))
        for name, value in headers
        if name and not any(each in name for each in ":\r\n")
    ]
    return _END.join((VERSION_LINE, *lines, b"", b"")) if lines else b""


def header_of(headers: Sequence[Header], name: str) -> bytes | None:
    """Return the value of the first header of a name, None without one."""
    for each, value in headers:
        if each == name:
            return value
    return None


class RecordReader:
    """Makes messages of the records of one stream."""

    def __init__(self, topic: str, subjects: Sequence[str]) -> None:
        self._patterns: Final = [Pattern(each.encode()) for each in subjects]
        tokens = subjects[0].encode().split(b".")
        self._own_subject: Final = b".".join(
            topic.encode() if each in (ANY_TOKEN, ANY_TOKENS) else each for each in tokens
        )
        """The subject of records whose key is none: the stream's first, its wildcards filled in."""

    def subject(self, key: bytes | None) -> bytes:
        """Return the subject of a record by its key."""
        if key is not None and is_subject(key) and any(each.includes(key) for each in self._patterns):
            return key
        return self._own_subject

    def message(
        self,
        offset: int,
        time_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> StoredMessage:
        """Return the message that a record keeps."""
        subject = self.subject(key)
        if key is not None and subject != key:
            headers = [*headers, (KEY_HEADER, key)]
        time_ms = min(max(time_ms, 0), TIME_MS_MAX)
        return StoredMessage(offset + 1, subject, message_headers(headers), value or b"", time_ms)


def is_subject(key: bytes) -> bool:
    """Return whether the key of a record is a subject: clients take those that are UTF-8."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return (
        0 < len(key) <= SUBJECT_BYTES_MAX
        and not any(each in key for each in b" \t\r\n\0")
        and is_valid_literal(key)
    )
