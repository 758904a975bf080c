"""Translates the names in frames of Produce and Fetch, and in responses of ShareFetch.

The records are copied or passed over, never decoded. A topic is named up to version 12 of Produce and Fetch.
From version 13 its id is sent, which is the same for every client: such frames stay as they are, except that
the id of another namespace's topic is inverted in place.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from kalda.protocol.framing import SIZE, SIZE_BYTES
from kalda.protocol.namespaces.kinds import is_masked_id, mask_id, plain_bytes
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import SizedRecords
from kalda.protocol.wire_format import Buffer, encode_uvarint, read_uvarint, skip_tagged_fields

Chunk = Buffer | SizedRecords

NAMES_BELOW: Final = 13
"""The first version of Produce and Fetch that sends ids."""
_PRODUCE_FLEXIBLE_FROM: Final = 9
_FETCH_FLEXIBLE_FROM: Final = 12
_TRANSACTIONAL_ID_FROM: Final = 3
_ID_BYTES: Final = 16
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UNPREFIXED: Final = frozenset((b"", b".", b".."))
"""Names that no topic can have; see `kinds.TOPIC`."""

IsForeign = Callable[[bytes], bool]
"""Returns whether an id is that of another namespace's topic."""


class _Reader:
    """Reads a frame, and copies what was read when something is put in another's place."""

    __slots__ = ("_copied", "_flexible", "end", "frame", "out", "position")

    def __init__(self, frame: memoryview, position: int, flexible: bool) -> None:
        self.frame: Final = frame
        self.position = position
        self.end: Final = len(frame)
        self.out: Final = bytearray()
        self._copied = 0
        self._flexible: Final = flexible

    def skip(self, count: int) -> None:
        """Advance by some bytes."""
        self.position += count
        if self.position > self.end:
            raise ProtocolError(f"the frame ends {self.position - self.end} bytes too early")

    def count(self) -> int:
        """Read the length of an array; one of null is 0."""
        count = self.size()
        if count > self.end - self.position:
            raise ProtocolError(f"an array of {count} elements in {self.end - self.position} bytes")
        return count

    def size(self) -> int:
        """Read the size of records, which may be elsewhere; null has none."""
        if self._flexible:
            size, self.position = read_uvarint(self.frame, self.position)
            size -= 1
        else:
            (size,) = _INT32.unpack_from(self.frame, self.position)
            self.position += 4
        return max(0, size)

    def rename(self, rename: Callable[[bytes], bytes]) -> None:
        """Put another name in the place of the one at hand; null stays."""
        begin = self.position
        if self._flexible:
            size, position = read_uvarint(self.frame, begin)
            size -= 1
        else:
            (size,) = _INT16.unpack_from(self.frame, begin)
            position = begin + 2
        self.position = position
        if size < 0:
            return
        self.skip(size)
        name = bytes(self.frame[position : self.position])
        renamed = rename(name)
        if renamed is name:
            return
        self.out.extend(self.frame[self._copied : begin])
        length = len(renamed)
        self.out.extend(encode_uvarint(length + 1) if self._flexible else _INT16.pack(length))
        self.out.extend(renamed)
        self._copied = self.position

    def text(self) -> None:
        """Pass a nullable text."""
        self.rename(_same)

    def tags(self) -> None:
        """Pass the tagged fields, where the version has them."""
        if self._flexible:
            self.position, _ = skip_tagged_fields(self.frame, self.position, self.end)

    def mask(self, is_foreign: IsForeign) -> None:
        """Invert the id at hand in place if it is foreign."""
        begin = self.position
        self.skip(_ID_BYTES)
        raw = bytes(self.frame[begin : self.position])
        if is_foreign(raw):
            self.frame[begin : self.position] = mask_id(raw)

    def result(self) -> memoryview:
        """Return the frame: the one that was read, or a copy with the other names."""
        if not self._copied:
            return self.frame
        self.out.extend(self.frame[self._copied :])
        return memoryview(self.out)


def produce_request(
    space: Namespace, is_foreign: IsForeign, frame: memoryview, position: int, version: int
) -> memoryview:
    """Return a Produce request as the broker is to get it; its body begins at `position`.

    Raises:
        ProtocolError, struct.error, IndexError: it is malformed.
    """
    reader = _Reader(frame, position, version >= _PRODUCE_FLEXIBLE_FROM)

    if version >= _TRANSACTIONAL_ID_FROM:
        reader.rename(lambda name: space.prefix_bytes + name if name else name)
    reader.skip(6)
    for _ in range(reader.count()):
        _store_topic(reader, space, is_foreign, version)
        for _ in range(reader.count()):
            reader.skip(4)
            reader.skip(reader.size())
            reader.tags()
        reader.tags()
    return reader.result()


def fetch_request(
    space: Namespace, is_foreign: IsForeign, frame: memoryview, position: int, version: int
) -> memoryview:
    """Return a Fetch request as the broker is to get it; its body begins at `position`.

    Raises:
        ProtocolError, struct.error, IndexError: it is malformed.
    """
    reader = _Reader(frame, position, version >= _FETCH_FLEXIBLE_FROM)

    reader.skip(_fetch_head_bytes(version))
    partition_bytes = _fetch_partition_bytes(version)
    for _ in range(reader.count()):
        _store_topic(reader, space, is_foreign, version)
        for _ in range(reader.count()):
            reader.skip(partition_bytes)
            reader.tags()
        reader.tags()
    if version >= 7:
        for _ in range(reader.count()):
            _store_topic(reader, space, is_foreign, version)
            reader.skip(4 * reader.count())
            reader.tags()
    return reader.result()


def _store_topic(reader: _Reader, space: Namespace, is_foreign: IsForeign, version: int) -> None:
    """Write a topic's name with the prefix, or its id as one that does not exist if it is another's."""
    if version < NAMES_BELOW:
        reader.rename(lambda name: name if name in _UNPREFIXED else space.prefix_bytes + name)
    else:
        reader.mask(is_foreign)


def _fetch_head_bytes(version: int) -> int:
    """Return the bytes before the topics: replica, wait, minimum, maximum, isolation level, session."""
    if version >= 15:
        return 21
    return 25 if version >= 7 else 17 if version >= 4 else 16 if version >= 3 else 12


def _fetch_partition_bytes(version: int) -> int:
    """Return the bytes of a partition: index, leader epoch, offset, last epoch, log start, maximum."""
    if version >= 12:
        return 32
    return 28 if version >= 9 else 24 if version >= 5 else 16


def produce_response(space: Namespace, frame: memoryview, version: int) -> memoryview:
    """Return a Produce response, size included, as its client is to get it.

    Raises:
        ProtocolError, struct.error, IndexError: it is malformed.
    """
    flexible = version >= _PRODUCE_FLEXIBLE_FROM
    reader = _Reader(frame, SIZE_BYTES + (5 if flexible else 4), flexible)

    def plain(name: bytes) -> bytes:
        found = plain_bytes(space, name)
        return name if found is None else found

    def text(value: bytes) -> bytes:
        return value.replace(space.prefix_bytes, b"") if space.prefix_bytes in value else value

    partition_bytes = 14 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0)
    for _ in range(reader.count()):
        if version < NAMES_BELOW:
            reader.rename(plain)
        else:
            reader.mask(is_masked_id)
        for _ in range(reader.count()):
            reader.skip(partition_bytes)
            if version >= 8:
                for _ in range(reader.count()):
                    reader.skip(4)
                    reader.rename(text)
                    reader.tags()
                reader.rename(text)
            reader.tags()
        reader.tags()
    return _sized(reader.result())


def _sized(frame: memoryview) -> memoryview:
    SIZE.pack_into(frame, 0, len(frame) - SIZE_BYTES)
    return frame


def fetch_response(space: Namespace, chunks: Sequence[Chunk], version: int) -> list[Chunk]:
    """Return a Fetch response, size included, as its client is to get it; the records stay as they are.

    Raises:
        ProtocolError, struct.error, IndexError: it is malformed.
    """
    flexible = version >= _FETCH_FLEXIBLE_FROM
    chunked = _ChunkReader(chunks, flexible)

    def plain(name: bytes) -> bytes:
        found = plain_bytes(space, name)
        return name if found is None else found

    reader = chunked.reader
    reader.skip(10 if version >= 7 else 4 if version >= 1 else 0)
    for _ in range(reader.count()):
        if version < NAMES_BELOW:
            reader.rename(plain)
        else:
            reader.mask(is_masked_id)
        for _ in range(reader.count()):
            _skip_to_records(reader, version)
            reader = chunked.pass_records()
            reader.tags()
        reader.tags()
    return chunked.result()


def share_fetch_response(space: Namespace, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return a ShareFetch response, size included, as its client is to get it; the records stay as they are.

    Raises:
        ProtocolError, struct.error, IndexError: it is malformed.
    """
    chunked = _ChunkReader(_joined(chunks), flexible=True)

    def plain(value: bytes) -> bytes:
        return value.replace(space.prefix_bytes, b"") if space.prefix_bytes in value else value

    reader = chunked.reader
    reader.skip(6)
    reader.rename(plain)
    reader.skip(4)
    for _ in range(reader.count()):
        reader.mask(is_masked_id)
        for _ in range(reader.count()):
            reader.skip(6)
            reader.rename(plain)
            reader.skip(2)
            reader.rename(plain)
            # The leader and its epoch.
            reader.skip(8)
            reader.tags()
            reader = chunked.pass_records()
            for _ in range(reader.count()):
                reader.skip(18)
                reader.tags()
            reader.tags()
        reader.tags()
    return chunked.result()


def _joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return chunks of which no two in a row are in memory: the header of a response is one of its own."""
    found: list[Chunk] = []
    last: bytearray | None = None
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            last = None
            found.append(chunk)
        elif last is None:
            last = bytearray(chunk)
            found.append(last)
        else:
            last += chunk
    return found


class _ChunkReader:
    """Reads a response whose records may be chunks of their own, which go through as they are."""

    __slots__ = ("_flexible", "_grown", "_left", "_out", "reader")

    def __init__(self, chunks: Sequence[Chunk], flexible: bool) -> None:
        self._flexible: Final = flexible
        self._left: Final = list(reversed(chunks))
        self._out: Final[list[Chunk]] = []
        self._grown = 0
        self.reader = self._next_reader(SIZE_BYTES + (5 if flexible else 4))
        """Of the chunk at hand; `pass_records` puts another in its place."""

    def pass_records(self) -> _Reader:
        """Pass records with their size; return the reader of what is behind them."""
        reader = self.reader
        size = reader.size()
        if reader.position < reader.end or not size:
            reader.skip(size)
            return reader
        self._finish()
        records = self._left.pop()
        assert size == _size_of(records), f"{size} bytes of records, and {_size_of(records)} to send"
        self._out.append(records)
        # A frame may end with records: no version of Fetch before 12 has anything behind them.
        self.reader = (
            self._next_reader(0) if self._left else _Reader(memoryview(bytearray()), 0, self._flexible)
        )
        return self.reader

    def result(self) -> list[Chunk]:
        """Return the chunks, with what was not read as it is."""
        self._finish()
        chunks = [*self._out, *reversed(self._left)]
        first = chunks[0]
        assert isinstance(first, memoryview), "a response begins with its header"
        (size,) = SIZE.unpack_from(first)
        SIZE.pack_into(first, 0, size + self._grown)
        return [chunk for chunk in chunks if _size_of(chunk)]

    def _next_reader(self, position: int) -> _Reader:
        chunk = self._left.pop()
        assert isinstance(chunk, (bytes, bytearray, memoryview)), (
            f"a response with {chunk!r} between its records"
        )
        return _Reader(memoryview(bytearray(chunk)), position, self._flexible)

    def _finish(self) -> None:
        result = self.reader.result()
        self._grown += len(result) - self.reader.end
        self._out.append(result)


def _skip_to_records(reader: _Reader, version: int) -> None:
    """Pass a partition of a Fetch response up to the size of its records."""
    reader.skip(14)
    if version >= 4:
        reader.skip(16 if version >= 5 else 8)
        for _ in range(reader.count()):
            reader.skip(16)
            reader.tags()
    if version >= 11:
        reader.skip(4)


def _size_of(chunk: Chunk) -> int:
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size


def _same(name: bytes) -> bytes:
    return name
