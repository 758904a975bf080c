"""Attacks a broker and a ZooKeeper server before the login, while a client that behaves well works on.

Run ``python -m tests.chaos.hostile_logins --logins 10000 --half-open 1000``. Each attack has its own process,
so that what is measured is the server's. One line for each attack has the time it took, the resident memory
of the server before, at the peak and afterwards, and the latency of the good client before and meanwhile. The
run fails if a login is answered in another way than in Kafka, a request of the good client fails, the memory
grows by more than it may, or the audit has more lines than its limit allows.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import re
import resource
import ssl
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from kalda import Admin, Producer
from kalda.clients.admin.topics import NewTopic
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.common.log_limiter import LIMIT_BURST, LIMIT_SECONDS
from kalda.security.sasl.scram import ScramClient
from kalda.security.tls.authority import CertificateAuthority
from kalda.security.zookeeper.digest_md5 import DigestMd5Client
from kalda.testing import KaldaProcess, ZooKeeperProcess
from kalda.zookeeper.protocol.jute import Reader
from kalda.zookeeper.protocol.op_codes import AUTH_FAILED, OK, OpCode
from kalda.zookeeper.protocol.requests import SaslRequest
from tests.integration.zookeeper.wire import Client
from tests.raw_client import audit_lines, base64_json, bearer, text

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerUnsecuredValidatorCallbackHandler"
SCRAM = "SCRAM-SHA-512"
REFUSED = 58
AT_ONCE = 50
"""Connections of an attacker that log in at the same time."""
GROWTH_MB_MAX = 100.0
"""A thousand TLS connections in their handshake take some 40 MB of OpenSSL's buffers."""
AGAIN_GROWTH_MB_MAX = 20.0
"""Of an attack that was made before: what it took then is used again."""
HOLD_SECONDS = 5.0
"""How long connections that are held stay open."""

Attack = Callable[[str, int], Coroutine[Any, Any, int]]
"""Makes a number of attempts at an address; returns how many were not refused as they should be."""


def settings(directory: Path) -> dict[str, str]:
    """Return those of a broker with TLS, and with logins by password and token."""
    now = datetime.now(UTC)
    authority = CertificateAuthority.make("hostile", now, timedelta(days=1))
    (directory / "ca.pem").write_bytes(authority.own.certificate)
    own = authority.issue("broker", now, timedelta(days=1), ["localhost", "127.0.0.1"])
    (directory / "broker.pem").write_bytes(own.key_store)
    jaas = f'{PLAIN} required username="admin" password="admin-secret" user_admin="admin-secret";'
    mechanisms = {"plain": jaas, "oauthbearer": "x.OAuthBearerLoginModule required;"}
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM},OAUTHBEARER",
        **{
            f"listener.name.{listener}.{name}.sasl.jaas.config": value
            for listener in ("sasl_plaintext", "sasl_ssl")
            for name, value in mechanisms.items()
        },
        **{
            f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR
            for listener in ("sasl_plaintext", "sasl_ssl")
        },
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
    }


# What an attacker sends to a broker.


class Peer:
    """One connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request; return the answer, or nothing if the broker closed the connection."""
        frame = struct.pack(">hhih", key, version, 7, -1) + body
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        try:
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def token(self, data: bytes) -> tuple[int, bytes]:
        """Send a message of a mechanism; return the error code and the broker's message."""
        answer = await self.ask(36, 0, struct.pack(">i", len(data)) + data)
        code = struct.unpack_from(">h", answer, 4)[0] if answer else -1
        return code, answer[12:] if code == 0 else b""


@contextlib.asynccontextmanager
async def connected(address: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Open a connection, and close it at the end."""
    host, _, port = address.rpartition(":")
    peer = Peer(*await asyncio.open_connection(host, int(port), ssl=tls))
    try:
        yield peer
    finally:
        peer.writer.transport.abort()


def no_trust() -> ssl.SSLContext:
    """Return the context of a client that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def each(count: int, attempt: Callable[[int], Awaitable[bool]]) -> int:
    """Make attempts, some at a time; return how many were not refused."""
    numbers = iter(range(count))
    wrong = 0

    async def work() -> None:
        nonlocal wrong
        for number in numbers:
            wrong += not await attempt(number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return wrong


async def plain(address: str, count: int) -> int:
    """Log in by PLAIN with a wrong password, every other time as a user that does not exist."""

    async def attempt(number: int) -> bool:
        async with connected(address) as peer:
            await peer.ask(17, 1, text("PLAIN"))
            return (await peer.token(b"\0admin\0%d" % number if number % 2 else b"\0bob\0x"))[0] == REFUSED

    return await each(count, attempt)


async def scram(address: str, count: int) -> int:
    """Log in by SCRAM with an altered proof, every other time as a user that does not exist."""

    async def attempt(number: int) -> bool:
        client = ScramClient(SCRAM, "admin" if number % 2 else f"user{number}", "wrong", f"nonce{number}")
        async with connected(address) as peer:
            await peer.ask(17, 1, text(SCRAM))
            _, challenge = await peer.token(client.respond(b""))
            nonce = challenge.split(b",")[0]
            return (await peer.token(b"c=biws," + nonce + b",p=" + b"A" * 86 + b"=="))[0] == REFUSED

    return await each(count, attempt)


async def oauthbearer(address: str, count: int) -> int:
    """Log in by OAUTHBEARER with a token that has expired."""
    token = f"{base64_json({'alg': 'none'})}.{base64_json({'sub': 'admin', 'iat': 1, 'exp': 2})}."

    async def attempt(_: int) -> bool:
        async with connected(address) as peer:
            await peer.ask(17, 1, text("OAUTHBEARER"))
            code = (await peer.token(bearer(token)))[0]
            return code == 0 and (await peer.token(b"\x01"))[0] == REFUSED

    return await each(count, attempt)


async def over_tls(address: str, count: int) -> int:
    """Log in by PLAIN with a wrong password, each time over TLS."""
    context = no_trust()

    async def attempt(_: int) -> bool:
        async with connected(address, context) as peer:
            await peer.ask(17, 1, text("PLAIN"))
            return (await peer.token(b"\0admin\0wrong"))[0] == REFUSED

    return await each(count, attempt)


async def requests(address: str, count: int) -> int:
    """Send a Metadata request before the login."""

    async def attempt(_: int) -> bool:
        async with connected(address) as peer:
            return await peer.ask(3, 0, bytes(4)) == b""

    return await each(count, attempt)


async def junk(address: str, count: int) -> int:
    """Send what is neither TLS nor Kafka's protocol."""

    async def attempt(number: int) -> bool:
        async with connected(address) as peer:
            peer.writer.write((b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 600, os.urandom(300))[number % 3])
            peer.writer.write_eof()
            with contextlib.suppress(ConnectionError):
                # An alert at most.
                return len(await peer.reader.read()) < 20
            return True

    return await each(count, attempt)


async def held(address: str, count: int, begun: Callable[[int], bytes]) -> int:
    """Keep connections open that send the beginning of something."""
    host, _, port = address.rpartition(":")
    peers = []
    for number in range(count):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(begun(number))
        peers.append(writer)
    await asyncio.sleep(HOLD_SECONDS)
    for writer in peers:
        writer.transport.abort()
    return 0


async def half_open(address: str, count: int) -> int:
    """Keep handshakes half open: behind nothing, half of the ClientHello, or all of it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        no_trust().wrap_bio(incoming, outgoing).do_handshake()
    hello = outgoing.read()
    return await held(address, count, lambda number: hello[: (0, len(hello) // 2, len(hello))[number % 3]])


async def half_frames(address: str, count: int) -> int:
    """Keep requests half sent, each of 10 KB."""
    frame = struct.pack(">ihhih", 20_000, 17, 1, 7, -1) + bytes(10_000)
    return await held(address, count, lambda _: frame)


async def zookeeper_logins(address: str, count: int) -> int:
    """Log in by DIGEST-MD5 with a wrong password."""

    async def attempt(_: int) -> bool:
        client = await Client.dial(int(address.rpartition(":")[2]))
        try:
            exchange = DigestMd5Client("bob", "wrong", "cnonce")
            await client.open()
            challenge = await client.ask(OpCode.SASL, SaslRequest(b""))
            assert OK == challenge.error
            token = exchange.evaluate(Reader(challenge.body).buffer() or b"")
            assert token is not None
            return (await client.ask(OpCode.SASL, SaslRequest(token))).error == AUTH_FAILED
        finally:
            client.writer.transport.abort()

    return await each(count, attempt)


def _process(attack: Attack, address: str, count: int, results: Any) -> None:
    results.put(asyncio.run(attack(address, count)))


# What is measured.


class GoodClient:
    """A client that sends requests one after the other in a thread, and how long each takes."""

    def __init__(self, request: Callable[[], object]) -> None:
        self._request = request
        self._times: list[float] = []
        self._failures: list[BaseException] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            began = time.perf_counter()
            try:
                self._request()
            except Exception as error:
                self._failures.append(error)
            self._times.append(time.perf_counter() - began)
            time.sleep(0.002)

    def take(self) -> str:
        """Return the latency of the requests since the last call; raise if one failed."""
        times, self._times = self._times, []
        if self._failures:
            raise SystemExit(f"a request of a client that behaves well failed: {self._failures[0]!r}")
        points = statistics.quantiles(times, n=100)
        return f"p50 {points[49] * 1000:.1f} p99 {points[98] * 1000:.1f} ms"

    def stop(self) -> None:
        """End the thread."""
        self._is_over = True
        self._thread.join()


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def run(
    name: str,
    attack: Attack,
    address: str,
    count: int,
    pid: int,
    good: GoodClient,
    *,
    growth_mb_max: float = GROWTH_MB_MAX,
) -> None:
    """Make an attack and print a line about it.

    Raises:
        SystemExit: something was not as it must be.
    """
    good.take()
    time.sleep(2)
    before, latency = resident_mb(pid), good.take()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_process, args=(attack, address, count, results))
    began = time.monotonic()
    process.start()
    peak = before
    while process.is_alive():
        time.sleep(0.05)
        peak = max(peak, resident_mb(pid))
    seconds, meanwhile = time.monotonic() - began, good.take()
    if process.exitcode:
        raise SystemExit(f"the attack {name} ended with {process.exitcode}")
    wrong = results.get()
    time.sleep(1)
    after = resident_mb(pid)
    print(
        f"{name}: {count} in {seconds:.1f} s; memory {before:.0f}, peak {peak:.0f}, then {after:.0f} MB; "
        f"good client {latency} before, {meanwhile} meanwhile",
        flush=True,
    )
    if wrong:
        raise SystemExit(f"{wrong} of {count} attempts of {name} were not refused")
    if after - before > growth_mb_max:
        raise SystemExit(f"the memory grew by {after - before:.0f} MB during {name}")


@contextlib.contextmanager
def good_producer(bootstrap: str) -> Iterator[GoodClient]:
    """Run a client that writes one record after the other."""
    config = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="admin" password="admin-secret";',
    }
    with Admin.from_config(config) as admin:
        admin.create_topics([NewTopic("good", partitions=1)])
        kind = ScramMechanism.SCRAM_SHA_512
        admin.alter_user_scram_credentials([ScramCredentialUpsertion("admin", kind, "admin-secret")])
    with Producer.from_config(config) as producer:
        good = GoodClient(lambda: producer.send("good", value=bytes(100)).result(30))
        try:
            yield good
        finally:
            good.stop()


def attack_broker(directory: Path, logins: int, count_half_open: int) -> None:
    """Make all attacks on a broker."""
    with KaldaProcess(directory / "data", settings=settings(directory)) as broker:
        # The ready line has the first listener only.
        plaintext = broker.bootstrap
        tls = re.findall(r"SASL_SSL://(\S+:\d+)", broker.log())[-1]
        began = time.monotonic()
        with good_producer(plaintext) as good:
            time.sleep(2)
            for attack in (plain, scram, oauthbearer, requests):
                run(f"broker {attack.__name__}", attack, plaintext, logins, broker.pid, good)
            for attack in (over_tls, junk):
                run(f"broker {attack.__name__}", attack, tls, logins, broker.pid, good)
            for growth in (GROWTH_MB_MAX, AGAIN_GROWTH_MB_MAX):
                held_count, pid = count_half_open, broker.pid
                run("broker half_open", half_open, tls, held_count, pid, good, growth_mb_max=growth)
                run("broker half_frames", half_frames, plaintext, held_count, pid, good, growth_mb_max=growth)
        periods = 1 + (time.monotonic() - began) / LIMIT_SECONDS
        failures = [each for each in audit_lines(broker.log()) if each["outcome"] == "failure"]
        suppressed = sum(int(str(each.get("suppressed", 0))) for each in failures)
        print(f"broker audit: {len(failures)} lines, which count {suppressed} more failed logins")
        if len(failures) > periods * (LIMIT_BURST + 1):
            raise SystemExit(f"the audit has {len(failures)} lines in {periods:.0f} periods")


def attack_zookeeper(directory: Path, logins: int, count_half_open: int) -> None:
    """Make all attacks on a ZooKeeper server."""
    login = directory / "jaas.conf"
    module = 'org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="bob-secret";'
    login.write_text(f"Server {{ {module} }};\n")
    options = {
        "maxClientCnxns": "0",
        "client.portUnification": "true",
        "ssl.keyStore.location": str(directory / "broker.pem"),
        "ssl.trustStore.location": str(directory / "ca.pem"),
        "java.security.auth.login.config": str(login),
    }
    with ZooKeeperProcess(directory / "zookeeper", settings=options) as server:
        client = KazooClient(
            server.zookeeper,
            sasl_options={"mechanism": "DIGEST-MD5", "username": "bob", "password": "bob-secret"},
        )
        client.start(20)
        client.ensure_path("/good")
        good = GoodClient(lambda: client.set("/good", bytes(100)))
        try:
            time.sleep(2)
            address = server.zookeeper
            for growth in (GROWTH_MB_MAX, AGAIN_GROWTH_MB_MAX):
                pid = server.pid
                run("zookeeper logins", zookeeper_logins, address, logins, pid, good, growth_mb_max=growth)
                run("zookeeper junk", junk, address, logins, pid, good, growth_mb_max=growth)
                run(
                    "zookeeper half_open",
                    half_open,
                    address,
                    count_half_open,
                    pid,
                    good,
                    growth_mb_max=growth,
                )
        finally:
            good.stop()
            client.stop()
            client.close()


def main() -> None:
    """Make all attacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logins", type=int, default=10_000, help="attempts of each kind")
    parser.add_argument("--half-open", type=int, default=1_000, help="connections that are held")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with tempfile.TemporaryDirectory() as directory:
        attack_broker(Path(directory), options.logins, options.half_open)
        attack_zookeeper(Path(directory), options.logins, options.half_open)
    print("nothing was let in, and nobody was disturbed")


if __name__ == "__main__":
    main()
