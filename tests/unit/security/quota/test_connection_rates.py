"""Rates of connections, on times that the test chooses."""

import pytest

from kalda.security.quota import connection_rates
from kalda.security.quota.connection_rates import ConnectionRates, plain_address
from kalda.security.quota.rate import Window


@pytest.fixture
def rates() -> ConnectionRates:
    return ConnectionRates(Window(2, 1.0))


def test_broker_pauses_once_its_rate_is_exceeded(rates: ConnectionRates) -> None:
    assert [0.0, 0.0, 0.5] == [rates.accept(2, 0.0) for _ in range(3)]
    assert 3.0 == rates.per_second(0.0)


def test_address_above_its_rate_is_refused_and_does_not_count(rates: ConnectionRates) -> None:
    rates.set_ip_rate("192.0.2.7", 2)
    taken = [rates.refusal_seconds("192.0.2.7", 0.0) for _ in range(5)]
    assert [0.0, 0.0, 0.5, 0.5, 0.5] == taken
    assert 0.0 == rates.refusal_seconds("192.0.2.8", 0.0)
    assert 0.0 == rates.refusal_seconds("192.0.2.7", 2.5)


def test_default_counts_each_address_by_itself(rates: ConnectionRates) -> None:
    rates.set_ip_rate(None, 1)
    rates.set_ip_rate("192.0.2.9", 100)
    assert [False, True, False] == [
        rates.refusal_seconds(peer, 0.0) > 0 for peer in ("192.0.2.7", "192.0.2.7", "192.0.2.8")
    ]
    assert not any(rates.refusal_seconds("192.0.2.9", 0.0) for _ in range(50))
    rates.set_ip_rate(None, None)
    assert 0.0 == rates.refusal_seconds("192.0.2.7", 0.0)


def test_rate_of_zero_refuses_all(rates: ConnectionRates) -> None:
    rates.set_ip_rate("192.0.2.7", 0)
    assert 2.0 == rates.refusal_seconds("192.0.2.7", 0.0)


def test_ipv4_within_ipv6_is_the_same_address(rates: ConnectionRates) -> None:
    rates.set_ip_rate(plain_address("::ffff:192.0.2.7"), 1)
    assert [0.0, 1.0] == [rates.refusal_seconds(peer, 0.0) for peer in ("192.0.2.7", "::ffff:192.0.2.7")]


def test_number_of_addresses_is_bounded(rates: ConnectionRates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 100)
    rates.set_ip_rate(None, 5)
    for number in range(1000):
        rates.refusal_seconds(f"2001:db8::{number:x}", number / 10_000)
    assert len(rates._addresses) <= 100
