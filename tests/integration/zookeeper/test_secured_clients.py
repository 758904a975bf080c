"""kazoo over plaintext, TLS and mTLS, with every login, to our server and to ZooKeeper 3.9."""

import contextlib
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import WatchedEvent
from kazoo.security import ACL, CREATOR_ALL_ACL, Id, make_digest_acl_credential

from tests.integration.zookeeper.secured_servers import SERVERS, secured_server
from tests.integration.zookeeper.tls_files import TlsFiles

pytestmark = pytest.mark.xdist_group("secure_zookeeper")

TRANSPORTS = ("plaintext", "TLS", "mTLS")
LOGINS = ("none", "digest", "SASL")
DIGEST = "carol:carol-secret"


@dataclass
class Secured:
    """A server with and without TLS, where a certificate may be missing, and a SASL user bob."""

    files: TlsFiles
    plain: str
    secure: str

    def address(self, transport: str) -> str:
        return self.plain if transport == "plaintext" else self.secure

    def expected(self, transport: str, login: str) -> set[str]:
        """Return who a client is."""
        certificate = {"x509:CN=alice"} if transport == "mTLS" else set()
        by_login = {
            "none": "",
            "SASL": "sasl:bob",
            "digest": f"digest:{make_digest_acl_credential('carol', 'carol-secret')}",
        }
        return certificate | ({by_login[login]} - {""})

    def kazoo(self, transport: str, login: str) -> KazooClient:
        options: dict[str, Any] = {}
        if transport != "plaintext":
            options |= {"use_ssl": True, "ca": self.files.trust}
        if transport == "mTLS":
            key = self.files.key("alice")
            options |= {"certfile": key, "keyfile": key}
        if login == "digest":
            options["auth_data"] = [("digest", DIGEST)]
        elif login == "SASL":
            user = {"username": "bob", "password": "bob-secret"}
            options["sasl_options"] = {"mechanism": "DIGEST-MD5", **user}
        return KazooClient(self.address(transport), timeout=30, **options)


@pytest.fixture(scope="module", params=list(SERVERS))
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_server(request.param, tmp_path_factory.mktemp("secured"), "want") as server:
        yield Secured(*server)


@contextlib.contextmanager
def started(client: KazooClient) -> Iterator[KazooClient]:
    try:
        client.start(20)
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_kazoo_is_who_it_logs_in_as(secured: Secured, transport: str, login: str) -> None:
    """It writes large and pipelined, watches, and owns what it makes."""
    pytest.importorskip("puresasl")
    expected = secured.expected(transport, login)
    path = f"/{uuid4().hex}"
    changed: queue.SimpleQueue[WatchedEvent] = queue.SimpleQueue()
    with (
        started(secured.kazoo(transport, login)) as client,
        started(secured.kazoo("plaintext", "none")) as other,
    ):
        acl = CREATOR_ALL_ACL if expected else [ACL(31, Id("world", "anyone"))]
        client.create(path, b"x" * 500_000, acl=acl)
        client.create(f"{path}/e", b"", acl=acl, ephemeral=True, sequence=True)
        pipelined = [client.get_async(path) for _ in range(20)]
        assert [500_000] * 20 == [len(each.get(60)[0]) for each in pipelined]
        if not expected:
            assert other.get(path)
            return
        assert expected == {f"{each.id.scheme}:{each.id.id}" for each in client.get_acls(path)[0]}
        with pytest.raises(NoAuthError):
            other.get(path)
        with pytest.raises(NoAuthError):
            other.set(path, b"")
        client.get(path, watch=changed.put)
        client.set(path, b"")
        assert "CHANGED" == changed.get(timeout=60).type
