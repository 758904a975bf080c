"""Reads small files that a user or an administrator names: settings, stores, tokens.

They may be links, as Kubernetes mounts secrets, or pipes, as a shell makes of ``<(command)``. So unlike
`regular_file` this opens anything, but reads neither without end nor for ever.
"""

import errno
import os
import select
import stat
import time
from typing import Final

BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest files of the kind are trust stores of some hundred kilobytes."""

WAIT_SECONDS: Final = 10.0

_PIECE_BYTES: Final = 64 * 1024


def read_named_file(path: str, *, wait_seconds: float = WAIT_SECONDS) -> bytes:
    """Return the content of a file, or of a pipe that comes and ends within `wait_seconds`.

    Raises:
        OSError: it cannot be read; EFBIG if it has more than `BYTES_MAX`, ETIMEDOUT if the time is over.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        deadline = time.monotonic() + wait_seconds
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        content = bytearray()
        while True:
            try:
                piece = os.read(descriptor, _PIECE_BYTES)
            except BlockingIOError:
                _wait(descriptor, path, deadline)
                continue
            content += piece
            if len(content) > BYTES_MAX:
                raise OSError(errno.EFBIG, f"Has more than {BYTES_MAX} bytes", path)
            if not piece and (content or not is_pipe or not _wait(descriptor, path, deadline)):
                return bytes(content)
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: str, deadline: float) -> bool:
    """Wait until there is something to read; return whether there is, or the writer is gone."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    if not events:
        raise OSError(errno.ETIMEDOUT, "Is a pipe or a terminal from which nothing came in time", path)
    return bool(events[0][1] & select.POLLIN)
