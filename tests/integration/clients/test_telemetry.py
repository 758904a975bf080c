"""Metrics of clients that are pushed to a cluster which subscribes to them (KIP-714)."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from kalda import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Producer
from kalda.clients.errors import IllegalStateError, RequestTimedOutError
from kalda.common.api_keys import ApiKey
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest
from kalda.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kalda.protocol.schema import Message
from kalda.records.compression import Compression, decompress
from tests.integration.net_client.fake_broker import NEVER, VERSIONS, FakeBroker, Reply, cluster_of
from tests.unit.clients.telemetry.protobuf_reader import read_metrics

ME = UUID(int=99)
PREFIX = "org.apache.kafka.producer."
TELEMETRY = {**VERSIONS, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)}


class Subscriber:
    """A broker that asks for the metrics of connections every 50 ms."""

    def __init__(self, *, is_delta: bool) -> None:
        self.is_delta = is_delta
        self.broker = FakeBroker(self.answer, versions=TELEMETRY)

    @property
    def asked(self) -> list[GetTelemetrySubscriptionsRequest]:
        return [each for each in self.broker.requests if isinstance(each, GetTelemetrySubscriptionsRequest)]

    @property
    def pushed(self) -> list[PushTelemetryRequest]:
        return [each for each in self.broker.requests if isinstance(each, PushTelemetryRequest)]

    def answer(self, request: Message) -> Reply:
        match request:
            case MetadataRequest():
                return cluster_of(self.broker)
            case GetTelemetrySubscriptionsRequest():
                return GetTelemetrySubscriptionsResponse(
                    client_instance_id=ME,
                    subscription_id=3,
                    accepted_compression_types=[Compression.ZSTD],
                    push_interval_ms=50,
                    telemetry_max_bytes=1_000_000,
                    delta_temporality=self.is_delta,
                    requested_metrics=[f"{PREFIX}connection", f"{PREFIX}request"],
                )
            case PushTelemetryRequest():
                return PushTelemetryResponse()
        return NEVER


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in another object
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_delta", [False, True])
async def test_a_producer_pushes_what_the_cluster_subscribed_to(is_delta: bool) -> None:
    subscriber = Subscriber(is_delta=is_delta)
    async with (
        subscriber.broker,
        AsyncProducer(bootstrap_servers=subscriber.broker.address, transactional_id="orders") as producer,
    ):
        assert ME == await producer.client_instance_id(20)
        await wait_until(lambda: len(subscriber.pushed) >= 3)
    assert [ZERO_UUID] == [each.client_instance_id for each in subscriber.asked]
    assert [False] * (len(subscriber.pushed) - 1) + [True] == [each.terminating for each in subscriber.pushed]
    totals = []
    for push in subscriber.pushed:
        assert (ME, 3, Compression.ZSTD) == (
            push.client_instance_id,
            push.subscription_id,
            push.compression_type,
        )
        resource, metrics = read_metrics(decompress(Compression.ZSTD, push.metrics))
        assert {"transactional_id": "orders"} == resource
        assert 1.0 == metrics[f"{PREFIX}connection.count"]["value"]
        total = metrics[f"{PREFIX}request.total"]
        assert ("sum", 1 if is_delta else 2) == (total["kind"], total["temporality"])
        assert isinstance(total["value"], float)
        totals.append(total["value"])
    if is_delta:
        assert [1.0] * (len(totals) - 1) == totals[1:], "each push counts the one before it"
    else:
        assert sorted(set(totals)) == totals, "totals only grow"


async def test_a_cluster_without_telemetry_is_not_asked_again_and_again() -> None:
    """Apache Kafka's broker without a plugin announces no such request."""
    members: list[FakeBroker] = []
    broker = FakeBroker(lambda request: cluster_of(*members))
    members.append(broker)
    async with broker, AsyncProducer(bootstrap_servers=broker.address) as producer:
        with pytest.raises(RequestTimedOutError, match="may not collect metrics of clients"):
            await producer.client_instance_id(0.3)
        await producer.close()
    assert {ApiKey.API_VERSIONS, ApiKey.METADATA} >= {key for key, _ in broker.request_versions} - {
        ApiKey.INIT_PRODUCER_ID
    }


async def test_an_admin_client_pushes_too() -> None:
    subscriber = Subscriber(is_delta=False)
    async with (
        subscriber.broker,
        AsyncAdmin(bootstrap_servers=subscriber.broker.address, enable_metrics_push=True) as admin,
    ):
        assert ME == await admin.client_instance_id(20)
    assert [] == [each for each in subscriber.pushed if not each.terminating]


async def test_a_consumer_pushes_too() -> None:
    subscriber = Subscriber(is_delta=False)
    async with (
        subscriber.broker,
        AsyncConsumer(
            bootstrap_servers=subscriber.broker.address,
            group_id="g",
            group_protocol="consumer",
            client_rack="r1",
        ) as consumer,
    ):
        assert ME == await consumer.client_instance_id(20)
        await wait_until(lambda: bool(subscriber.pushed))
    resource, _ = read_metrics(decompress(Compression.ZSTD, subscriber.pushed[-1].metrics))
    assert resource.pop("group_member_id")
    assert {"group_id": "g", "client_rack": "r1"} == resource


def test_what_an_admin_client_did_is_counted(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.describe_cluster()
        values = admin.metrics()
    assert values.value("admin-client-metrics", "request-total") >= 1
    assert values.value("admin-client-metrics", "connection-count") >= 1


def test_telemetry_can_be_switched_off(bootstrap: str) -> None:
    with (
        Producer(bootstrap_servers=bootstrap, enable_metrics_push=False) as producer,
        pytest.raises(IllegalStateError, match=r"enable\.metrics\.push"),
    ):
        producer.client_instance_id(1)
