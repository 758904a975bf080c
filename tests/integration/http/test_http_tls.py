"""The listener over TLS."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from kalda.common.config_def import ConfigError
from kalda.http.settings import HttpSettings
from kalda.security.tls.authority import CertificateAuthority
from tests.http_server import HttpCluster, served


def test_the_listener_serves_https(http_cluster: HttpCluster, tmp_path: Path) -> None:
    now, valid = datetime.now(UTC), timedelta(days=1)
    authority = CertificateAuthority.make("tests", now, valid)
    key_store, trusted = tmp_path / "server.pem", tmp_path / "ca.pem"
    key_store.write_bytes(authority.issue("server", now, valid, ("127.0.0.1", "localhost")).key_store)
    trusted.write_bytes(authority.own.certificate)
    settings = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.location": str(trusted),
        "schema.registry.group.id": "https",
    }
    context = ssl.create_default_context(cafile=trusted)

    with served(http_cluster.cluster, settings) as http:
        with httpx.Client(base_url=f"https://{http.address}", verify=context, timeout=60) as client:
            assert "ok\n" == client.get("/healthz").text
            assert 200 == client.get("/subjects").status_code
        with (
            httpx.Client(base_url=f"http://{http.address}", timeout=60) as plain,
            pytest.raises(httpx.TransportError),
        ):
            plain.get("/healthz")


def test_a_key_store_is_needed(http_cluster: HttpCluster) -> None:
    settings = HttpSettings.read(
        {"listeners": "https://127.0.0.1:0"}, http_cluster.cluster.client_config(), port=0
    )

    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        settings.listener_tls()
