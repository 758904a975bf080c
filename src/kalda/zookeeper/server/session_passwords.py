"""Gives each session the password with which its client resumes it on another connection.

A password is derived from the session's id, which every client can read, and a random secret of the server's
directory: so it need not be stored with the session, is the same after a restart, and cannot be computed by
others. ZooKeeper, and earlier releases, derive it from the id alone; sessions that the directory had when the
secret was made keep those passwords until they end, so that their clients can resume them.
"""

import hashlib
import hmac
import logging
import struct
from typing import Final

from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.random import Random
from kalda.zookeeper.server.session_tracker import PASSWORD_BYTES, session_password

_SECRET_BYTES: Final = 32
_FILE: Final = struct.Struct(f">q{_SECRET_BYTES}s")
"""The newest session without a secret password, and the secret."""

logger: Final = logging.getLogger(__name__)


class SessionPasswords:
    """The passwords of all sessions of one server; those up to `newest_old_id` are ZooKeeper's."""

    def __init__(self, newest_old_id: int, secret: bytes) -> None:
        self._newest_old_id: Final = newest_old_id
        self._secret: Final = secret

    def of(self, session_id: int) -> bytes:
        """Return the password of a session."""
        if session_id <= self._newest_old_id:
            return session_password(session_id)
        return hmac.digest(self._secret, struct.pack(">q", session_id), hashlib.sha256)[:PASSWORD_BYTES]

    def is_right(self, session_id: int, password: bytes | None) -> bool:
        """Return whether a client knows the password of a session."""
        return hmac.compare_digest(self.of(session_id), password or b"")


def load_passwords(filesystem: FileSystem, random: Random, path: str, newest_id: int) -> SessionPasswords:
    """Return the passwords for the secret in a file, which is made if it is missing or has another size.

    `newest_id` is that of the newest session in the directory.

    Raises:
        OSError: the file cannot be read.
    """
    if filesystem.exists(path):
        content = filesystem.read(path)
        if len(content) == _FILE.size:
            return SessionPasswords(*_FILE.unpack(content))
    made = (newest_id, random.randbytes(_SECRET_BYTES))
    try:
        filesystem.replace(path, _FILE.pack(*made), sync=True, is_private=True)
    except OSError as error:
        # A full disk must not stop the start; clients then get new sessions after the next one.
        logger.warning("the secret of the sessions is lost at the end: %s", error_text(error))
    return SessionPasswords(*made)
