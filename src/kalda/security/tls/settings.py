"""Reads Kafka's ``ssl.*`` settings, of a broker's listener or of a client, into `TlsSettings`.

Names of cipher suites are those of IANA, as in Java; OpenSSL's own are taken as well.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
"""What is served. Older versions are insecure (RFC 8996)."""

_OLD_PROTOCOLS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_TLS_1_3_SUITE: Final = re.compile(r"TLS_(?!.*_WITH_)\w+")
_SUITE: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+?)(?:_(?P<mac>SHA\d*|MD5))?")


class ClientAuth(Enum):
    """Whether a server asks clients for a certificate: ``ssl.client.auth``."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsSettingsError(ValueError):
    """Settings contradict each other or cannot be served; `setting` is the first of them."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where a key or trust store is: in a file, or in the settings themselves as PEM."""

    type: str
    location: str | None = None
    password: str | None = None
    certificates: str | None = None
    """PEM in the settings: the chain of the key, or the trusted certificates."""
    key: str | None = None
    """The private key as PEM in the settings."""
    key_password: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a store."""
        return self.location is not None or self.certificates is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How one side of a connection uses TLS."""

    key_store: StoreSettings
    trust_store: StoreSettings
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    """OpenSSL's names; empty for OpenSSL's choice. The suites of TLS 1.3 cannot be chosen one by one."""
    client_auth: ClientAuth = ClientAuth.NONE
    checks_host_name: bool = True

    @classmethod
    def read(cls, value_of: Callable[[str], object]) -> Self:
        """Read the settings; `value_of` returns the value of a setting, or None.

        Raises:
            TlsSettingsError: they contradict each other, or ask for what cannot be served.
        """

        def text(name: str) -> str | None:
            value = value_of(name)
            return None if value is None or value == "" else str(value)

        key_store = StoreSettings(
            type=(text("ssl.keystore.type") or "JKS").upper(),
            location=text("ssl.keystore.location"),
            password=text("ssl.keystore.password"),
            certificates=text("ssl.keystore.certificate.chain"),
            key=text("ssl.keystore.key"),
            key_password=text("ssl.key.password"),
        )
        trust_store = StoreSettings(
            type=(text("ssl.truststore.type") or "JKS").upper(),
            location=text("ssl.truststore.location"),
            password=text("ssl.truststore.password"),
            certificates=text("ssl.truststore.certificates"),
        )
        _check_key_store(key_store)
        _check_trust_store(trust_store)
        suites = _names(value_of("ssl.cipher.suites"))
        return cls(
            key_store=key_store,
            trust_store=trust_store,
            protocols=_protocols(_names(value_of("ssl.enabled.protocols")), suites),
            cipher_suites=tuple(openssl_name(each) for each in suites if not _TLS_1_3_SUITE.fullmatch(each)),
            client_auth=ClientAuth((text("ssl.client.auth") or "none").lower()),
            checks_host_name=(text("ssl.endpoint.identification.algorithm") or "").lower() == "https",
        )


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    >>> openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA")
    'AES256-SHA'
    """
    match = _SUITE.fullmatch(suite)
    if match is None:
        return suite
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-")
    cipher = match["cipher"].replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    # The hash of ChaCha20 and of CCM belongs to the suite and is not in OpenSSL's name.
    mac = "" if cipher.startswith("CHACHA20") else match["mac"] or ""
    return "-".join(part for part in (exchange, cipher, mac) if part)


def _names(value: object) -> list[str]:
    if value is None:
        return []
    parts = value.split(",") if isinstance(value, str) else value
    assert isinstance(parts, Collection), f"{value!r} is no list"
    return [str(part).strip() for part in parts if str(part).strip()]


def _protocols(names: list[str], suites: list[str]) -> tuple[str, ...]:
    setting = "ssl.enabled.protocols"
    known = {each.lower(): each for each in (*PROTOCOLS, *_OLD_PROTOCOLS)}
    for name in names:
        if name.lower() not in known:
            raise TlsSettingsError(
                setting,
                f"`{setting}`={','.join(names)}: {name} is not known; it takes {', '.join(PROTOCOLS)}",
            )
    wanted = {known[name.lower()] for name in names} or set(PROTOCOLS)
    if suites:
        # As in Java: without a suite of a version, the version cannot be negotiated.
        is_new = [bool(_TLS_1_3_SUITE.fullmatch(suite)) for suite in suites]
        wanted -= {"TLSv1.2"} if all(is_new) else set() if any(is_new) else {"TLSv1.3"}
    protocols = tuple(each for each in PROTOCOLS if each in wanted)
    if not protocols:
        raise TlsSettingsError(
            setting,
            f"`{setting}`={','.join(names)} leaves no version to serve"
            + (f" with `ssl.cipher.suites`={','.join(suites)}" if suites else "")
            + f"; allow {' or '.join(PROTOCOLS)}: older ones are insecure",
        )
    return protocols


def _check_key_store(store: StoreSettings) -> None:
    if store.key is not None or store.certificates is not None:
        if store.type != "PEM":
            raise TlsSettingsError(
                "ssl.keystore.type",
                f"`ssl.keystore.type`={store.type}: a key in `ssl.keystore.key` needs the type PEM",
            )
        if store.location is not None:
            raise TlsSettingsError(
                "ssl.keystore.location",
                "`ssl.keystore.location` and `ssl.keystore.key` are both set; give only one",
            )
        if store.key is None or store.certificates is None:
            raise TlsSettingsError(
                "ssl.keystore.key",
                "`ssl.keystore.key` and `ssl.keystore.certificate.chain` go together; one is missing",
            )
    if store.type == "PEM" and store.password is not None:
        raise TlsSettingsError(
            "ssl.keystore.password",
            "`ssl.keystore.password` has no meaning for PEM; the key's password is `ssl.key.password`",
        )
    if store.location is not None and store.type != "PEM" and store.password is None:
        raise TlsSettingsError(
            "ssl.keystore.password",
            f"`ssl.keystore.location`={store.location} needs `ssl.keystore.password`",
        )


def _check_trust_store(store: StoreSettings) -> None:
    if store.certificates is not None:
        if store.type != "PEM":
            raise TlsSettingsError(
                "ssl.truststore.type",
                f"`ssl.truststore.type`={store.type}: `ssl.truststore.certificates` needs the type PEM",
            )
        if store.location is not None:
            raise TlsSettingsError(
                "ssl.truststore.location",
                "`ssl.truststore.location` and `ssl.truststore.certificates` are both set; give only one",
            )
    if store.type == "PEM" and store.password is not None:
        raise TlsSettingsError(
            "ssl.truststore.password", "`ssl.truststore.password` has no meaning for PEM; leave it out"
        )
