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


def accepted_in(made: ConnectionRates, listener: str, seconds: float) -> int:
    """Accept as fast as the pauses allow."""
    now, count = 0.0, 0
    while now < seconds:
        count += 1
        now += made.pause_seconds(listener, now) or 0.001
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
    assert 20 * 60 == pytest.approx(accepted_in(made, "A", 60), rel=0.1)


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
    assert made.pause_seconds("BROKERS", 0.0) > 0


def test_the_only_listener_is_not_protected() -> None:
    made = rates("BROKERS", protected="BROKERS")
    made.set_broker_rate(1)
    assert max(made.pause_seconds("BROKERS", 0.0) for _ in range(50)) > 0


def test_a_refused_connection_counts_for_nobody() -> None:
    made = rates()
    made.set_ip_rate("10.0.0.1", 2)
    served = sum(not made.refuse_seconds("A", "10.0.0.1", 0.0) for _ in range(1000))
    # A window at its beginning counts as ten seconds of it.
    assert 20 == served
    assert 0.0 == made.broker_rate(0.0)
    assert [("10.0.0.1", 2.0)] == list(made.ips(0.0))
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
