"""Iterates over what a `SimpleConsumer` fetched, as Java's ``ByteBufferMessageSet`` does."""

from collections.abc import Iterator
from typing import NamedTuple

from kalda.common.public import public_in
from kalda.records.batch import Buffer, TimestampType, iter_headers, validate
from kalda.records.format_conversion import iter_any_records


@public_in("kalda.clients.legacy")
class Message(NamedTuple):
    """One message."""

    payload: bytes | None
    """The value; None for a deleted key."""
    key: bytes | None = None
    timestamp: int = -1
    """Milliseconds since the epoch; -1 for none, as in every message of format 0."""
    timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE


@public_in("kalda.clients.legacy")
class MessageAndOffset(NamedTuple):
    """A message with its place in the partition."""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        """The offset to fetch from after this message."""
        return self.offset + 1


@public_in("kalda.clients.legacy")
class ByteBufferMessageSet:
    """The messages of one fetch, from the offset that was asked for on; each iteration begins again.

    The bytes are those of the log, in any message format: a fetch returns whole batches or wrappers, so
    messages below the offset are skipped, and a partial one at the end is left out.
    """

    def __init__(self, buffer: Buffer, initial_offset: int = 0) -> None:
        self._buffer = buffer
        self._initial_offset = initial_offset

    @property
    def size_in_bytes(self) -> int:
        """Bytes that the broker sent."""
        return len(self._buffer)

    @property
    def valid_bytes(self) -> int:
        """Bytes of whole messages; 0 of a larger `size_in_bytes` means that the fetch size is too small."""
        return max((at + header.size for at, header in iter_headers(self._buffer)), default=0)

    @property
    def next_offset(self) -> int:
        """The offset to fetch from after the last message, or what was asked for if there is none.

        It passes what holds no messages for a client, such as transaction markers.
        """
        offset = self._initial_offset
        for _, header in iter_headers(self._buffer):
            offset = max(offset, header.next_offset)
        return offset

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Yield each message with its offset.

        Raises:
            RecordsError: the bytes are damaged.
        """
        for position, header in iter_headers(self._buffer):
            if header.next_offset <= self._initial_offset or header.is_control:
                continue
            validate(self._buffer, position, header)
            for record in iter_any_records(self._buffer, position, header):
                if record.offset >= self._initial_offset:
                    message = Message(record.value, record.key, record.timestamp, record.timestamp_type)
                    yield MessageAndOffset(message, record.offset)
