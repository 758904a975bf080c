"""A listener of the control plane (KIP-291): which connections come there, and how they are secured."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import kafka
import pytest
from kafka.admin import NewTopic

from kalda.broker.process.secure import login, pem_stores
from kalda.broker.server import BrokerServer
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess
from tests.integration.cluster.peer_cluster import peer_cluster

LISTENERS = "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0"


class NotingDialer(TcpDialer):
    """Dials over TCP and notes the ports, those with TLS and a login apart."""

    def __init__(self) -> None:
        super().__init__()
        self.secured: set[int] = set()
        self.plain: set[int] = set()

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        is_secured = options.tls is not None and options.login is not None
        (self.secured if is_secured else self.plain).add(port)
        return await super().dial(host, port, options)


def ports(broker: BrokerServer, listener: str) -> set[int]:
    infos = broker.services.metadata_cache.brokers.values()
    return {endpoint.port for info in infos if (endpoint := info.endpoint(listener)) is not None}


def secured(directory: Path) -> dict[str, str]:
    """The settings of a control plane with TLS and PLAIN, whose listener has stores of its own."""
    directory.mkdir()
    now, valid = datetime.now(UTC), timedelta(days=1)
    authority = CertificateAuthority.make("tests", now, valid)
    (directory / "broker.pem").write_bytes(authority.issue("broker", now, valid, ["127.0.0.1"]).key_store)
    (directory / "ca.pem").write_bytes(authority.own.certificate)
    stores = pem_stores(directory / "broker.pem", directory / "ca.pem")
    return {
        **{f"listener.name.control.{name}": value for name, value in stores.items()},
        "listener.name.control.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.control.plain.sasl.jaas.config": login("plain.Plain", "kalda", "s", {"kalda": "s"}),
    }


@pytest.mark.parametrize("is_secured", [False, True])
async def test_the_controller_sends_its_requests_on_the_control_plane(
    tmp_path: Path, is_secured: bool
) -> None:
    """Replication stays on the inter-broker listener, without TLS where only the control plane has it."""
    dialer = NotingDialer()
    protocol = "SASL_SSL" if is_secured else "PLAINTEXT"
    own = secured(tmp_path / "stores") if is_secured else {}
    settings = {
        "listeners": LISTENERS,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROL:{protocol}",
        "control.plane.listener.name": "CONTROL",
        **own,
    }
    async with peer_cluster(tmp_path / "cluster", 3, dialer, **settings) as cluster:
        await cluster.create_topic("t", 3, 3)
        controller = cluster.controller
        others = {
            endpoint.port
            for each in cluster.others
            if (endpoint := controller.services.metadata_cache.endpoint(each.services.broker_id, "CONTROL"))
        }
        dialled = dialer.secured if is_secured else dialer.plain
        assert others == dialled & ports(controller, "CONTROL")
        assert ports(controller, "PLAINTEXT") >= dialer.plain - others
        await cluster.stop(controller.services.broker_id)
        await cluster.wait_until(
            lambda: any(each.services.controller.is_active for each in cluster.brokers.values())
        )


async def test_a_broker_without_the_listener_is_reached_while_others_have_it(tmp_path: Path) -> None:
    """As in a rolling restart that sets the control plane up."""
    dialer = NotingDialer()
    settings = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT"}
    async with peer_cluster(tmp_path, 2, dialer, **settings) as cluster:
        new = {"listeners": LISTENERS, "control.plane.listener.name": "CONTROL"}
        for broker_id in (0, 1):
            await cluster.create_topic(f"t{broker_id}", 2, 2)
            await cluster.stop(broker_id)
            await cluster.start(broker_id, **new)
        await cluster.create_topic("last", 2, 2)
        assert dialer.plain & ports(cluster.controller, "CONTROL")


def test_several_brokers_start_with_a_control_plane(tmp_path: Path) -> None:
    """The ready line and the metadata of clients name no address of the control plane."""
    settings = {
        "listeners": "CONTROL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "control",
    }
    with KaldaProcess(tmp_path / "data", settings=settings, brokers=2) as cluster:
        admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        described = {f"{each['host']}:{each['port']}" for each in admin.describe_cluster()["brokers"]}
        assert set(cluster.bootstrap.split(",")) == described
        admin.create_topics([NewTopic("t", 2, 2)])
        admin.close()
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        assert [0, 0] == [producer.send("t", b"x", partition=each).get(60).offset for each in range(2)]
        producer.close()
