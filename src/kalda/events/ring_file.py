"""The format of one file of a broker's event ring. Sans-IO.

A file begins with 16 bytes: the magic ``KALDAEVT``, the format version as 4 bytes and the broker id as 4
bytes. Each record is its length (4 bytes), the CRC-32C of its content (4 bytes) and the content. Numbers are
big-endian. A file ends at its first record that is cut off or damaged: a broker that was killed while it
wrote loses that record only.
"""

import struct
from collections.abc import Iterator
from typing import Final

from kalda.records.crc import crc32c

MAGIC: Final = b"KALDAEVT"
VERSION: Final = 0
HEADER: Final = struct.Struct(">8sIi")
RECORD_HEADER: Final = struct.Struct(">II")

CONTENT_BYTES_MAX: Final = 64 * 1024
"""The longest content of a record: an event with 500 partitions takes some 30 KiB."""


def file_header(broker_id: int) -> bytes:
    """Return the beginning of a file."""
    return HEADER.pack(MAGIC, VERSION, broker_id)


def encode_record(content: bytes) -> bytes:
    """Return one record."""
    return RECORD_HEADER.pack(len(content), crc32c(content)) + content


def is_readable(data: bytes, broker_id: int) -> bool:
    """Return whether the file is one of this format, and of this broker."""
    return len(data) >= HEADER.size and (MAGIC, VERSION, broker_id) == HEADER.unpack_from(data)


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the end position and the content of each sound record, up to the first that is not."""
    position = HEADER.size
    while position + RECORD_HEADER.size <= len(data):
        size, crc = RECORD_HEADER.unpack_from(data, position)
        start = position + RECORD_HEADER.size
        if not 0 < size <= CONTENT_BYTES_MAX or start + size > len(data):
            return
        content = data[start : start + size]
        if crc32c(content) != crc:
            return
        position = start + size
        yield position, content
