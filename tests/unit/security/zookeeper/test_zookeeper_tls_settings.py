"""ZooKeeper's names and defaults for TLS: what differs from Kafka's listeners."""

from pathlib import Path

import pytest

from kalda.security.tls.settings import PROTOCOLS, ClientAuth, TlsSettings, TlsSettingsError
from kalda.security.zookeeper.tls_settings import CLIENT_NAMES, SERVER_NAMES, read_tls_settings
from kalda.zookeeper.server.config import ZooKeeperConfig
from tests.unit.security.authorities import NOW, VALID, authority

STORES = Path(__file__).parents[1] / "stores"


def server(protocol: str = "", **settings: object) -> TlsSettings:
    values = {f"ssl.{name.replace('_', '.')}": value for name, value in settings.items()}
    return read_tls_settings(SERVER_NAMES, values.get, protocol=protocol, checks_host_name=False)


@pytest.mark.parametrize(
    ("location", "given", "found"),
    [
        ("/x/key.jks", None, "JKS"),
        ("/x/key.P12", None, "PKCS12"),
        ("/x/key.pfx", None, "PKCS12"),
        ("/x/key.pem", None, "PEM"),
        ("/x/key.store", None, "JKS"),
        ("/x/key.jks", "pkcs12", "PKCS12"),
    ],
)
def test_type_is_that_of_the_extension_where_none_is_given(
    location: str, given: str | None, found: str
) -> None:
    settings = server(keyStore_location=location, keyStore_password="x", keyStore_type=given)
    assert (found, location) == (settings.key_store.type, settings.key_store.location)


def test_password_of_a_store_in_pem_is_that_of_the_key() -> None:
    settings = server(keyStore_location="/k.pem", keyStore_password="x", trustStore_location="/t.pem")
    assert (None, "x") == (settings.key_store.password, settings.key_store.key_password)


@pytest.mark.parametrize(
    ("value", "meaning"),
    [(None, ClientAuth.REQUIRED), ("NEED", ClientAuth.REQUIRED), ("want", ClientAuth.REQUESTED)],
)
def test_clients_need_a_certificate_unless_a_setting_says_otherwise(
    value: str | None, meaning: ClientAuth
) -> None:
    assert meaning is server(clientAuth=value).client_auth


@pytest.mark.parametrize(
    ("protocol", "enabled", "served"),
    [
        ("", (), PROTOCOLS),
        ("TLS", (), PROTOCOLS),
        ("TLSv1.2", (), PROTOCOLS),
        ("TLSv1.3", (), ("TLSv1.3",)),
        ("TLSv1.3", ("TLSv1.2",), ("TLSv1.2",)),
    ],
)
def test_versions(protocol: str, enabled: tuple[str, ...], served: tuple[str, ...]) -> None:
    assert served == server(protocol, enabledProtocols=enabled).protocols


def test_errors_have_the_names_of_their_side() -> None:
    values = {"zookeeper.ssl.keystore.location": "/key.jks"}
    with pytest.raises(TlsSettingsError, match=r"needs `zookeeper\.ssl\.keystore\.password`") as caught:
        read_tls_settings(CLIENT_NAMES, values.get, protocol="", checks_host_name=True)
    assert "zookeeper.ssl.keystore.password" == caught.value.setting
    with pytest.raises(TlsSettingsError, match=r"needs `ssl\.keyStore\.password`"):
        server(keyStore_location="/key.jks")


def test_server_reads_passwords_from_files_and_shows_none(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    store = {
        "secureClientPort": "2281",
        "ssl.keyStore.location": str(STORES / "key.jks"),
        "ssl.keyStore.passwordPath": str(password),
        "ssl.clientAuth": "none",
    }
    with pytest.raises(ValueError, match=r"`ssl\.keyStore\.location`=.*key\.jks.*password") as caught:
        ZooKeeperConfig.from_properties(store)
    assert "hunter2" not in str(caught.value)
    issued = authority().issue("server", NOW, VALID)
    pem = tmp_path / "key.pem"
    pem.write_bytes(issued.key_store)
    config = ZooKeeperConfig.from_properties({**store, "ssl.keyStore.location": str(pem)})
    assert (None, 2281) == (config.client_port, config.secure_client_port)
    assert "hunter2" not in str(config.authentication)
    both = ZooKeeperConfig.from_properties({**store, "ssl.keyStore.location": str(pem), "clientPort": "2181"})
    assert (2181, 2281) == (both.client_port, both.secure_client_port)
