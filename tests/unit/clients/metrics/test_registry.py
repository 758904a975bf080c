import threading
import time

import pytest

from kalda import __version__
from kalda.clients.metrics.client_info import add_client_info
from kalda.clients.metrics.consumer_metrics import CoordinatorMetrics, FetchMetrics, PollMetrics
from kalda.clients.metrics.network_metrics import NetworkMetrics, add_loop_thread
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.metrics.registry import ClientMetrics, MetricKind
from kalda.common.types import TopicPartition
from kalda.records.batch import HEADER_SIZE
from kalda.runtime.clock import ManualClock

ME = (("client-id", "c1"),)


def registry() -> tuple[ClientMetrics, ManualClock]:
    clock = ManualClock()
    return ClientMetrics({"client-id": "c1"}, clock=clock), clock


def of_topic(topic: str) -> tuple[tuple[str, str], ...]:
    return (*ME, ("topic", topic))


def test_values_are_found_by_group_name_and_tags() -> None:
    """A plain tuple is enough; nobody has to import a class to read a figure."""
    metrics, _ = registry()
    metrics.add("g", "n", "A number.", lambda _: 7.0, tags={"topic": "t"})

    assert {("g", "n", of_topic("t")): 7.0} == metrics.values()


def test_totals_differ_from_gauges() -> None:
    """Telemetry sends totals as sums, possibly as differences (KIP-714)."""
    metrics, _ = registry()
    metrics.add_meter("g", "x", "things", metrics.sensor())

    kinds = {metric.name.name: metric.kind for metric in metrics.all()}

    assert {"x-rate": MetricKind.GAUGE, "x-total": MetricKind.SUM} == kinds


def test_the_size_of_a_record_does_not_include_its_batch_s_header() -> None:
    metrics, _ = registry()
    producer = ProducerMetrics(metrics)
    for record_count in (1, 20):
        size = HEADER_SIZE + 1007 * record_count
        producer.batch_sent(
            "t", record_count=record_count, batch_bytes=size, uncompressed_bytes=size, queue_time_s=0.01
        )

    values = metrics.values()

    assert 1007 == values.value("producer-metrics", "record-size-avg")
    assert 1007 == values.value("producer-metrics", "record-size-max")


def test_what_a_producer_did() -> None:
    metrics, clock = registry()
    producer = ProducerMetrics(metrics)
    producer.watch_buffer(1000, lambda: 400, lambda: 2)
    producer.watch_sender(lambda: 3, lambda: 1.5)
    producer.batch_sent("t", record_count=10, batch_bytes=600, uncompressed_bytes=1200, queue_time_s=0.01)
    producer.request_sent(10)
    producer.response_received(0.02, 5)
    producer.batch_retried("t", 10)
    producer.batch_failed("t", 4)
    producer.batch_split()
    producer.buffer_exhausted()
    with producer.waiting_for_buffer():
        clock.advance(3.0)
    with producer.timing("flush"):
        clock.advance(0.001)
    clock.advance(6.999)

    values = metrics.values()

    expected = {
        "record-send-total": 10.0,
        "record-send-rate": 10 / 40,
        "records-per-request-avg": 10.0,
        "batch-size-avg": 600.0,
        "batch-size-max": 600.0,
        "record-size-max": (1200 - HEADER_SIZE) / 10,
        "compression-rate-avg": 0.5,
        "record-queue-time-avg": 10.0,
        "request-latency-avg": 20.0,
        "produce-throttle-time-max": 5.0,
        "record-retry-total": 10.0,
        "record-error-total": 4.0,
        "batch-split-total": 1.0,
        "buffer-exhausted-total": 1.0,
        "bufferpool-wait-time-ns-total": 3e9,
        "buffer-total-bytes": 1000,
        "buffer-available-bytes": 400,
        "waiting-threads": 2,
        "requests-in-flight": 3,
        "metadata-age": 1.5,
        "flush-time-ns-total": 1_000_000,
        "txn-commit-time-ns-total": 0,
    }
    assert expected == {name: values.value("producer-metrics", name) for name in expected}
    of_t = {
        "record-send-total": 10.0,
        "byte-total": 600.0,
        "compression-rate": 0.5,
        "record-error-total": 4.0,
    }
    assert of_t == {name: values.value("producer-topic-metrics", name, topic="t") for name in of_t}


def test_what_connections_did() -> None:
    metrics, clock = registry()
    network = NetworkMetrics(metrics, "consumer")
    node = network.node(3)
    node.connection_created()
    node.connection_created()
    node.connection_closed()
    sent_at = node.request_sent(100)
    network.node(4).request_sent(300)
    clock.advance(0.004)
    node.response_received(50, sent_at)

    values = metrics.values()

    expected = {
        "connection-count": 1.0,
        "connection-creation-total": 2.0,
        "connection-close-total": 1.0,
        "request-total": 2.0,
        "request-size-avg": 200.0,
        "outgoing-byte-total": 400.0,
        "incoming-byte-total": 50.0,
        "network-io-total": 3,
    }
    assert expected == {name: values.value("consumer-metrics", name) for name in expected}
    assert 4.0 == values.value("consumer-node-metrics", "request-latency-max", node_id="node-3")
    assert 1.0 == values.value("consumer-node-metrics", "request-total", node_id="node-3")
    assert network.node(3) is node


def test_the_loop_thread_is_busy_or_waits() -> None:
    metrics, clock = registry()
    add_loop_thread(metrics, "producer-metrics", threading.get_ident())
    clock.advance(3600)

    values = metrics.values()

    ratios = [values.value("producer-metrics", name) for name in ("io-ratio", "io-wait-ratio")]
    assert 1.0 == round(sum(ratios), 6)
    assert values.value("producer-metrics", "io-time-ns-total") >= 0
    clock.advance(3600)
    assert 1.0 == round(metrics.values().value("producer-metrics", "io-wait-ratio"), 3)


def test_how_often_an_application_polls() -> None:
    metrics, clock = registry()
    polls = PollMetrics(metrics)
    before = metrics.values().value("consumer-metrics", "last-poll-seconds-ago")
    with polls:
        clock.advance(1)
    clock.advance(3)
    with polls:
        clock.advance(1.5)
    with polls.timing("commit-sync"):
        clock.advance(0.5)

    values = metrics.values()

    expected = {
        "time-between-poll-avg": 4000.0,
        "poll-idle-ratio-avg": 0.25,
        "last-poll-seconds-ago": 2.0,
        "commit-sync-time-ns-total": 500_000_000,
    }
    assert -1.0 == before
    assert expected == {name: values.value("consumer-metrics", name) for name in expected}


def test_what_a_fetcher_did() -> None:
    metrics, _ = registry()
    fetches = FetchMetrics(metrics)
    partition = TopicPartition("t", 1)
    fetches.response_received(0.5, 7)
    fetches.fetched(900, 30)
    fetches.topic_fetched("t", 900, 30)
    fetches.position_moved(partition, lag=12, lead=100)
    fetches.position_moved(partition, lag=4, lead=None)
    fetches.read_replica(partition, 2)

    values = metrics.values()

    group = "consumer-fetch-manager-metrics"
    expected = {
        "fetch-total": 1.0,
        "fetch-latency-avg": 500.0,
        "fetch-throttle-time-max": 7.0,
        "fetch-size-avg": 900.0,
        "bytes-consumed-total": 900.0,
        "records-consumed-total": 30.0,
        "records-per-request-avg": 30.0,
        "records-lag-max": 12.0,
        "records-lead-min": 100.0,
    }
    assert expected == {name: values.value(group, name) for name in expected}
    assert 30.0 == values.value(group, "records-consumed-total", topic="t")
    expected = {
        "records-lag": 4.0,
        "records-lag-avg": 8.0,
        "records-lead": 100.0,
        "preferred-read-replica": 2,
    }
    assert expected == {name: values.value(group, name, topic="t", partition="1") for name in expected}


def test_partitions_that_were_revoked_have_no_metrics() -> None:
    """A consumer of many partitions over months would otherwise keep them all."""
    metrics, _ = registry()
    fetches = FetchMetrics(metrics)
    for number in (0, 1):
        fetches.position_moved(TopicPartition("t", number), lag=1, lead=1)

    fetches.assigned({TopicPartition("t", 1)})

    found = {dict(name.tags)["partition"] for name in metrics.values() if "partition" in dict(name.tags)}
    assert {"1"} == found


def test_what_a_member_of_a_group_did() -> None:
    metrics, clock = registry()
    member = CoordinatorMetrics(metrics, lambda: 6)
    member.heartbeat_sent()
    member.heartbeat_answered(0.003)
    member.joined(1.0)
    member.synced(0.5)
    member.rebalanced(2.0)
    member.rebalance_failed()
    member.committed(0.01)
    member.called_back("revoked", 0.25)
    clock.advance(30)

    values = metrics.values()

    expected = {
        "heartbeat-total": 1,
        "heartbeat-response-time-max": 3.0,
        "join-time-avg": 1000.0,
        "sync-total": 1,
        "rebalance-total": 1,
        "rebalance-latency-total": 2000.0,
        "rebalance-rate-per-hour": 120.0,
        "failed-rebalance-total": 1,
        "commit-latency-max": 10.0,
        "partition-revoked-latency-avg": 250.0,
        "assigned-partitions": 6,
        "last-heartbeat-seconds-ago": 30.0,
        "last-rebalance-seconds-ago": 30.0,
    }
    assert expected == {name: values.value("consumer-coordinator-metrics", name) for name in expected}


def test_a_client_says_what_it_is() -> None:
    """The groups and names are Java's; the version is no number."""
    metrics, clock = registry()
    started_ms = clock.time_ms()
    add_client_info(metrics)
    clock.advance(5.0)

    values = metrics.values()

    assert __version__ == values.text("app-info", "version")
    assert "unknown" == values.text("app-info", "commit-id")
    assert started_ms == values.value("app-info", "start-time-ms")
    assert 4 == values.value("kafka-metrics-count", "count")


def test_a_system_without_clocks_of_threads_lacks_the_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS: clients failed at their start."""
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    metrics, _ = registry()
    add_loop_thread(metrics, "producer-metrics")
    assert 0 == metrics.count()
