from typing import TypeVar
from uuid import UUID

import pytest

from kalda.clients.errors import BrokerConnectionError, IllegalStateError, RequestTimedOutError
from kalda.clients.metadata import Metadata
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.telemetry.telemetry_reporter import TelemetryReporter
from kalda.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kalda.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from kalda.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kalda.protocol.schema import Message
from kalda.records.compression import Compression, decompress
from kalda.runtime.clock import ManualClock
from tests.unit.clients.telemetry.protobuf_reader import read_metrics

R = TypeVar("R", bound=Message)
ME = UUID(int=7)


class Cluster:
    """Subscribes to everything and keeps what is pushed; each exchange takes a second of `clock`."""

    def __init__(self, clock: ManualClock, *, bytes_max: int = 100_000, pushes_until_close: int = 2) -> None:
        self.metadata = Metadata()
        self.clock = clock
        self.bytes_max = bytes_max
        self.pushed: list[PushTelemetryRequest] = []
        self.subscribed = 0
        self.failures: list[BrokerConnectionError] = []

    async def send_to_any(self, request: Message, response_class: type[R]) -> R:
        self.clock.advance(1)
        if self.failures:
            raise self.failures.pop()
        response: Message
        if isinstance(request, GetTelemetrySubscriptionsRequest):
            self.subscribed += 1
            response = GetTelemetrySubscriptionsResponse(
                client_instance_id=ME,
                subscription_id=1,
                accepted_compression_types=[Compression.GZIP],
                push_interval_ms=1,
                telemetry_max_bytes=self.bytes_max,
                requested_metrics=["*"],
            )
        else:
            assert isinstance(request, PushTelemetryRequest)
            self.pushed.append(request)
            response = PushTelemetryResponse()
        assert isinstance(response, response_class)
        return response


def registry(clock: ManualClock) -> ClientMetrics:
    metrics = ClientMetrics({"client-id": "c"}, clock=clock)
    metrics.add("producer-metrics", "connection-count", "Connections.", lambda _: 3.0)
    metrics.add("producer-topic-metrics", "gauge", "A gauge.", lambda _: 1.0, tags={"topic": "t" * 2000})
    return metrics


def make(cluster: Cluster) -> TelemetryReporter:
    return TelemetryReporter(
        cluster, registry(cluster.clock), lambda: {"transactional_id": "t"}, lambda low, high: low
    )


def has_metadata(cluster: Cluster) -> None:
    broker = MetadataResponseBroker(node_id=0, host="a", port=1)
    cluster.metadata.received(MetadataResponse(brokers=[broker]))


async def test_metrics_are_pushed_until_the_client_closes() -> None:
    cluster = Cluster(ManualClock())
    reporter = make(cluster)
    reporter.start()
    has_metadata(cluster)

    instance_id = await reporter.client_instance_id(5.0)
    await reporter.close(5.0)

    assert ME == instance_id
    assert [True] == [push.terminating for push in cluster.pushed][-1:]
    resource, metrics = read_metrics(decompress(Compression.GZIP, cluster.pushed[-1].metrics))
    assert {"transactional_id": "t"} == resource
    assert 3.0 == metrics["org.apache.kafka.producer.connection.count"]["value"]


async def test_a_client_without_metadata_sends_nothing() -> None:
    """Telemetry must not be the reason for a connection."""
    cluster = Cluster(ManualClock())
    reporter = make(cluster)
    reporter.start()

    with pytest.raises(RequestTimedOutError, match="no client instance id within 0 s"):
        await reporter.client_instance_id(0.0)
    await reporter.close(5.0)

    assert (0, []) == (cluster.subscribed, cluster.pushed)
    with pytest.raises(IllegalStateError, match="closed"):
        await reporter.client_instance_id(1.0)


async def test_what_is_too_large_is_pushed_without_single_topics() -> None:
    cluster = Cluster(ManualClock(), bytes_max=140)
    reporter = make(cluster)
    reporter.start()
    has_metadata(cluster)
    await reporter.client_instance_id(5.0)
    await reporter.close(5.0)

    _, metrics = read_metrics(decompress(Compression.GZIP, cluster.pushed[-1].metrics))

    assert ["org.apache.kafka.producer.connection.count"] == list(metrics)


async def test_what_is_much_too_large_is_not_pushed() -> None:
    cluster = Cluster(ManualClock(), bytes_max=10)
    reporter = make(cluster)
    reporter.start()
    has_metadata(cluster)
    await reporter.client_instance_id(5.0)
    await reporter.close(5.0)

    assert [] == cluster.pushed


async def test_a_lost_connection_does_not_end_telemetry_but_the_last_push() -> None:
    cluster = Cluster(ManualClock())
    reporter = make(cluster)
    reporter.start()
    has_metadata(cluster)
    await reporter.client_instance_id(5.0)
    cluster.failures = [BrokerConnectionError("gone")]

    await reporter.close(5.0)

    assert not [push for push in cluster.pushed if push.terminating]
    await reporter.close(5.0)


async def test_a_reporter_that_never_started_closes() -> None:
    await make(Cluster(ManualClock())).close(1.0)
