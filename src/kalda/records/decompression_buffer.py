"""Decompresses records sections one behind another into memory that is used again.

New memory for each batch costs as much as decompression itself: the kernel clears every page of it. Columnar
decoding copies keys and values into Arrow's own buffers, so the decompressed bytes are needed for one decode
only.

The bytes of a buffer are valid until `clear`. A caller that hands out views of them must not use the buffer
again.
"""

from typing import Final

from kalda.records.compression import (
    AT_ONCE_BYTES,
    Buffer,
    Compression,
    decompress_at_once,
    decompress_into,
    iter_readable,
)
from kalda.records.errors import CorruptRecordError, RecordsError

_SIZE_FIRST: Final = 2 * 1024 * 1024
"""Room for the decompressed records of one part of a read, and for the batch that passes its bound."""
_SIZE_KEPT_MAX: Final = 16 * 1024 * 1024
"""No more is kept between two decodes; a larger decode pays for its memory each time."""


class DecompressionBuffer:
    """Records sections, the first at position 0."""

    __slots__ = ("_memory", "size")

    def __init__(self) -> None:
        self._memory = bytearray()
        self.size = 0
        """Where the last section ends."""

    def clear(self) -> None:
        """Forget the sections; the memory stays, if it is little enough."""
        self.size = 0
        if len(self._memory) > _SIZE_KEPT_MAX:
            self._memory = bytearray()

    def truncate(self, size: int) -> None:
        """Forget the sections behind `size`."""
        assert 0 <= size <= self.size, f"{size} of {self.size} bytes cannot be kept"
        self.size = size

    def append(self, codec: Compression, data: Buffer, size_max: int) -> tuple[int, int]:
        """Add a section and return where it starts and ends; raises as `compression.decompress`."""
        start = self.size
        if codec is Compression.ZSTD or codec is Compression.LZ4:
            size = self._decompress(codec, data, size_max)
            if size is not None:
                self.size = start + size
                return start, self.size
            part = None
        else:
            part = data if codec is Compression.NONE else decompress_at_once(codec, data, size_max)
        try:
            for piece in iter_readable(codec, data, size_max) if part is None else (part,):
                self._add(piece)
        except RecordsError:
            self.size = start
            raise
        assert self.size <= len(self._memory), f"{self.size} bytes in a buffer of {len(self._memory)}"
        return start, self.size

    def view(self) -> memoryview:
        """Return the bytes of all sections."""
        return memoryview(self._memory)[: self.size].toreadonly()

    def _add(self, part: Buffer) -> None:
        self._reserve(len(part))
        self._memory[self.size : self.size + len(part)] = part
        self.size += len(part)

    def _decompress(self, codec: Compression, data: Buffer, size_max: int) -> int | None:
        """Decompress in place and return the size; None for what is read in pieces, or refused."""
        at_once = min(size_max, AT_ONCE_BYTES)
        self._reserve(min(len(data), at_once))
        while True:
            end = min(len(self._memory), self.size + at_once)
            try:
                size = decompress_into(codec, data, memoryview(self._memory)[self.size : end])
            except CorruptRecordError:
                return None
            if size is not None or end - self.size >= at_once:
                return size
            self._reserve(2 * (len(self._memory) - self.size))

    def _reserve(self, size: int) -> None:
        """Make room for `size` more bytes; the memory at least doubles, so that it is copied rarely."""
        wanted = self.size + size
        if wanted > len(self._memory):
            larger = max(wanted, 2 * len(self._memory), _SIZE_FIRST)
            try:
                self._memory += bytes(larger - len(self._memory))
            except BufferError:
                # Views, which Arrow or numpy may hold, forbid that it grows.
                old, self._memory = self._memory, bytearray(larger)
                self._memory[: self.size] = memoryview(old)[: self.size]
