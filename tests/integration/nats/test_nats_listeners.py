"""NATS's own client for Python on the listeners of a broker: messages, logins, TLS, ACLs, limits."""

import asyncio
import json
import random
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.errors import ServiceUnavailableError

from kalda import Admin, NewTopic
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigResourceType
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.clients.errors import BrokerResponseError
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess
from tests.integration.nats.raw_nats import RawClient, nats_port

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
LISTENERS = ("PLAINTEXT", "NATS", "NATS_SSL", "MTLS", "SASL_NATS", "SASL_NATS_SSL")


class Broker:
    """A broker with a listener of each kind, a user `ann`, and ACLs for the subjects `secret.>`."""

    def __init__(self, process: KaldaProcess, authority: Path) -> None:
        self.process = process
        self.trusting = ssl.create_default_context(cafile=str(authority))
        self.ann = ssl.create_default_context(cafile=str(authority))
        self.ann.load_cert_chain(authority.with_name("ann.pem"))

    def port(self, name: str) -> int:
        return nats_port(self.process, name)

    async def connect(self, name: str = "NATS", password: str | None = None) -> Client:
        login = {} if password is None else {"user": "ann", "password": password}
        tls = {"tls": self.trusting} if name.endswith("SSL") else {}
        url = f"nats://localhost:{self.port(name)}"
        return await nats.connect(url, allow_reconnect=False, connect_timeout=20, **login, **tls)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("nats")
    now = datetime.now(UTC)
    authority = CertificateAuthority.make("tests", now, timedelta(days=1))
    (directory / "ca.pem").write_bytes(authority.own.certificate)
    own = authority.issue("broker", now, timedelta(days=1), ["localhost", "127.0.0.1"])
    (directory / "broker.pem").write_bytes(own.key_store)
    own = authority.issue("ann", now, timedelta(days=1), [])
    (directory / "ann.pem").write_bytes(own.key_store)
    settings = {
        "listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MTLS:NATS_SSL",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "kalda.nats.max.pending": "3000000",
    }
    with KaldaProcess(directory / "data", settings=settings) as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.alter_user_scram_credentials(
                [ScramCredentialUpsertion("ann", ScramMechanism.SCRAM_SHA_256, "secret")]
            )
            admin.create_acls(
                [
                    AclBinding(
                        ResourcePattern(ResourceType.TOPIC, "secret.", PatternType.PREFIXED),
                        AccessControlEntry("User:ann", "*", AclOperation.ALL, PermissionType.ALLOW),
                    )
                ]
            )
        yield Broker(process, directory / "ca.pem")


async def received(messages: "asyncio.Queue[Msg]", count: int) -> list[bytes]:
    async with asyncio.timeout(30):
        return [(await messages.get()).data for _ in range(count)]


async def test_publish_and_subscribe(broker: Broker) -> None:
    one, two = await broker.connect(), await broker.connect()
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await two.subscribe("orders.*.new", cb=messages.put)
    await two.flush()
    await one.publish("orders.eu.old", b"no")
    await one.publish("orders.eu.new", b"yes", headers={"Trace": "7"})
    message = await asyncio.wait_for(messages.get(), 30)
    assert ("orders.eu.new", b"yes", {"Trace": "7"}) == (message.subject, message.data, message.headers)
    await one.close()
    await two.close()


async def test_request_and_reply(broker: Broker) -> None:
    one, two = await broker.connect(), await broker.connect()

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await two.subscribe("service", cb=answer)
    await two.flush()
    assert b"HELLO" == (await one.request("service", b"hello", timeout=30)).data
    with pytest.raises(NoRespondersError):
        await one.request("nobody", b"hello", timeout=30)
    # JetStream is not served; its clients say so.
    with pytest.raises(ServiceUnavailableError):
        await one.jetstream().account_info()
    await one.close()
    await two.close()


async def test_queue_group_shares_messages(broker: Broker) -> None:
    clients = [await broker.connect() for _ in range(3)]
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    counts = [0, 0, 0]

    for number, client in enumerate(clients):

        async def count(message: Msg, number: int = number) -> None:
            counts[number] += 1
            await messages.put(message)

        await client.subscribe("jobs", "workers", cb=count)
        await client.flush()
    for number in range(300):
        await clients[0].publish("jobs", b"%d" % number)
    assert set(range(300)) == {int(each) for each in await received(messages, 300)}
    # The probability that one of them gets none is below 1e-50.
    assert all(counts)
    for client in clients:
        await client.close()


async def test_large_message(broker: Broker) -> None:
    client = await broker.connect()
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("large", cb=messages.put)
    payload = random.Random(1).randbytes(1_048_576)
    await client.publish("large", payload)
    assert [payload] == await received(messages, 1)
    await client.close()


@pytest.mark.parametrize("name", ["NATS", "NATS_SSL"])
async def test_messages_pass_between_listeners(broker: Broker, name: str) -> None:
    one, two = await broker.connect(name), await broker.connect("SASL_NATS_SSL", "secret")
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await two.subscribe("between", cb=messages.put)
    await two.flush()
    for number in range(1000):
        await one.publish("between", b"%d" % number)
    await one.flush()
    assert [b"%d" % number for number in range(1000)] == await received(messages, 1000)
    await one.close()
    await two.close()


@pytest.mark.parametrize("name", ["SASL_NATS", "SASL_NATS_SSL"])
async def test_login(broker: Broker, name: str) -> None:
    client = await broker.connect(name, "secret")
    await client.flush()
    await client.close()


@pytest.mark.parametrize("name", ["SASL_NATS", "SASL_NATS_SSL"])
@pytest.mark.parametrize(
    "script",
    [
        b'CONNECT {"user":"ann","pass":"wrong"}\r\n',
        b'CONNECT {"user":"ann"}\r\n',
        b'CONNECT {"user":"nobody","pass":"secret"}\r\n',
        b"CONNECT {}\r\n",
        b"SUB a 1\r\n",
    ],
)
def test_wrong_logins_are_refused(broker: Broker, name: str, script: bytes) -> None:
    trusting = broker.trusting if name.endswith("SSL") else None
    with RawClient(broker.port(name), trusting) as client:
        assert json.loads(client.info.removeprefix(b"INFO "))["auth_required"]
        assert client.ask(script).startswith(b"-ERR 'Authorization Violation'\r\n")


def test_plaintext_on_a_tls_listener_is_refused(broker: Broker) -> None:
    with RawClient(broker.port("NATS_SSL")) as client:
        assert json.loads(client.info.removeprefix(b"INFO "))["tls_required"]
        client.socket.sendall(QUIET)
        assert b"" == client.read_to_end()


async def test_acls_of_topics_hold_for_subjects(broker: Broker) -> None:
    ann, anybody = await broker.connect("SASL_NATS", "secret"), await broker.connect()
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    others: asyncio.Queue[Msg] = asyncio.Queue()
    await ann.subscribe("secret.*", cb=messages.put)
    await anybody.subscribe("*.plan", cb=others.put)
    await asyncio.gather(ann.flush(), anybody.flush())
    await ann.publish("secret.plan", b"x")
    await ann.publish("open.plan", b"y")
    assert [b"x"] == await received(messages, 1)
    assert [b"y"] == await received(others, 1)
    await ann.close()
    await anybody.close()
    with RawClient(broker.port("NATS")) as client:
        violation = b"-ERR 'Permissions Violation for "
        assert violation + b'Publish to "secret.x"\'\r\n' == client.ask(QUIET, b"PUB secret.x 1\r\nx\r\n")
        assert violation + b'Subscription to "secret.x"\'\r\n' == client.ask(b"SUB secret.x 1\r\n")


async def test_certificate_is_the_login(broker: Broker) -> None:
    url = f"nats://localhost:{broker.port('MTLS')}"
    client = await nats.connect(url, allow_reconnect=False, connect_timeout=20, tls=broker.ann)
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("secret.certificate", cb=messages.put)
    await client.publish("secret.certificate", b"x")
    assert [b"x"] == await received(messages, 1)
    await client.close()


def test_kafka_clients_do_not_see_the_listeners(broker: Broker) -> None:
    """Brokers and clients of Kafka 3.9 do not know such a security protocol."""
    with Admin(bootstrap_servers=broker.process.bootstrap) as admin:
        ports = {node.port for node in admin.describe_cluster().nodes}
        assert {int(broker.process.bootstrap.rpartition(":")[2])} == ports
        changed = "PLAINTEXT://localhost:0,NATS://localhost:4222"
        change = {ConfigResource(ConfigResourceType.BROKER, "0"): [AlterConfigOp.set("listeners", changed)]}
        with pytest.raises(BrokerResponseError, match="only change at a start"):
            admin.incremental_alter_configs(change)


def test_junk_ends_its_connection_only(broker: Broker) -> None:
    source = random.Random(7)
    with RawClient(broker.port("NATS")) as honest:
        honest.ask(QUIET, b"SUB a 1\r\n")
        for name in ("NATS", "NATS_SSL", "SASL_NATS"):
            for _ in range(20):
                with RawClient(broker.port(name)) as client:
                    client.socket.sendall(source.randbytes(200) + b"\r\n")
                    client.socket.shutdown(1)
                    client.read_to_end()
        with RawClient(broker.port("NATS")) as client:
            # In the middle of a message.
            client.socket.sendall(b"PUB a 100000\r\n" + bytes(50_000))
        assert b"MSG a 1 2\r\nhi\r\n" == honest.ask(b"PUB a 2\r\nhi\r\n")
    assert "Traceback" not in broker.process.log()


def test_slow_consumer_is_cut_off(broker: Broker) -> None:
    """It reads nothing; its messages must not take the broker's memory, nor hold up who publishes."""
    with RawClient(broker.port("NATS")) as slow, RawClient(broker.port("NATS")) as fast:
        slow.ask(QUIET, b"SUB much 1\r\n")
        fast.ask(QUIET, b"SUB _R 1\r\n")
        deadline = time.monotonic() + 60
        publish = b"PUB much _R 1000000\r\n" + bytes(1_000_000) + b"\r\n"
        while fast.ask(publish) != b"HMSG _R 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n":
            assert time.monotonic() < deadline
    assert "slow consumer" in broker.process.log()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0",
        "kalda.nats.max.connections": "3",
        "kalda.nats.max.payload": "100000",
        "kalda.nats.max.subscriptions": "2",
        "kalda.nats.ping.interval.ms": "200",
    }
    with KaldaProcess(tmp_path_factory.mktemp("limited") / "data", settings=settings) as process:
        yield process


def test_connections_are_limited(limited: KaldaProcess) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(nats_port(limited))) for _ in range(3)]
        assert [b""] * 3 == [client.ask(QUIET) for client in clients]
        with RawClient(nats_port(limited)) as further:
            assert b"-ERR 'maximum connections exceeded'\r\n" == further.read_to_end()


def test_subscriptions_and_payloads_are_limited(limited: KaldaProcess) -> None:
    with connected(limited) as client:
        assert b"-ERR 'maximum subscriptions exceeded'\r\n" == client.ask(
            QUIET, b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n"
        )
        assert client.ask(b"PUB x 100001\r\n").startswith(b"-ERR 'Maximum Payload Violation'\r\n")


def test_client_that_does_not_answer_pings_is_closed(limited: KaldaProcess) -> None:
    with connected(limited) as client:
        client.socket.sendall(QUIET)
        assert b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n" == client.read_to_end()


def connected(limited: KaldaProcess) -> RawClient:
    """Connect; a connection of an earlier test may not have ended yet."""
    deadline = time.monotonic() + 30
    while True:
        client = RawClient(nats_port(limited))
        if client.ask() == b"":
            return client
        client.__exit__()
        assert time.monotonic() < deadline


def test_connections_leave_open_files_to_others(tmp_path: Path) -> None:
    """The default of `kalda.nats.max.connections` is more than most processes may open."""
    command = ["prlimit", "--nofile=400:400", sys.executable, "-m", "kalda"]
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0"}
    with KaldaProcess(tmp_path / "data", settings=settings, command=command) as process, ExitStack() as stack:
        for _ in range(400 // 3):
            stack.enter_context(RawClient(nats_port(process)))
        with RawClient(nats_port(process)) as further:
            assert b"-ERR 'maximum connections exceeded'\r\n" == further.read_to_end()
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.create_topics([NewTopic("a", 1)])
