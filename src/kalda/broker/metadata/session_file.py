"""The key of a broker's session with coordination, kept beside its data for the process that comes after it.

A broker that is killed leaves its session behind, and with it its registration and perhaps the office of
controller, until the session's time-out. The next process on the same data finds the key here and can end
that session at once. What this is not: state that anybody depends on. A file that is lost, old or unreadable
costs the wait for the time-out and nothing else, so it is never synced.
"""

import logging
import os.path
from collections.abc import Sequence
from typing import Final

from kalda.storage.filesystem import FileSystem
from kalda.zk.client.port import SessionKey

logger: Final = logging.getLogger(__name__)

SESSION_FILE: Final = ".coordination-session"


class SessionMemory:
    """Remembers one key in each of the log directories, so that any one of them will do."""

    def __init__(self, file_system: FileSystem, directories: Sequence[str]) -> None:
        self._file_system: Final = file_system
        self._paths: Final = [os.path.join(directory, SESSION_FILE) for directory in directories]

    def recall(self) -> SessionKey | None:
        """Return what an earlier process noted, if anything can be read."""
        for path in self._paths:
            try:
                session_id, password = self._file_system.read(path).decode("ascii").split()
                return SessionKey(int(session_id, 16), bytes.fromhex(password))
            except (OSError, ValueError):
                continue
        return None

    def note(self, key: SessionKey) -> None:
        """Note the key of the session that is about to be used."""
        content = f"{key.session_id:x} {key.password.hex()}\n".encode("ascii")
        for path in self._paths:
            try:
                self._file_system.replace(path, content, sync=False)
            except OSError as error:
                logger.info("%s is not written: %s", path, error.strerror)
