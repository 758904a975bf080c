"""Reads files below ``/proc`` about this process and its machine, on Linux; other systems have none."""

import os

from kalda.runtime.system.portable import PORTABLE


def proc_file(name: str) -> bytes:
    """Return the content of a file below ``/proc``; raises `OSError` where there is none."""
    if PORTABLE:
        raise FileNotFoundError(f"/proc/{name}")
    with open(f"/proc/{name}", "rb") as file:
        return file.read()


def open_descriptor_count() -> int | None:
    """Return how many descriptors the process has; None where the system does not say."""
    if PORTABLE:
        return None
    try:
        # Linux 6.2 counts them for the directory's size. To list thousands takes milliseconds.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None
