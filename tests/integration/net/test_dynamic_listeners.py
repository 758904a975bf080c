"""Listeners that are added and removed while a broker runs."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kalda import Admin, Producer
from kalda.broker.process.secure import login
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigResourceType
from kalda.clients.errors import BrokerResponseError
from kalda.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports
from tests.integration.admin.test_admin_wire_versions import Wire
from tests.integration.cluster.peer_cluster import peer_cluster

BROKER = ConfigResource(ConfigResourceType.BROKER, "0")
MAP = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,SECURE:SASL_SSL"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KaldaProcess]:
    # Not port 0: tests stop the broker, and another process could get the system's port meanwhile.
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
        "password.encoder.secret": "s",
        "connections.max.idle.ms": "600000",
    }
    with KaldaProcess(tmp_path / "data", settings=settings) as process:
        yield process


def alter(broker: KaldaProcess, **settings: str | None) -> None:
    changes = [
        AlterConfigOp.delete(name) if value is None else AlterConfigOp.set(name, value)
        for name, value in ((name.replace("__", "."), value) for name, value in settings.items())
    ]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.incremental_alter_configs({BROKER: changes})


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_open(port: int) -> bool:
    with closing(socket.socket()) as peer:
        return peer.connect_ex(("127.0.0.1", port)) == 0


def advertised(port: int) -> set[int]:
    """The ports that clients of one listener get."""
    wire = Wire(f"127.0.0.1:{port}")
    with closing(wire.socket):
        response = wire.ask(MetadataRequest(topics=[]), 9)
    assert isinstance(response, MetadataResponse)
    return {each.port for each in response.brokers}


def test_a_listener_is_added_and_removed(broker: KaldaProcess) -> None:
    """Clients of each listener get its addresses; the connections of a removed one close, others go on."""
    own = f"PLAINTEXT://{broker.bootstrap}"
    (port,) = free_ports(1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("t", value=b"1").result(60)
        alter(broker, listeners=f"{own},EXTRA://127.0.0.1:{port}", listener__security__protocol__map=MAP)
        wait_until(lambda: is_open(port) and advertised(port) == {port})
        own_port = int(broker.bootstrap.rpartition(":")[2])
        assert {own_port} == advertised(own_port)
        with Producer(bootstrap_servers=f"127.0.0.1:{port}") as other:
            other.send("t", value=b"2").result(60)
        with closing(socket.create_connection(("127.0.0.1", port), 20)) as idle:
            alter(broker, listeners=None)
            assert b"" == idle.recv(1)
        assert not is_open(port)
        assert 2 == producer.send("t", value=b"3").result(60).offset
    assert "an unexpected error" not in broker.log()


def test_added_listeners_are_there_after_a_restart_under_another_advertised_address(
    broker: KaldaProcess,
) -> None:
    own = f"PLAINTEXT://{broker.bootstrap}"
    port, shown = free_ports(2)
    alter(
        broker,
        listeners=f"{own},EXTRA://127.0.0.1:{port}",
        listener__security__protocol__map=MAP,
        advertised__listeners=f"{own},EXTRA://127.0.0.1:{shown}",
    )
    wait_until(lambda: is_open(port) and advertised(port) == {shown})
    broker.stop()
    broker.start()
    assert {shown} == advertised(port)
    alter(broker, advertised__listeners=f"{own},EXTRA://127.0.0.1:{port}")
    wait_until(lambda: advertised(port) == {port})


def test_what_needs_a_restart_is_refused(broker: KaldaProcess) -> None:
    own, other = f"PLAINTEXT://{broker.bootstrap}", free_ports(1)[0]
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        for settings, part in [
            ({"listeners": f"PLAINTEXT://127.0.0.1:{other}"}, "cannot be updated for an existing listener"),
            ({"listener__security__protocol__map": "PLAINTEXT:SSL"}, "matches no advertised listener"),
            ({"listeners": f"EXTRA://127.0.0.1:{other}"}, "no security protocol for listener EXTRA"),
            (
                {"listeners": f"{own},EXTRA://127.0.0.1:{port}", "listener__security__protocol__map": MAP},
                f"EXTRA://127.0.0.1:{port} cannot be used: Address already in use",
            ),
            (
                {"listeners": f"EXTRA://127.0.0.1:{other}", "listener__security__protocol__map": MAP},
                "`inter.broker.listener.name` would be EXTRA instead of PLAINTEXT",
            ),
            (
                {"listeners": f"{own},SECURE://127.0.0.1:{other}", "listener__security__protocol__map": MAP},
                "SECURE",
            ),
            (
                {"listener__name__plaintext__connections__max__reauth__ms": "5000"},
                "cannot be updated for the existing listener PLAINTEXT",
            ),
        ]:
            with pytest.raises(BrokerResponseError, match="INVALID_REQUEST") as caught:
                alter(broker, **settings)
            assert part in str(caught.value)
    assert not is_open(other)


def test_a_listener_with_tls_and_logins_is_added(broker: KaldaProcess, tmp_path: Path) -> None:
    """Its key and its users are among the dynamic settings; its logins are audited."""
    now, valid = datetime.now(UTC), timedelta(days=1)
    authority = CertificateAuthority.make("tests", now, valid)
    issued = authority.issue("broker", now, valid, ["127.0.0.1"])
    (tmp_path / "ca.pem").write_bytes(authority.own.certificate)
    (port,) = free_ports(1)
    prefix = "listener.name.secure."
    settings = {
        "listeners": f"PLAINTEXT://{broker.bootstrap},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": MAP,
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.key": issued.private_key.decode(),
        f"{prefix}ssl.keystore.certificate.chain": issued.certificate.decode(),
        f"{prefix}sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": login("plain.Plain", "x", "y", {"alice": "secret"}),
        f"{prefix}plain.connections.max.reauth.ms": "2000",
    }
    alter(broker, **{name.replace(".", "__"): value for name, value in settings.items()})
    wait_until(lambda: is_open(port))
    client = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login("plain.Plain", "alice", "secret"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    with Producer.from_config(client) as producer:
        producer.send("t", value=b"1").result(60)
    broker.stop()
    broker.start()
    with Producer.from_config(client) as producer:
        producer.send("t", value=b"2").result(60)
    decoder = json.JSONDecoder()
    events = [
        decoder.raw_decode(line, line.index("{"))[0]
        for line in broker.log().splitlines()
        if '{"event"' in line
    ]
    assert {("login", "success", "User:alice", "SECURE")} <= {
        (each["event"], each["outcome"], each.get("principal"), each.get("listener")) for each in events
    }
    assert "secret" not in broker.log().replace("password.encoder.secret", "")


async def test_other_brokers_learn_a_new_listener(tmp_path: Path) -> None:
    """The registration keeps its epoch, and the controller sends the addresses to all brokers."""
    async with peer_cluster(tmp_path, 2) as cluster:
        follower = cluster.others[0]
        broker_id, epoch = follower.services.broker_id, follower.parts.context.registration.broker_epoch
        (port,) = free_ports(1)
        configs = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:{port}",
            "listener.security.protocol.map": MAP,
        }
        resource = AlterConfigsResource(
            resource_type=4,
            resource_name=str(broker_id),
            configs=[
                AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()
            ],
        )
        answer = await cluster.ask(
            follower, IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        assert [(0, None)] == [(each.error_code, each.error_message) for each in answer.responses]
        caches = [each.services.metadata_cache for each in cluster.brokers.values()]
        await cluster.wait_until(lambda: all(cache.endpoint(broker_id, "EXTRA") for cache in caches))
        for cache in caches:
            endpoint = cache.endpoint(broker_id, "EXTRA")
            assert endpoint is not None
            assert port == endpoint.port
        assert epoch == follower.parts.context.registration.broker_epoch
