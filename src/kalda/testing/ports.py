"""Chooses ports for servers that tests kill and start again at the same address.

A port that nobody listens on is not free while its server is only down for a moment. Processes that choose
at random meet such ports: a worker of pytest-xdist starts a broker at the port of another worker's killed
broker, which then cannot come back. All processes of a user therefore share one file with the port given
last, and take turns through the range: a port is given again only after every other one was.
"""

import contextlib
import errno
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FIRST_PORT: Final = 15_000
_LAST_PORT: Final = 32_000
"""Linux assigns ports from 32768 on to outgoing connections."""

_CONTENT_BYTES_MAX: Final = 16

_DIRECTORY: Final = Path("/tmp")
"""Where the file is, whatever TMPDIR says: processes share ports without sharing that variable."""


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which no process listens, and which were given least recently.

    They are below the range from which the system assigns ports to outgoing connections, so that no such
    connection takes a port while its process is down.

    Raises:
        OSError: processes listen on too many ports of the range.
    """
    with _port_given_last() as given:
        return [given.next_free() for _ in range(count)]


def free_ports_in_a_row(count: int) -> int:
    """Return the first of so many free ports that follow each other; see `free_ports`."""
    # A row may begin in the first turn and end in the second.
    with _port_given_last(turns=2) as given:
        found = [given.next_free()]
        while len(found) < count:
            port = given.next_free()
            found = [*found, port] if port == found[-1] + 1 else [port]
        return found[0]


class _GivenPort:
    """The port given last: `next_free` moves it on, through the range in so many turns."""

    def __init__(self, port: int, turns: int) -> None:
        self.port = port
        self._left = turns * (_LAST_PORT - _FIRST_PORT)

    def next_free(self) -> int:
        while self._left:
            self._left -= 1
            self.port = self.port + 1 if _FIRST_PORT <= self.port + 1 < _LAST_PORT else _FIRST_PORT
            if _is_free(self.port):
                return self.port
        raise OSError(errno.EADDRNOTAVAIL, f"no port from {_FIRST_PORT} to {_LAST_PORT - 1} is free")


@contextlib.contextmanager
def _port_given_last(turns: int = 1) -> Iterator[_GivenPort]:
    """Yield what the user's processes share, locked."""
    directory = _DIRECTORY if os.access(_DIRECTORY, os.W_OK) else Path(tempfile.gettempdir())
    path = directory / f"kalda-testing-ports-{os.getuid()}"
    # A directory that everyone writes to may hold another user's link of that name.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = os.pread(file, _CONTENT_BYTES_MAX, 0).strip()
        # Two machines that share an address space but no file, such as containers, start apart.
        anywhere = random.SystemRandom().randrange(_FIRST_PORT, _LAST_PORT)
        given = _GivenPort(int(content) if content.isdigit() else anywhere, turns)
        yield given
        os.pwrite(file, f"{given.port:<{_CONTENT_BYTES_MAX}}".encode(), 0)
    finally:
        os.close(file)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # A port whose connections only wait for stray packets is free to a listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
