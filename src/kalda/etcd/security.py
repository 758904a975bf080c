"""Reads the settings ``etcd.*`` that secure a client's connection to etcd: TLS and a login."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kalda.runtime.system.named_file import read_named_file


class EtcdSettingsError(ValueError):
    """A setting ``etcd.*`` cannot be used; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSecurity:
    """How a client connects; the default is plaintext without a login."""

    uses_tls: bool = False
    authorities: bytes | None = field(default=None, repr=False)
    """Certificates in PEM that a server's may be signed by; None for those of the system."""
    certificate: bytes | None = field(default=None, repr=False)
    private_key: bytes | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)


PLAINTEXT: Final = EtcdSecurity()


def read_etcd_security(value_of: Callable[[str], object]) -> EtcdSecurity:
    """Read the settings; `value_of` returns the value of a setting, or None.

    Raises:
        EtcdSettingsError: a file cannot be read, or settings contradict each other.
    """

    def text(name: str) -> str | None:
        value = value_of(name)
        return None if value is None else str(value)

    user, password = text("etcd.user") or "", text("etcd.password") or ""
    if bool(user) != bool(password):
        given, missing = ("etcd.user", "etcd.password") if user else ("etcd.password", "etcd.user")
        raise EtcdSettingsError(f"`{given}` is set without `{missing}`; a login needs both")
    trust, key = text("etcd.ssl.truststore.location"), text("etcd.ssl.keystore.location")
    own = None if key is None else _read("etcd.ssl.keystore.location", key)
    if own is not None and (b"PRIVATE KEY" not in own or b"CERTIFICATE" not in own):
        raise EtcdSettingsError(
            f"`etcd.ssl.keystore.location`={key}: it has no certificate with a private key in PEM"
        )
    authorities = None if trust is None else _read("etcd.ssl.truststore.location", trust)
    if authorities is not None and b"CERTIFICATE" not in authorities:
        raise EtcdSettingsError(f"`etcd.ssl.truststore.location`={trust}: it has no certificate in PEM")
    return EtcdSecurity(
        uses_tls=trust is not None or key is not None,
        authorities=authorities,
        certificate=own,
        private_key=own,
        user=user,
        password=password,
    )


def _read(name: str, path: str) -> bytes:
    try:
        return read_named_file(path, wait_seconds=0)
    except OSError as error:
        raise EtcdSettingsError(f"`{name}`={path}: {error.strerror or error}") from None
