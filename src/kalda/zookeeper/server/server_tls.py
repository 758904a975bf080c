"""Keeps the TLS context of a ZooKeeper server, and makes it again when a store's file has changed."""

import logging
import os
from typing import Final

from kalda.security.tls.contexts import server_context
from kalda.security.tls.settings import StoreSettings, TlsSettings, TlsSettingsError
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
        self._states = self._file_states()
        self._polled_at = 0.0
        self.context = server_context(settings)

    def on_tick(self, now: float) -> None:
        """Read changed stores again; `now` is the loop's time in seconds."""
        if now - self._polled_at < POLL_SECONDS:
            return
        self._polled_at = now
        states = self._file_states()
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

    def _file_states(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_file_state, (self._settings.key_store, self._settings.trust_store)))


def _file_state(store: StoreSettings) -> tuple[int, int, int] | None:
    if store.location is None:
        return None
    try:
        stat = os.stat(store.location)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
