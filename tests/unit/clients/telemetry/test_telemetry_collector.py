import pytest

from kalda.clients.metrics.registry import ClientMetrics, MetricName
from kalda.clients.telemetry.telemetry_collector import TelemetryCollector, selector, telemetry_name
from kalda.runtime.clock import ManualClock

START_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("group", "name", "pushed"),
    [
        ("producer-metrics", "record-send-rate", "org.apache.kafka.producer.record.send.rate"),
        (
            "consumer-fetch-manager-metrics",
            "fetch-total",
            "org.apache.kafka.consumer.fetch.manager.fetch.total",
        ),
        ("producer-topic-metrics", "byte-total", "org.apache.kafka.producer.topic.byte.total"),
    ],
)
def test_names_are_those_of_javas_client(group: str, name: str, pushed: str) -> None:
    """Operators subscribe by prefix; one subscription serves all clients."""
    assert pushed == telemetry_name(MetricName(group, name, ()))


def test_what_a_subscription_selects() -> None:
    everything = selector(["*"])
    prefixes = selector(["org.apache.kafka.producer.", "org.apache.kafka.consumer.fetch"])

    assert selector([]) is None
    assert everything is not None
    assert everything("anything")
    assert selector([""]) is not None
    assert prefixes is not None
    assert [True, True, False] == [
        prefixes(f"org.apache.kafka.{name}") for name in ("producer.x", "consumer.fetch.x", "consumer.x")
    ]


def everything(_: str) -> bool:
    return True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics(clock: ManualClock) -> ClientMetrics:
    metrics = ClientMetrics({"client-id": "c"}, clock=clock)
    sensor = metrics.sensor()
    metrics.add_meter("producer-metrics", "request", "requests", sensor, counts=True)
    metrics.add("producer-metrics", "idle-avg", "Without a value.", metrics.sensor().average)
    metrics.add("producer-topic-metrics", "gauge", "A gauge.", lambda _: 4.0, tags={"topic-name": "t"})
    sensor.record(1, 0.0)
    sensor.record(1, 0.0)
    return metrics


def test_totals_are_sums_and_the_rest_are_gauges(metrics: ClientMetrics, clock: ManualClock) -> None:
    collector = TelemetryCollector(metrics)
    clock.advance(10)

    points = {point.name: point for point in collector.collect(everything, is_delta=False).points}

    prefix = "org.apache.kafka.producer."
    assert {f"{prefix}request.rate", f"{prefix}request.total", f"{prefix}topic.gauge"} == points.keys()
    assert (2.0, START_NS, False) == (
        points[f"{prefix}request.total"].value,
        points[f"{prefix}request.total"].start_ns,
        points[f"{prefix}request.total"].is_delta,
    )
    assert points[f"{prefix}request.rate"].start_ns is None
    assert (("topic_name", "t"),) == points[f"{prefix}topic.gauge"].attributes
    assert START_NS + 10_000_000_000 == points[f"{prefix}topic.gauge"].time_ns


def test_differences_count_from_the_last_push(metrics: ClientMetrics, clock: ManualClock) -> None:
    """What was collected but could not be pushed belongs to the next push."""
    collector = TelemetryCollector(metrics)

    def total() -> tuple[float, int | None]:
        collected = collector.collect(lambda name: name.endswith("request.total"), is_delta=True)
        (point,) = collected.points
        if is_pushed:
            collector.pushed(collected)
        return point.value, point.start_ns

    is_pushed = False
    first = total()
    is_pushed = True
    again = total()
    clock.advance(10)
    following = total()
    collector.reset()
    after_reset = total()

    assert (2.0, START_NS) == first
    assert (2.0, START_NS) == again
    assert (0.0, START_NS) == following
    assert (2.0, START_NS) == after_reset


def test_metrics_of_single_topics_can_be_left_out(metrics: ClientMetrics) -> None:
    collector = TelemetryCollector(metrics)

    points = collector.collect(everything, is_delta=False, only_untagged=True).points

    assert not [point for point in points if "topic" in point.name]
