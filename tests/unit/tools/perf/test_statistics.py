"""The figures of performance runs, and the lines of Kafka's tools."""

import random
import re

import pytest

from kalda.tools.perf.consume_statistics import DETAILED_HEADER, HEADER, ConsumeStatistics
from kalda.tools.perf.latency_report import LatencyReport
from kalda.tools.perf.payloads import random_payload
from kalda.tools.perf.produce_statistics import ProduceStatistics, Throttle

MB = 1024 * 1024


@pytest.mark.parametrize(("size", "count"), [(10, 1000), (16 * MB, 4), (100 * MB, 1)])
def test_random_values_are_few_where_they_are_large(size: int, count: int) -> None:
    """A thousand values of 100 MB would be 100 GB."""
    payload = random_payload(size, random.Random(1))

    values = {id(payload(number)): payload(number) for number in range(2000)}
    assert count == len(values)
    assert all(size == len(value) for value in values.values())
    assert set(payload(0)[:1000]) <= set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def test_the_line_of_a_produce_run_is_kafkas() -> None:
    """Scripts that read kafka-producer-perf-test must read ours."""
    statistics = ProduceStatistics(100, 10.0, 60.0)
    for number in range(100):
        assert statistics.record(number + 1, MB, 11.0) is None

    report = statistics.total(12.0)
    assert (
        "100 records sent, 50.0 records/sec (50.00 MB/sec), 50.50 ms avg latency, 100.00 ms max latency, "
        "51 ms 50th, 96 ms 95th, 100 ms 99th, 100 ms 99.9th."
    ) == report.line
    assert {
        "records": 100,
        "recordsPerSecond": 50.0,
        "mbPerSecond": 50.0,
        "latencyAverageMs": 50.5,
        "latencyMaxMs": 100,
        "latencyP50Ms": 51,
        "latencyP95Ms": 96,
        "latencyP99Ms": 100,
        "latencyP99.9Ms": 100,
    } == report.json


def test_a_window_is_reported_when_it_is_over() -> None:
    statistics = ProduceStatistics(10, 0.0, 5.0)
    assert statistics.record(3.0, MB, 4.9) is None
    report = statistics.record(5.0, MB, 5.0)

    assert report is not None
    assert (
        "2 records sent, 0.4 records/sec (0.40 MB/sec), 4.0 ms avg latency, 5.0 ms max latency."
    ) == report.line
    assert statistics.record(1.0, MB, 6.0) is None
    assert 3 == statistics.total(6.0).count


def test_a_run_without_acknowledgements_has_a_report() -> None:
    """All records failed: the tool must say so, not divide by zero."""
    assert "0 records sent, 0.0 records/sec" in ProduceStatistics(5, 0.0, 5.0).total(0.0).line


def test_long_runs_keep_a_bounded_number_of_latencies() -> None:
    statistics = ProduceStatistics(2_000_000, 0.0, 60.0)
    for number in range(1000):
        statistics.record(number, 1, 1.0)

    assert 250 == len(statistics._latencies)


@pytest.mark.parametrize(
    ("rate", "sent", "now", "delay"),
    [(-1, 10, 0.0, 0.0), (100, 10, 10.0, 0.1), (100, 10, 10.1, 0.0), (0.5, 1, 11.0, 1.0)],
)
def test_the_throttle_sleeps_while_it_is_ahead(rate: float, sent: int, now: float, delay: float) -> None:
    assert delay == pytest.approx(Throttle(rate, 10.0).delay_s(sent, now))


def test_the_line_of_a_consume_run_has_kafkas_columns() -> None:
    statistics = ConsumeStatistics(1_000_000, 60_000)
    statistics.on_assigned(1_000_500)
    assert statistics.add(2_000, 4 * MB, 1_001_000) is None

    report = statistics.total(1_002_500)
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
    figures = r"4\.0000, 1\.6000, 2000, 800\.0000, 500, 2000, 2\.0000, 1000\.0000"
    assert re.fullmatch(rf"{time}, {time}, {figures}", report.line)
    assert (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    ) == HEADER
    assert HEADER.split(", ") == list(report.json)


def test_intervals_have_totals_and_rates_of_their_own() -> None:
    statistics = ConsumeStatistics(0, 1_000)
    statistics.on_assigned(100)
    first = statistics.add(10, MB, 1_000)
    statistics.on_revoked(1_200)
    statistics.on_revoked(1_300)
    statistics.on_assigned(1_500)
    second = statistics.add(30, MB, 3_000)

    assert first is not None
    assert second is not None
    assert len(DETAILED_HEADER.split(", ")) == len(second.detailed_line.split(", "))
    assert (1.0, 1.0, 10, 10.0, 100, 900) == first.figures[:6]
    assert (2.0, 0.5, 40, 15.0, 300, 1_700) == second.figures[:6]


def test_percentiles_of_end_to_end_latencies() -> None:
    report = LatencyReport.of([float(each) for each in range(1000, 0, -1)])

    assert (
        "Avg latency: 500.5000 ms",
        "Percentiles: 50th = 501.000, 99th = 991.000, 99.9th = 1000.000",
    ) == report.lines
    assert (7.0, 7.0) == (LatencyReport.of([7.0]).p50_ms, LatencyReport.of([7.0]).p999_ms)
