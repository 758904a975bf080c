import math
import threading

import pytest

from kalda.clients.metrics.sensor import PENDING_MAX, SampleConfig, Sensor


@pytest.fixture
def sensor() -> Sensor:
    return Sensor(SampleConfig(window_s=30.0, count=2))


def test_an_empty_sensor_has_no_average_but_a_rate_of_zero(sensor: Sensor) -> None:
    """Dashboards show a gap for "no value" and a line at 0 for "nothing happens"."""
    assert math.isnan(sensor.average(5.0))
    assert math.isnan(sensor.largest(5.0))
    assert math.isnan(sensor.smallest(5.0))
    assert math.isnan(sensor.last_value(5.0))
    assert 0.0 == sensor.rate(5.0)
    assert 0.0 == sensor.sum_total(5.0)


def test_a_young_client_divides_by_one_full_window(sensor: Sensor) -> None:
    """Otherwise the first request of a client would count as a thousand a second."""
    sensor.record(60.0, now=0.0)

    assert 2.0 == sensor.rate(0.0)
    assert 60.0 / 40.0 == sensor.rate(10.0)
    assert 1.0 / 40.0 == sensor.count_rate(10.0)


def test_figures_cover_the_samples_of_the_period(sensor: Sensor) -> None:
    sensor.record(1.0, now=0.0)
    sensor.record(3.0, now=10.0)
    sensor.record(8.0, now=31.0)

    assert 4.0 == sensor.average(31.0)
    assert 8.0 == sensor.largest(31.0)
    assert 1.0 == sensor.smallest(31.0)
    assert 8.0 == sensor.last_value(31.0)
    assert 12.0 / 31.0 == sensor.rate(31.0)


def test_old_samples_drop_out_and_totals_stay(sensor: Sensor) -> None:
    sensor.record(100.0, now=0.0)
    sensor.record(2.0, now=55.0)

    assert 2.0 == sensor.average(61.0)
    assert 102.0 == sensor.sum_total(61.0)
    assert 2.0 == sensor.count_total(61.0)
    assert math.isnan(sensor.average(116.0))
    assert 0.0 == sensor.rate(116.0)


def test_samples_are_used_again(sensor: Sensor) -> None:
    """A client that runs for years keeps three samples, not one for each half minute."""
    for minute in range(10):
        sensor.record(1.0, now=minute * 60.0)
        assert 1.0 == sensor.average(minute * 60.0)

    assert 10 == sensor.total_count


def test_windows_of_no_length_are_allowed() -> None:
    """``metrics.sample.window.ms`` may be 0: every value drops out at once."""
    sensor = Sensor(SampleConfig(window_s=0.0, count=1))
    sensor.record(1.0, now=1.0)

    assert 0.0 == sensor.rate(1.0)


def test_values_that_wait_go_into_the_windows_of_their_own_times() -> None:
    """`record` only notes a value; reading later must not move it into the present window."""
    sensor = Sensor(SampleConfig(window_s=30.0, count=2))
    for second in range(3 * PENDING_MAX):
        sensor.record(float(second), now=second / 2)
    # At second 95 the windows that began at 30, 60 and 90 count: values 60 to 191.
    assert 191.0 == sensor.largest(95.5)
    assert 60.0 == sensor.smallest(95.5)
    assert 3 * PENDING_MAX == sensor.total_count
    assert float(sum(range(3 * PENDING_MAX))) == sensor.total
    assert 191.0 == sensor.last


def test_no_value_is_lost_between_threads() -> None:
    sensor = Sensor(SampleConfig())

    def record() -> None:
        for _ in range(5_000):
            sensor.record(1.0, now=0.0)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sensor.average(0.0)
    assert 20_000.0 == sensor.total
