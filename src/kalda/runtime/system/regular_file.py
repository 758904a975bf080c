"""Opens regular files and nothing else, by a name under which others may have placed something else.

A link under the name of a log file leads to a file elsewhere, which recovery would truncate; opening or
reading a FIFO blocks for ever. A process with access to the data directory can place them, and a peer can
send such a path.
"""

import os
import stat
from typing import Final

from kalda.runtime.filesystem import FileKindError

_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR


def open_regular(path: str, flags: int, mode: int = 0o644) -> int:
    """Open a file and return its descriptor, which a child process does not inherit.

    Raises:
        FileKindError: it is a symbolic link, a directory, a FIFO, a socket or a device; or it is opened to be
            written and has hard links elsewhere, whose content would change too.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError:
        kind = _kind(path)
        if kind is None:
            raise
        raise FileKindError(path, kind, "a regular file") from None
    kind = _kind(descriptor)
    if kind is not None:
        os.close(descriptor)
        raise FileKindError(path, kind, "a regular file")
    if flags & _WRITE_FLAGS and (links := os.fstat(descriptor).st_nlink) > 1:
        os.close(descriptor)
        raise FileKindError(path, f"one of {links} hard links to a file", "a file of its own")
    return descriptor


_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def _kind(opened: str | int) -> str | None:
    """Return what is there instead of a regular file; None for one, and where nothing can be seen."""
    try:
        status = os.fstat(opened) if isinstance(opened, int) else os.lstat(opened)
    except OSError:
        return None
    return None if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
