"""Bounds how fast connections are accepted: by a whole broker and by each address (KIP-612).

A broker above its rate waits before it accepts the next connection. An address above its rate has the
connection closed, which does not count for the rate.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from kalda.security.quota.rate import SampledRate, Window

ADDRESSES_MAX: Final = 10_000
"""Addresses that are remembered, since peers of IPv6 have as many as they like."""


def plain_address(text: str) -> str:
    """Return an address in the one form in which addresses are compared: IPv4 within IPv6 is IPv4.

    Raises:
        ValueError: it is not an address.

    >>> plain_address("::ffff:192.0.2.7")
    '192.0.2.7'
    """
    address = ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)


class ConnectionRates:
    """The rates of one broker; times are monotonic seconds."""

    def __init__(self, window: Window) -> None:
        self._window: Final = window
        self._broker: Final = SampledRate(window)
        self._default: int | None = None
        self._limits: Final[dict[str, int]] = {}
        self._addresses: Final[dict[str, SampledRate]] = {}
        self.pauses: Final = SampledRate(window)
        """Seconds that accepting paused."""
        self.refusals: Final = SampledRate(window)
        """Seconds for which refused connections were held."""

    def set_ip_rate(self, address: str | None, rate: int | None) -> None:
        """Set the rate of an address, or of all without one of their own; None removes it."""
        if address is None:
            self._default = rate
        elif rate is None:
            self._limits.pop(address, None)
        else:
            self._limits[address] = rate
        if self._default is None and not self._limits:
            self._addresses.clear()

    def accept(self, limit: int, now: float) -> float:
        """Count a connection; return for how many seconds the broker must accept no other."""
        self._broker.record(1, now)
        pause = self._broker.excess_seconds(limit, now)
        if pause:
            self.pauses.record(pause, now)
        return pause

    def per_second(self, now: float) -> float:
        """Return how many connections a second were accepted lately."""
        return self._broker.per_second(now)

    def refusal_seconds(self, peer: str, now: float) -> float:
        """Count a connection of an address; return how long to hold it before closing it, 0 to take it."""
        if self._default is None and not self._limits:
            return 0.0
        address = plain_address(peer)
        limit = self._limits.get(address, self._default)
        if limit is None:
            return 0.0
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._forget(lambda each: each.is_idle(now))
            rate = self._addresses[address] = SampledRate(self._window)
        rate.record(1, now)
        wait = rate.excess_seconds(limit, now)
        if wait:
            rate.record(-1, now)
            self.refusals.record(wait, now)
        return wait

    def _forget(self, is_idle: Callable[[SampledRate], bool]) -> None:
        for address in [address for address, rate in self._addresses.items() if is_idle(rate)]:
            del self._addresses[address]
        for address in list(self._addresses)[: max(0, len(self._addresses) - ADDRESSES_MAX // 2)]:
            del self._addresses[address]
