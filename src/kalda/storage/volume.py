"""Returns the size and the free space of the volume that holds a directory."""

import os
from typing import Final

UNKNOWN_BYTES: Final = -1


def volume_bytes(directory: str) -> tuple[int, int]:
    """Return the total and the usable bytes, or `UNKNOWN_BYTES` for both if the system fails."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
