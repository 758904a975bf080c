"""Turns a client's metrics into the data points of a push: which ones, by which name, as which kind of sum.

Names follow Java's client: ``producer-metrics`` and ``record-send-rate`` give
``org.apache.kafka.producer.record.send.rate``.

With delta temporality a total's last value is remembered only when its points are pushed, so that nothing is
counted twice or left out between two pushes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.metrics.registry import ClientMetrics, Metric, MetricKind, MetricName
from kalda.protocol.otlp import DataPoint

PREFIX: Final = "org.apache.kafka."
_EXCLUDED_TAG: Final = "client-id"
"""The broker knows the client id of the connection."""
ALL_METRICS: Final = frozenset({"", "*"})


def telemetry_name(name: MetricName) -> str:
    """Return the name under which a metric is pushed."""
    group = name.group.replace("-", ".").replace(".metrics", "")
    return f"{PREFIX}{group}.{name.name.replace('-', '.')}"


def selector(requested: Sequence[str]) -> Callable[[str], bool] | None:
    """Return which names a subscription asks for; None if it asks for nothing."""
    if not requested:
        return None
    if len(requested) == 1 and requested[0] in ALL_METRICS:
        return lambda _: True
    prefixes = tuple(requested)
    return lambda name: name.startswith(prefixes)


@dataclass(frozen=True, slots=True)
class Collected:
    """The points of one push, and the totals that they are up to."""

    points: list[DataPoint]
    totals: dict[MetricName, tuple[float, int]]


class TelemetryCollector:
    """Collects the values of a client's metrics, and keeps the totals pushed before."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics: Final = metrics
        self._started_ns: Final = metrics.clock.time_ms() * 1_000_000
        self._pushed: Final[dict[MetricName, tuple[float, int]]] = {}
        """With delta temporality, each total's last value and when it was pushed."""

    def reset(self) -> None:
        """Forget the pushed totals, because the subscription changed its temporality."""
        self._pushed.clear()

    def collect(
        self, wanted: Callable[[str], bool], *, is_delta: bool, only_untagged: bool = False
    ) -> Collected:
        """Return the points of the metrics that `wanted` selects; those without a value are left out.

        With `only_untagged`, metrics of single topics, partitions and brokers are left out, too.
        """
        now = self._metrics.now()
        time_ns = self._metrics.clock.time_ms() * 1_000_000
        points: list[DataPoint] = []
        totals: dict[MetricName, tuple[float, int]] = {}
        for metric in self._metrics.all():
            name = telemetry_name(metric.name)
            tags = tuple(
                (tag.replace("-", "_"), value) for tag, value in metric.name.tags if tag != _EXCLUDED_TAG
            )
            if not wanted(name) or (only_untagged and tags):
                continue
            value = metric.measure(now)
            if math.isnan(value):
                continue
            points.append(self._point(metric, name, tags, value, time_ns, is_delta))
            if is_delta and metric.kind is MetricKind.SUM:
                totals[metric.name] = (value, time_ns)
        return Collected(points, totals)

    def pushed(self, collected: Collected) -> None:
        """Count the totals of the next push from these on."""
        self._pushed.update(collected.totals)

    def _point(
        self,
        metric: Metric,
        name: str,
        tags: tuple[tuple[str, str], ...],
        value: float,
        time_ns: int,
        is_delta: bool,
    ) -> DataPoint:
        if metric.kind is MetricKind.GAUGE:
            return DataPoint(name, tags, value, time_ns)
        if not is_delta:
            return DataPoint(name, tags, value, time_ns, self._started_ns)
        before, since_ns = self._pushed.get(metric.name, (0.0, self._started_ns))
        return DataPoint(name, tags, value - before, time_ns, since_ns, is_delta=True)
