"""Who is let in: TLS, certificates and SASL over real sockets, and clients that have no business here."""

import asyncio
import contextlib
import gc
import logging
import ssl
import weakref
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, CREATOR_ALL_ACL, Id

from kalda.security.zookeeper.digest_md5 import DigestMd5Client
from kalda.zookeeper.protocol.jute import Reader
from kalda.zookeeper.protocol.op_codes import AUTH_FAILED, AUTHENTICATION_REQUIRED, OK, OpCode
from kalda.zookeeper.protocol.requests import AclEntry, AuthRequest, PathWatchRequest, SaslRequest
from kalda.zookeeper.server.connection_registry import NEW_CONNECTION_SECONDS_MAX
from tests.integration.zookeeper.tls_files import TlsFiles
from tests.integration.zookeeper.wire import Bench, Client, running
from tests.unit.security.authorities import NOW

NO_AUTH = -102


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@contextlib.asynccontextmanager
async def served(files: TlsFiles, **settings: str) -> AsyncIterator[Bench]:
    options: dict[str, Any] = {"forceSync": "no", **settings}
    async with running(files.directory / "data", **options) as bench:
        yield bench


async def dial_tls(bench: Bench, context: ssl.SSLContext, port: int | None = None) -> Client:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port or bench.secure_port, ssl=context, server_hostname="localhost"
    )
    client = Client(reader, writer)
    bench.clients.append(client)
    return client


async def dial_secure_port(bench: Bench) -> Client:
    """Connect without a handshake."""
    client = await Client.dial(bench.secure_port)
    bench.clients.append(client)
    return client


async def identities(client: Client) -> list[tuple[str, str]]:
    reply = await client.ask(OpCode.WHO_AM_I)
    reader = Reader(reply.body)
    return [(reader.text(), reader.text()) for _ in range(reader.int32())]


async def log_in(client: Client, user: str, password: str | None = None) -> int:
    """Log in by SASL; return the last error code."""
    exchange = DigestMd5Client(user, password or f"{user}-secret", "cnonce")
    token: bytes | None = b""
    while token is not None:
        reply = await client.ask(OpCode.SASL, SaslRequest(token))
        if reply.error != OK:
            return reply.error
        token = exchange.evaluate(Reader(reply.body).buffer() or b"")
    assert exchange.is_complete
    return OK


async def test_sasl_user_has_what_access_lists_grant(files: TlsFiles) -> None:
    async with served(files, java_security_auth_login_config=files.login_file("bob", "eve")) as bench:
        bob, eve, nobody = [await bench.connect() for _ in range(3)]
        assert OK == await log_in(bob, "bob")
        assert OK == await log_in(eve, "eve")
        assert ("sasl", "bob") in await identities(bob)
        await bob.create("/mine", b"x", acl=(AclEntry(31, "auth", ""), AclEntry(1, "sasl", "eve")))
        assert b"x" == await eve.get("/mine")
        refused = await nobody.ask(OpCode.GET_DATA, PathWatchRequest("/mine", False))
        assert NO_AUTH == refused.error


async def test_failed_logins_end_the_connection_and_are_logged_within_a_limit(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(
        files, java_security_auth_login_config=files.login_file("bob"), maxClientCnxns="0"
    ) as bench:
        for _ in range(200):
            client = await bench.connect()
            assert AUTH_FAILED == await log_in(client, "bob", "wrong")
            assert await client.at_end()
        other = await bench.connect()
        assert OK == await log_in(other, "bob")
    lines = [each.getMessage() for each in caplog.records if "SASL login failed" in each.getMessage()]
    assert 0 < len(lines) < 100
    assert "bob-secret" not in caplog.text


async def test_second_login_and_login_without_users_are_refused(files: TlsFiles) -> None:
    async with served(files, java_security_auth_login_config=files.login_file("bob")) as bench:
        client = await bench.connect()
        assert OK == await log_in(client, "bob")
        assert AUTH_FAILED == await log_in(client, "bob")
        assert await client.at_end()


async def test_failed_login_may_be_kept_without_an_identity(files: TlsFiles) -> None:
    users = files.login_file("bob")
    async with served(files, java_security_auth_login_config=users, allowSaslFailedClients="true") as bench:
        client = await bench.connect()
        for token in (b"", b"junk"):
            assert OK == (await client.ask(OpCode.SASL, SaslRequest(token))).error
        assert [("ip", "127.0.0.1")] == await identities(client)


@pytest.mark.parametrize(
    "required",
    [
        {"sessionRequireClientSASLAuth": "true"},
        {"enforce_auth_enabled": "true", "enforce_auth_schemes": "sasl"},
    ],
)
@pytest.mark.parametrize("op_code", [OpCode.PING, OpCode.GET_CHILDREN, OpCode.CLOSE_SESSION])
async def test_only_clients_that_have_logged_in_are_served(
    files: TlsFiles, required: dict[str, str], op_code: OpCode
) -> None:
    users = files.login_file("bob")
    async with served(files, java_security_auth_login_config=users, **required) as bench:
        client = await bench.connect()
        assert OK == (await client.ask(OpCode.AUTH, AuthRequest(0, "digest", b"a:b"))).error
        record = PathWatchRequest("/", False) if op_code is OpCode.GET_CHILDREN else None
        assert AUTHENTICATION_REQUIRED == (await client.ask(op_code, record)).error
        assert await client.at_end()
        wrong = await bench.connect()
        assert AUTHENTICATION_REQUIRED == await log_in(wrong, "bob", "wrong")
        bob = await bench.connect()
        assert OK == await log_in(bob, "bob")
        assert ["zookeeper"] == await bob.children("/")


async def test_certificate_is_an_identity(files: TlsFiles) -> None:
    async with served(files, **files.server()) as bench:
        alice = await dial_tls(bench, files.client(files.key("alice")))
        await alice.open()
        assert ("x509", "CN=alice") in await identities(alice)
        data = bytes(range(256)) * 3000
        await alice.create("/mine", data, acl=(AclEntry(31, "auth", ""), AclEntry(1, "x509", "CN=bob")))
        bob = await dial_tls(bench, files.client(files.key("bob")))
        await bob.open()
        assert data == await bob.get("/mine")
        reply = await bob.ask(OpCode.GET_ACL, PathWatchRequest("/mine", False))
        assert b"CN=alice" in reply.body
        plain = await bench.connect()
        refused = await plain.ask(OpCode.GET_DATA, PathWatchRequest("/mine", False))
        assert NO_AUTH == refused.error


async def test_certificate_of_the_super_user_may_do_everything(files: TlsFiles) -> None:
    settings = files.server(X509AuthenticationProvider_superUser="CN=root")
    async with served(files, **settings) as bench:
        alice, root = [await dial_tls(bench, files.client(files.key(name))) for name in ("alice", "root")]
        await alice.open()
        await root.open()
        await alice.create("/mine", b"x", acl=(AclEntry(31, "auth", ""),))
        assert b"x" == await root.get("/mine")


@pytest.mark.parametrize(("client_auth", "is_served"), [("need", False), ("want", True), ("none", True)])
async def test_clients_without_certificate_are_served_as_the_setting_says(
    files: TlsFiles, client_auth: str, is_served: bool
) -> None:
    async with served(files, **files.server(ssl_clientAuth=client_auth)) as bench:
        context = files.client()
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the handshake then fails before the client writes
        if not is_served:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await dial_tls(bench, context)
            return
        client = await dial_tls(bench, context)
        await client.open()
        assert [("ip", "127.0.0.1")] == await identities(client)


@pytest.mark.parametrize("kind", ["other authority", "expired"])
async def test_certificates_that_are_not_trusted_are_refused(
    files: TlsFiles, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "expired":
        key = files.key("alice", now=NOW - timedelta(days=3))
    else:
        key = files.key("alice", signed_by="others")
    async with served(files, **files.server()) as bench:
        context = files.client(key)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await dial_tls(bench, context)
        good = await dial_tls(bench, files.client(files.key("alice")))
        await good.open()
    assert "the peer's certificate is not accepted" in caplog.text


async def test_plaintext_to_the_tls_port_is_named(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    async with served(files, **files.server()) as bench:
        for start in (b"\x00\x00\x00\x2d" + bytes(45), b"ruok", b"GET / HTTP/1.1\r\n", b"\x00"):
            client = await dial_secure_port(bench)
            client.writer.write(start)
            assert await client.at_end()
        assert not bench.listener.registry.connections
    assert "sent plaintext to the TLS port; set zookeeper.ssl.client.enable=true" in caplog.text
    assert "sent an HTTP request to the TLS port" in caplog.text


async def test_tls_to_the_plaintext_port_is_named(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    async with served(files, **files.server()) as bench:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await dial_tls(bench, files.client(), bench.port)
    assert "sent a TLS ClientHello to the ZooKeeper port without TLS" in caplog.text


async def test_unified_port_takes_both(files: TlsFiles) -> None:
    async with served(files, **files.server(client_portUnification="true")) as bench:
        plain = await bench.connect()
        await plain.create("/a")
        over_tls = await dial_tls(bench, files.client(files.key("alice")), bench.port)
        await over_tls.open()
        assert ["a", "zookeeper"] == await over_tls.children("/")


async def test_half_open_handshakes_are_bounded_and_time_out(files: TlsFiles) -> None:
    """They count against maxClientCnxns, and disturb nobody on another address."""
    limit = 100
    async with served(files, **files.server(maxClientCnxns=str(limit))) as bench:
        registry = bench.listener.registry
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        half_open = []
        for number in range(1000):
            client = await dial_secure_port(bench)
            half_open.append(client)
            client.writer.write(hello[: number % len(hello)])
        while registry.rejected < 900:  # noqa: ASYNC110 - the server has no event for what it refuses
            await asyncio.sleep(0)
        assert limit == len(registry.connections)
        loop = asyncio.get_running_loop()
        bench.listener.sockets.sweep(loop.time() + NEW_CONNECTION_SECONDS_MAX + 1)
        assert 0 == len(registry.connections)
        good = await dial_tls(bench, files.client(files.key("alice")))
        await good.open()
        assert ["zookeeper"] == await good.children("/")
        for client in half_open:
            client.close()


@pytest.mark.parametrize("certificate", ["alice", None])
async def test_a_closed_connection_needs_no_garbage_collector(
    files: TlsFiles, certificate: str | None
) -> None:
    """Processes collect cycles late, and each connection with TLS has 30 KB of OpenSSL's memory."""
    async with served(files, **files.server()) as bench:
        registry = bench.listener.registry
        gc.disable()
        try:
            if certificate is None:
                client = await dial_secure_port(bench)
            else:
                client = await dial_tls(bench, files.client(files.key(certificate)))
                await client.open()
            while not registry.connections:  # noqa: ASYNC110 - the server has no event for what it accepts
                await asyncio.sleep(0)
            gone = weakref.ref(next(iter(registry.connections)))
            client.writer.transport.abort()
            async with asyncio.timeout(60):
                while gone() is not None:  # noqa: ASYNC110 - nor for what it has closed
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


async def test_truncated_handshakes_and_junk_in_records_disturb_nobody(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(files, **files.server(maxClientCnxns="0")) as bench:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = files.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
        hello = outgoing.read()
        for cut in range(1, len(hello), 7):
            client = await dial_secure_port(bench)
            client.writer.write(hello[:cut])
            client.writer.write_eof()
            assert await client.at_end()
        for position in range(5, len(hello), 11):
            client = await dial_secure_port(bench)
            changed = bytearray(hello)
            changed[position] ^= 0x55
            client.writer.write(bytes(changed) + b"\x17\x03\x03\x00\x05junk!")
            client.writer.write_eof()
            await client.reader.read()
        good = await dial_tls(bench, files.client(files.key("alice")))
        await good.open()
        assert ["zookeeper"] == await good.children("/")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_new_certificate_is_used_without_a_restart(files: TlsFiles) -> None:
    async with served(files, **files.server()) as bench:
        before = await dial_tls(bench, files.client(files.key("alice")))
        await before.open()

        def serial(client: Client) -> object:
            return client.writer.get_extra_info("peercert")["serialNumber"]

        files.key("server")
        assert bench.listener._tls is not None
        bench.listener._tls.on_tick(asyncio.get_running_loop().time() + 60)
        after = await dial_tls(bench, files.client(files.key("alice")))
        await after.open()
        assert serial(before) != serial(after)
        assert ["zookeeper"] == await before.children("/")


@contextlib.contextmanager
def _kazoo(address: str, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(address, timeout=30, connection_retry={"max_tries": 1}, **options)
    try:
        client.start(10)
        yield client
    finally:
        client.stop()
        client.close()


async def test_kazoo_logs_in_over_tls(files: TlsFiles) -> None:
    """Its own TLS and, with pure-sasl, its own DIGEST-MD5."""
    pytest.importorskip("puresasl")
    users = files.login_file("bob")
    key = files.key("alice")
    over_tls = {"use_ssl": True, "ca": files.trust, "certfile": key, "keyfile": key}
    login = {"mechanism": "DIGEST-MD5", "username": "bob", "password": "bob-secret"}

    def use(secure: str, plain: str) -> list[str]:
        with _kazoo(secure, sasl_options=dict(login), **over_tls) as client:
            client.create("/mine", b"x", acl=CREATOR_ALL_ACL)
            found = [f"{each.id.scheme}:{each.id.id}" for each in client.get_acls("/mine")[0]]
            # Answered in one write. In one record, the later ones would wait for kazoo's next heartbeat.
            pipelined = [client.get_async("/mine") for _ in range(20)]
            assert [b"x"] * 20 == [each.get(3)[0] for each in pipelined]
        with _kazoo(plain) as other:
            with pytest.raises(NoAuthError):
                other.get("/mine")
            other.create("/bobs", b"", acl=[ACL(31, Id("sasl", "bob"))])
        wrong = {**login, "password": "wrong"}
        with pytest.raises((AuthFailedError, KazooTimeoutError)), _kazoo(plain, sasl_options=wrong) as other:
            other.exists("/")
        return found

    settings = files.server(java_security_auth_login_config=users)
    async with served(files, **settings) as bench:
        secure, plain = f"127.0.0.1:{bench.secure_port}", f"127.0.0.1:{bench.port}"
        assert ["x509:CN=alice", "sasl:bob"] == await asyncio.to_thread(use, secure, plain)
