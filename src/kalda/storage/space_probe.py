"""Checks whether a log directory that was full has room again.

There is room when the volume has a reserve of free space and a file can be written and synced. The reserve
keeps the directory from being full again a moment later. The file detects what the volume's figures do not
show: quotas, inodes, and space reserved for others.
"""

import errno
import os
from collections.abc import Callable
from typing import Final

from kalda.runtime.filesystem import FileSystem
from kalda.storage.volume import volume_bytes

PROBE_FILE: Final = ".space-probe"
PROBE_BYTES: Final = 1024 * 1024
"""The size of the largest batch by default."""

RESERVE_SHARE: Final = 100
"""The reserve is the volume's size divided by this number (1 %), but at least the probe's size."""
RESERVE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The largest reserve: one segment of the default size."""


def reserve_bytes(total_bytes: int) -> int:
    """Return the free bytes that a full directory needs to count as having room."""
    return min(max(total_bytes // RESERVE_SHARE, PROBE_BYTES), RESERVE_BYTES_MAX)


def check_room(
    file_system: FileSystem, directory: str, volume: Callable[[str], tuple[int, int]] = volume_bytes
) -> None:
    """Write, sync and remove a file, if the volume has its reserve; blocks.

    Raises:
        OSError: there is no room, or the device failed.
    """
    total, usable = volume(directory)
    # If the system does not report the sizes, both are negative and only the file decides.
    if 0 <= usable < reserve_bytes(total):
        raise OSError(
            errno.ENOSPC, f"{usable} bytes are free and {reserve_bytes(total)} are needed", directory
        )
    path = os.path.join(directory, PROBE_FILE)
    try:
        file_system.replace(path, bytes(PROBE_BYTES), sync=True)
    finally:
        file_system.remove(path)
