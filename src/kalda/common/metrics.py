"""Metrics: counters, gauges and histograms that cost an addition on the hot path.

An instrument is a plain object whose user adds to it; nothing is locked, as one event loop owns them all.
Whoever wants the figures walks the registry: `kalda.net.metrics_http` does for Prometheus.

Names come from Kafka's MBeans by one rule, see `metric_name`; ``docs/reference/metrics.md`` lists them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kalda.common.errors import ErrorCode

Labels = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs."""

LATENCY_BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
"""Upper bounds of the latency buckets: from an append to a fetch that waits its full time."""


def metric_name(domain: str, kind: str, name: str) -> str:
    """Turn the parts of a Kafka MBean into a Prometheus name.

    Everything is lower-cased and joined by underscores. ``PerSec`` is dropped from meters, since Prometheus
    derives rates itself, and so is ``-total``; whoever renders a counter appends ``_total``.

    ``kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`` -> ``kafka_server_brokertopicmetrics_bytesin``
    """
    stem = name.removesuffix("PerSec").removesuffix("-total")
    return "_".join((domain, kind, stem)).replace(".", "_").replace("-", "_").lower()


class Counter:
    """A number that only grows. The hot path adds to `value` directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """Counts of observations by upper bound, with their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_MS) -> None:
        self.bounds: Final = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One count per bound, then one for what is above the last. Not cumulative."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.counts)


Kind = Literal["counter", "gauge", "histogram"]
Listing = Callable[[], Iterable[tuple[Mapping[str, str], float]]]
"""Returns (labels, value) pairs, for what comes and goes, such as partitions."""

Instrument = Counter | Histogram | Callable[[], float]


@dataclass(frozen=True, slots=True)
class Family:
    """All instruments of one name."""

    name: str
    kind: Kind
    help: str
    samples: dict[Labels, Instrument]
    listings: "list[Listing]"


class Metrics:
    """The registry of one broker."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(self, name: str, text: str, **labels: str) -> Counter:
        """Return the counter of this name and these labels, made at the first call."""
        samples = self._samples(name, "counter", text)
        found = samples.setdefault(_sorted_labels(labels), Counter())
        assert isinstance(found, Counter), f"{name} is kept by a function"
        return found

    def counter_function(self, name: str, text: str, function: Callable[[], float], **labels: str) -> None:
        """Register a count that somebody else keeps; `function` reads it when the figures are collected.

        Like that of a gauge it replaces an earlier one of the same name and labels.
        """
        self._samples(name, "counter", text)[_sorted_labels(labels)] = function

    def gauge(self, name: str, text: str, function: Callable[[], float], **labels: str) -> None:
        """Register a value that is read when the figures are collected."""
        self._samples(name, "gauge", text)[_sorted_labels(labels)] = function

    def histogram(
        self, name: str, text: str, bounds: tuple[float, ...] = LATENCY_BOUNDS_MS, **labels: str
    ) -> Histogram:
        """Return the histogram of this name and these labels, made at the first call."""
        samples = self._samples(name, "histogram", text)
        found = samples.setdefault(_sorted_labels(labels), Histogram(bounds))
        assert isinstance(found, Histogram), f"{name} is not a histogram"
        return found

    def list_values(self, name: str, kind: Literal["counter", "gauge"], text: str, listing: Listing) -> None:
        """Register a function that lists all values of a name when the figures are collected.

        For what is many and changes, such as the sizes of logs: 4,000 partitions cost nothing between scrapes
        and need no removal.
        """
        self._family(name, kind, text).listings.append(listing)

    def remove(self, name: str, **labels: str) -> None:
        """Drop an instrument, as when its topic is deleted; harmless if it is not there."""
        family = self._families.get(name)
        if family is not None:
            family.samples.pop(_sorted_labels(labels), None)

    def families(self) -> Iterator[Family]:
        """Iterate over everything registered, in order of first registration."""
        yield from tuple(self._families.values())

    def _samples(self, name: str, kind: Kind, text: str) -> dict[Labels, Instrument]:
        return self._family(name, kind, text).samples

    def _family(self, name: str, kind: Kind, text: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, text, {}, [])
        assert family.kind == kind, f"{name} is a {family.kind}, not a {kind}"
        return family


class RequestMetrics:
    """What is counted per API, by Kafka's names under ``kafka.network:type=RequestMetrics``."""

    __slots__ = ("_errors", "_metrics", "_request", "total_time_ms")

    def __init__(self, metrics: Metrics, request: str) -> None:
        self._metrics: Final = metrics
        self._request: Final = request
        self._errors: dict[int, Counter] = {}
        self.total_time_ms: Final = metrics.histogram(
            metric_name("kafka.network", "RequestMetrics", "TotalTimeMs"),
            "Milliseconds from a request's last byte to its answer; the count is that of requests.",
            request=request,
        )

    def count_error(self, code: int) -> None:
        """Count one error code in a response."""
        counter = self._errors.get(code)
        if counter is None:
            try:
                error = ErrorCode(code).name
            except ValueError:
                error = str(code)
            counter = self._errors[code] = self._metrics.counter(
                metric_name("kafka.network", "RequestMetrics", "ErrorsPerSec"),
                "Error codes in responses.",
                request=self._request,
                error=error,
            )
        counter.value += 1


def _sorted_labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
