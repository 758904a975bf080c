"""Keeps the TLS context of a ZooKeeper server, and makes it again when a store's file has changed."""

import logging
from typing import Final

from kalda.security.tls.contexts import server_context, store_fingerprint
from kalda.security.tls.settings import TlsSettings, TlsSettingsError
from kalda.security.zookeeper.tls_settings import SERVER_NAMES, renamed

POLL_SECONDS: Final = 5.0
"""How often the files are looked at: what rotates certificates does so hours before they expire."""

logger: Final = logging.getLogger(__name__)


class ServerTls:
    """The context for new connections; open ones keep theirs."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the stores.

        Raises:
            TlsSettingsError: a store cannot be read.
        """
        self._settings: Final = settings
        self._states = store_fingerprint(self._settings)
        self._polled_at = 0.0
        self.context = server_context(settings)

    def on_tick(self, now: float) -> None:
        """Read changed stores again; `now` is the loop's time in seconds."""
        if now - self._polled_at < POLL_SECONDS:
            return
        self._polled_at = now
        states = store_fingerprint(self._settings)
        if states == self._states:
            return
        # One with a mistake is not read, nor logged, a second time.
        self._states = states
        try:
            self.context = server_context(self._settings)
        except TlsSettingsError as error:
            logger.error("the former certificate stays in force: %s", renamed(error, SERVER_NAMES))
            return
        logger.info("the stores have changed; new connections use the new certificates")
