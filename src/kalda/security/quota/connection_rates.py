"""Measures how fast connections come, for the broker, each listener and each address (KIP-612), sans-IO.

The server asks before it serves a connection that it accepted:

    refuse_seconds   how long to keep a connection of an address above its rate before closing it
    pause_seconds    how long the listener must then not accept

Each limit is a token bucket that holds a whole window, like the other quotas (ADR 30).

A connection that is refused for its address counts for nobody, so that one address cannot stop a listener.
What comes through the inter-broker listener does not count for the broker as long as there are others.
"""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final

from kalda.security.quota.rate import SampledRate, TokenBucket, Window

UNLIMITED: Final = 2**31 - 1
"""The value of each limit that bounds nothing."""

ADDRESSES_MAX: Final = 10_000
"""Addresses whose rates are remembered; the one that connected least recently goes first. An attacker with
many addresses must not fill the memory."""


def plain_address(text: str) -> str:
    """Return an address in the one form in which addresses are compared: IPv4 within IPv6 is IPv4.

    Raises:
        ValueError: it is not an address.

    >>> plain_address("::ffff:192.0.2.7")
    '192.0.2.7'
    """
    if ":" not in text:
        return str(ip_address(text))
    address = IPv6Address(text.partition("%")[0])
    return str(address.ipv4_mapped or address)


class _Rate(SampledRate):
    """How fast connections came lately, for metrics, and what is left of their limit."""

    __slots__ = ("bucket",)

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.bucket: Final = TokenBucket(window)


class ListenerRate:
    """How fast one listener accepts, and how long it or its clients had to wait."""

    __slots__ = ("ip_throttled", "limit", "rate", "throttled")

    def __init__(self, window: Window) -> None:
        self.limit = UNLIMITED
        self.rate: Final = _Rate(window)
        self.throttled: Final = MeanOfWaits(window)
        """Seconds for which accepting paused."""
        self.ip_throttled: Final = MeanOfWaits(window)
        """Seconds for which connections of addresses above their rate were kept before they were closed."""


class MeanOfWaits:
    """The mean of the waits above zero in a window."""

    __slots__ = ("_count", "_seconds")

    def __init__(self, window: Window) -> None:
        self._seconds: Final = SampledRate(window)
        self._count: Final = SampledRate(window)

    def record(self, seconds: float, now: float) -> None:
        """Count one wait."""
        self._seconds.record(seconds, now)
        self._count.record(1, now)

    def mean(self, now: float) -> float:
        """Return the mean in seconds; 0 if nothing waited."""
        count = self._count.per_second(now)
        return self._seconds.per_second(now) / count if count > 0 else 0.0


class ConnectionRates:
    """The rates of new connections and their limits. Times are monotonic seconds."""

    def __init__(self, window: Window, protected: str | None = None) -> None:
        """`protected` names the inter-broker listener."""
        self._window: Final = window
        self._protected: Final = protected
        self._limit = UNLIMITED
        self._rate: Final = _Rate(window)
        self._listeners: Final[dict[str, ListenerRate]] = {}
        self._ip_default = UNLIMITED
        self._ip_limits: Final[dict[str, int]] = {}
        self._ips: Final[dict[str, _Rate]] = {}
        """The address that connected least recently first."""

    def is_protected(self, listener: str) -> bool:
        """Whether the listener is the brokers' own, beside others."""
        return listener == self._protected and len(self._listeners) > 1

    # Limits. What waits already waits to its end when they change.

    def add_listener(self, name: str) -> None:
        """Measure a listener, without a limit at first."""
        self._listeners.setdefault(name, ListenerRate(self._window))

    def remove_listener(self, name: str) -> None:
        """Forget a listener."""
        del self._listeners[name]

    def set_broker_rate(self, rate: int) -> None:
        """Bound the new connections a second of all listeners together."""
        assert rate >= 0, f"a rate of {rate}"
        self._limit = rate

    def set_listener_rate(self, name: str, rate: int) -> None:
        """Bound the new connections a second of one listener."""
        assert rate >= 0, f"a rate of {rate}"
        self._listeners[name].limit = rate

    def set_ip_rate(self, ip: str | None, rate: int | None) -> None:
        """Bound the new connections a second of an address, or with `ip` None of each without its own bound.

        A `rate` of None takes the bound away.
        """
        if ip is None:
            self._ip_default = UNLIMITED if rate is None else rate
        elif rate is None:
            self._ip_limits.pop(ip, None)
        else:
            self._ip_limits[ip] = rate
        if self._ip_default == UNLIMITED:
            for each in [each for each in self._ips if each not in self._ip_limits]:
                del self._ips[each]

    def ip_limit(self, ip: str) -> int:
        """Return the bound of an address, which is `UNLIMITED` if it has none."""
        return self._ip_limits.get(ip, self._ip_default)

    # Connections.

    def refuse_seconds(self, listener: str, ip: str, now: float) -> float:
        """Count a connection for its address; return how long to keep it until it is closed, or 0."""
        if self._ip_default == UNLIMITED and not self._ip_limits:
            return 0.0
        limit = self.ip_limit(ip)
        if limit == UNLIMITED:
            return 0.0
        rate = self._ips.pop(ip, None) or _Rate(self._window)
        self._ips[ip] = rate
        if len(self._ips) > ADDRESSES_MAX:
            del self._ips[next(iter(self._ips))]
        missing = 1 - rate.bucket.left(limit, now)
        if missing <= 0:
            rate.bucket.take(1, limit, now)
            rate.record(1, now)
            return 0.0
        wait = self._at_most_one_sample(missing / limit if limit > 0 else self._window.length)
        self._listeners[listener].ip_throttled.record(wait, now)
        return wait

    def pause_seconds(self, listener: str, now: float) -> float:
        """Count a connection for its listener and the broker; return how long the listener must pause."""
        wait = 0.0 if self.is_protected(listener) else self._recorded(self._rate, self._limit, now)
        own = self._listeners[listener]
        wait = max(wait, self._recorded(own.rate, own.limit, now))
        assert 0 <= wait <= self._window.seconds, f"a pause of {wait} s"
        if wait:
            own.throttled.record(wait, now)
        return wait

    def _recorded(self, rate: _Rate, limit: int, now: float) -> float:
        """Count one connection and return the wait."""
        rate.record(1, now)
        if limit == UNLIMITED:
            return 0.0
        # Pauses end before the debt is paid, and several listeners overdraw the broker's limit together.
        rate.bucket.take(1, limit, now, limit * self._window.length)
        return self._at_most_one_sample(rate.bucket.wait_seconds(limit, now))

    def _at_most_one_sample(self, wait: float) -> float:
        """Bound a wait as Kafka does."""
        return min(wait, self._window.seconds)

    # Figures.

    def broker_rate(self, now: float) -> float:
        """Return the connections a second of the broker, without those of a protected listener."""
        return self._rate.per_second(now)

    def listeners(self) -> Iterator[tuple[str, ListenerRate]]:
        """Return each listener's name and rate."""
        return iter(self._listeners.items())

    def ips(self, now: float) -> Iterator[tuple[str, float]]:
        """Return each bounded address that connected lately, with its connections a second."""
        for ip, rate in list(self._ips.items()):
            if not rate.is_idle(now):
                yield ip, rate.per_second(now)
