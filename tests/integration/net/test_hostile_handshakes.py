"""A server with TLS against peers that cut, change, replay or never end handshakes, and odd certificates."""

import asyncio
import contextlib
import itertools
import os
import resource
import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from kalda.net import server as net_server
from kalda.net.connection import Connection
from kalda.net.listener_security import ListenerSecurity, TlsListener
from kalda.net.server import Server, ServerConfig
from kalda.security.tls.contexts import server_context
from kalda.security.tls.principal_mapping import PrincipalMapping
from kalda.security.tls.settings import ClientAuth, StoreSettings, TlsSettings
from tests.unit.security.authorities import NOW, VALID, authority

HALF_OPEN = 1000
COMMON_NAME = [x509.NameAttribute(NameOID.COMMON_NAME, "alice")]


class Service:
    """A server that echoes frames, and who tried to authenticate at it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.outcomes: list[str] = []
        server.on_login = lambda connection, reason: self.outcomes.append(
            str(connection.principal) if reason is None else reason
        )

    @property
    def failures(self) -> list[str]:
        return [each for each in self.outcomes if not each.startswith("User:")]

    async def is_served(self) -> bool:
        return await self.ask(client_context()) == b"ping"

    async def ask(self, context: ssl.SSLContext) -> bytes:
        """Return what the server echoes; nothing if it refuses."""
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
            )
        except (ssl.SSLError, ConnectionError):
            return b""
        try:
            writer.write(struct.pack(">i", 4) + b"ping")
            return (await reader.readexactly(8))[4:]
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            return b""
        finally:
            writer.transport.abort()


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(struct.pack(">i", len(frame)) + bytes(frame))


@contextlib.asynccontextmanager
async def serving(
    client_auth: ClientAuth = ClientAuth.NONE,
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
    **limits: Any,
) -> AsyncIterator[Service]:
    own = authority().issue("broker", NOW, VALID, ["localhost"])
    trusted = authority().own.certificate.decode()
    settings = TlsSettings(
        key_store=StoreSettings(
            type="PEM", key=own.private_key.decode(), certificates=own.certificate.decode()
        ),
        trust_store=StoreSettings(type="PEM", certificates=trusted),
        client_auth=client_auth,
        protocols=protocols,
    )
    security = ListenerSecurity(tls=TlsListener(server_context(settings), PrincipalMapping.parse("")))
    server = Server(ServerConfig(socket_listen_backlog_size=2000, **limits), echo)
    port = await server.listen("SSL", "127.0.0.1", 0, security=security)
    try:
        yield Service(server, port)
    finally:
        await server.close(drain_seconds=0.1)


def client_context(certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().own.certificate.decode())
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the server has no event for what it closes
            await asyncio.sleep(0.005)


async def send(port: int, data: bytes) -> bytes:
    """Return all that the server answers to bytes and their end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        while piece := await reader.read(100_000):
            answer += piece
    writer.close()
    return answer


async def recorded(service: Service) -> list[bytes]:
    """Return what a client sends in its handshake and with its first request, in the pieces it came in."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    pieces = []
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
            break
        pieces.append(outgoing.read())
        writer.write(pieces[-1])
        incoming.write(await reader.read(100_000))
    side.write(struct.pack(">i", 4) + b"ping")
    pieces.append(outgoing.read())
    writer.write(pieces[-1])
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            assert side.read(8).endswith(b"ping")
            break
        incoming.write(await reader.read(100_000))
    writer.close()
    return pieces


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
async def test_cut_changed_and_replayed_handshakes_are_refused(protocol: str) -> None:
    async with serving(protocols=(protocol,)) as service:
        pieces = await recorded(service)
        stream = b"".join(pieces)
        served = len(service.outcomes)
        for cut in range(0, len(stream), 1 + len(stream) // 60):
            await send(service.port, stream[:cut])
        for position in range(0, len(stream), 1 + len(stream) // 60):
            changed = bytearray(stream)
            changed[position] ^= 0x55
            await send(service.port, bytes(changed))
        # All of it once more, at once and in its pieces.
        assert b"ping" not in await send(service.port, stream)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        for piece in pieces:
            writer.write(piece)
            await reader.read(1)
        assert b"ping" not in await reader.read(100_000)
        writer.close()
        assert len(service.outcomes) > served
        assert len(service.failures) == len(service.outcomes) - 1, "only the recorded handshake succeeded"
        assert await service.is_served()
        await until(lambda: service.server.statistics().connections == 0)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux' /proc")
@pytest.mark.usefixtures("many_descriptors")
async def test_a_thousand_half_open_handshakes_take_little_and_give_it_back() -> None:
    async with serving() as service:
        hello = (await recorded(service))[0]
        assert await service.is_served()
        before = resident_bytes()
        peers = []
        received = service.server.statistics().bytes_in
        for number in range(HALF_OPEN):
            # Nothing, a part of the hello, or all of it, after which the server waits for the client.
            begun = hello[: (0, len(hello) // 2, len(hello))[number % 3]]
            peer = socket.create_connection(("127.0.0.1", service.port))
            peer.sendall(begun)
            received += len(begun)
            peers.append(peer)
        await until(lambda: service.server.statistics().bytes_in >= received)
        assert HALF_OPEN <= service.server.statistics().connections
        assert (resident_bytes() - before) // HALF_OPEN < 150_000
        assert await service.is_served()
        for peer in peers:
            peer.close()
        await until(lambda: service.server.statistics().connections == 0)
        assert await service.is_served()


async def test_a_client_that_trickles_bytes_has_limited_time() -> None:
    """One byte now and then keeps a connection from being idle."""
    async with serving() as patient:
        hello = (await recorded(patient))[0]
    async with serving(connections_max_idle_ms=300) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        with contextlib.suppress(ConnectionError):
            for byte in itertools.cycle(hello[:-1]):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
                if reader.at_eof():
                    break
        assert ["the client did not authenticate within 300 ms"] == service.failures[-1:]
        assert 1 <= service.server.statistics().expired
        writer.close()


async def test_handshakes_end_long_before_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 of them took 130 MB, for the ten minutes of `connections.max.idle.ms`."""
    async with serving(connections_max_idle_ms=5_000) as service:
        hello = (await recorded(service))[0]
        monkeypatch.setattr(net_server, "AUTHENTICATION_MS_MAX", 300)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(hello)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        await until(lambda: bool(service.failures))
        assert ["the client did not authenticate within 300 ms"] == service.failures[-1:]
        writer.close()


async def test_a_client_that_has_authenticated_may_take_longer() -> None:
    async with serving(connections_max_idle_ms=600_000) as service:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", service.port, ssl=client_context(), server_hostname="localhost"
        )
        for _ in range(2):
            writer.write(struct.pack(">i", 4) + b"ping")
            assert (await reader.readexactly(8)).endswith(b"ping")
            later = asyncio.get_running_loop().time() + 2 * net_server.AUTHENTICATION_MS_MAX / 1000
            service.server.sweep(later)
        writer.close()
        assert not service.failures


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_old_versions_are_refused(version: ssl.TLSVersion) -> None:
    async with serving() as service:
        context = client_context()
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
        assert b"" == await service.ask(context)
        assert await service.is_served()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
async def test_renegotiation_is_refused() -> None:
    async with serving() as service:
        openssl = await asyncio.create_subprocess_exec(
            "openssl",
            *("s_client", "-tls1_2", "-connect", f"127.0.0.1:{service.port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        await until(lambda: bool(service.outcomes))
        _, errors = await asyncio.wait_for(openssl.communicate(b"R\n"), 60)
        assert b"no renegotiation" in errors
        assert await service.is_served()


async def test_a_stream_that_ends_without_notice_is_survived() -> None:
    async with serving() as service:
        for linger in (True, False):
            _reader, writer = await asyncio.open_connection(
                "127.0.0.1", service.port, ssl=client_context(), server_hostname="localhost"
            )
            writer.write(struct.pack(">i", 100) + b"half")
            if linger:
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        assert await service.is_served()
        await until(lambda: service.server.statistics().connections == 0)


def issued(
    directory: Path,
    subject: list[x509.NameAttribute[str]],
    *extensions: x509.ExtensionType,
    begins: datetime = NOW - timedelta(days=1),
    ends: datetime = NOW + timedelta(days=1),
    is_signed: bool = True,
) -> Path:
    """Write a client's certificate of the trusted authority, or of nobody, and its key."""
    issuer = x509.load_pem_x509_certificate(authority().own.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.UnrecognizedExtension))
    signer: Any = load_pem_private_key(authority().own.private_key, None) if is_signed else key
    file = directory / "client.pem"
    pem = builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem)
    return file


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("options", "extensions", "reason"),
    [
        pytest.param({"ends": NOW - timedelta(hours=1)}, (), "expired", id="expired"),
        pytest.param({"begins": NOW + timedelta(hours=1)}, (), "not yet valid", id="not yet valid"),
        pytest.param({"is_signed": False}, (), "certificate is not accepted", id="signed by nobody"),
        pytest.param(
            {}, (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),), "purpose", id="for servers only"
        ),
        pytest.param(
            {},
            (x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\x30\x80\xff"),),
            "critical extension",
            id="unknown critical extension",
        ),
    ],
)
async def test_certificates_that_are_not_right_are_refused_once(
    options: Any, extensions: Any, reason: str, protocol: str, tmp_path: Path
) -> None:
    async with serving(ClientAuth.REQUIRED, (protocol,)) as service:
        context = client_context(issued(tmp_path, COMMON_NAME, *extensions, **options))
        assert b"" == await service.ask(context)
        await until(lambda: bool(service.outcomes))
        [failure] = service.outcomes
        assert reason in failure
        assert b"ping" == await service.ask(client_context(issued(tmp_path, COMMON_NAME)))


@pytest.mark.parametrize(
    ("attributes", "principal"),
    [
        ([(NameOID.COMMON_NAME, "a\nb\0c")], "User:CN=a\nb\0c"),
        ([(NameOID.COMMON_NAME, "x,CN=admin")], r"User:CN=x\,CN=admin"),
        ([(NameOID.ORGANIZATION_NAME, "o" * 64)] * 300, None),
        ([(ObjectIdentifier("1.2.3"), "value")], None),
        ([], "User:"),
    ],
    ids=["control characters", "escapes", "20 KB", "unknown attribute", "empty"],
)
async def test_odd_names_become_principals_of_their_own(
    attributes: list[tuple[ObjectIdentifier, str]], principal: str | None, tmp_path: Path
) -> None:
    async with serving(ClientAuth.REQUIRED) as service:
        subject = [x509.NameAttribute(oid, value, _validate=False) for oid, value in attributes]
        assert b"ping" == await service.ask(client_context(issued(tmp_path, subject)))
        [outcome] = service.outcomes
        assert outcome.startswith("User:")
        assert principal is None or principal == outcome
