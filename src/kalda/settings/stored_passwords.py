"""Encrypts the passwords among a broker's dynamic settings for ZooKeeper, and decrypts what is stored there.

Only the settings of one broker can hold passwords. They stand in ZooKeeper in Kafka's form
(`kalda.security.password_encoder`); everywhere else in the broker they are plain, and are never shown.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.security.password_encoder import (
    DEFAULT_KEY_FACTORY,
    Encoding,
    PasswordEncoder,
    PasswordEncoderError,
)
from kalda.settings.broker_config import BrokerConfig, base_name
from kalda.settings.definitions import BROKER_CONFIG

logger: Final = logging.getLogger(__name__)

SECRET: Final = "password.encoder.secret"


def is_password(name: str) -> bool:
    """Return whether the value of a setting is a password; False for names that are not settings."""
    base = base_name(name)
    return base in BROKER_CONFIG and BROKER_CONFIG.key(base).type.is_sensitive


def is_secret_setting(name: str) -> bool:
    """Return whether a setting's value must not be shown: a password, or that of an unknown setting."""
    base = base_name(name)
    return base not in BROKER_CONFIG or BROKER_CONFIG.key(base).type.is_sensitive


class StoredPasswords:
    """The encryption of one broker's stored passwords."""

    def __init__(self, config: BrokerConfig) -> None:
        encoding = Encoding(
            cipher=config.password_encoder_cipher_algorithm,
            key_factory=config.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY,
            key_length=config.password_encoder_key_length,
            iterations=config.password_encoder_iterations,
        )
        secret, old = config.password_encoder_secret, config.password_encoder_old_secret
        self._encoder: Final = None if secret is None else PasswordEncoder(secret, encoding)
        self._old: Final = None if old is None else PasswordEncoder(old, encoding)

    @property
    def has_secret(self) -> bool:
        """Whether passwords can be stored and read."""
        return self._encoder is not None

    def decoded(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return stored settings with plain passwords; what cannot be decrypted is logged and left out."""
        settings = {}
        for name, text in stored.items():
            if not is_password(name):
                settings[name] = text
                continue
            try:
                settings[name] = self._decode(text)
            except PasswordEncoderError as error:
                logger.error("the stored password `%s` cannot be decrypted and is left out: %s", name, error)
        return settings

    def encoded(
        self, settings: Mapping[str, str], stored: Mapping[str, str], changed: Collection[str]
    ) -> dict[str, str]:
        """Return settings as they are stored, with encrypted passwords.

        A password of `stored` that is not among the `changed` settings stays as it is, even one that cannot
        be decrypted.

        Raises:
            ConfigError: a password is set, but there is no secret to encrypt it with.
        """
        kept = {name: text for name, text in stored.items() if is_password(name) and name not in changed}
        return {
            name: self._encode(name, text) if is_password(name) and name not in kept else text
            for name, text in {**settings, **kept}.items()
        }

    def require_secret(self, names: Collection[str]) -> None:
        """Check that passwords can be stored.

        Raises:
            ConfigError: one of the settings is a password, and there is no secret to encrypt it with.
        """
        for name in names:
            if is_password(name) and self._encoder is None:
                raise ConfigError(
                    name,
                    f"`{name}` is a password, and `{SECRET}` is not set: Password encoder secret not "
                    "configured. Set the secret in the broker's file and restart",
                )

    def reencoded(self, stored: Mapping[str, str]) -> dict[str, str] | None:
        """Return the settings to store after a change of the secret; None if nothing is to be stored again.

        What the former secret does not decrypt stays: it may be encrypted with the new one already.
        """
        if self._old is None or self._encoder is None:
            return None
        changed = {}
        for name in filter(is_password, stored):
            try:
                changed[name] = self._encoder.encode(self._old.decode(stored[name]))
            except PasswordEncoderError:
                continue
        return {**stored, **changed} if changed else None

    def _decode(self, text: str) -> str:
        if self._encoder is None:
            raise PasswordEncoderError(f"`{SECRET}` is not set")
        return self._encoder.decode(text)

    def _encode(self, name: str, text: str) -> str:
        self.require_secret((name,))
        assert self._encoder is not None
        return self._encoder.encode(text)
