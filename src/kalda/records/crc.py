"""CRC-32C (Castagnoli), the checksum of record batches; the polynomial differs from zlib's.

The C package uses the processor's instruction where there is one and lets go of the GIL for inputs
above 32 KiB, so checking a large batch does not stop other threads.
"""

from crc32c import crc32c

__all__ = ["crc32c"]
