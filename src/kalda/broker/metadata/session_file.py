"""Stores the key of a broker's ZooKeeper session beside its data, for a restarted broker to close it.

A killed broker leaves its session behind, and with it its registration and possibly the znode of the
controller, until the session expires. The next process reads the key here and can close that session at once.
Nothing depends on the file: if it is lost, outdated or unreadable, the next process waits for the session to
expire. So the file is never synced.
"""

import logging
import os.path
from collections.abc import Sequence
from typing import Final

from kalda.runtime.filesystem import FileSystem
from kalda.zookeeper.port import SessionKey

logger: Final = logging.getLogger(__name__)

SESSION_FILE: Final = ".coordination-session"


class SessionFile:
    """Stores one key in each log directory, so that one readable directory is enough."""

    def __init__(self, file_system: FileSystem, directories: Sequence[str]) -> None:
        self._file_system: Final = file_system
        self._paths: Final = [os.path.join(directory, SESSION_FILE) for directory in directories]

    def read(self) -> SessionKey | None:
        """Return the key that an earlier process wrote; None if no directory has a readable one."""
        for path in self._paths:
            try:
                session_id, password = self._file_system.read(path).decode("ascii").split()
                return SessionKey(int(session_id, 16), bytes.fromhex(password))
            except (OSError, ValueError):
                continue
        return None

    def write(self, key: SessionKey) -> None:
        """Write the key of the present session to each directory."""
        content = f"{key.session_id:x} {key.password.hex()}\n".encode("ascii")
        for path in self._paths:
            try:
                self._file_system.replace(path, content, sync=False, is_private=True)
            except OSError as error:
                logger.info("%s was not written: %s", path, error.strerror)
