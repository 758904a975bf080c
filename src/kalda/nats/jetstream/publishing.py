"""Decides whether a message may be added to a stream: its expected sequence, and duplicates."""

from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from kalda.nats.jetstream.api_errors import (
    JetStreamError,
    bad_request,
    no_resources,
    store_failed,
    wrong_last_sequence,
)
from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.jetstream.stored_message import Header, header_of, is_subject, record_headers, stored_size
from kalda.nats.jetstream.stream_config import StreamConfig
from kalda.nats.jetstream.stream_index import MESSAGES_MAX, StreamIndex

MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Sequence"
EXPECTED_SUBJECT_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_ID: Final = "Nats-Expected-Last-Msg-Id"
ROLLUP: Final = "Nats-Rollup"

_NOT_SERVED: Final = {
    "Nats-TTL": (10166, "per-message TTL is disabled"),
    "Nats-Incr": (10168, "message counters is disabled"),
    "Nats-Batch-Id": (10174, "atomic publish is disabled"),
    "Nats-Schedule": (10188, "message schedules is disabled"),
}

ROLLUP_SUBJECT: Final = b"sub"
ROLLUP_ALL: Final = b"all"

IDS_MAX: Final = 500_000
"""Message ids within the duplicate window of one stream, some 200 bytes each."""

_ID_BYTES_MAX: Final = 64
"""Of an id that is kept as it is; a longer one may have as many bytes as a message."""

_FORGOTTEN_AT_ONCE: Final = 5_000
"""Ids that one call forgets: some milliseconds."""


class MessageIds:
    """The ids of the messages of the last minutes."""

    def __init__(self, limit: SharedLimit) -> None:
        """`limit` is that of the ids of all streams."""
        self._limit: Final = limit
        self._is_closed = False
        self._found: Final[dict[bytes, tuple[int, int]]] = {}
        """Sequences and times."""
        self._in_order: Final[deque[tuple[int, bytes]]] = deque()
        self._oldest_ms = 0
        self.last: bytes = b""
        """The id of the last message; empty if it had none."""

    def __len__(self) -> int:
        return len(self._found)

    def add(self, message_id: bytes, sequence: int, time_ms: int) -> None:
        """Remember an id, unless it is too old already or there are too many."""
        if time_ms >= self._oldest_ms and self.has_room:
            self._limit.take(1)
            key = _id_key(message_id)
            self._found[key] = sequence, time_ms
            self._in_order.append((time_ms, key))

    @property
    def has_room(self) -> bool:
        """Whether one more id can be remembered."""
        count = len(self._in_order)
        return count < IDS_MAX and self._limit.has_room(count) and not self._is_closed

    def close(self) -> None:
        """Forget all ids: the stream ends."""
        self._is_closed = True
        self._limit.give_back(len(self._in_order))
        self._in_order.clear()
        self._found.clear()

    def find(self, message_id: bytes) -> int | None:
        """Return the sequence of a message, None if no message had the id."""
        found = self._found.get(_id_key(message_id))
        return None if found is None or found[1] < self._oldest_ms else found[0]

    def forget(self, oldest_ms: int) -> None:
        """Forget what is before a time."""
        self._oldest_ms = oldest_ms
        waiting = self._in_order
        for _ in range(min(_FORGOTTEN_AT_ONCE, len(waiting))):
            if waiting[0][0] >= oldest_ms:
                return
            _, key = waiting.popleft()
            self._limit.give_back(1)
            found = self._found.get(key)
            if found is not None and found[1] < oldest_ms:
                del self._found[key]


def _id_key(message_id: bytes) -> bytes:
    if len(message_id) <= _ID_BYTES_MAX:
        return message_id
    return b"\r" + sha256(message_id).digest()


class Accepted(NamedTuple):
    """A message that is to be added."""

    headers: list[Header]
    """Of its record."""
    message_id: bytes | None
    rollup: bytes | None


class Duplicate(NamedTuple):
    """A message that was added before."""

    sequence: int


def check_message(
    config: StreamConfig,
    index: StreamIndex,
    ids: MessageIds,
    subject: bytes,
    headers: bytes,
    payload: bytes,
) -> Accepted | Duplicate:
    """Return whether the stream accepts a message, which gets the index's next sequence, or has it already.

    Raises:
        JetStreamError: the stream does not take it.
    """
    found = record_headers(headers)
    if found is None or (subject not in index.subjects and not is_subject(subject)):
        raise bad_request()
    message_id = header_of(found, MESSAGE_ID) or None
    rollup: bytes | None = None
    if found:
        _check_served(found)
        stream = header_of(found, EXPECTED_STREAM)
        if stream and stream != config.name.encode():
            raise JetStreamError(400, 10060, "expected stream does not match")
        if message_id is not None:
            before = ids.find(message_id)
            if before is not None:
                return Duplicate(before)
            if not ids.has_room:
                raise no_resources()
        _check_expected(index, ids, subject, found)
        rollup = _rollup(config, found)
    if config.max_msg_size >= 0 and len(headers) + len(payload) > config.max_msg_size:
        raise JetStreamError(400, 10054, "message size exceeds maximum allowed")
    _check_limits(config, index, subject, stored_size(subject, headers, payload))
    return Accepted(found, message_id, rollup)


def _check_served(headers: Sequence[Header]) -> None:
    """Refuse features of later nats-server releases with the error that they return where it is disabled."""
    for name, _ in headers:
        refusal = _NOT_SERVED.get(name)
        if refusal is not None:
            raise JetStreamError(400, *refusal)


def _check_expected(index: StreamIndex, ids: MessageIds, subject: bytes, headers: Sequence[Header]) -> None:
    expected = _number(header_of(headers, EXPECTED_SUBJECT_SEQUENCE))
    if expected is not None:
        entry = index.subjects.get(subject)
        last = 0 if entry is None else entry.last
        assert not index.is_last_removed(subject), f"the last message of {subject!r} is not known"
        if last != expected:
            raise wrong_last_sequence(last)
    expected = _number(header_of(headers, EXPECTED_SEQUENCE))
    if expected is not None and expected != index.next - 1:
        raise wrong_last_sequence(index.next - 1)
    last_id = header_of(headers, EXPECTED_ID)
    if last_id and last_id != ids.last:
        raise JetStreamError(400, 10070, f"wrong last msg ID: {ids.last.decode(errors='replace')}")


def _number(value: bytes | None) -> int | None:
    """Return the number that a header has, -1 for another text, None without the header."""
    if not value:
        return None
    return int(value) if value.isdigit() and len(value) <= 19 else -1


def _rollup(config: StreamConfig, headers: Sequence[Header]) -> bytes | None:
    rollup = header_of(headers, ROLLUP)
    if not rollup:
        return None
    if not config.allow_rollup_hdrs or config.deny_purge:
        raise JetStreamError(500, 10111, "rollup not permitted")
    if rollup not in (ROLLUP_SUBJECT, ROLLUP_ALL):
        raise JetStreamError(500, 10111, f"rollup value invalid: {rollup.decode(errors='replace')!r}")
    return rollup


def _check_limits(config: StreamConfig, index: StreamIndex, subject: bytes, size: int) -> None:
    entry = index.subjects.get(subject)
    if index.span >= MESSAGES_MAX:
        raise store_failed("maximum messages exceeded")
    if not index.has_room(subject):
        raise no_resources()
    if config.discard != "new":
        return
    per_subject = config.max_msgs_per_subject
    replaces = entry is not None and per_subject > 0 and entry.count >= per_subject
    if replaces and config.discard_new_per_subject:
        raise store_failed("maximum messages per subject exceeded")
    if config.max_msgs >= 0 and index.count >= config.max_msgs and not replaces:
        raise store_failed("maximum messages exceeded")
    if config.max_bytes >= 0 and index.bytes + size >= config.max_bytes and not replaces:
        raise store_failed("maximum bytes exceeded")
