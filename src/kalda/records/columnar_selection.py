"""Selects the batches of a fetch whose records a reader wants, and finds their records sections.

`columnar` returns the records of these batches; this module reads batch headers only, and decompresses. It
has one decode's bounds of memory.

What a maintainer must not break: `next_offset` passes every batch that is left out, or a reader would fetch
it for ever.
"""

from collections.abc import Iterable
from typing import Final

from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.batch import HEADER_SIZE, BatchHeader, Buffer, iter_headers, validate
from kalda.records.compression import Compression
from kalda.records.record import record_bytes

# Decompressed records of one decode: well below Arrow's 32-bit bound, and within a small machine's memory.
_DATA_SIZE_MAX: Final = 512 * 1024 * 1024


class Selection:
    """The batches whose records are returned, and the positions of their records sections in `data`."""

    __slots__ = (
        "_data_size",
        "_fetched",
        "_parts",
        "consumed_bytes",
        "data",
        "headers",
        "next_offset",
        "sections",
    )

    def __init__(self, fetched: Buffer, next_offset: int) -> None:
        self._fetched = fetched
        # Records sections. Once one batch is compressed, the section of every batch is a part.
        self._parts: list[bytes | memoryview] = []
        self._data_size = 0
        self.data: Buffer = fetched
        self.headers: list[BatchHeader] = []
        self.sections: list[tuple[int, int]] = []
        self.next_offset = next_offset
        self.consumed_bytes = 0

    def add(self, position: int, header: BatchHeader, size_max: int) -> bool:
        """Add a batch; return False if it would make the decode too large."""
        is_plain = header.compression is Compression.NONE
        if is_plain and not self._parts:
            self.sections.append((position + HEADER_SIZE, position + header.size))
            self.headers.append(header)
            return True
        part: bytes | memoryview
        if is_plain:
            part = memoryview(self._fetched)[position + HEADER_SIZE : position + header.size]
        else:
            part = record_bytes(self._fetched, position, header, size_max)
        if not self._parts:
            self._move_to_parts()
        if self._parts and self._data_size + len(part) > _DATA_SIZE_MAX:
            return False
        self._add_part(part)
        self.headers.append(header)
        return True

    def finish(self) -> None:
        """Join all sections in one buffer, if compressed batches made several."""
        if self._parts:
            self.data = b"".join(self._parts)

    def _move_to_parts(self) -> None:
        sections = self.sections
        self.sections = []
        for start, end in sections:
            self._add_part(memoryview(self._fetched)[start:end])

    def _add_part(self, part: bytes | memoryview) -> None:
        self._parts.append(part)
        self.sections.append((self._data_size, self._data_size + len(part)))
        self._data_size += len(part)


def select(
    data: Buffer,
    start_offset: int,
    end_offset: int | None,
    aborted: Iterable[tuple[int, int]] | AbortedTransactions,
    check_crc: bool,
    size_max: int,
) -> Selection:
    """Walk the batch headers and select the batches with records to return."""
    selection = Selection(data, start_offset)
    transactions = aborted if isinstance(aborted, AbortedTransactions) else AbortedTransactions(aborted)
    for position, header in iter_headers(data):
        if end_offset is not None and header.base_offset >= end_offset:
            selection.next_offset = max(start_offset, end_offset)
            break
        if check_crc:
            validate(data, position, header)
        is_dropped = transactions.drops(data, position, header)
        if header.next_offset > selection.next_offset:
            is_wanted = not is_dropped and not header.is_control and header.record_count > 0
            if is_wanted and not selection.add(position, header, size_max):
                break
            selection.next_offset = header.next_offset
        selection.consumed_bytes = position + header.size
    if end_offset is not None and selection.next_offset > end_offset:
        selection.next_offset = max(start_offset, end_offset)
    selection.finish()
    return selection
