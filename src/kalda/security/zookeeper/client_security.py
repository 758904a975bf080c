"""Reads how a client of ZooKeeper secures its connection: TLS, a SASL login, access lists on what it creates.

The names are Kafka's, of ``server.properties`` and of the file of ``--zk-tls-config-file``. What Java takes
from system properties (the JAAS file, ``zookeeper.sasl.client``) are settings beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kalda.security.tls.contexts import ReadFile, client_context, load_trust_store, read_file
from kalda.security.tls.settings import TlsSettings, TlsSettingsError
from kalda.security.zookeeper.login_file import (
    LOGIN_FILE,
    LoginFileError,
    client_login,
    load,
    parse_login_file,
)
from kalda.security.zookeeper.tls_settings import CLIENT_NAMES, read_tls_settings, renamed

SETTINGS: Final = frozenset(
    {
        "zookeeper.ssl.client.enable",
        "zookeeper.ssl.crl.enable",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.protocol",
        LOGIN_FILE,
        "zookeeper.sasl.client",
        "zookeeper.sasl.clientconfig",
        *CLIENT_NAMES.values(),
    }
)
"""The names that `read_client_security` asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A name and a password for SASL DIGEST-MD5."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client connects; the default is plaintext without a login."""

    tls: TlsSettings | None = None
    login: Login | None = None
    restricts_access: bool = False
    """Whether what the client creates gets an access list: ``zookeeper.set.acl``."""

    @property
    def has_identity(self) -> bool:
        """Whether ZooKeeper knows who the client is, so that access lists can name it."""
        return self.login is not None or (self.tls is not None and self.tls.key_store.is_set)


PLAINTEXT: Final = ClientSecurity()


def read_client_security(
    value_of: Callable[[str], object], *, restricts_access: bool = False, read: ReadFile = read_file
) -> ClientSecurity:
    """Read the settings; `value_of` returns the value of one of `SETTINGS`, or None.

    Raises:
        TlsSettingsError: a file cannot be used, or settings contradict each other.
    """
    try:
        security = ClientSecurity(
            tls=_tls(value_of, read) if value_of("zookeeper.ssl.client.enable") is True else None,
            login=_login(value_of, read),
            restricts_access=restricts_access,
        )
    except TlsSettingsError as error:
        raise renamed(error, CLIENT_NAMES) from None
    if restricts_access and not security.has_identity:
        raise TlsSettingsError(
            "zookeeper.set.acl",
            "`zookeeper.set.acl`=true needs an identity that access lists can name: a key store "
            "(`zookeeper.ssl.client.enable`=true and `zookeeper.ssl.keystore.location`), or a JAAS file with "
            f"a section Client (`{LOGIN_FILE}`)",
        )
    return security


def _tls(value_of: Callable[[str], object], read: ReadFile) -> TlsSettings:
    algorithm = value_of("zookeeper.ssl.endpoint.identification.algorithm")
    settings = read_tls_settings(
        CLIENT_NAMES,
        value_of,
        protocol=str(value_of("zookeeper.ssl.protocol") or "TLSv1.2"),
        checks_host_name=str("https" if algorithm is None else algorithm).lower() == "https",
    )
    # Read once here, so that a mistake is found before anything connects.
    client_context(settings, read)
    if value_of("zookeeper.ssl.crl.enable") is True:
        trust = load_trust_store(settings.trust_store, read)
        if trust is None or not trust.revocations:
            raise TlsSettingsError(
                "zookeeper.ssl.crl.enable",
                "`zookeeper.ssl.crl.enable`=true needs a trust store in PEM with revocation lists",
            )
    return settings


def _login(value_of: Callable[[str], object], read: ReadFile) -> Login | None:
    path = value_of(LOGIN_FILE)
    if not path or value_of("zookeeper.sasl.client") is False:
        return None
    section = str(value_of("zookeeper.sasl.clientconfig") or "Client")

    def parse(text: str) -> Login | None:
        # The file may be about something else, such as the broker's own listeners.
        if section not in parse_login_file(text):
            return None
        user, password = client_login(text, section)
        return Login(user=user, password=password)

    try:
        return load(str(path), read, parse)
    except LoginFileError as error:
        raise TlsSettingsError(LOGIN_FILE, str(error)) from None
