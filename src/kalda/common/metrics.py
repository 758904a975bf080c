"""Defines counters, gauges and histograms whose update on the hot path costs one addition.

An instrument is a plain object that its user increments. It has no lock, because one event loop owns all of
them. `kalda.net.metrics_text` walks the registry and writes the values for Prometheus. Metrics of many
things of one kind, such as partitions, are a `Table`: a function that lists rows, called for each scrape.

Names are derived from Kafka's MBeans by one rule, see `metric_name`; ``docs/reference/metrics.md`` lists
them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from kalda.common.errors import ErrorCode

Labels = tuple[tuple[str, str], ...]
"""Sorted (name, value) pairs."""

LATENCY_BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
"""Upper bounds of the latency buckets: from an append to a fetch that waits its full time."""


BYTES_BOUNDS: Final = (1e3, 1e4, 1e5, 2.5e5, 5e5, 1e6, 2.5e6, 5e6, 1e7, 2.5e7, 5e7, 1e8)
"""Upper bounds of the buckets of the memory of one request."""

_CONVERTING: Final = ("Produce", "Fetch")
"""The APIs whose records may have another message format."""


@lru_cache(maxsize=512)
def metric_name(domain: str, kind: str, name: str) -> str:
    """Turn the parts of a Kafka MBean into a Prometheus name.

    Everything is lower-cased and joined by underscores. ``PerSec`` is dropped from meters, since Prometheus
    derives rates itself, and so is ``-total``; `kalda.net.metrics_text` appends ``_total`` to counters.
    ``Percent`` at the end of a camel-case name is separated, as in the rules that Strimzi ships for the JMX
    exporter.

    ``kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`` -> ``kafka_server_brokertopicmetrics_bytesin``
    """
    stem = name.removesuffix("PerSec").removesuffix("-total")
    if stem.endswith("Percent"):
        stem = f"{stem.removesuffix('Percent')}_percent"
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
        """One count per bound, then one for values above the last bound. Not cumulative."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the observations of both, which have the same bounds."""
        assert self.bounds == other.bounds, f"{self.bounds} and {other.bounds} do not add up"
        both = Histogram(self.bounds)
        both.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        both.sum = self.sum + other.sum
        return both


@dataclass(frozen=True, slots=True)
class DerivedHistogram:
    """A histogram that is computed from others when the metrics are collected."""

    read: Callable[[], Histogram]


Kind = Literal["counter", "gauge", "histogram"]

Instrument = Counter | Histogram | DerivedHistogram | Callable[[], float]


@dataclass(frozen=True, slots=True)
class Family:
    """All instruments of one name."""

    name: str
    kind: Kind
    help: str
    samples: dict[Labels, Instrument]


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of a `Table`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str


Rows = Callable[[], Iterable[tuple[Labels, Sequence[float | None]] | None]]
"""Returns one row for each thing: its labels, and a value for each column; None leaves the value out.

A None in place of a row lets the event loop run other work, for rows that take long to compute.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Metrics of things that come and go and share their labels, such as partitions.

    `rows` is called for each scrape, and other code runs between two of its rows: a generator must iterate
    over copies of what may change.
    """

    columns: tuple[Column, ...]
    rows: Rows


class Metrics:
    """The registry of one broker."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._tables: list[Table] = []
        self._sources: list[Callable[[], Iterable[Family]]] = []

    def counter(self, name: str, text: str, **labels: str) -> Counter:
        """Return the counter of this name and these labels, made at the first call."""
        samples = self._samples(name, "counter", text)
        found = samples.setdefault(_sorted_labels(labels), Counter())
        assert isinstance(found, Counter), f"{name} is kept by a function"
        return found

    def counter_function(self, name: str, text: str, function: Callable[[], float], **labels: str) -> None:
        """Register a counter whose value `function` returns when the metrics are collected.

        It replaces an earlier function of the same name and labels, as `gauge` does.
        """
        self._samples(name, "counter", text)[_sorted_labels(labels)] = function

    def gauge(self, name: str, text: str, function: Callable[[], float], **labels: str) -> None:
        """Register a value that `function` returns when the metrics are collected."""
        self._samples(name, "gauge", text)[_sorted_labels(labels)] = function

    def histogram(
        self, name: str, text: str, bounds: tuple[float, ...] = LATENCY_BOUNDS_MS, **labels: str
    ) -> Histogram:
        """Return the histogram of this name and these labels, made at the first call."""
        samples = self._samples(name, "histogram", text)
        found = samples.setdefault(_sorted_labels(labels), Histogram(bounds))
        assert isinstance(found, Histogram), f"{name} is not a histogram"
        return found

    def histogram_function(self, name: str, text: str, read: Callable[[], Histogram], **labels: str) -> None:
        """Register a histogram that `read` makes from others when the metrics are collected."""
        self._samples(name, "histogram", text)[_sorted_labels(labels)] = DerivedHistogram(read)

    def table(self, rows: Rows, *columns: Column) -> None:
        """Register a function that lists the values of several names when the metrics are collected.

        It is for many things that come and go, such as logs: 4,000 partitions cost nothing between scrapes
        and need no removal.
        """
        for column in columns:
            self._family(column.name, column.kind, column.help)
        self._tables.append(Table(columns, rows))

    def source(self, read: Callable[[], Iterable[Family]]) -> None:
        """Register a function that lists whole families when the metrics are collected.

        It is for metrics whose names are not known before, such as those that clients push.
        """
        self._sources.append(read)

    def remove(self, name: str, **labels: str) -> None:
        """Drop an instrument, as when its topic is deleted; harmless if it is not there."""
        family = self._families.get(name)
        if family is not None:
            family.samples.pop(_sorted_labels(labels), None)

    def families(self) -> Iterator[Family]:
        """Iterate over everything registered, in order of first registration, then over the sources.

        A family of a source whose name is registered is left out: a name must not appear twice.
        """
        yield from tuple(self._families.values())
        for read in self._sources:
            yield from (family for family in tuple(read()) if family.name not in self._families)

    def tables(self) -> tuple[Table, ...]:
        """Return every table; the families of their columns are among `families`."""
        return tuple(self._tables)

    def _samples(self, name: str, kind: Kind, text: str) -> dict[Labels, Instrument]:
        return self._family(name, kind, text).samples

    def _family(self, name: str, kind: Kind, text: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, text, {})
        assert family.kind == kind, f"{name} is a {family.kind}, not a {kind}"
        return family


class RequestMetrics:
    """The metrics of one API, with Kafka's names under ``kafka.network:type=RequestMetrics``.

    Most requests are answered before their handler returns: their time is one observation. One that waits,
    for followers or for records to come, has a part before the wait and the wait itself. Kafka's three
    histograms (total, local, remote) are computed from these for each scrape.
    """

    __slots__ = (
        "_conversion_bytes",
        "_conversion_ms",
        "_errors",
        "_metrics",
        "_request",
        "_waited_ms",
        "at_once_ms",
        "before_wait_ms",
        "wait_ms",
    )

    def __init__(self, metrics: Metrics, request: str) -> None:
        self._metrics: Final = metrics
        self._request: Final = request
        self._errors: dict[int, Counter] = {}
        self.at_once_ms: Final = Histogram()
        """Requests that did not wait; the hot path observes them here."""
        self.before_wait_ms: Final = Histogram()
        self.wait_ms: Final = Histogram()
        self._waited_ms: Final = Histogram()
        """Requests that waited, as a whole."""
        self._conversion_ms: Final = Histogram()
        self._conversion_bytes: Final = Histogram(BYTES_BOUNDS)
        for name, text, read in (
            *self._conversions(),
            (
                "TotalTimeMs",
                "Milliseconds from a request's last byte to its answer; the count is that of requests.",
                lambda: self.at_once_ms + self._waited_ms,
            ),
            (
                "LocalTimeMs",
                "Of these, the milliseconds until the request was handled or began to wait.",
                self._local_ms,
            ),
            (
                "RemoteTimeMs",
                "Of these, the milliseconds that it waited for others, for records or for time to pass.",
                self._remote_ms,
            ),
        ):
            metrics.histogram_function(
                metric_name("kafka.network", "RequestMetrics", name), text, read, request=request
            )

    def _conversions(self) -> Iterator[tuple[str, str, Callable[[], Histogram]]]:
        if self._request in _CONVERTING:
            text = "Milliseconds that the conversion of a partition's records in one request took."
            yield "MessageConversionsTimeMs", text, lambda: self._conversion_ms
            text = "Bytes of memory that the conversion of a partition's records in one request took."
            yield "TemporaryMemoryBytes", text, lambda: self._conversion_bytes

    def observe_conversion(self, seconds: float, memory_bytes: int) -> None:
        """Count a conversion of one partition's records to another format; Produce and Fetch only."""
        self._conversion_ms.observe(seconds * 1000)
        self._conversion_bytes.observe(memory_bytes)

    def observe_wait(self, received_at: float, parked_at: float, now: float) -> None:
        """Count a request that waited; the times are seconds of one clock."""
        self._waited_ms.observe((now - received_at) * 1000)
        self.before_wait_ms.observe((parked_at - received_at) * 1000)
        self.wait_ms.observe((now - parked_at) * 1000)

    def _local_ms(self) -> Histogram:
        """Return the times before waits; empty, and so left out, where no request ever waited."""
        return self.at_once_ms + self.before_wait_ms if self.wait_ms.count else self.wait_ms

    def _remote_ms(self) -> Histogram:
        """Return the waits, which are 0 for requests that did not wait; empty as `_local_ms`."""
        zeros = Histogram()
        zeros.counts[0] = self.at_once_ms.count if self.wait_ms.count else 0
        return zeros + self.wait_ms

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
