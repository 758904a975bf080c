"""Selects the batches of a fetch whose records a reader wants, and finds their records sections.

`columnar` returns the records of these batches. This module checks and decompresses batches and decodes no
record but markers. The bounds of memory of one decode are here.

`next_offset` passes every batch that is left out, or a reader would fetch it for ever.
"""

from collections.abc import Iterable
from typing import Final

from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.batch import HEADER_SIZE, MAGIC, BatchHeader, Buffer, iter_headers, validate
from kalda.records.compression import Compression
from kalda.records.decompression_buffer import DecompressionBuffer

_DATA_SIZE_MAX: Final = 512 * 1024 * 1024
"""Decompressed records of one decode: below Arrow's 32-bit bound, and within a small machine's memory."""


class Selection:
    """The batches whose records are returned, and the positions of their records sections in `data`."""

    __slots__ = (
        "_buffer",
        "_fetched",
        "consumed_bytes",
        "data",
        "headers",
        "next_offset",
        "sections",
    )

    def __init__(self, fetched: Buffer, next_offset: int, buffer: DecompressionBuffer) -> None:
        self._fetched = fetched
        # Once one batch is compressed, the section of every batch is in it.
        self._buffer = buffer
        self.data: Buffer = fetched
        self.headers: list[BatchHeader] = []
        self.sections: list[tuple[int, int]] = []
        self.next_offset = next_offset
        self.consumed_bytes = 0

    @property
    def decompressed_bytes(self) -> int:
        """The size of the sections that were decompressed, and of those that were copied beside them."""
        return self._buffer.size

    def add(self, position: int, header: BatchHeader, size_max: int) -> bool:
        """Add a batch; return False if it would make the decode too large."""
        start, end = position + HEADER_SIZE, position + header.size
        buffer = self._buffer
        if header.compression is Compression.NONE and not buffer.size:
            self.sections.append((start, end))
        else:
            size_before = buffer.size
            if not size_before:
                self._move_to_buffer()
            section = buffer.append(header.compression, memoryview(self._fetched)[start:end], size_max)
            if size_before and buffer.size > _DATA_SIZE_MAX:
                buffer.truncate(size_before)
                return False
            self.sections.append(section)
        self.headers.append(header)
        return True

    def finish(self) -> None:
        """Let `data` be what the positions refer to, if it is not the fetch."""
        if self._buffer.size:
            self.data = self._buffer.view()

    def _move_to_buffer(self) -> None:
        fetched = memoryview(self._fetched)
        self.sections = [
            self._buffer.append(Compression.NONE, fetched[start:end], end - start)
            for start, end in self.sections
        ]


def select(
    data: Buffer,
    start_offset: int,
    end_offset: int | None,
    aborted: Iterable[tuple[int, int]] | AbortedTransactions,
    check_crc: bool,
    size_max: int,
    decompressed_bytes: int,
    buffer: DecompressionBuffer,
) -> Selection:
    """Walk the batch headers and select the batches with records to return.

    No further batch is selected once `decompressed_bytes` are decompressed. The selection refers to `buffer`.
    """
    selection = Selection(data, start_offset, buffer)
    transactions = aborted if isinstance(aborted, AbortedTransactions) else AbortedTransactions(aborted)
    for position, header in iter_headers(data):
        if end_offset is not None and header.base_offset >= end_offset:
            selection.next_offset = max(start_offset, end_offset)
            break
        if header.magic != MAGIC:
            # Message sets are converted before; these are behind batches and left for the next call.
            break
        if check_crc:
            validate(data, position, header)
        is_dropped = transactions.drops(data, position, header)
        if header.next_offset > selection.next_offset:
            if selection.decompressed_bytes >= decompressed_bytes:
                break
            is_wanted = not is_dropped and not header.is_control and header.record_count > 0
            if is_wanted and not selection.add(position, header, size_max):
                break
            selection.next_offset = header.next_offset
        selection.consumed_bytes = position + header.size
    if end_offset is not None and selection.next_offset > end_offset:
        selection.next_offset = max(start_offset, end_offset)
    assert selection.next_offset >= start_offset, f"{selection.next_offset} is below {start_offset}"
    assert selection.consumed_bytes <= len(data), f"{selection.consumed_bytes} of {len(data)} bytes"
    assert len(selection.headers) == len(selection.sections), "each batch has one section"
    selection.finish()
    return selection
