"""Rates of new connections: what they make wait, and whom they count for."""

import pytest

from kalda.security.quota import connection_rates
from kalda.security.quota.connection_rates import UNLIMITED, ConnectionRates, plain_address
from kalda.security.quota.rate import Window


def rates(*listeners: str, protected: str | None = None) -> ConnectionRates:
    made = ConnectionRates(Window(11, 1.0), protected)
    for name in listeners or ("A",):
        made.add_listener(name)
    return made


def accepted(made: ConnectionRates, listener: str, seconds: float) -> int:
    """Accept as fast as the pauses allow; return the connections of the last half minute."""
    now, count = 0.0, 0
    while now < seconds:
        count += now >= seconds - 30
        now += made.pause_seconds(listener, now) or 0.001
    return count


def served(made: ConnectionRates, address: str, seconds: float) -> int:
    """Connect a thousand times a second; return the connections of the last half minute that are served."""
    count = 0
    for milliseconds in range(int(seconds * 1000)):
        now = milliseconds / 1000
        count += not made.refuse_seconds("A", address, now) and now >= seconds - 30
    return count


def test_without_limits_nothing_waits() -> None:
    made = rates()
    assert {0.0} == {made.pause_seconds("A", 0.0) for _ in range(1000)}
    assert {0.0} == {made.refuse_seconds("A", "10.0.0.1", 0.0) for _ in range(1000)}
    assert [] == list(made.ips(0.0))


@pytest.mark.parametrize("of_listener", [False, True])
def test_pauses_hold_a_rate(of_listener: bool) -> None:
    made = rates()
    if of_listener:
        made.set_listener_rate("A", 20)
    else:
        made.set_broker_rate(20)
    # Half a minute that begins anywhere after the first burst.
    for seconds in (42, 47, 53):
        assert 20 * 30 == pytest.approx(accepted(made, "A", seconds), rel=0.02)


@pytest.mark.parametrize("limit", [2, 20])
def test_an_address_gets_its_rate_over_half_a_minute(limit: int) -> None:
    """With a sliding window an address used it up at once and then got nothing for as long."""
    for seconds in (42, 47, 53):
        made = rates()
        made.set_ip_rate("10.0.0.1", limit)
        assert limit * 30 == pytest.approx(served(made, "10.0.0.1", seconds), rel=0.02)


def test_a_pause_that_is_too_short_does_not_lead_to_endless_debt() -> None:
    made = rates()
    made.set_broker_rate(1)
    for _ in range(10_000):
        made.pause_seconds("A", 0.0)
    assert made.pause_seconds("A", 11.0) > 0
    assert 0.0 == made.pause_seconds("A", 23.0)


def test_a_pause_is_one_sample_at_most() -> None:
    made = rates()
    made.set_broker_rate(1)
    assert 1.0 == max(made.pause_seconds("A", 0.0) for _ in range(100))
    made.set_broker_rate(0)
    assert 1.0 == made.pause_seconds("A", 0.0)


def test_the_limit_of_a_listener_is_its_own() -> None:
    made = rates("A", "B")
    made.set_listener_rate("A", 1)
    waits = [made.pause_seconds("A", 0.0) for _ in range(20)]
    assert waits[-1] > 0
    assert {0.0} == {made.pause_seconds("B", 0.0) for _ in range(20)}


def test_a_protected_listener_does_not_count_for_the_broker() -> None:
    made = rates("A", "BROKERS", protected="BROKERS")
    made.set_broker_rate(1)
    assert {0.0} == {made.pause_seconds("BROKERS", 0.0) for _ in range(50)}
    assert 0.0 == made.pause_seconds("A", 0.0)
    made.set_listener_rate("BROKERS", 1)
    assert max(made.pause_seconds("BROKERS", 0.0) for _ in range(50)) > 0


def test_the_only_listener_is_not_protected() -> None:
    made = rates("BROKERS", protected="BROKERS")
    made.set_broker_rate(1)
    assert max(made.pause_seconds("BROKERS", 0.0) for _ in range(50)) > 0


def test_a_refused_connection_counts_for_nobody() -> None:
    made = rates()
    made.set_ip_rate("10.0.0.1", 2)
    # The bucket of an address is full at first.
    assert 22 == sum(not made.refuse_seconds("A", "10.0.0.1", 0.0) for _ in range(1000))
    assert 0.0 == made.broker_rate(0.0)
    assert [("10.0.0.1", 2.2)] == list(made.ips(0.0))
    assert 0.0 == made.refuse_seconds("A", "10.0.0.1", 12.0)


def test_own_bounds_of_addresses_come_before_the_default() -> None:
    made = rates()
    made.set_ip_rate(None, 5)
    made.set_ip_rate("10.0.0.1", 7)
    assert (7, 5) == (made.ip_limit("10.0.0.1"), made.ip_limit("10.0.0.2"))
    made.set_ip_rate("10.0.0.1", None)
    assert 5 == made.ip_limit("10.0.0.1")
    made.set_ip_rate(None, None)
    assert UNLIMITED == made.ip_limit("10.0.0.1")


def test_remembered_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 3)
    made = rates()
    made.set_ip_rate(None, 5)
    for last in (1, 2, 3, 1, 4):
        made.refuse_seconds("A", f"10.0.0.{last}", 0.0)
    assert ["10.0.0.3", "10.0.0.1", "10.0.0.4"] == [ip for ip, _ in made.ips(0.0)]


def test_means_are_of_waits_above_zero() -> None:
    made = rates()
    ((_, listener),) = made.listeners()
    assert 0.0 == listener.throttled.mean(0.0)
    listener.throttled.record(0.2, 0.0)
    listener.throttled.record(0.4, 0.0)
    assert pytest.approx(0.3) == listener.throttled.mean(0.0)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_has_one_form(written: str, normal: str) -> None:
    assert normal == plain_address(written)


@pytest.mark.parametrize("text", ["host", "a:b", "", "10.0.0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|IPv|octet|At least|Expected"):
        plain_address(text)
