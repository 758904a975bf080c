"""The metric registry and its naming rule."""

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.metrics import Counter, DerivedHistogram, Histogram, Metrics, RequestMetrics, metric_name


@pytest.mark.parametrize(
    ("mbean", "expected"),
    [
        (("kafka.server", "BrokerTopicMetrics", "BytesInPerSec"), "kafka_server_brokertopicmetrics_bytesin"),
        (("kafka.network", "RequestMetrics", "TotalTimeMs"), "kafka_network_requestmetrics_totaltimems"),
        (
            ("kafka.server", "socket-server-metrics", "connection-creation-total"),
            "kafka_server_socket_server_metrics_connection_creation",
        ),
        (
            ("kafka.log", "LogManager", "OfflineLogDirectoryCount"),
            "kafka_log_logmanager_offlinelogdirectorycount",
        ),
    ],
)
def test_names_come_from_kafkas_mbeans(mbean: tuple[str, str, str], expected: str) -> None:
    assert expected == metric_name(*mbean)


def test_same_name_and_labels_are_the_same_instrument() -> None:
    metrics = Metrics()
    first = metrics.counter("requests", "Requests.", topic="a", broker="1")
    first.value += 2
    assert metrics.counter("requests", "Requests.", broker="1", topic="a") is first
    assert metrics.counter("requests", "Requests.", broker="1", topic="b") is not first
    assert metrics.histogram("latency", "Latency.") is metrics.histogram("latency", "Latency.")


def test_observations_land_in_the_bucket_of_their_upper_bound() -> None:
    """A bound is inclusive, as Prometheus' `le` says."""
    histogram = Histogram((1, 5, 10))
    for value in (0.5, 1, 1.1, 5, 10, 10.1, 1e9):
        histogram.observe(value)
    assert [2, 2, 1, 2] == histogram.counts
    assert 7 == histogram.count


def test_later_function_replaces_an_earlier_one() -> None:
    """A topic that is created again has a new log; the figures must be those of the new one."""
    metrics = Metrics()
    metrics.gauge("size", "Bytes.", lambda: 1, topic="a")
    metrics.gauge("size", "Bytes.", lambda: 2, topic="a")
    (family,) = metrics.families()
    values = [read() for read in family.samples.values() if callable(read)]
    assert [2] == values


def test_removed_instrument_is_gone_and_removing_twice_is_harmless() -> None:
    metrics = Metrics()
    metrics.gauge("size", "Bytes.", lambda: 1, topic="a")
    metrics.remove("size", topic="a")
    metrics.remove("size", topic="a")
    metrics.remove("never registered")
    (family,) = metrics.families()
    assert {} == family.samples


def test_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("requests", "Requests.")
    with pytest.raises(AssertionError, match="is a counter"):
        metrics.gauge("requests", "Requests.", lambda: 1)


def test_error_codes_are_counted_by_name_and_unknown_ones_by_number() -> None:
    metrics = Metrics()
    requests = RequestMetrics(metrics, "Fetch")
    for code in (int(ErrorCode.OFFSET_OUT_OF_RANGE), int(ErrorCode.OFFSET_OUT_OF_RANGE), 9999):
        requests.count_error(code)
    errors = next(family for family in metrics.families() if family.name.endswith("_errors"))
    counts = {
        dict(labels)["error"]: counter.value
        for labels, counter in errors.samples.items()
        if isinstance(counter, Counter)
    }
    assert {"OFFSET_OUT_OF_RANGE": 2, "9999": 1} == counts


def test_requests_that_wait_have_a_local_and_a_remote_part() -> None:
    """Where none ever waited the parts say nothing new, and a scrape leaves them out."""
    metrics = Metrics()
    request = RequestMetrics(metrics, "Fetch")
    request.at_once_ms.observe(0.05)
    families = {family.name.rpartition("_")[2]: family for family in metrics.families()}
    names = ("totaltimems", "localtimems", "remotetimems")
    parts = {name: next(iter(families[name].samples.values())) for name in names}

    def counts() -> dict[str, tuple[int, float]]:
        found = {}
        for name, part in parts.items():
            assert isinstance(part, DerivedHistogram)
            found[name] = (part.read().count, round(part.read().sum, 3))
        return found

    assert {"totaltimems": (1, 0.05), "localtimems": (0, 0), "remotetimems": (0, 0)} == counts()
    request.observe_wait(10.0, 10.001, 10.5)
    assert {"totaltimems": (2, 500.05), "localtimems": (2, 1.05), "remotetimems": (2, 499.0)} == counts()
