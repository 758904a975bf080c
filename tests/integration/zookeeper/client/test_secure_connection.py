"""The ensemble engine over TLS and with a SASL login: against our server, and a real ZooKeeper."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kalda.security.tls.settings import TlsSettingsError
from kalda.security.zookeeper.client_security import ClientSecurity, read_client_security
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import AuthFailedError, ConnectionLossError, NoAuthError
from tests.integration.zookeeper.secured_servers import SERVERS, secured_server
from tests.integration.zookeeper.tls_files import TlsFiles

pytestmark = pytest.mark.xdist_group("secure_zookeeper")


@dataclass
class Secured:
    """A server with a TLS port and a SASL user bob."""

    files: TlsFiles
    plain: str
    secure: str

    def security(self, *, login: bool = False, tls: bool = False, **more: object) -> ClientSecurity:
        """Return how to connect; the names in `more` have "_" for "." after ``zookeeper.``."""
        values: dict[str, object] = {}
        if tls:
            values |= {
                "zookeeper.ssl.client.enable": True,
                "zookeeper.ssl.truststore.location": self.files.trust,
                "zookeeper.ssl.keystore.location": self.files.key("alice"),
            }
        if login:
            values["java.security.auth.login.config"] = self.files.login_file("bob")
        acl = bool(more.pop("set_acl", False))
        values |= {f"zookeeper.{name.replace('_', '.')}": value for name, value in more.items()}
        return read_client_security(values.get, restricts_access=acl)

    async def connect(
        self, security: ClientSecurity, *, hosts: str | None = None, wait_ms: int = 30_000
    ) -> EnsembleClient:
        return await EnsembleClient.connect(
            hosts or (self.plain if security.tls is None else self.secure),
            session_timeout_ms=20_000,
            connection_timeout_ms=wait_ms,
            security=security,
        )


@pytest.fixture(scope="module", params=list(SERVERS))
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_server(request.param, tmp_path_factory.mktemp("secured")) as server:
        yield Secured(*server)


async def test_certificate_and_login_are_the_identities_of_access_lists(secured: Secured) -> None:
    """What Kafka's brokers create: private, readable by everybody, or open."""
    secure = secured.security(login=True, tls=True, set_acl=True)
    owner = await secured.connect(secure, hosts=secured.secure + "/k")
    other = await secured.connect(secured.security(), hosts=secured.plain + "/k")
    same_user = await secured.connect(secured.security(login=True), hosts=secured.plain + "/k")
    try:
        for path in ("/config", "/config/users", "/config/users/alice", "/consumers", "/consumers/g"):
            await owner.create(path, b"secret")
        assert [b"secret"] * 20 == [found[0] for found in await owner.get_many(["/config"] * 20) if found]
        with pytest.raises(NoAuthError):
            await other.get("/config/users/alice")
        assert b"secret" == (await other.get("/config"))[0]
        with pytest.raises(NoAuthError):
            await other.set("/config", b"changed")
        await other.set("/consumers", b"changed")
        with pytest.raises(NoAuthError):
            await other.set("/consumers/g", b"changed")
        await same_user.set("/config/users/alice", b"new")
    finally:
        for client in (owner, other, same_user):
            await client.close()


async def test_wrong_password_fails_the_connection_at_once(secured: Secured, tmp_path: Path) -> None:
    jaas = tmp_path / "jaas"
    jaas.write_text('Client { x.DigestLoginModule required username="bob" password="wrong"; };')
    security = read_client_security({"java.security.auth.login.config": str(jaas)}.get)
    with pytest.raises(AuthFailedError, match=r"the SASL login of bob at .* failed") as caught:
        await secured.connect(security)
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("kind", ["name", "authority", "own key"])
async def test_certificates_that_do_not_fit_are_refused(secured: Secured, kind: str, tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    hosts = secured.secure
    if kind == "authority":
        security = secured.security(tls=True, ssl_truststore_location=files.key("other", signed_by="others"))
    elif kind == "own key":
        security = secured.security(tls=True, ssl_keystore_location=files.key("mallory", signed_by="others"))
    else:
        security = secured.security(tls=True)
        hosts = hosts.replace("localhost", "127.0.0.2")
    with pytest.raises(ConnectionLossError, match="no ZooKeeper server"):
        await secured.connect(security, hosts=hosts, wait_ms=700)


async def test_host_name_need_not_be_checked(secured: Secured) -> None:
    """Kafka's spelling: an empty algorithm."""
    security = secured.security(tls=True, ssl_endpoint_identification_algorithm="")
    assert security.tls is not None
    assert not security.tls.checks_host_name
    client = await secured.connect(security)
    assert await client.exists("/") is not None
    await client.close()


async def test_session_is_resumed_and_ended_over_tls_with_a_login(secured: Secured) -> None:
    security = secured.security(login=True, tls=True)
    client = await secured.connect(security)
    await client.create("/mine", ephemeral=True)
    before = client.session_id
    client._link.drop()
    with contextlib.suppress(ConnectionLossError):
        await client.exists("/mine")
    stat = await client.exists("/mine")
    assert stat is not None
    assert before == stat.ephemeral_owner
    key = client.session_key
    assert key is not None
    client.abandon()
    other = await secured.connect(security)
    await other.end_session(key)
    assert await other.exists("/mine") is None
    await other.close()


def test_settings_that_cannot_protect_are_refused(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    tls = {"zookeeper.ssl.client.enable": True, "zookeeper.ssl.truststore.location": files.trust}
    refused: list[tuple[dict[str, object], str]] = [
        ({}, "`zookeeper.set.acl`=true needs an identity"),
        (tls, "`zookeeper.set.acl`=true needs an identity"),
        ({**tls, "zookeeper.ssl.crl.enable": True}, "with revocation lists"),
        (
            {**tls, "zookeeper.ssl.keystore.location": "/none.pem"},
            "location`=/none.pem",
        ),
        ({"java.security.auth.login.config": "/none"}, "cannot be read"),
        ({**tls, "zookeeper.ssl.protocol": "TLSv1.1"}, "leaves no version to serve"),
    ]
    for values, message in refused:
        with pytest.raises(TlsSettingsError, match=message):
            read_client_security(values.get, restricts_access=True)
