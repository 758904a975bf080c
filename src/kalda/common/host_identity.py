"""Identifies the running kernel, so that two processes know whether they share its page cache.

What one process has written to a file another one sees at once only through the same kernel. Over a network
file system a reader sees reliably only what was synced.
"""

from functools import cache
from typing import Final

from kalda.runtime.system.proc import proc_file

_BOOT_ID_FILE: Final = "sys/kernel/random/boot_id"
"""Below ``/proc``: a random number for each boot, the same in all containers."""


@cache
def host_id() -> str:
    """Return the identity of the running kernel; empty where the system has none, which equals no other."""
    try:
        return proc_file(_BOOT_ID_FILE).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
