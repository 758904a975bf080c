"""Reads the records of a stream's topic: all of them when it is opened, single ones later."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from kalda.nats.jetstream.publishing import MESSAGE_ID, ROLLUP
from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.jetstream.stored_message import (
    STORED_OVERHEAD,
    RecordReader,
    StoredMessage,
    header_of,
)
from kalda.records.batch import HEADER_SIZE, BatchHeader, read_header
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType, read_end_transaction_marker
from kalda.records.errors import RecordsError
from kalda.records.format_conversion import iter_any_records
from kalda.records.record import Record
from kalda.runtime.background import Background
from kalda.storage.file_records import FileSlice
from kalda.storage.unified_log import FetchIsolation, UnifiedLog

READ_BYTES: Final = 1024 * 1024
"""What is read of the log at once."""

INLINE_BYTES: Final = 32 * 1024
"""Up to this size an uncompressed batch is decoded on the event loop."""

CACHED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Messages of one stream that are kept in memory: consumers mostly read the last ones."""

DECODED_MAX: Final = 4_000
"""Messages that are decoded at once, from the wanted one on."""

_CACHED_OVERHEAD: Final = 300


class Summary(NamedTuple):
    """The fields of a record that the index needs."""

    sequence: int
    subject: bytes
    size: int
    time_ms: int
    message_id: bytes | None
    rollup: bytes | None


class MessageCache:
    """The messages that were added or read last."""

    def __init__(self, limit: SharedLimit) -> None:
        """`limit` is that of the bytes of all streams."""
        self._limit: Final = limit
        self._messages: Final[OrderedDict[int, StoredMessage]] = OrderedDict()
        self._bytes = 0
        self._is_closed = False

    def add(self, message: StoredMessage) -> None:
        """Keep a message."""
        if message.sequence in self._messages or self._is_closed:
            return
        self._messages[message.sequence] = message
        size = message.size + _CACHED_OVERHEAD
        self._bytes += size
        self._limit.take(size)
        while len(self._messages) > 1 and (
            self._bytes > CACHED_BYTES_MAX or not self._limit.has_room(self._bytes, 0)
        ):
            _, oldest = self._messages.popitem(last=False)
            self._give_back(oldest.size + _CACHED_OVERHEAD)

    def close(self) -> None:
        """Forget all messages: the stream ends."""
        self._is_closed = True
        self._messages.clear()
        self._give_back(self._bytes)

    def _give_back(self, size: int) -> None:
        self._bytes -= size
        self._limit.give_back(size)

    def get(self, sequence: int) -> StoredMessage | None:
        """Return a message that is kept."""
        return self._messages.get(sequence)


class Page(NamedTuple):
    """Records from an offset on."""

    batches: Sequence[tuple[BatchHeader, bytes]]
    next_offset: int


def read_page(log: UnifiedLog, offset: int, bytes_max: int) -> Page:
    """Read whole batches from the one that holds an offset on; none at the log's end.

    Raises:
        StorageError, RecordsError, OSError: the log cannot be read.
    """
    with log.disk_errors.raised("read"):
        records = log.read(offset, bytes_max, FetchIsolation.LOG_END).records
        return Page(*_split(records, offset))


def _split(records: FileSlice, offset: int) -> tuple[list[tuple[BatchHeader, bytes]], int]:
    data = records.read()
    found: list[tuple[BatchHeader, bytes]] = []
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        end = position + header.size
        if end > len(data):
            break
        found.append((header, data[position:end]))
        position, offset = end, header.next_offset
    return found, offset


class OpenBatch(NamedTuple):
    """Records of a transaction that has not ended where they are."""

    producer_id: int
    first: int
    """The sequence of the first record."""
    last: int


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    is_committed: bool


Entry = Summary | OpenBatch | TransactionEnd


def entries(page: Page, reader: RecordReader, start: int) -> Iterator[Entry]:
    """Yield the index fields of the records in a page's batches from an offset on."""
    subjects: dict[bytes | None, bytes] = {}
    for header, data in page.batches:
        if header.is_control:
            try:
                marker = read_end_transaction_marker(data, 0, header)
            except RecordsError:
                continue
            if marker is not None:
                yield TransactionEnd(header.producer_id, marker.control_type is ControlRecordType.COMMIT)
        elif header.is_transactional:
            if header.last_offset >= start:
                first = max(header.base_offset, start)
                yield OpenBatch(header.producer_id, first + 1, header.last_offset + 1)
        else:
            yield from _summaries(header, data, reader, start, subjects)


def committed(page: Page, reader: RecordReader, producer_id: int, start: int, end: int) -> Iterator[Summary]:
    """Yield the index fields of a transaction's records between two offsets."""
    subjects: dict[bytes | None, bytes] = {}
    for header, data in page.batches:
        if header.is_transactional and not header.is_control and header.producer_id == producer_id:
            for each in _summaries(header, data, reader, start, subjects):
                if each.sequence <= end:
                    yield each


def _summaries(
    header: BatchHeader,
    data: bytes,
    reader: RecordReader,
    start: int,
    subjects: dict[bytes | None, bytes],
) -> Iterator[Summary]:
    for record in _records([(header, data)], start):
        offset, time_ms, _, key, value, headers = record
        if headers or key is None:
            message = reader.message(offset, time_ms, key, value, headers)
            message_id = header_of(headers, MESSAGE_ID) or None
            rollup = header_of(headers, ROLLUP) or None
            yield Summary(offset + 1, message.subject, message.size, time_ms, message_id, rollup)
            continue
        subject = subjects.get(key)
        if subject is None:
            subject = reader.subject(key)
            if subject == key:
                subjects[key] = subject
        if subject == key:
            size = STORED_OVERHEAD + len(subject) + len(value or b"")
        else:
            size = reader.message(offset, time_ms, key, value, headers).size
        yield Summary(offset + 1, subject, size, time_ms, None, None)


def messages(page: Page, reader: RecordReader, start: int) -> list[StoredMessage]:
    """Return the first messages of a page from an offset on: a batch may unpack to very many."""
    found: list[StoredMessage] = []
    size = 0
    for offset, time_ms, _, key, value, headers in _records(page.batches, start):
        message = reader.message(offset, time_ms, key, value, headers)
        found.append(message)
        size += message.size
        if len(found) >= DECODED_MAX or size >= CACHED_BYTES_MAX // 2:
            break
    return found


def _records(batches: Sequence[tuple[BatchHeader, bytes]], start: int) -> Iterator[Record]:
    for header, data in batches:
        if header.is_control:
            continue
        try:
            for record in iter_any_records(data, 0, header):
                if record.offset >= start:
                    yield record
        except RecordsError:
            # Its records are as if they were not there; Kafka's clients get an error from it.
            continue


async def decode(page: Page, reader: RecordReader, start: int, background: Background) -> list[StoredMessage]:
    """Return the messages of a page, decoded on a thread if that takes long."""
    size = sum(header.size for header, _ in page.batches)
    if size <= INLINE_BYTES and all(each.compression is Compression.NONE for each, _ in page.batches):
        return messages(page, reader, start)
    return await background.call(partial(messages, page, reader, start))
