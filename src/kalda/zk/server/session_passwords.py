"""Computes the passwords with which clients resume their sessions.

A password is derived from the session's id, which every client can read, and a random secret of the server's
directory: so it need not be stored with the session, is the same after a restart, and cannot be computed by
others. ZooKeeper derives it from the id alone.
"""

import hashlib
import hmac
import logging
import secrets
from typing import Final

from kalda.common.error_text import error_text
from kalda.storage.filesystem import FileSystem

PASSWORD_BYTES: Final = 16
"""As in ZooKeeper, whose clients expect no other size."""

_SECRET_BYTES: Final = 32

logger: Final = logging.getLogger(__name__)


class SessionPasswords:
    """The passwords of all sessions of one server."""

    def __init__(self, secret: bytes) -> None:
        self._secret: Final = secret

    def of(self, session_id: int) -> bytes:
        """Return the password of a session."""
        text = (session_id & (1 << 64) - 1).to_bytes(8, "big")
        return hmac.digest(self._secret, text, hashlib.sha256)[:PASSWORD_BYTES]

    def is_right(self, session_id: int, password: bytes | None) -> bool:
        """Return whether a client knows the password of a session."""
        return hmac.compare_digest(self.of(session_id), password or b"")


def load_passwords(filesystem: FileSystem, path: str) -> SessionPasswords:
    """Return the passwords for the secret in a file, which is made if it is missing or has another size.

    Raises:
        OSError: the file cannot be read.
    """
    if filesystem.exists(path):
        secret = filesystem.read(path)
        if len(secret) == _SECRET_BYTES:
            return SessionPasswords(secret)
    secret = secrets.token_bytes(_SECRET_BYTES)
    try:
        filesystem.replace(path, secret, sync=True, is_private=True)
    except OSError as error:
        # A full disk must not stop the start; clients then get new sessions after the next one.
        logger.warning("the secret of the sessions is lost at the end: %s", error_text(error))
    return SessionPasswords(secret)
