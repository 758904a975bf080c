"""Clients push their metrics to Kalda's brokers, whose metrics endpoint shows them (KIP-714)."""

import re
import socket
import struct
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kalda import Admin, Producer
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.common.api_keys import ApiKey
from kalda.common.types import uuid_to_text
from kalda.protocol import codec, registry
from kalda.protocol.headers import RequestHeader, request_header
from kalda.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kalda.testing import Cluster, KaldaProcess
from kalda.testing.ports import free_ports

SENT = "kafka_client_producer_record_send_total"


class Observed:
    """A broker with its metrics endpoint."""

    def __init__(self, process: KaldaProcess, port: int) -> None:
        self.bootstrap = process.bootstrap
        self._url = f"http://127.0.0.1:{port}/metrics"

    def wait_for(self, *parts: str) -> str:
        """Return the first line of the endpoint that has all parts."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with urllib.request.urlopen(self._url, timeout=60) as response:
                text = response.read().decode()
            for line in text.splitlines():
                if all(part in line for part in parts):
                    return str(line)
            time.sleep(0.1)
        raise AssertionError(f"{parts} did not appear")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    (port,) = free_ports(1)
    settings = {"metrics.port": str(port)}
    with KaldaProcess(tmp_path_factory.mktemp("observed") / "data", settings=settings) as process:
        yield Observed(process, port)


def subscribe(bootstrap: str, name: str, **settings: str) -> None:
    """Replace a subscription; without settings, end it."""
    resource = ConfigResource.client_metrics(name)
    with Admin(bootstrap_servers=bootstrap) as admin:
        known = admin.describe_configs([resource])[resource]
        changes = [AlterConfigOp.delete(each) for each in known if each not in settings]
        changes += [AlterConfigOp.set(each, text) for each, text in settings.items()]
        admin.incremental_alter_configs({resource: changes})


def test_the_totals_of_our_producer_appear(observed: Observed, topic_name: Callable[[str], str]) -> None:
    client_id = topic_name("ours")
    subscribe(
        observed.bootstrap, "ours", metrics="*", match=f"client_id={client_id}", **{"interval.ms": "100"}
    )
    with Producer(bootstrap_servers=observed.bootstrap, client_id=client_id) as producer:
        me = uuid_to_text(producer.client_instance_id(20))
        for _ in range(50):
            producer.send(topic_name("t"), b"v").result(60)
        line = observed.wait_for(SENT + "{", client_id, " 50.0")
    assert f'client_instance_id="{me}",client_software_name="kalda"' in line
    subscribe(observed.bootstrap, "ours")


def test_librdkafka_pushes_and_its_last_push_is_taken(
    observed: Observed, topic_name: Callable[[str], str]
) -> None:
    client_id = topic_name("rd")
    subscribe(observed.bootstrap, "rd", metrics="*", match=f"client_id={client_id}", **{"interval.ms": "200"})
    producer = confluent_kafka.Producer({"bootstrap.servers": observed.bootstrap, "client.id": client_id})
    producer.produce(topic_name("t"), b"v")
    producer.flush(20)
    line = observed.wait_for("kafka_client_producer_node_request_latency_avg", client_id)
    assert re.search(r'client_software_name="[^"]*confluent', line)
    del producer
    subscribe(observed.bootstrap, "rd")


def test_subscriptions_are_listed_until_their_last_setting_is_deleted(observed: Observed) -> None:
    resource = ConfigResource.client_metrics("a/b c=d")
    subscribe(observed.bootstrap, resource.name, metrics="x.")
    with Admin(bootstrap_servers=observed.bootstrap) as admin:
        assert resource in admin.list_config_resources([resource.type])
        assert {"metrics": "x."} == {
            name: entry.value for name, entry in admin.describe_configs([resource])[resource].items()
        }
        subscribe(observed.bootstrap, resource.name)
        assert resource not in admin.list_config_resources([resource.type])


def test_all_brokers_of_a_cluster_agree_on_a_subscription(tmp_path: Path) -> None:
    """A client that asked one broker may push to another."""
    with Cluster(2, directory=tmp_path) as cluster:
        subscribe(cluster.bootstrap, "s", metrics="b.,a.")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            me = uuid.uuid4()  # one that asks again is throttled
            agreed = {subscription_at(address, me) for address in cluster.bootstrap.split(",")}
            if {("a.", "b.")} == {metrics for _, metrics in agreed}:
                break
            time.sleep(0.1)
    assert {("a.", "b.")} == {metrics for _, metrics in agreed}
    assert 1 == len(agreed)


def subscription_at(address: str, me: uuid.UUID) -> tuple[int, tuple[str, ...]]:
    """Ask one broker as a client that has an id."""
    key = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    header = RequestHeader(int(key), 0, 1, "test")
    request = GetTelemetrySubscriptionsRequest(client_instance_id=me)
    frame = request_header(header, registry.request_header_version(key, 0)) + codec.encode(request, 0)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as sock, sock.makefile("rb") as stream:
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    # The header is the correlation id and an empty tagged section.
    response = codec.decode(GetTelemetrySubscriptionsResponse, 0, answer, 5)
    return response.subscription_id, tuple(response.requested_metrics)
