"""Checks the passwords of NATS clients against the cluster's users, whose SCRAM credentials it keeps."""

import hmac
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.runtime.background import Background
from kalda.security.sasl.mechanism import SCRAM_SHA_256
from kalda.security.sasl.scram import HASHES, ITERATIONS_MIN, SALT_BYTES, ScramCredential

FindCredential = Callable[[str, str], ScramCredential | None]
"""Returns the credential of a user for a mechanism."""

PASSWORD_BYTES_MAX: Final = 1024


class PasswordCheck:
    """Compares passwords outside the event loop: each takes thousands of hashes."""

    def __init__(self, find: FindCredential, background: Background) -> None:
        self._find: Final = find
        self._background: Final = background

    async def is_password(self, user: str, password: str) -> bool:
        """Return whether the user exists and has this password."""
        sent = password.encode()
        if len(sent) > PASSWORD_BYTES_MAX:
            return False
        found = ((mechanism, self._find(mechanism, user)) for mechanism in HASHES)
        for mechanism, credential in found:
            if credential is not None:
                return await self._background.call(partial(_has_password, credential, mechanism, sent))
        # An unknown user takes as long as a known one.
        salt = bytes(SALT_BYTES)
        await self._background.call(
            partial(ScramCredential.of_password, SCRAM_SHA_256, sent, salt, ITERATIONS_MIN)
        )
        return False


def _has_password(credential: ScramCredential, mechanism: str, password: bytes) -> bool:
    sent = ScramCredential.of_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(sent.stored_key, credential.stored_key)
