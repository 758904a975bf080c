"""Keeps the TLS contexts of a broker: one for each listener that uses TLS, one for dialling other brokers.

Certificates are replaced while the broker runs: when a dynamic setting changes, and when a store's file has
another content. New connections use the new certificate; open ones go on. A store that cannot be read, or
whose new certificate has another name, is logged and the former context stays.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.net.listener_security import TlsListener
from kalda.runtime.background import Background
from kalda.security.tls.certificate_identity import CertificateIdentity, identity_of
from kalda.security.tls.client import TlsClient
from kalda.security.tls.contexts import (
    StoreFingerprint,
    client_context,
    load_key_store,
    server_context,
    store_fingerprint,
)
from kalda.security.tls.principal_mapping import PrincipalMapping
from kalda.security.tls.settings import TlsSettings, TlsSettingsError
from kalda.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""The time between two checks of the store files. Certificates are rotated hours before they expire."""


@dataclass(slots=True)
class _Contexts:
    """The stores and contexts that one listener uses."""

    settings: TlsSettings
    listener: TlsListener
    client: TlsClient
    identity: CertificateIdentity
    fingerprint: StoreFingerprint


class BrokerTls:
    """The contexts of one broker. Without a listener that uses TLS it holds nothing and does nothing."""

    def __init__(self, config: BrokerConfig, background: Background) -> None:
        """Read the stores of all listeners.

        Raises:
            ConfigError: a store cannot be read.
        """
        self._background: Final = background
        self._config: Final = config
        self._contexts: Final[dict[str, _Contexts]] = {}
        self._changed: Final = asyncio.Event()
        for listener in (*config.listeners, *config.nats_listeners):
            if listener.uses_tls:
                self._contexts[listener.name] = _load(config, listener.name)

    def listener(self, name: str) -> TlsListener | None:
        """Return the TLS of a listener; None if its connections are not encrypted."""
        found = self._contexts.get(name)
        return None if found is None else found.listener

    def client(self, name: str) -> TlsClient | None:
        """Return the TLS settings for connections to that listener of other brokers; None without TLS."""
        found = self._contexts.get(name)
        return None if found is None else found.client

    async def open(self, name: str) -> None:
        """Read the stores of a listener that was added.

        Raises:
            ConfigError: one cannot be read.
        """
        self._contexts[name] = await self._background.call(lambda: _load(self._config, name))
        # `run` begins to look at files.
        self._changed.set()

    def close(self, name: str) -> None:
        """Forget a listener that was removed."""
        self._contexts.pop(name, None)

    def reload_soon(self) -> None:
        """Have `run` read all stores again, as after a change of settings."""
        self._changed.set()

    async def run(self) -> None:
        """Replace contexts when settings or files change, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS if self._contexts else None):
                    await self._changed.wait()
                is_forced = True
            except TimeoutError:
                is_forced = False
            self._changed.clear()
            await self.reload(is_forced=is_forced)

    async def reload(self, *, is_forced: bool) -> None:
        """Replace the contexts whose files, or with `is_forced` whose settings, have changed."""
        for name in list(self._contexts):
            await self._reload(name, is_forced=is_forced)

    async def _reload(self, name: str, *, is_forced: bool) -> None:
        current = self._contexts.get(name)
        if current is None:
            # The listener was removed meanwhile.
            return
        try:
            settings = self._config.tls_settings(name)
            if not is_forced and store_fingerprint(settings) == current.fingerprint:
                return
            loaded = await _load_elsewhere(self._background, self._config, name)
            check_identity(self._config, name, current.identity, loaded.identity)
        except ConfigError as error:
            logger.error("the former certificates of listener %s stay in force: %s", name, error)
            # The same content is not tried again, nor logged again.
            current.fingerprint = store_fingerprint(current.settings)
            return
        if (loaded.settings, loaded.fingerprint) == (current.settings, current.fingerprint):
            return
        current.listener.context = loaded.listener.context
        current.listener.mapping = loaded.listener.mapping
        current.client.context = loaded.client.context
        current.settings, current.identity = loaded.settings, loaded.identity
        current.fingerprint = loaded.fingerprint
        logger.info("listener %s has new certificates: %s", name, loaded.identity)

    def validate(self, trial: BrokerConfig) -> None:
        """Check the stores that changed settings would use.

        Raises:
            ConfigError: a store cannot be read, or a certificate has another name.
        """
        for listener in (*trial.listeners, *trial.nats_listeners):
            name, current = listener.name, self._contexts.get(listener.name)
            if not listener.uses_tls or (current and trial.tls_settings(name) == current.settings):
                continue
            loaded = _load(trial, name)
            if current is not None:
                check_identity(self._config, name, current.identity, loaded.identity)


def check_identity(
    config: BrokerConfig, name: str, old: CertificateIdentity, new: CertificateIdentity
) -> None:
    """Check that a new certificate has the names of the old one, unless settings allow others.

    Raises:
        ConfigError: the name differs, or an alternative name is missing (KAFKA-4701, KIP-978).
    """
    setting = "ssl.keystore.location"
    if old.subject != new.subject and not config.of_listener(name, "ssl.allow.dn.changes"):
        raise ConfigError(
            setting,
            f"the new certificate of listener {name} is for {new.subject}, the old one for {old.subject}; "
            "`ssl.allow.dn.changes`=true allows that",
        )
    missing = old.alternative_names - new.alternative_names
    if missing and not config.of_listener(name, "ssl.allow.san.changes"):
        raise ConfigError(
            setting,
            f"the new certificate of listener {name} lacks {', '.join(sorted(missing))}; "
            "`ssl.allow.san.changes`=true allows that",
        )


async def _load_elsewhere(background: Background, config: BrokerConfig, name: str) -> _Contexts:
    """Read the stores outside the event loop: keys of PKCS12 are slow to decrypt on purpose."""
    loaded: list[_Contexts | ConfigError] = []
    is_done = asyncio.Event()

    def work() -> None:
        try:
            loaded.append(_load(config, name))
        except ConfigError as error:
            loaded.append(error)

    background.submit(work, lambda _: is_done.set())
    await is_done.wait()
    if not loaded:
        raise ConfigError("ssl.keystore.location", f"listener {name}: its stores could not be read")
    if isinstance(loaded[0], ConfigError):
        raise loaded[0]
    return loaded[0]


def _load(config: BrokerConfig, name: str) -> _Contexts:
    rules = config.of_listener(name, "ssl.principal.mapping.rules")
    return _contexts(config.tls_settings(name), name, PrincipalMapping.parse(str(rules)))


def _contexts(settings: TlsSettings, name: str, mapping: PrincipalMapping) -> _Contexts:
    # Before the content: a file that changes in between is read again.
    fingerprint = store_fingerprint(settings)
    server = _made(name, lambda: server_context(settings))
    client = _made(name, lambda: client_context(settings))
    key_store = load_key_store(settings.key_store)
    assert key_store is not None, f"listener {name} has a context without a key store"
    return _Contexts(
        settings,
        TlsListener(server, mapping),
        TlsClient(client),
        identity_of(key_store.certificates),
        fingerprint,
    )


def _made(name: str, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    try:
        return make()
    except TlsSettingsError as error:
        raise ConfigError(error.setting, f"listener {name}: {error}") from None
