"""Makes clients that use more than their quotas wait: `ClientThrottle`.

A client over its quota gets its response with the time to wait in it, and its connection is muted for that
time, since old clients do not wait by themselves (KIP-219).

While no quota is set, `is_active` is false and nothing here is called for a request.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from kalda.broker.config import ConfigStore
from kalda.broker.security.host_addresses import HostAddresses, resolve
from kalda.common.metrics import Metrics
from kalda.events.event import NO_EVENTS, EventKind, EventSink
from kalda.net.connection import Connection
from kalda.protocol.namespaces.namespace import prefix_of
from kalda.runtime.runtime import Runtime
from kalda.security.quota.client_quotas import Client, ClientQuotas, Share
from kalda.security.quota.entity import IP, QuotaEntity
from kalda.security.quota.rate import Window
from kalda.security.quota.settings import CONNECTION_CREATION_RATE, REQUEST_PERCENTAGE, quota_values
from kalda.settings import BrokerConfig

_PERCENT: Final = 100.0


class ClientThrottle:
    """The quotas in force on one broker, and how much of them its clients use."""

    def __init__(self, config: BrokerConfig, config_store: ConfigStore, runtime: Runtime) -> None:
        self.clock: Final = runtime.clock
        self.events: EventSink = NO_EVENTS
        """Takes who had to wait; set by the broker."""
        self._network: Final = runtime.network
        self._quotas: Final = ClientQuotas(
            Window(config.quota_window_num, config.quota_window_size_seconds),
            Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds),
        )
        self.is_active = False
        """Whether any client is bounded."""
        self.limits_time = False
        """Whether the time that requests take is bounded, so that it must be measured."""
        self._listeners: Final[list[Callable[[], None]]] = []
        self._mark = 0.0
        """The monotonic time until which all work is counted."""
        self._payer: Share | None = None
        """The share that pays for the work since the mark."""
        self._ip_quotas: Final[dict[str, int]] = {}
        """By the name that the quota was set for, an address or a host's."""
        self._ip_rates: dict[str, int] = {}
        """By address."""
        self._ip_default: int | None = None
        self._hosts: Final = HostAddresses(runtime.network, self._apply_ip_rates)
        self._on_ip_rate: Callable[[str | None, int | None], None] | None = None
        config_store.on_entity_change(self._on_entity_change)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener when `is_active` or `limits_time` may have changed."""
        self._listeners.append(listener)

    def on_ip_rate(self, listener: Callable[[str | None, int | None], None]) -> None:
        """Call the listener with each address and its rate of connections, those before too.

        An address of None is the default; a rate of None is none.
        """
        self._on_ip_rate = listener
        listener(None, self._ip_default)
        for address, rate in self._ip_rates.items():
            listener(address, rate)

    def add_namespace(self, prefix: str) -> None:
        """Look up the quotas of the users whose names begin with a prefix as `ClientQuotas` says."""
        self._quotas.namespaces.add(prefix)

    def namespace_of(self, name: str) -> str:
        """Return the prefix of the open namespace that a stored name is of; empty if it is of none."""
        prefix = prefix_of(name)
        return prefix if prefix is not None and prefix in self._quotas.namespaces else ""

    def remove_namespace(self, prefix: str) -> None:
        """Undo `add_namespace`, and forget these users."""
        self._quotas.forget_namespace(prefix)

    # What clients use. Each returns seconds that the client must wait.

    def produced(self, connection: Connection, client_id: str | None, size: int) -> float:
        """Count the bytes of a Produce request."""
        wait = self._used(self._client(connection, client_id).producer, size)
        return self._noted(connection, client_id, "producer_byte_rate", wait) if wait else wait

    def fetched(self, connection: Connection, client_id: str | None, size: int) -> float:
        """Count bytes of a Fetch response."""
        wait = self._used(self._client(connection, client_id).consumer, size)
        return self._noted(connection, client_id, "consumer_byte_rate", wait) if wait else wait

    def fetch_bytes_max(self, connection: Connection, client_id: str | None) -> float:
        """Return the response size in bytes for which the client waits for one sample at most."""
        share = self._client(connection, client_id).consumer
        return inf if share is None else share.limit * self._quotas.window.seconds

    def mutations(self, connection: Connection, client_id: str | None) -> Share | None:
        """Return the client's budget of changes of the cluster; None if it has no bounds."""
        return self._client(connection, client_id).mutation

    # The time that requests take.

    def begin(self, turn_began: float) -> None:
        """Begin to measure a request.

        `turn_began` is the monotonic time at which the connection got its turn: when its bytes were received,
        or when it went on after a wait. Requests that came together are handled one after the other.
        """
        self._mark = max(self._mark, turn_began)

    def elapsed(self) -> float:
        """Return the seconds since `begin` that were not returned before."""
        now = self.clock.monotonic()
        elapsed, self._mark = now - self._mark, now
        return elapsed

    def end(self) -> None:
        """End the turn of a connection: the client of the last request pays for what was sent."""
        payer, self._payer = self._payer, None
        if payer is not None:
            self._pay(payer, self.elapsed())

    def worked(self, connection: Connection, client_id: str | None) -> float:
        """Count the time of the request that is measured; return for how long the client must wait."""
        share = self._payer = self._client(connection, client_id).request
        wait = self._wait(share, self.elapsed())
        return self._noted(connection, client_id, REQUEST_PERCENTAGE, wait) if wait else wait

    def worked_before(self, connection: Connection, client_id: str | None, seconds: float) -> float:
        """Count the time that was measured until a request began to wait, as `worked`."""
        return self._wait(self._client(connection, client_id).request, seconds)

    def sent(self, connection: Connection, client_id: str | None, seconds: float) -> None:
        """Count the time that the response of a request that waited took.

        It is sent while the request is handled that completed it, which does not pay for it.
        """
        self._mark += seconds
        share = self._client(connection, client_id).request
        if share is not None:
            self._pay(share, seconds)

    def _wait(self, share: Share | None, seconds: float) -> float:
        """The client waits for one sample at most, as in Kafka."""
        if share is None:
            return 0.0
        wait = self._pay(share, seconds)
        if wait:
            share.throttled_seconds.record(wait, self.clock.monotonic())
        return min(wait, self._quotas.window.seconds)

    def _pay(self, share: Share, seconds: float) -> float:
        """Charge a client, up to a bound: one slow request must not throttle it for hours."""
        now, debt_max = self.clock.monotonic(), share.limit * self._quotas.window.length
        return share.use(seconds * _PERCENT, now, debt_max)

    # Metrics.

    async def address_of(self, host: str) -> str | None:
        """Return the address of a host that a quota is for; None if it has none."""
        return await resolve(self._network, host)

    def register_metrics(self, metrics: Metrics) -> None:
        """Publish the use of each quota and how long clients were made to wait."""
        from kalda.broker.security.throttle_metrics import register

        register(metrics, self._quotas, self.clock)

    # Quotas.

    def _on_entity_change(self, entity_type: str, name: str, settings: Mapping[str, str]) -> None:
        entity = QuotaEntity.at(entity_type, name)
        if entity is None:
            return
        quotas = quota_values(settings)
        if entity.ip is not None:
            self._set_ip_rate(entity, quotas.get(CONNECTION_CREATION_RATE))
            return
        self._quotas.set(entity, quotas)
        self.is_active = not self._quotas.is_empty
        self.limits_time = self._quotas.has(REQUEST_PERCENTAGE)
        for listener in self._listeners:
            listener()

    def _set_ip_rate(self, entity: QuotaEntity, rate: float | None) -> None:
        name, limit = entity.names[IP], None if rate is None else int(rate)
        if name is None:
            self._ip_default = limit
            if self._on_ip_rate is not None:
                self._on_ip_rate(None, limit)
            return
        if limit is None:
            self._ip_quotas.pop(name, None)
        else:
            self._ip_quotas[name] = limit
        self._apply_ip_rates()

    def _apply_ip_rates(self) -> None:
        before, self._ip_rates = self._ip_rates, self._hosts.by_address(self._ip_quotas)
        if self._on_ip_rate is None:
            return
        for address in before.keys() | self._ip_rates.keys():
            if before.get(address) != self._ip_rates.get(address):
                self._on_ip_rate(address, self._ip_rates.get(address))

    def _client(self, connection: Connection, client_id: str | None) -> Client:
        return self._quotas.client(connection.principal.name, client_id or "", self.clock.monotonic())

    def _noted(self, connection: Connection, client_id: str | None, quota: str, wait: float) -> float:
        self.events.emit_seldom(
            EventKind.CLIENT_THROTTLED,
            {"client": client_id or "", "user": connection.principal.name},
            {"reason": quota, "seconds": round(wait, 3)},
        )
        return wait

    def _used(self, share: Share | None, amount: float) -> float:
        if share is None:
            return 0.0
        now = self.clock.monotonic()
        wait = share.use(amount, now)
        if wait:
            share.throttled_seconds.record(wait, now)
        return wait
