"""Identifies the running kernel, so that two processes know whether they share its page cache.

What one process has written to a file another one sees at once only through the same kernel. Over a network
file system a reader sees reliably only what was synced.
"""

from functools import cache
from typing import Final

_BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
"""Linux: a random number for each boot, the same in all containers."""


@cache
def host_id() -> str:
    """Return the identity of the running kernel; empty where the system has none, which equals no other."""
    try:
        with open(_BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
