"""Connected sockets of the operating system: `SocketStream`."""

import os
import socket
from collections.abc import Sequence
from typing import Final

from kalda.runtime.filesystem import Buffer, File
from kalda.runtime.system.portable import PORTABLE

_HAS_SENDFILE: Final = hasattr(os, "sendfile") and not PORTABLE
_HAS_SENDMSG: Final = hasattr(socket.socket, "sendmsg") and not PORTABLE

_COPIED_BYTES: Final = 256 * 1024
"""What `send_file` reads at once where the system cannot send a file itself."""


class SocketStream(socket.socket):
    """A non-blocking TCP socket as a `Stream`; receiving and sending are the socket's own methods."""

    __slots__ = ()

    MORE: int = 0 if PORTABLE else getattr(socket, "MSG_MORE", 0)
    """See `Stream`; nothing where the system lacks it."""

    if _HAS_SENDFILE:

        def send_file(self, file: File, position: int, size: int, /) -> int:
            """Send from the page cache."""
            return os.sendfile(self.fileno(), file.fileno(), position, size)

    else:

        def send_file(self, file: File, position: int, size: int, /) -> int:
            """Read and send."""
            data = file.read_at(min(size, _COPIED_BYTES), position)
            return self.send(data) if data else 0

    if not _HAS_SENDMSG:

        def sendmsg(self, buffers: Sequence[Buffer], *_: object) -> int:  # type: ignore[override]
            """Send the first piece that has bytes."""
            return self.send(next((each for each in buffers if len(each)), b""))

    def has_ended(self) -> bool:
        """Peek."""
        try:
            return not self.recv(1, socket.MSG_PEEK)
        except OSError:
            # Nothing to read, or an error that the next read meets too.
            return False
