"""Declares the metrics of connections and requests, which all clients have (``producer-metrics``, ...).

`NodeConnection` records. The figures of the event loop's thread are its processor time, read when asked for:
asyncio does not say how long a selector waited.
"""

import threading
from collections.abc import Callable
from typing import Final

from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.sensor import Sensor
from kalda.runtime.system.clock import thread_clock
from kalda.runtime.system.event_loop import threads_are_greenlets


class NetworkMetrics:
    """What is recorded for all connections of one client; `kind` is ``producer``, ``consumer``, ..."""

    def __init__(self, metrics: ClientMetrics, kind: str) -> None:
        self.registry: Final = metrics
        self.connection_count = 0
        self.created: Final = metrics.sensor()
        self.closed: Final = metrics.sensor()
        self.sent: Final = metrics.sensor()
        self.received: Final = metrics.sensor()
        self._node_group: Final = f"{kind}-node-metrics"
        self._nodes: Final[dict[int, ConnectionMetrics]] = {}
        group = f"{kind}-metrics"
        metrics.add(
            group,
            "connection-count",
            "The current number of active connections.",
            lambda _: self.connection_count,
        )
        metrics.add_meter(group, "connection-creation", "new connections established", self.created)
        metrics.add_meter(group, "connection-close", "connections closed", self.closed)
        _add_requests(metrics, group, self.sent, {})
        _add_responses(metrics, group, self.received, {})
        metrics.add(
            group,
            "network-io-rate",
            "The number of network operations (reads or writes) on all connections per second.",
            lambda now: self.sent.count_rate(now) + self.received.count_rate(now),
        )
        metrics.add_total(
            group,
            "network-io-total",
            "The total number of network operations (reads or writes) on all connections.",
            lambda _: self.sent.total_count + self.received.total_count,
        )

    def node(self, node_id: int) -> "ConnectionMetrics":
        """Return the sensors of one node, which the first call registers."""
        found = self._nodes.get(node_id)
        if found is None:
            found = self._nodes[node_id] = ConnectionMetrics(self, self._node_group, node_id)
        return found


class ConnectionMetrics:
    """What is recorded for one node: ``<kind>-node-metrics`` with the tag ``node-id``, and for all."""

    __slots__ = ("_all", "_latency", "_received", "_sent")

    def __init__(self, everything: NetworkMetrics, group: str, node_id: int) -> None:
        metrics = everything.registry
        tags = {"node-id": f"node-{node_id}"}
        self._all: Final = everything
        self._sent: Final = metrics.sensor()
        self._received: Final = metrics.sensor()
        self._latency: Final = metrics.sensor()
        _add_requests(metrics, group, self._sent, tags)
        _add_responses(metrics, group, self._received, tags)
        metrics.add_average_and_max(group, "request-latency", "request latency in ms", self._latency, tags)

    def connection_created(self) -> None:
        """Count a connection that was opened."""
        self._all.connection_count += 1
        self._all.created.record(1, self._all.registry.now())

    def connection_closed(self) -> None:
        """Count a connection that was closed, by either side."""
        self._all.connection_count -= 1
        self._all.closed.record(1, self._all.registry.now())

    def request_sent(self, request_bytes: int) -> float:
        """Record a request that was handed to the socket; return the time, for `response_received`."""
        now = self._all.registry.now()
        self._all.sent.record(request_bytes, now)
        self._sent.record(request_bytes, now)
        return now

    def response_received(self, response_bytes: int, sent_at: float) -> None:
        """Record the response to a request that was sent at `sent_at`."""
        now = self._all.registry.now()
        self._all.received.record(response_bytes, now)
        self._received.record(response_bytes, now)
        self._latency.record((now - sent_at) * 1000, now)


def add_loop_thread(metrics: ClientMetrics, group: str, thread_id: int | None = None) -> None:
    """Register how busy the thread of the event loop is, by default the calling one."""
    if threads_are_greenlets():
        # They are none of the system's, which has no clock for them.
        return
    processor_seconds = thread_clock(threading.get_ident() if thread_id is None else thread_id)
    if processor_seconds is None:
        return
    started = metrics.now()
    busy_at_start = processor_seconds()

    def busy(_: float) -> float:
        try:
            return processor_seconds() - busy_at_start
        except OSError:
            return 0.0  # the thread has ended

    def waited(now: float) -> float:
        return max(now - started - busy(now), 0.0)

    _add_share(metrics, group, "io", "doing I/O", busy, started)
    _add_share(metrics, group, "io-wait", "waiting", waited, started)


def _add_share(
    metrics: ClientMetrics,
    group: str,
    base: str,
    doing: str,
    seconds: Callable[[float], float],
    started: float,
) -> None:
    """Register the ratio since the last reading that is a window old, and the total."""
    recent = _Recent(started)

    def ratio(now: float) -> float:
        return recent.ratio(seconds(now), now)

    metrics.add(group, f"{base}-ratio", f"The fraction of time the I/O thread spent {doing}.", ratio)
    metrics.add_total(
        group,
        f"{base}-time-ns-total",
        f"The total time the I/O thread spent {doing}, in nanoseconds.",
        lambda now: seconds(now) * 1e9,
    )


class _Recent:
    """The growth of a number of seconds since a reading that is at least `WINDOW_S` old."""

    WINDOW_S: Final = 30.0

    def __init__(self, now: float) -> None:
        self._older = self._newer = (0.0, now)

    def ratio(self, value: float, now: float) -> float:
        if now - self._newer[1] >= self.WINDOW_S:
            self._older, self._newer = self._newer, (value, now)
        value_then, then = self._older
        return min(max((value - value_then) / (now - then), 0.0), 1.0) if now > then else 0.0


def _add_requests(metrics: ClientMetrics, group: str, sent: Sensor, tags: dict[str, str]) -> None:
    metrics.add_meter(group, "request", "requests sent", sent, counts=True, tags=tags)
    metrics.add_meter(group, "outgoing-byte", "outgoing bytes", sent, tags=tags)
    metrics.add_average_and_max(group, "request-size", "size of requests sent, in bytes", sent, tags)


def _add_responses(metrics: ClientMetrics, group: str, received: Sensor, tags: dict[str, str]) -> None:
    metrics.add_meter(group, "response", "responses received", received, counts=True, tags=tags)
    metrics.add_meter(group, "incoming-byte", "incoming bytes", received, tags=tags)
