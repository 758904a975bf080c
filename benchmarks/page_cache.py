"""Keeps the page cache full, so that brokers write to recycled pages.

A virtual machine whose host takes free memory back gets each page of it anew, which cost 8 us a page on the
machine of the figures: more than a broker needs to receive and store the 4 KB. Both sides of a comparison pay
that, and it hides what they differ in. Pages that the cache gives up for others cost a tenth of it.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from benchmarks.apache_kafka import CACHE_DIRECTORY

_FREE_BYTES: Final = 1_200_000_000
"""The free memory that is left; a run uses it up and recycles pages from then on."""
_READ_BYTES: Final = 4 * 1024 * 1024

_file: Path | None = None


@contextmanager
def kept_full() -> Iterator[None]:
    """Let `fill` fill the page cache, with a temporary file as large as the memory."""
    global _file
    # Not in the directory for temporary files, which may be in memory itself.
    CACHE_DIRECTORY.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="page-cache-", dir=CACHE_DIRECTORY) as file:
        zeros = bytes(_READ_BYTES)
        for _ in range(psutil.virtual_memory().total // _READ_BYTES):
            file.write(zeros)
        file.flush()
        os.fsync(file.fileno())
        _file = Path(file.name)
        try:
            yield
        finally:
            _file = None


def fill() -> None:
    """Read from the file until little memory is free; without `kept_full`, do nothing."""
    if _file is None:
        return
    buffer = bytearray(_READ_BYTES)
    with _file.open("rb", buffering=0) as file:
        while psutil.virtual_memory().free > _FREE_BYTES and file.readinto(buffer):
            pass
