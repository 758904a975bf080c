"""Tunes the C allocator so that memory freed by one request is kept for the next.

The buffers of a request have hundreds of kilobytes. glibc maps memory for each as soon as it has
128 KiB, and returns what is freed at the top of the heap, so that the kernel clears the same pages again for
each request. Measured with reads that are converted for old clients: 1,024 page faults and 3.3 ms of
processor time for each MB before, 6 and 1.2 ms with this module.

Only the commands import this module: a program that embeds a broker keeps its own settings.
"""

import ctypes
import os
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_VARIABLES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Free bytes at the top of a heap that stay the process's."""

HEAP_BYTES_MAX: Final = 4 * 1024 * 1024
"""A larger buffer is mapped by itself, and unmapped when it is freed."""


def keep_freed_memory() -> None:
    """Set the thresholds of glibc's allocator, unless the environment has some. Other libraries have none."""
    if any(name in os.environ for name in _VARIABLES):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    mallopt(_MMAP_THRESHOLD, HEAP_BYTES_MAX)
