"""Holds the metrics of one client by Kafka's names and computes their values when they are asked for.

A metric costs nothing until it is read. Names, groups and tags are those of Java's clients, so that
dashboards carry over; the list of tags always begins with the client's own (``client-id``).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from kalda.clients.metrics.sensor import SampleConfig, Sensor
from kalda.common.public import public
from kalda.runtime.clock import Clock
from kalda.runtime.system.clock import SystemClock

Tags = tuple[tuple[str, str], ...]
"""Pairs of name and value, sorted by name."""

Measure = Callable[[float], float]
"""Returns a value at a monotonic second."""


@public
class MetricName(NamedTuple):
    """The key of a metric; equal to the plain tuple ``(group, name, tags)``."""

    group: str
    name: str
    tags: Tags


class MetricKind(Enum):
    """How a metric's values relate to each other."""

    GAUGE = auto()
    """Each value stands for itself."""
    SUM = auto()
    """A total that only grows."""


class Metric(NamedTuple):
    """One registered metric; a client makes some hundred, for which a tuple takes the least time."""

    name: MetricName
    description: str
    kind: MetricKind
    measure: Measure


@dataclass(frozen=True, slots=True)
class TextMetric:
    """A registered metric whose value is text that does not change, e.g. a version."""

    name: MetricName
    description: str
    text: str


def tags_of(tags: Mapping[str, str]) -> Tags:
    """Return tags in the form that names have."""
    return tuple(sorted(tags.items()))


@public
class MetricValues(dict[MetricName, float]):
    """The values of all metrics at one moment, by `MetricName`; `texts` has those that are not numbers."""

    def __init__(
        self,
        values: Mapping[MetricName, float],
        client_tags: Mapping[str, str],
        texts: Mapping[MetricName, str] | None = None,
    ) -> None:
        super().__init__(values)
        self.texts: Final = dict(texts or {})
        """The metrics whose value is text: the client's version, ``("app-info", "version", tags)``."""
        self._client_tags: Final = dict(client_tags)

    def value(self, group: str, name: str, **tags: str) -> float:
        """Return one value; `tags` are those besides the client's own, with underscores for dashes.

        For example ``values.value("producer-topic-metrics", "byte-total", topic="orders")``.

        Raises:
            KeyError: there is no such metric.
        """
        given = {tag.replace("_", "-"): value for tag, value in tags.items()}
        return self[MetricName(group, name, tags_of(self._client_tags | given))]

    def text(self, group: str, name: str) -> str:
        """Return a value that is text, e.g. ``values.text("app-info", "version")``.

        Raises:
            KeyError: there is no such metric.
        """
        return self.texts[MetricName(group, name, tags_of(self._client_tags))]


class ClientMetrics:
    """The metrics of one client. Any thread may read, record and register."""

    def __init__(
        self,
        tags: Mapping[str, str],
        samples: SampleConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock: Final[Clock] = SystemClock() if clock is None else clock
        self.now: Final = self.clock.monotonic
        """Returns the time for `Sensor.record`, in monotonic seconds; a request asks a dozen times."""
        self.tags: Final = dict(tags)
        self._own_tags: Final = tags_of(tags)
        self._samples: Final = SampleConfig() if samples is None else samples
        self._metrics: Final[dict[MetricName, Metric]] = {}
        self._texts: Final[dict[MetricName, TextMetric]] = {}
        # Reentrant for signal handlers; nothing below iterates over a dictionary that one may change.
        self._lock: Final = threading.RLock()

    def sensor(self) -> Sensor:
        """Return a sensor with this client's windows."""
        return Sensor(self._samples)

    def add(
        self,
        group: str,
        name: str,
        description: str,
        measure: Measure,
        *,
        kind: MetricKind = MetricKind.GAUGE,
        tags: Mapping[str, str] | None = None,
    ) -> MetricName:
        """Register a metric; one with the same name is replaced."""
        key = MetricName(group, name, tags_of({**self.tags, **tags}) if tags else self._own_tags)
        with self._lock:
            self._metrics[key] = Metric(key, description, kind, measure)
        return key

    def add_text(self, group: str, name: str, description: str, text: str) -> None:
        """Register a metric whose value is text; telemetry leaves it out."""
        key = MetricName(group, name, self._own_tags)
        with self._lock:
            self._texts[key] = TextMetric(key, description, text)

    def add_total(
        self,
        group: str,
        name: str,
        description: str,
        measure: Measure,
        tags: Mapping[str, str] | None = None,
    ) -> MetricName:
        """Register a metric that only grows."""
        return self.add(group, name, description, measure, kind=MetricKind.SUM, tags=tags)

    def add_meter(
        self,
        group: str,
        base: str,
        what: str,
        sensor: Sensor,
        *,
        counts: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Register ``<base>-rate`` and ``<base>-total``: of the values, or with `counts` of their number."""
        rate, total = (sensor.count_rate, sensor.count_total) if counts else (sensor.rate, sensor.sum_total)
        self.add(group, f"{base}-rate", f"The number of {what} per second.", rate, tags=tags)
        self.add_total(group, f"{base}-total", f"The total number of {what}.", total, tags)

    def add_average_and_max(
        self, group: str, base: str, what: str, sensor: Sensor, tags: Mapping[str, str] | None = None
    ) -> None:
        """Register ``<base>-avg`` and ``<base>-max``."""
        self.add(group, f"{base}-avg", f"The average {what}.", sensor.average, tags=tags)
        self.add(group, f"{base}-max", f"The maximum {what}.", sensor.largest, tags=tags)

    def remove(self, tags: Mapping[str, str]) -> None:
        """Remove the metrics that have all of these tags besides the client's own."""
        wanted = set(tags.items())
        with self._lock:
            for key in [key for key in list(self._metrics) if wanted <= set(key.tags)]:
                self._metrics.pop(key, None)

    def count(self) -> int:
        """Return how many metrics are registered, with those that are text."""
        with self._lock:
            return len(self._metrics) + len(self._texts)

    def texts(self) -> list[TextMetric]:
        """Return the registered metrics that are text."""
        with self._lock:
            return list(self._texts.values())

    def all(self) -> list[Metric]:
        """Return the registered metrics that are numbers."""
        with self._lock:
            return list(self._metrics.values())

    def values(self) -> MetricValues:
        """Return the present value of each metric; NaN where nothing was recorded in the period."""
        now = self.now()
        return MetricValues(
            {metric.name: metric.measure(now) for metric in self.all()},
            self.tags,
            {metric.name: metric.text for metric in self.texts()},
        )
