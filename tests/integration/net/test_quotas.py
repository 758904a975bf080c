"""Client quotas on brokers: what throttled clients of several libraries see, and what all brokers keep.

The quotas are far below or far above what the clients use, so that no assertion depends on the machine.
"""

import asyncio
import json
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, cast

import confluent_kafka
import kafka
import pytest

from kalda import Admin, NewTopic, Producer
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigResourceType
from kalda.clients.admin.quotas import QuotaAlteration, QuotaFilter, quota_entity
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kalda.protocol.messages.metadata import MetadataRequest
from kalda.protocol.schema import Message
from kalda.testing import Cluster, KaldaProcess
from kalda.testing.ports import free_ports
from tests import forked_commands

WINDOW = {"quota.window.num": "2", "controller.quota.window.num": "2"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    settings = {**WINDOW, "metrics.port": str(free_ports(1)[0])}
    with KaldaProcess(tmp_path_factory.mktemp("quotas") / "data", settings=settings) as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
        with Producer(bootstrap_servers=process.bootstrap) as producer:
            for _ in range(20):
                producer.send("t", value=b"x" * 10_000).result(60)
        yield process


@pytest.fixture
def admin(broker: KaldaProcess) -> Iterator[Admin]:
    """An administrator, behind whose test no quota is left."""
    with Admin(bootstrap_servers=broker.bootstrap) as client:
        yield client
        for entity, quotas in client.describe_client_quotas().items():
            change = QuotaAlteration(entity, dict.fromkeys(quotas))
            client.alter_client_quotas([change])


def set_quota(admin: Admin, names: dict[str, str | None], **quotas: float | None) -> None:
    admin.alter_client_quotas([QuotaAlteration(quota_entity(names), quotas)])


def ask(
    broker: KaldaProcess,
    client_id: str,
    *requests: Message,
    version: int | None = None,
    note: Callable[[Any], None] = lambda _: None,
) -> list[Any]:
    """Send requests one after the other on one connection; return the responses.

    `note` sees each response while its records are valid.
    """

    async def run() -> list[Any]:
        host, port = broker.bootstrap.split(":")
        connection = await TcpDialer().dial(
            host, int(port), DialOptions(client_id=client_id, timeout_seconds=10)
        )
        try:
            found: list[Any] = []
            for each in requests:
                found.append(await connection.request(each, timeout_seconds=30, version=version))
                note(found[-1])
            return found
        finally:
            connection.close()

    return asyncio.run(run())


def fetch(topic: str, offset: int = 0) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )


class TestBytes:
    def test_librdkafka_hears_of_its_throttle_and_loses_nothing(
        self, broker: KaldaProcess, admin: Admin
    ) -> None:
        set_quota(admin, {"client-id": "slow"}, producer_byte_rate=50_000)
        waits: list[float] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": "slow",
                "linger.ms": 0,
                "throttle_cb": lambda event: waits.append(event.throttle_time),
            }
        )
        delivered: list[object] = []
        for _ in range(20):
            producer.produce("t", b"x" * 10_000, on_delivery=lambda error, _: delivered.append(error))
            producer.poll(0)
        assert 0 == producer.flush(60)
        assert [None] * 20 == delivered
        assert any(wait > 0 for wait in waits)

    def test_kafka_python_measures_its_throttle(self, broker: KaldaProcess, admin: Admin) -> None:
        # A record takes the bucket's two seconds, however late the next one comes.
        set_quota(admin, {"client-id": None}, producer_byte_rate=5_000)
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="any")
        for _ in range(2):
            producer.send("t", b"x" * 10_000).get(60)
        found = producer.metrics()["producer-metrics"]
        producer.close()
        assert 0 < found["throttle-time-max"]

    def test_fetches_above_the_quota_have_a_sample_of_bytes_and_the_time_to_wait(
        self, broker: KaldaProcess, admin: Admin
    ) -> None:
        set_quota(admin, {"client-id": "reader"}, consumer_byte_rate=20_500)
        sizes, waits = [], []

        def note(response: Any) -> None:
            partitions = [part for topic in response.responses for part in topic.partitions]
            sizes.append(sum(len(part.records or b"") for part in partitions))
            waits.append(response.throttle_time_ms)

        ask(broker, "reader", *[fetch("t")] * 4, version=12, note=note)
        # The bucket holds two samples; each response has the two batches that fit into one.
        assert all(20_000 < size <= 20_500 for size in sizes)
        assert 0 == waits[0]
        assert any(waits[1:])
        assert max(waits) <= 1100

    def test_batch_larger_than_the_quota_is_read_and_paid_for(
        self, broker: KaldaProcess, admin: Admin
    ) -> None:
        set_quota(admin, {"client-id": "tiny"}, consumer_byte_rate=4_000)
        sizes: list[int] = []

        def note(response: Any) -> None:
            sizes.extend(len(part.records) for topic in response.responses for part in topic.partitions)

        responses = ask(broker, "tiny", fetch("t"), fetch("t"), version=12, note=note)
        assert all(size > 10_000 for size in sizes)
        assert 2 == len(sizes)
        assert responses[-1].throttle_time_ms > 1000

    def test_produce_without_acks_is_slowed_by_the_muted_connection(
        self, broker: KaldaProcess, admin: Admin
    ) -> None:
        set_quota(admin, {"client-id": "mute"}, producer_byte_rate=50_000)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "client.id": "mute", "acks": 0, "linger.ms": 0}
        )
        deadline = time.monotonic() + 60
        while not is_throttled(broker, "kafka_server_produce_throttle_time", client_id="mute"):
            assert time.monotonic() < deadline, "the producer was never throttled"
            for _ in range(15):
                producer.produce("t", b"x" * 10_000)
                producer.poll(0)
            assert 0 == producer.flush(30)


def is_throttled(broker: KaldaProcess, metric: str, **labels: str) -> bool:
    """Whether a metric with these labels is above 0."""
    url = f"http://127.0.0.1:{broker.settings['metrics.port']}/metrics"
    with urllib.request.urlopen(url, timeout=60) as response:
        text = response.read().decode()
    for line in text.splitlines():
        if line.startswith((metric + "{", metric + " ")) and all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            return float(line.rpartition(" ")[2]) > 0
    return False


class TestRequests:
    def test_time_of_requests_is_bounded(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"client-id": "chatty"}, request_percentage=0.001)
        responses = ask(broker, "chatty", *[MetadataRequest(topics=[]) for _ in range(3)])
        waits = [each.throttle_time_ms for each in responses]
        assert any(waits)
        # One sample at most, as in Kafka.
        assert max(waits) <= 1000

    def test_other_clients_are_not_throttled(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"client-id": "chatty"}, request_percentage=0.001)
        responses = ask(broker, "modest", *[MetadataRequest(topics=[]) for _ in range(20)])
        assert not any(each.throttle_time_ms for each in responses)


class TestMutations:
    def create(self, *names: str) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in names],
            timeout_ms=10_000,
        )

    def test_new_clients_are_refused_and_old_ones_wait(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"client-id": "maker"}, controller_mutation_rate=0.5)
        (first,) = ask(broker, "maker", self.create("a1", "a2"))
        # The first connection is muted; another one of the same client is not.
        (refused,) = ask(broker, "maker", self.create("a3"))
        exceeded = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        # The budget is one partition: the first topic overdraws it, the others are refused.
        assert [0, exceeded] == [each.error_code for each in first.topics]
        assert [exceeded] == [each.error_code for each in refused.topics]
        assert "0.5 changed partitions a second" in refused.topics[0].error_message
        assert first.throttle_time_ms > 0
        assert refused.throttle_time_ms > 0

    def test_clients_of_old_versions_overdraw_and_wait(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"client-id": "old"}, controller_mutation_rate=2)
        (first,) = ask(broker, "old", self.create("b1", "b2"), version=5)
        assert [0, 0] == [each.error_code for each in first.topics]
        assert first.throttle_time_ms > 0

    def test_own_admin_retries_until_the_budget_is_there(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"client-id": "patient"}, controller_mutation_rate=2)
        settings = {"bootstrap.servers": broker.bootstrap, "client.id": "patient"}
        with Admin.from_config(settings) as patient:
            for name in ("c1", "c2", "c3"):
                patient.create_topics([NewTopic(name, 4, 1)])

    def test_validation_costs_nothing(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"client-id": "careful"}, controller_mutation_rate=0.5)
        for _ in range(5):
            request = self.create("d")
            request.validate_only = True
            (response,) = ask(broker, "careful", request)
            assert 0 == response.topics[0].error_code


class TestDescriptions:
    def test_quotas_of_all_kinds_of_entities(self, broker: KaldaProcess, admin: Admin) -> None:
        set_quota(admin, {"user": "CN=alice, OU=a/b"}, producer_byte_rate=1024)
        set_quota(admin, {"user": "CN=alice, OU=a/b", "client-id": "app"}, consumer_byte_rate=2048)
        set_quota(admin, {"user": None, "client-id": None}, request_percentage=12.5)
        alice = ("user", "CN=alice, OU=a/b")
        set_quota(admin, {"ip": "::ffff:192.0.2.7"}, connection_creation_rate=7)
        assert {
            (("ip", "::ffff:192.0.2.7"),): {"connection_creation_rate": 7.0},
            (alice,): {"producer_byte_rate": 1024.0},
            (("client-id", "app"), alice): {"consumer_byte_rate": 2048.0},
            (("client-id", None), ("user", None)): {"request_percentage": 12.5},
        } == admin.describe_client_quotas()
        assert [(alice,)] == list(
            admin.describe_client_quotas([QuotaFilter("user", "CN=alice, OU=a/b")], strict=True)
        )
        set_quota(admin, {"user": "CN=alice, OU=a/b"}, producer_byte_rate=None)
        assert {} == admin.describe_client_quotas([QuotaFilter("user", "CN=alice, OU=a/b")], strict=True)

    def test_credentials_of_a_user_stay(self, broker: KaldaProcess, admin: Admin) -> None:
        upsertion = ScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_256, "secret")
        admin.alter_user_scram_credentials([upsertion])
        set_quota(admin, {"user": "carol"}, producer_byte_rate=5)
        assert ["carol"] == list(admin.describe_user_scram_credentials())
        admin.alter_user_scram_credentials(
            [ScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_512, "secret")]
        )
        assert {(("user", "carol"),): {"producer_byte_rate": 5.0}} == admin.describe_client_quotas()

    @pytest.mark.parametrize(
        ("names", "quotas", "reason"),
        [
            (
                {"user": "a"},
                {"speed": 1.0},
                "key speed; allowed are producer_byte_rate",
            ),
            (
                {"user": "a"},
                {"producer_byte_rate": 1.5},
                "must be a whole number, found 1.5",
            ),
            (
                {"ip": "no.such.host.invalid"},
                {"connection_creation_rate": 1.0},
                "not a valid IP or resolvable host",
            ),
            ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ],
    )
    def test_impossible_quotas_are_refused_with_the_reason(
        self, admin: Admin, names: dict[str, str | None], quotas: dict[str, float | None], reason: str
    ) -> None:
        outcome = admin.alter_client_quotas([QuotaAlteration(quota_entity(names), quotas)], outcomes=True)
        (error,) = outcome.errors.values()
        assert isinstance(error, BrokerResponseError)
        assert reason in str(error)

    def test_kalda_quotas(self, broker: KaldaProcess, admin: Admin) -> None:
        def run(*arguments: str) -> dict[str, Any]:
            command = [sys.executable, "-m", "kalda", "quotas", *arguments]
            options = ["--bootstrap-server", broker.bootstrap, "--json"]
            done = forked_commands.run([*command, *options], capture_output=True, timeout=60, check=True)
            return cast("dict[str, Any]", json.loads(done.stdout))

        run("set", "--user", "dora", "--producer-byte-rate", "1e6", "--request-percentage", "20")
        run("remove", "--user", "dora", "request_percentage")
        run("set", "--default-client-id", "--consumer-byte-rate", "5")
        assert [
            {"entity": {"client-id": None}, "quotas": {"consumer_byte_rate": 5.0}},
            {"entity": {"user": "dora"}, "quotas": {"producer_byte_rate": 1e6}},
        ] == run("list")["quotas"]
        run("remove", "--default-client-id")
        assert 1 == len(run("list")["quotas"])


class TestConnections:
    def test_address_above_its_rate_is_refused_and_served_again_later(
        self, broker: KaldaProcess, admin: Admin
    ) -> None:
        set_quota(admin, {"ip": "localhost"}, connection_creation_rate=1)
        host, port = broker.bootstrap.split(":")
        refused = 0
        deadline = time.monotonic() + 60
        while not refused:
            assert time.monotonic() < deadline, "no connection was refused"
            with socket.create_connection((host, int(port)), timeout=30) as peer:
                # ApiVersions v0 with the client id "x".
                peer.sendall(struct.pack(">ihhih1s", 11, 18, 0, 1, 1, b"x"))
                try:
                    refused += not peer.recv(4)
                except ConnectionResetError:
                    refused += 1
        # As in Kafka: the quota keeps the name, and each broker bounds the address that it has.
        assert {(("ip", "localhost"),): {"connection_creation_rate": 1.0}} == admin.describe_client_quotas(
            [QuotaFilter("ip", "localhost")]
        )
        set_quota(admin, {"ip": "localhost"}, connection_creation_rate=None)
        assert ask(broker, "again", MetadataRequest(topics=[]))

    def test_rate_of_the_broker_makes_connections_wait(self, broker: KaldaProcess, admin: Admin) -> None:
        everyone = ConfigResource(ConfigResourceType.BROKER, "")
        limit = AlterConfigOp.set("max.connection.creation.rate", 2)
        admin.incremental_alter_configs({everyone: [limit]})
        try:
            deadline = time.monotonic() + 60
            while not is_throttled(
                broker, "kafka_server_socket_server_metrics_connection_accept_throttle_time"
            ):
                assert time.monotonic() < deadline, "no connection waited"
                for _ in range(6):
                    assert ask(broker, "patient", MetadataRequest(topics=[]))
        finally:
            unlimited = AlterConfigOp.delete("max.connection.creation.rate")
            admin.incremental_alter_configs({everyone: [unlimited]})


def test_quotas_hold_on_every_broker_and_after_a_restart() -> None:
    with Cluster(brokers=3, settings=WINDOW) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            set_quota(admin, {"client-id": "chatty"}, request_percentage=0.001)

        def waits_of(broker_id: int) -> list[int]:
            async def run() -> list[int]:
                port = int(cluster.bootstrap.split(",")[broker_id].split(":")[1])
                connection = await TcpDialer().dial(
                    "127.0.0.1", port, DialOptions(client_id="chatty", timeout_seconds=10)
                )
                try:
                    found: list[int] = []
                    for _ in range(2):
                        request = MetadataRequest(topics=[])
                        response: Any = await connection.request(request, timeout_seconds=30)
                        found.append(response.throttle_time_ms)
                    return found
                finally:
                    connection.close()

            return asyncio.run(run())

        for broker_id in range(3):
            deadline = time.monotonic() + 30
            while not any(waits_of(broker_id)):
                assert time.monotonic() < deadline, f"broker {broker_id} does not know the quota"
        cluster.restart(1)
        assert any(waits_of(1))
