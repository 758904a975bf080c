"""Reads the TLS settings of ZooKeeper's server and of its clients into `TlsSettings`.

ZooKeeper and Kafka name the same things differently: a server has ``ssl.keyStore.location``, a broker as
client ``zookeeper.ssl.keystore.location``. Where no type is given, the extension of a store's file decides,
and the password of a store in PEM is that of its private key.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kalda.security.tls.settings import PROTOCOLS, TlsSettings, TlsSettingsError

_NAMES: Final = {
    "ssl.keystore.location": "keyStore.location",
    "ssl.keystore.password": "keyStore.password",
    "ssl.keystore.type": "keyStore.type",
    "ssl.truststore.location": "trustStore.location",
    "ssl.truststore.password": "trustStore.password",
    "ssl.truststore.type": "trustStore.type",
    "ssl.cipher.suites": "ciphersuites",
    "ssl.enabled.protocols": "enabledProtocols",
    "ssl.client.auth": "clientAuth",
}

SERVER_NAMES: Final[Mapping[str, str]] = {kafka: f"ssl.{name}" for kafka, name in _NAMES.items()}
"""The names in ``zoo.cfg``, by those of Kafka's listeners."""

CLIENT_NAMES: Final[Mapping[str, str]] = {
    kafka: f"zookeeper.{kafka}" for kafka in _NAMES if kafka != "ssl.client.auth"
}
"""The names in ``server.properties`` and in the file of ``--zk-tls-config-file``."""

_CLIENT_AUTH: Final = {"none": "none", "want": "requested", "need": "required"}
_EXTENSIONS: Final = {"jks": "JKS", "p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM"}


def read_tls_settings(
    names: Mapping[str, str], value_of: Callable[[str], object], *, protocol: str, checks_host_name: bool
) -> TlsSettings:
    """Read the settings of one side; `value_of` takes a name of ZooKeeper's and returns its value or None.

    `protocol` is ``ssl.protocol``, the lowest version where no versions are enabled; empty if not set.

    Raises:
        TlsSettingsError: they contradict each other, or ask for what cannot be served.
    """

    def text(name: str) -> str:
        value = value_of(names[name]) if name in names else None
        return "" if value is None else str(value)

    values: dict[str, object] = {
        "ssl.cipher.suites": value_of(names["ssl.cipher.suites"]),
        "ssl.enabled.protocols": value_of(names["ssl.enabled.protocols"]) or _versions(protocol),
        "ssl.client.auth": _CLIENT_AUTH[text("ssl.client.auth").lower() or "need"],
        "ssl.endpoint.identification.algorithm": "https" if checks_host_name else "",
    }
    for store in ("ssl.keystore", "ssl.truststore"):
        location, password = text(f"{store}.location"), text(f"{store}.password")
        store_type = text(f"{store}.type").upper() or _EXTENSIONS.get(location.rpartition(".")[2].lower())
        is_pem = store_type == "PEM"
        values |= {
            f"{store}.location": location,
            f"{store}.type": store_type or "JKS",
            f"{store}.password": "" if is_pem else password,
        }
        if is_pem and store == "ssl.keystore":
            values["ssl.key.password"] = password
    try:
        return TlsSettings.read(values.get)
    except TlsSettingsError as error:
        raise renamed(error, names) from None


def renamed(error: TlsSettingsError, names: Mapping[str, str]) -> TlsSettingsError:
    """Return an error about Kafka's names with those of ZooKeeper."""
    message = str(error)
    for kafka, zookeeper in names.items():
        message = message.replace(f"`{kafka}`", f"`{zookeeper}`")
    return TlsSettingsError(names.get(error.setting, error.setting), message)


def _versions(protocol: str) -> tuple[str, ...]:
    # And newer ones, where Java takes the version alone: by default ZooKeeper 3.9 serves TLSv1.3 only, and
    # Kafka's brokers ask for TLSv1.2 only.
    if protocol in ("", "TLS"):
        return PROTOCOLS
    return PROTOCOLS[PROTOCOLS.index(protocol) :] if protocol in PROTOCOLS else (protocol,)
